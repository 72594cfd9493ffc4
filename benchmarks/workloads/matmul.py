"""Matrix products."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from benchmarks.program import Bound, Program, Workload, normal, workload


def _square(n: int) -> Workload:
    def make(rng: np.random.Generator, n: int) -> Program:
        return Program(
            [normal(rng, n, n), normal(rng, n, n)],
            jax=jnp.matmul,
            torch=lambda t, x, y: x @ y,
            numpy=np.matmul,
            flops=2.0 * n**3,
        )

    make.__name__ = f"matmul_{n}"
    return workload("matmul", full={"n": n}, quick={"n": min(n, 16 + n // 64)}, bound=Bound.ARITHMETIC)(make)


matmul_64, matmul_128, matmul_512, matmul_1024, matmul_2048 = (_square(n) for n in (64, 128, 512, 1024, 2048))


@workload("matmul", full={"n": 4096, "columns": 8}, quick={"n": 48, "columns": 3}, bound=Bound.MEMORY)
def matmul_skinny(rng: np.random.Generator, n: int, columns: int) -> Program:
    """A large matrix times a few vectors."""
    return Program(
        [normal(rng, n, n), normal(rng, n, columns)],
        jax=jnp.matmul,
        torch=lambda t, x, y: x @ y,
        numpy=np.matmul,
    )


@workload("matmul", full={"batch": 64, "n": 256}, quick={"batch": 3, "n": 17}, bound=Bound.ARITHMETIC)
def matmul_batched(rng: np.random.Generator, batch: int, n: int) -> Program:
    """Many products."""
    return Program(
        [normal(rng, batch, n, n), normal(rng, batch, n, n)],
        jax=jnp.matmul,
        torch=lambda t, x, y: t.bmm(x, y),
        numpy=np.matmul,
        flops=2.0 * batch * n**3,
    )


@workload("matmul", full={"n": 1024}, quick={"n": 24}, bound=Bound.ARITHMETIC)
def matmul_transposed(rng: np.random.Generator, n: int) -> Program:
    """Both operands contracted along the axis that is the wrong one for them."""
    return Program(
        [normal(rng, n, n), normal(rng, n, n)],
        jax=lambda x, y: x.T @ y.T,
        torch=lambda t, x, y: x.t() @ y.t(),
        numpy=lambda x, y: x.T @ y.T,
        flops=2.0 * n**3,
    )


@workload("matmul", full={"n": 1024}, quick={"n": 24}, bound=Bound.ARITHMETIC)
def matmul_bias_relu(rng: np.random.Generator, n: int) -> Program:
    """A dense layer."""
    return Program(
        [normal(rng, n, n), normal(rng, n, n), normal(rng, n)],
        jax=lambda x, y, bias: jnp.maximum(x @ y + bias, 0),
        torch=lambda t, x, y, bias: t.relu(t.addmm(bias, x, y)),
        numpy=lambda x, y, bias: np.maximum(x @ y + bias, 0),
        flops=2.0 * n**3,
    )


@workload(
    "matmul",
    full={"batch": 2, "heads": 8, "length": 1024, "size": 64},
    quick={"batch": 2, "heads": 2, "length": 16, "size": 8},
    bound=Bound.ARITHMETIC,
)
def attention(rng: np.random.Generator, batch: int, heads: int, length: int, size: int) -> Program:
    """Softmax attention of all positions on all positions."""

    def attend(query: Any, key: Any, value: Any) -> Any:
        scores = jnp.einsum("bhqd,bhkd->bhqk", query, key) / math.sqrt(size)
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), value)

    return Program(
        [normal(rng, batch, heads, length, size) for _ in range(3)],
        jax=attend,
        torch=lambda t, query, key, value: t.nn.functional.scaled_dot_product_attention(query, key, value),
        flops=4.0 * batch * heads * length * length * size,
    )


@workload("matmul", full={"n": 1024}, quick={"n": 24}, bound=Bound.ARITHMETIC)
def matmul_bf16(rng: np.random.Generator, n: int) -> Program:
    """bfloat16 in and out."""
    return Program(
        [normal(rng, n, n).astype(ml_dtypes.bfloat16) for _ in range(2)],
        jax=jnp.matmul,
        torch=lambda t, x, y: x @ y,
        flops=2.0 * n**3,
    )


@workload("matmul", full={"n": 1024}, quick={"n": 32}, bound=Bound.ARITHMETIC)
def matmul_int8(rng: np.random.Generator, n: int) -> Program:
    """int8 in, int32 out."""
    return Program(
        [rng.integers(-128, 128, (n, n), dtype=np.int8) for _ in range(2)],
        jax=lambda x, y: lax.dot(x, y, preferred_element_type=jnp.int32),
        torch=lambda t, x, y: t._int_mm(x, y),
        flops=2.0 * n**3,
    )
