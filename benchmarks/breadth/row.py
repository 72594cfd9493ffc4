"""How the families write their rows: a name, a JAX function, and arguments that are drawn when the row is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import ml_dtypes
import numpy as np

from benchmarks.program import Array, Program, Workload

# Makes an argument of a random generator.
Draw = Callable[[np.random.Generator], Array]

DTYPES: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "f64": np.float64,
        "f32": np.float32,
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "c64": np.complex64,
        "c128": np.complex128,
        "s64": np.int64,
        "s32": np.int32,
        "s16": np.int16,
        "s8": np.int8,
        "u32": np.uint32,
        "u8": np.uint8,
        "pred": np.bool_,
    }
)
FLOATS: Final = ("f64", "f32", "f16", "bf16")
COMPLEX: Final = ("c64", "c128")
INTEGERS: Final = ("s64", "s32", "s16", "s8", "u32", "u8")
# Numbers of elements of an array: so few that the overhead of a call dominates, in the second-level cache, and beyond
# all caches.
SIZES: Final[Mapping[str, int]] = MappingProxyType({"tiny": 64, "cached": 1 << 15, "large": 1 << 22})


def array(kind: str, *shape: int, low: float = -3.0, high: float = 3.0) -> Draw:
    """Uniform numbers of a type between ``low`` and ``high``; of integers the whole numbers there."""

    def draw(rng: np.random.Generator) -> Array:
        dtype = np.dtype(DTYPES[kind])
        if kind == "pred":
            return rng.random(shape) < 0.5
        if kind in INTEGERS:
            least = max(low, 0) if kind.startswith("u") else low
            return rng.integers(int(least), int(high) + 1, shape).astype(dtype)
        numbers = rng.random(shape, dtype=np.float32) * (high - low) + low
        if kind in COMPLEX:
            return (numbers + 1j * (rng.random(shape, dtype=np.float32) * (high - low) + low)).astype(dtype)
        return numbers.astype(dtype)

    return draw


def row(
    family: str,
    name: str,
    function: Callable[..., Any],
    *arguments: Draw,
    x64: bool | None = None,
    tolerance: float = 10.0,
    differing: float = 0.0,
    portable: bool = False,
) -> Workload:
    """One program. x64: whether JAX has 64-bit types; by default where the name has one of them."""
    if x64 is None:
        x64 = any(kind in name.split() for kind in ("f64", "s64", "c128"))

    def make(rng: np.random.Generator) -> Program:
        return Program([draw(rng) for draw in arguments], jax=function, tolerance=tolerance, differing=differing)

    return Workload(name, family, make, {}, {}, x64=x64, portable=portable)
