"""Gathers, scatters, segments, one-hot arrays, dynamic slices and updates."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.breadth.row import Draw, array, row
from benchmarks.program import Workload

# (rows of the table, columns, indices)
_SHAPES = {
    "tiny": (16, 4, 8),
    "cached": (1000, 32, 1000),
    "wide": (2000, 512, 4000),
    "large": (1 << 20, 1, 1 << 20),
    "rows": (100_000, 40, 100_000),
}


def _indices(count: int, below: int, *, is_sorted: bool = False) -> Draw:
    def draw(rng: np.random.Generator) -> np.ndarray:
        drawn = rng.integers(0, below, count).astype(np.int32)
        return np.sort(drawn) if is_sorted else drawn

    return draw


def _permutation(count: int) -> Draw:
    return lambda rng: rng.permutation(count).astype(np.int32)


def rows() -> Iterator[Workload]:
    """Each on tables of several shapes."""
    for size, (height, width, count) in _SHAPES.items():
        shape = (height,) if width == 1 else (height, width)
        given = (count,) if width == 1 else (count, width)
        at = _indices(count, height)
        for kind in ("f32", "bf16", "f64", "s32", "s8"):
            table, values = array(kind, *shape), array(kind, *given)
            place = f"{kind} {size}"
            yield row("indexing", f"gather {place}", lambda t, i: t[i], table, at)
            yield row("indexing", f"take_clip {place}", lambda t, i: jnp.take(t, i, axis=0, mode="clip"), table, at)
            yield row("indexing", f"take_fill {place}", lambda t, i: jnp.take(t, i, axis=0, mode="fill"), table, at)
            for name in ("add", "max", "multiply") if kind != "bf16" else ("max",):
                yield row(
                    "indexing",
                    f"scatter_{name} {place}",
                    lambda t, i, v, n=name: getattr(t.at[i], n)(v),
                    table,
                    at,
                    values,
                    tolerance=1e6 if name == "multiply" else 100,
                )
            yield row(
                "indexing",
                f"scatter_permuted {place}",
                lambda t, i, v: t.at[i[: v.shape[0]]].set(v, unique_indices=True),
                table,
                _permutation(height),
                array(kind, *(min(height, count), *given[1:])),
            )
        yield from _float_rows(size, shape, given, at)
    for side in (16, 181, 1024):
        yield from _slices(side)


def _float_rows(size: str, shape: tuple[int, ...], given: tuple[int, ...], at: Draw) -> Iterator[Workload]:
    height, count = shape[0], given[0]
    table, values = array("f32", *shape), array("f32", *given)
    for name in ("segment_sum", "segment_max"):
        for is_sorted in (False, True):
            yield row(
                "indexing",
                f"{name}{'_sorted' * is_sorted} f32 {size}",
                lambda v, i, n=name, s=is_sorted, h=height: getattr(jax.ops, n)(v, i, h, indices_are_sorted=s),
                values,
                _indices(count, height, is_sorted=is_sorted),
                tolerance=100,
            )
    yield row("indexing", f"gather_gradient f32 {size}", jax.grad(lambda t, i: jnp.sum(t[i] ** 2)), table, at)
    yield row("indexing", f"bincount {size}", lambda i, h=height: jnp.bincount(i, length=h), at)
    if len(shape) == 2:
        columns = shape[1]
        yield row(
            "indexing",
            f"take_along_axis f32 {size}",
            lambda v, i: jnp.take_along_axis(v, i[:, None], axis=1),
            values,
            _indices(count, columns),
        )
        yield row(
            "indexing",
            f"take_along_columns f32 {size}",
            lambda t, i: jnp.take_along_axis(t, jnp.broadcast_to(i[:, None], (i.shape[0], t.shape[1])), axis=0),
            table,
            at,
        )
        yield row("indexing", f"gather_columns f32 {size}", lambda t, i: t[:, i], table, _indices(columns, columns))
        yield row("indexing", f"gather_points f32 {size}", lambda t, i, j: t[i, j], table, at, _indices(count, columns))
        yield row("indexing", f"one_hot {size}", lambda i, c=columns: jax.nn.one_hot(i, c), _indices(count, columns))
        yield row(
            "indexing",
            f"cross_entropy f32 {size}",
            lambda v, i: -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(v), i[:, None], 1)),
            values,
            _indices(count, columns),
        )


def _slices(side: int) -> Iterator[Workload]:
    half = side // 2
    start = _indices(2, half)
    table, block = array("f32", side, side), array("f32", half, half)
    yield row(
        "indexing",
        f"dynamic_slice {side}",
        lambda x, i, h=half: lax.dynamic_slice(x, (i[0], i[1]), (h, h)),
        table,
        start,
    )
    yield row(
        "indexing",
        f"dynamic_update_slice {side}",
        lambda x, b, i: lax.dynamic_update_slice(x, b, (i[0], i[1])),
        table,
        block,
        start,
    )
    yield row("indexing", f"dynamic_row {side}", lambda x, i: lax.dynamic_index_in_dim(x, i[0], 0), table, start)
    yield row("indexing", f"set_row {side}", lambda x, i: x.at[i[0]].set(1.0), table, start)
    yield row("indexing", f"set_column {side}", lambda x, i: x.at[:, i[0]].add(1.0), table, start)
    yield row("indexing", f"mask_nonzero {side}", lambda x: jnp.nonzero(x > 1, size=x.shape[0])[0], table)
    yield row("indexing", f"boolean_set {side}", lambda x: jnp.where(x > 1, 0.0, x) + x[0], table)
