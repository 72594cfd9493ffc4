"""What an exported example is: a JAX function, the shapes of its arguments, and how it is lowered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class Program:
    """One program to export under the name of its function."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    x64: bool
    platform: str


PROGRAMS: dict[str, Program] = {}


def program(*arguments: Any, name: str = "", x64: bool = False, platform: str = "cpu") -> Callable[..., Any]:
    """Enter a function in PROGRAMS; ``arguments`` are shapes, or trees of them."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[name or function.__name__] = Program(function, arguments, x64, platform)
        return function

    return enter


def f32(*dimensions: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dimensions, jnp.float32)


def bf16(*dimensions: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dimensions, jnp.bfloat16)


def s32(*dimensions: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dimensions, jnp.int32)


def u32(*dimensions: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dimensions, jnp.uint32)


def s8(*dimensions: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dimensions, jnp.int8)


def f64(*dimensions: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dimensions, "float64")


def c128(*dimensions: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dimensions, "complex128")


def u64(*dimensions: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dimensions, "uint64")
