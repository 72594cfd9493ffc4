"""Random numbers from counters."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.program import Program, normal, workload


@workload("random", full={"n": 1 << 20}, quick={"n": 1000})
def threefry_normal(rng: np.random.Generator, n: int) -> Program:
    """Normal numbers as JAX makes them by default."""
    generator = np.random.default_rng(0)
    return Program(
        [rng.integers(0, 1 << 32, 2, dtype=np.uint32)],
        jax=lambda key: jax.random.normal(jax.random.wrap_key_data(key), (n,)),
        torch=lambda t, key: t.randn(n),
        numpy=lambda key: generator.standard_normal(n, dtype=np.float32),
        random=True,
    )


@workload("random", full={"n": 1 << 22}, quick={"n": 1000})
def philox_uniform(rng: np.random.Generator, n: int) -> Program:
    """Bits from the Philox generator, made into numbers between 0 and 1."""
    generator = np.random.Generator(np.random.Philox(0))

    def make(state: Any) -> Any:
        state, bits = lax.rng_bit_generator(state, (n,), algorithm=lax.RandomAlgorithm.RNG_PHILOX)
        return (bits >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)

    return Program(
        [rng.integers(0, 1 << 32, 4, dtype=np.uint32)],
        jax=make,
        torch=lambda t, state: t.rand(n),
        numpy=lambda state: generator.random(n, dtype=np.float32),
        random=True,
    )


@workload("random", full={"n": 1 << 20}, quick={"n": 1000})
def dropout(rng: np.random.Generator, n: int) -> Program:
    """A tenth of the numbers made zero, the others larger for it."""

    def drop(key: Any, x: Any) -> Any:
        keep = jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, x.shape)
        return jnp.where(keep, x / 0.9, 0)

    return Program(
        [rng.integers(0, 1 << 32, 2, dtype=np.uint32), normal(rng, n)],
        jax=drop,
        torch=lambda t, key, x: t.nn.functional.dropout(x, 0.1),
        random=True,
    )
