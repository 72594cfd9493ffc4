"""Gather, scatter, slices at run-time places, sorting and prefix sums."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.program import Bound, Program, distinct, integers, normal, uniform, workload

_TABLE = {"vocabulary": 32768, "size": 512, "count": 16384}
_SMALL_TABLE = {"vocabulary": 30, "size": 6, "count": 50}


@workload("indexing", full=_TABLE, quick=_SMALL_TABLE, bound=Bound.MEMORY)
def embedding(rng: np.random.Generator, vocabulary: int, size: int, count: int) -> Program:
    """Rows of a table."""
    return Program(
        [normal(rng, vocabulary, size), integers(rng, count, below=vocabulary)],
        jax=lambda table, ids: table.at[ids].get(mode="clip"),
        torch=lambda t, table, ids: t.nn.functional.embedding(ids, table),
        numpy=lambda table, ids: np.take(table, ids, axis=0, mode="clip"),
        traffic=4 * count * (2 * size + 1),
    )


@workload("indexing", full=_TABLE, quick=_SMALL_TABLE, bound=Bound.MEMORY)
def embedding_gradient(rng: np.random.Generator, vocabulary: int, size: int, count: int) -> Program:
    """Rows added into a table of zeros."""

    def gradient(ids: Any, cotangent: Any) -> Any:
        return jnp.zeros((vocabulary, size)).at[ids].add(cotangent)

    def with_numpy(ids: Any, cotangent: Any) -> Any:
        table = np.zeros((vocabulary, size), np.float32)
        np.add.at(table, ids, cotangent)
        return table

    return Program(
        [integers(rng, count, below=vocabulary), normal(rng, count, size)],
        jax=gradient,
        torch=lambda t, ids, cotangent: t.zeros(vocabulary, size).index_add(0, ids, cotangent),
        numpy=with_numpy,
    )


@workload("indexing", full={"n": 1 << 20, "bins": 1024}, quick={"n": 500, "bins": 10})
def histogram(rng: np.random.Generator, n: int, bins: int) -> Program:
    """Ones added into bins."""
    return Program(
        [integers(rng, n, below=bins)],
        jax=lambda x: jnp.zeros(bins, jnp.int32).at[x].add(1),
        torch=lambda t, x: t.bincount(x, minlength=bins),
        numpy=lambda x: np.bincount(x, minlength=bins),
    )


@workload("indexing", full={"n": 2048, "count": 1 << 20}, quick={"n": 13, "count": 100})
def gather_nd(rng: np.random.Generator, n: int, count: int) -> Program:
    """Single elements of a matrix."""
    return Program(
        [normal(rng, n, n), integers(rng, count, 2, below=n)],
        jax=lambda x, places: x.at[places[:, 0], places[:, 1]].get(mode="clip"),
        torch=lambda t, x, places: x[places[:, 0], places[:, 1]],
        numpy=lambda x, places: x[places[:, 0], places[:, 1]],
    )


@workload("indexing", full={"steps": 1024, "size": 1024}, quick={"steps": 9, "size": 16})
def update_rows_in_loop(rng: np.random.Generator, steps: int, size: int) -> Program:
    """A buffer filled row by row, each row from the one before it."""

    def fill(buffer: Any, row: Any) -> Any:
        def step(i: Any, state: Any) -> Any:
            buffer, row = state
            row = row * 0.9 + lax.dynamic_index_in_dim(buffer, i, keepdims=False)
            return lax.dynamic_update_index_in_dim(buffer, row, i, 0), row

        return lax.fori_loop(0, steps, step, (buffer, row))[0]

    def with_arrays(buffer: Any, row: Any) -> Any:
        for i in range(steps):
            row = row * 0.9 + buffer[i]
            buffer[i] = row
        return buffer

    return Program(
        [normal(rng, steps, size), normal(rng, size)],
        jax=fill,
        torch=lambda t, buffer, row: with_arrays(buffer.clone(), row),
        torch_compiles=False,
        numpy=lambda buffer, row: with_arrays(buffer.copy(), row),
    )


@workload("indexing", full={"n": 1 << 20}, quick={"n": 777})
def sort_1m(rng: np.random.Generator, n: int) -> Program:
    """One long sort."""
    return Program(
        [normal(rng, n)],
        jax=lax.sort,
        torch=lambda t, x: t.sort(x)[0],
        numpy=np.sort,
    )


@workload("indexing", full={"rows": 256, "columns": 4096}, quick={"rows": 5, "columns": 70})
def argsort_rows(rng: np.random.Generator, rows: int, columns: int) -> Program:
    """Many short sorts, of indices."""
    return Program(
        [distinct(rng, rows, columns)],
        jax=lambda x: jnp.argsort(x, axis=1),
        torch=lambda t, x: t.argsort(x, dim=1, stable=True),
        numpy=lambda x: np.argsort(x, axis=1, kind="stable"),
    )


@workload("indexing", full={"rows": 64, "columns": 16384, "k": 16}, quick={"rows": 4, "columns": 100, "k": 5})
def top_k(rng: np.random.Generator, rows: int, columns: int, k: int) -> Program:
    """The largest few of each row, and where they are."""
    return Program(
        [distinct(rng, rows, columns)],
        jax=lambda x: lax.top_k(x, k),
        torch=lambda t, x: tuple(t.topk(x, k)),
    )


@workload("indexing", full={"n": 1 << 22}, quick={"n": 1000}, bound=Bound.MEMORY)
def cumsum_4m(rng: np.random.Generator, n: int) -> Program:
    """One long prefix sum."""
    return Program(
        [uniform(rng, n)],
        jax=jnp.cumsum,
        torch=lambda t, x: t.cumsum(x, 0),
        # float32 alone loses digits over so many terms, wherever it is added one by one.
        numpy=lambda x: np.cumsum(x, dtype=np.float64).astype(np.float32),
        tolerance=20,
    )


@workload("indexing", full={"n": 2048}, quick={"n": 30}, bound=Bound.MEMORY)
def cumsum_last_axis(rng: np.random.Generator, n: int) -> Program:
    """Prefix sums of rows."""
    return Program(
        [uniform(rng, n, n)],
        jax=lambda x: jnp.cumsum(x, axis=1),
        torch=lambda t, x: t.cumsum(x, 1),
        numpy=lambda x: np.cumsum(x, axis=1),
    )


@workload("indexing", full={"n": 2048}, quick={"n": 30}, bound=Bound.MEMORY)
def cumsum_first_axis(rng: np.random.Generator, n: int) -> Program:
    """Prefix sums of columns."""
    return Program(
        [uniform(rng, n, n)],
        jax=lambda x: jnp.cumsum(x, axis=0),
        torch=lambda t, x: t.cumsum(x, 0),
        numpy=lambda x: np.cumsum(x, axis=0),
    )


@workload("indexing", full={"n": 4096}, quick={"n": 21}, bound=Bound.MEMORY)
def pad_slice_concatenate(rng: np.random.Generator, n: int) -> Program:
    """A matrix shifted along both axes: moves without arithmetic."""

    def shift(x: Any) -> Any:
        return jnp.roll(jnp.pad(x, ((1, 1), (2, 2)))[:n, :n], 3, axis=1)

    def with_torch(t: Any, x: Any) -> Any:
        return t.roll(t.nn.functional.pad(x, (2, 2, 1, 1))[:n, :n], 3, 1)

    return Program(
        [normal(rng, n, n)],
        jax=jax.named_call(shift, name="shift"),
        torch=with_torch,
        numpy=lambda x: np.roll(np.pad(x, ((1, 1), (2, 2)))[:n, :n], 3, axis=1),
    )
