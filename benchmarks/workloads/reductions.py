"""Reductions, and the rows of work that contain them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from benchmarks.program import Bound, Program, normal, uniform, workload

_FULL = {"rows": 4096, "columns": 4096}
_QUICK = {"rows": 24, "columns": 40}


@workload("reductions", full=_FULL, quick=_QUICK, bound=Bound.MEMORY)
def sum_all(rng: np.random.Generator, rows: int, columns: int) -> Program:
    """One sum."""
    return Program(
        [uniform(rng, rows, columns)],
        jax=jnp.sum,
        torch=lambda t, x: x.sum(),
        numpy=np.sum,
    )


@workload("reductions", full=_FULL, quick=_QUICK, bound=Bound.MEMORY)
def sum_last_axis(rng: np.random.Generator, rows: int, columns: int) -> Program:
    """The sum of each row."""
    return Program(
        [uniform(rng, rows, columns)],
        jax=lambda x: x.sum(1),
        torch=lambda t, x: x.sum(1),
        numpy=lambda x: x.sum(1),
    )


@workload("reductions", full=_FULL, quick=_QUICK, bound=Bound.MEMORY)
def sum_first_axis(rng: np.random.Generator, rows: int, columns: int) -> Program:
    """The sum of each column."""
    return Program(
        [uniform(rng, rows, columns)],
        jax=lambda x: x.sum(0),
        torch=lambda t, x: x.sum(0),
        numpy=lambda x: x.sum(0),
    )


@workload("reductions", full=_FULL, quick=_QUICK, bound=Bound.MEMORY)
def softmax(rng: np.random.Generator, rows: int, columns: int) -> Program:
    """Softmax of each row."""
    return Program(
        [normal(rng, rows, columns, scale=3)],
        jax=lambda x: jax.nn.softmax(x, axis=-1),
        torch=lambda t, x: t.softmax(x, -1),
        numpy=lambda x: scipy.special.softmax(x, axis=-1),
    )


@workload(
    "reductions",
    full={"rows": 8192, "columns": 1024},
    quick={"rows": 8, "columns": 64},
    bound=Bound.MEMORY,
)
def layer_norm(rng: np.random.Generator, rows: int, columns: int) -> Program:
    """Layer normalization with a scale and a shift."""

    def apply(x: Any, scale: Any, shift: Any) -> Any:
        centered = x - x.mean(-1, keepdims=True)
        return centered * jax.lax.rsqrt((centered * centered).mean(-1, keepdims=True) + 1e-5) * scale + shift

    return Program(
        [normal(rng, rows, columns), normal(rng, columns), normal(rng, columns)],
        jax=apply,
        torch=lambda t, x, scale, shift: t.nn.functional.layer_norm(x, (columns,), scale, shift, 1e-5),
    )


@workload("reductions", full=_FULL, quick=_QUICK, bound=Bound.MEMORY)
def argmax(rng: np.random.Generator, rows: int, columns: int) -> Program:
    """Where each row is largest."""
    return Program(
        [normal(rng, rows, columns)],
        jax=lambda x: jnp.argmax(x, axis=1),
        torch=lambda t, x: t.argmax(x, 1),
        numpy=lambda x: np.argmax(x, axis=1),
    )


@workload("reductions", full=_FULL, quick=_QUICK, bound=Bound.MEMORY)
def variance(rng: np.random.Generator, rows: int, columns: int) -> Program:
    """The variance of each row."""
    return Program(
        [normal(rng, rows, columns)],
        jax=lambda x: jnp.var(x, axis=1),
        torch=lambda t, x: t.var(x, 1, correction=0),
        numpy=lambda x: np.var(x, axis=1),
    )


@workload("reductions", full={"n": 6144}, quick={"n": 65}, bound=Bound.MEMORY)
def transposing_copy(rng: np.random.Generator, n: int) -> Program:
    """A matrix's transpose, written out."""
    return Program(
        [normal(rng, n, n)],
        jax=lambda x: x.T,
        torch=lambda t, x: x.t().contiguous(),
        numpy=lambda x: np.ascontiguousarray(x.T),
    )
