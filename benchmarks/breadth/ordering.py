"""Sorts of all types and along all dimensions, with several operands, and what is found by sorting."""

from __future__ import annotations

from collections.abc import Iterator

import jax.numpy as jnp
from jax import lax

from benchmarks.breadth.row import array, row
from benchmarks.program import Workload

_SHAPES = {
    "tiny": ((64,), (8, 9)),
    "cached": ((32768,), (32, 1000), (1000, 32)),
    "large": ((1 << 20,), (1024, 1024), (16384, 64), (64, 16384)),
}


def rows() -> Iterator[Workload]:
    """Numbers are drawn from a wide range, so that few are equal."""
    for size, shapes in _SHAPES.items():
        for shape in shapes:
            text = "x".join(map(str, shape))
            for axis in range(len(shape)):
                for kind in ("f32", "f64", "bf16", "f16", "s32", "s64", "s8", "u8", "u32"):
                    wide = 100.0 if kind in ("s8", "u8") else 30000.0
                    made = array(kind, *shape, low=-wide, high=wide)
                    place = f"{kind} {text} axis={axis} {size}"
                    yield row("ordering", f"sort {place}", lambda x, a=axis: jnp.sort(x, axis=a), made)
                    if kind in ("f32", "s32", "f64", "bf16"):
                        yield row("ordering", f"argsort {place}", lambda x, a=axis: jnp.argsort(x, axis=a), made)
                place = f"f32 {text} axis={axis} {size}"
                floats = array("f32", *shape, low=-1e4, high=1e4)
                yield row(
                    "ordering",
                    f"sort_descending {place}",
                    lambda x, a=axis: jnp.sort(x, axis=a, descending=True),
                    floats,
                )
                yield row(
                    "ordering",
                    f"sort_by_two_keys {place}",
                    lambda k, x, y, a=axis: lax.sort((k, x, y), dimension=a, num_keys=2),
                    array("s32", *shape, low=0, high=50),
                    floats,
                    floats,
                )
                yield row(
                    "ordering",
                    f"sort_with_values {place}",
                    lambda k, x, y, a=axis: lax.sort((k, x, y), dimension=a, num_keys=1),
                    floats,
                    floats,
                    array("s32", *shape),
                )
            for k in (1, 8, 50):
                for kind in ("f32", "bf16", "s32"):
                    made = array(kind, *shape, low=-3e4, high=3e4)
                    if k <= shape[-1]:
                        name = f"top_k k={k} {kind} {text} {size}"
                        yield row("ordering", name, lambda x, k=k: lax.top_k(x, k), made)
            made = array("f32", *shape, low=-1e4, high=1e4)
            yield row("ordering", f"unique f32 {text} {size}", lambda x: jnp.unique(x, size=16), made)
            yield row("ordering", f"percentile f32 {text} {size}", lambda x: jnp.percentile(x, 30.0, axis=-1), made)
            yield row(
                "ordering",
                f"searchsorted f32 {text} {size}",
                lambda x: jnp.searchsorted(jnp.arange(1000.0) * 20 - 1e4, x),
                made,
            )
            yield row("ordering", f"histogram f32 {text} {size}", lambda x: jnp.histogram(x, bins=30)[0], made)
