"""Random numbers as JAX draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.breadth.row import row
from benchmarks.program import Workload

_DRAWS: dict[str, Callable[[Any, int], Any]] = {
    "bits": lambda k, n: jax.random.bits(k, (n,)),
    "bits_u8": lambda k, n: jax.random.bits(k, (n,), jnp.uint8),
    "uniform": lambda k, n: jax.random.uniform(k, (n,)),
    "uniform_bf16": lambda k, n: jax.random.uniform(k, (n,), jnp.bfloat16),
    "normal": lambda k, n: jax.random.normal(k, (n,)),
    "normal_bf16": lambda k, n: jax.random.normal(k, (n,), jnp.bfloat16),
    "randint": lambda k, n: jax.random.randint(k, (n,), 0, 1000),
    "bernoulli": lambda k, n: jax.random.bernoulli(k, 0.3, (n,)),
    "exponential": lambda k, n: jax.random.exponential(k, (n,)),
    "laplace": lambda k, n: jax.random.laplace(k, (n,)),
    "gumbel": lambda k, n: jax.random.gumbel(k, (n,)),
    "truncated_normal": lambda k, n: jax.random.truncated_normal(k, -1.0, 2.0, (n,)),
    "categorical": lambda k, n: jax.random.categorical(k, jnp.arange(8.0), shape=(n // 8,)),
    "permutation": jax.random.permutation,
    "gamma": lambda k, n: jax.random.gamma(k, 2.5, (n // 4,)),
    "beta": lambda k, n: jax.random.beta(k, 2.5, 1.5, (n // 8,)),
    "poisson": lambda k, n: jax.random.poisson(k, 3.0, (n // 4,)),
    "dropout": lambda k, n: jnp.where(jax.random.bernoulli(k, 0.9, (n,)), jnp.arange(n) / 0.9, 0.0),
    "choice": lambda k, n: jax.random.choice(k, n, (n // 4,)),
    "split": lambda k, n: jax.random.split(k, n // 4),
    "multivariate": lambda k, n: jax.random.multivariate_normal(k, jnp.zeros(4), jnp.eye(4), (n // 4,)),
}


def rows() -> Iterator[Workload]:
    """Each draw at three sizes."""

    def key(rng: np.random.Generator) -> np.ndarray:
        return rng.integers(0, 1 << 32, 2, dtype=np.uint32)

    for size, count in (("tiny", 64), ("cached", 1 << 15), ("large", 1 << 21)):
        for name, draw in _DRAWS.items():
            # Few draws are decided by the last bit.
            yield row(
                "random", f"{name} {size}", lambda k, d=draw, n=count: d(k, n), key, tolerance=1e3, differing=0.01
            )
