"""Element-wise chains: one pass over memory, if the compiler fuses them."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import scipy.special

from benchmarks.program import Bound, Program, normal, uniform, workload

_SQRT_HALF = math.sqrt(0.5)


@workload("element-wise", full={"n": 1 << 22}, quick={"n": 1000}, bound=Bound.MEMORY)
def gelu(rng: np.random.Generator, n: int) -> Program:
    """GELU by the error function."""
    return Program(
        [normal(rng, n)],
        jax=lambda x: jax.nn.gelu(x, approximate=False),
        torch=lambda t, x: t.nn.functional.gelu(x),
        numpy=lambda x: np.float32(0.5) * x * (1 + scipy.special.erf(x * np.float32(_SQRT_HALF))),
    )


@workload("element-wise", full={"n": 1 << 22}, quick={"n": 1000}, bound=Bound.MEMORY)
def gelu_tanh(rng: np.random.Generator, n: int) -> Program:
    """GELU by the hyperbolic tangent."""
    return Program(
        [normal(rng, n)],
        jax=lambda x: jax.nn.gelu(x, approximate=True),
        torch=lambda t, x: t.nn.functional.gelu(x, approximate="tanh"),
    )


@workload("element-wise", full={"n": 1 << 23}, quick={"n": 1000}, bound=Bound.MEMORY)
def bf16_chain(rng: np.random.Generator, n: int) -> Program:
    """Products, sums, a sigmoid and a maximum of two bfloat16 arrays."""
    return Program(
        [normal(rng, n).astype(ml_dtypes.bfloat16), normal(rng, n).astype(ml_dtypes.bfloat16)],
        jax=lambda x, y: jnp.maximum(x * y + x, 0) * jax.nn.sigmoid(y) + y,
        torch=lambda t, x, y: t.relu(x * y + x) * t.sigmoid(y) + y,
    )


@workload("element-wise", full={"n": 1 << 21}, quick={"n": 1000}, bound=Bound.MEMORY)
def black_scholes(rng: np.random.Generator, n: int) -> Program:
    """Prices of European calls and puts."""

    def prices(m: Any, cdf: Any, spot: Any, strike: Any, years: Any) -> Any:
        rate, volatility = 0.03, 0.25
        spread = volatility * m.sqrt(years)
        d1 = (m.log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / spread
        discounted = strike * m.exp(-rate * years)
        call = spot * cdf(d1) - discounted * cdf(d1 - spread)
        return call, call - spot + discounted

    return Program(
        [uniform(rng, n, low=50, high=150), uniform(rng, n, low=50, high=150), uniform(rng, n, low=0.1, high=2)],
        jax=lambda *x: prices(jnp, lambda z: 0.5 * (1 + jax.lax.erf(z * _SQRT_HALF)), *x),
        torch=lambda t, *x: prices(t, lambda z: 0.5 * (1 + t.erf(z * _SQRT_HALF)), *x),
        numpy=lambda *x: prices(np, scipy.special.ndtr, *x),
    )


@workload("element-wise", full={"n": 1 << 21}, quick={"n": 1000}, bound=Bound.MEMORY)
def complex_arithmetic(rng: np.random.Generator, n: int) -> Program:
    """A Moebius transformation and an absolute value of complex numbers."""

    def transform(m: Any, z: Any, w: Any) -> Any:
        result = (z * w + (2 + 1j)) / (z - (5 + 3j))
        return result, m.abs(result)

    return Program(
        [(normal(rng, n) + 1j * normal(rng, n)).astype(np.complex64) for _ in range(2)],
        jax=lambda z, w: transform(jnp, z, w),
        torch=transform,
        numpy=lambda z, w: transform(np, z, w),
    )


@workload("element-wise", full={"n": 1 << 21}, quick={"n": 1000}, bound=Bound.MEMORY, x64=True)
def f64_chain(rng: np.random.Generator, n: int) -> Program:
    """Sine, exponential and square root in double precision."""

    def chain(m: Any, x: Any) -> Any:
        return m.sin(3 * x) * m.exp(-x * x) + m.sqrt(m.abs(x))

    return Program(
        [rng.standard_normal(n)],
        jax=lambda x: chain(jnp, x),
        torch=chain,
        numpy=lambda x: chain(np, x),
    )


@workload("element-wise", full={"n": 1 << 23}, quick={"n": 1000}, bound=Bound.MEMORY)
def integer_mix(rng: np.random.Generator, n: int) -> Program:
    """The last rounds of a hash: shifts, exclusive ors and products of uint32."""

    def mix(x: Any) -> Any:
        x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
        x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
        return x ^ (x >> 16)

    return Program([rng.integers(0, 1 << 32, n, dtype=np.uint32)], jax=mix, numpy=mix)


@workload(
    "element-wise",
    full={"rows": 4096, "columns": 2048},
    quick={"rows": 8, "columns": 33},
    bound=Bound.MEMORY,
)
def bias_residual(rng: np.random.Generator, rows: int, columns: int) -> Program:
    """A bias for each column, a rectifier and a residual."""
    return Program(
        [normal(rng, rows, columns), normal(rng, columns), normal(rng, rows, columns)],
        jax=lambda x, bias, residual: jnp.maximum(x + bias, 0) + residual,
        torch=lambda t, x, bias, residual: t.relu(x + bias) + residual,
        numpy=lambda x, bias, residual: np.maximum(x + bias, 0) + residual,
    )
