"""Reductions of every kind, along every position of a dimension; running ones; windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.breadth.row import array, row
from benchmarks.program import Workload

_KINDS: dict[str, Callable[..., Any]] = {
    "sum": jnp.sum,
    "max": jnp.max,
    "min": jnp.min,
    "mean": jnp.mean,
    "prod": jnp.prod,
    "any": lambda x, axis: jnp.any(x > 1, axis=axis),
    "argmax": jnp.argmax,
    "argmin": jnp.argmin,
    "logsumexp": jax.scipy.special.logsumexp,
    "var": jnp.var,
    "std": jnp.std,
    "norm": lambda x, axis: jnp.sqrt(jnp.sum(x * x, axis=axis)),
    "softmax": jax.nn.softmax,
    "log_softmax": jax.nn.log_softmax,
    "count_nonzero": jnp.count_nonzero,
    "ptp": jnp.ptp,
    "median": jnp.median,
}
_ONE_AXIS = ("argmax", "argmin", "softmax", "log_softmax", "median")
_SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "tiny": ((64,), (7, 9), (3, 4, 5)),
    "cached": ((32768,), (32, 1024), (1024, 32), (181, 179), (32, 3, 341), (8, 16, 16, 16)),
    "large": ((1 << 22,), (2048, 2048), (8, 524288), (524288, 8), (128, 255, 127), (64, 32, 32, 64)),
}
_OF_TYPES = ("sum", "max", "argmax", "mean", "logsumexp")
_RUNNING: dict[str, Callable[..., Any]] = {
    "cumsum": jnp.cumsum,
    "cumprod": jnp.cumprod,
    "cummax": lambda x, axis: lax.cummax(x, axis=axis),
    "cummin": lambda x, axis: lax.cummin(x, axis=axis),
    "cumlogsumexp": lambda x, axis: lax.cumlogsumexp(x, axis=axis),
    "cumsum_reverse": lambda x, axis: lax.cumsum(x, axis=axis, reverse=True),
    "diff": lambda x, axis: jnp.diff(x, axis=axis),
    "associative_scan": lambda x, axis: lax.associative_scan(jnp.multiply, x, axis=axis),
}


def _axes(rank: int) -> Iterator[int | tuple[int, ...] | None]:
    if rank > 1:
        yield None
    yield from range(rank)
    if rank > 2:
        yield from ((0, rank - 1), (0, 1), (rank - 2, rank - 1))


def _named(name: str, kind: str, shape: tuple[int, ...], axis: Any, size: str) -> str:
    return f"{name} {kind} {'x'.join(map(str, shape))} axis={str(axis).replace(' ', '')} {size}"


def rows() -> Iterator[Workload]:
    """F32 with everything; other types with the most used ones."""
    for size, shapes in _SHAPES.items():
        for shape in shapes:
            for axis in _axes(len(shape)):
                for name, function in _KINDS.items():
                    if (name in _ONE_AXIS and not isinstance(axis, int)) or (name == "median" and size == "large"):
                        continue
                    kinds = ("f32", "bf16", "f16", "f64", "s32", "s8") if name in _OF_TYPES else ("f32",)
                    for kind in kinds:
                        if kind.startswith("s") and name in ("mean", "logsumexp"):
                            continue
                        # Products stay within range; the sum of many halves does not have their precision.
                        low = 0.99 if name == "prod" else -2.9
                        made = array(kind, *shape, low=low, high=1.01 if name == "prod" else 3)
                        yield row(
                            "reductions",
                            _named(name, kind, shape, axis, size),
                            lambda x, f=function, a=axis: f(x, axis=a),
                            made,
                            tolerance=200,
                        )
        yield from _running(size, shapes)
        yield from _windows(size)


def _running(size: str, shapes: tuple[tuple[int, ...], ...]) -> Iterator[Workload]:
    for shape in shapes[:5]:
        for axis in range(len(shape)):
            for name, function in _RUNNING.items():
                for kind in ("f32", "f64", "s32", "bf16") if name in ("cumsum", "cummax") else ("f32",):
                    made = array(kind, *shape, low=0.99 if "prod" in name or "assoc" in name else 0, high=1.01)
                    yield row(
                        "reductions",
                        _named(name, kind, shape, axis, size),
                        lambda x, f=function, a=axis: f(x, axis=a),
                        made,
                        tolerance=1000,
                    )


def _windows(size: str) -> Iterator[Workload]:
    side = {"tiny": 8, "cached": 32, "large": 256}[size]
    for name, op, start in (("max", lax.max, -np.inf), ("sum", lax.add, 0.0)):
        for window, stride in ((2, 2), (3, 1), (3, 2)):
            for last in (True, False):
                dims = (1, window, window, 1) if last else (1, 1, window, window)
                strides = (1, stride, stride, 1) if last else (1, 1, stride, stride)
                shape = (2, side, side, 16) if last else (2, 16, side, side)

                def pooled(x: Any, op: Any = op, start: Any = start, dims: Any = dims, strides: Any = strides) -> Any:
                    return lax.reduce_window(x, np.float32(start), op, dims, strides, "SAME")

                place = "last" if last else "first"
                yield row(
                    "reductions", f"pool_{name} f32 {window}/{stride} {place} {size}", pooled, array("f32", *shape)
                )
                if name == "max":
                    yield row(
                        "reductions",
                        f"pool_{name}_gradient f32 {window}/{stride} {place} {size}",
                        jax.grad(lambda x, f=pooled: jnp.sum(f(x) ** 2)),
                        array("f32", *shape),
                    )
