"""Fourier transforms, and factorizations and solutions of linear systems."""

from __future__ import annotations

import os
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.fft
import scipy.linalg
from jax import lax

from benchmarks.program import Array, Program, normal, workload


def _complex(rng: np.random.Generator, *sizes: int) -> Array:
    return (normal(rng, *sizes) + 1j * normal(rng, *sizes)).astype(np.complex64)


def _workers() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@workload("transforms", full={"rows": 256, "n": 4096}, quick={"rows": 3, "n": 48})
def fft_1d(rng: np.random.Generator, rows: int, n: int) -> Program:
    """A batch of transforms."""
    return Program(
        [_complex(rng, rows, n)],
        jax=jnp.fft.fft,
        torch=lambda t, x: t.fft.fft(x),
        numpy=lambda x: scipy.fft.fft(x, workers=_workers()),
    )


@workload("transforms", full={"n": 1024}, quick={"n": 20})
def fft_2d(rng: np.random.Generator, n: int) -> Program:
    """A transform of an image."""
    return Program(
        [_complex(rng, n, n)],
        jax=jnp.fft.fft2,
        torch=lambda t, x: t.fft.fft2(x),
        numpy=lambda x: scipy.fft.fft2(x, workers=_workers()),
    )


@workload("transforms", full={"rows": 256, "n": 8192}, quick={"rows": 3, "n": 50})
def fft_real(rng: np.random.Generator, rows: int, n: int) -> Program:
    """A batch of real signals filtered: there, and back."""

    def smooth(module: Any, x: Any, weights: Any) -> Any:
        return module.irfft(module.rfft(x) * weights, n)

    return Program(
        [normal(rng, rows, n), np.exp(-np.linspace(0, 4, n // 2 + 1, dtype=np.float32))],
        jax=lambda x, weights: smooth(jnp.fft, x, weights),
        torch=lambda t, x, weights: smooth(t.fft, x, weights),
    )


@workload("transforms", full={"n": 1024}, quick={"n": 24}, portable=True)
def cholesky(rng: np.random.Generator, n: int) -> Program:
    """A Cholesky factor."""
    x = normal(rng, n, n)
    return Program(
        [x @ x.T / np.float32(n) + np.eye(n, dtype=np.float32)],
        jax=lambda a: lax.linalg.cholesky(a, symmetrize_input=False),
        torch=lambda t, a: t.linalg.cholesky(a),
        numpy=lambda a: scipy.linalg.cholesky(a, lower=True, check_finite=False),
        flops=n**3 / 3,
        tolerance=4,
    )


@workload("transforms", full={"n": 1024, "columns": 512}, quick={"n": 24, "columns": 5}, portable=True)
def triangular_solve(rng: np.random.Generator, n: int, columns: int) -> Program:
    """A triangular system with many right-hand sides."""
    lower = np.tril(normal(rng, n, n, scale=n**-0.5)) + 2 * np.eye(n, dtype=np.float32)
    return Program(
        [lower, normal(rng, n, columns)],
        jax=lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True),
        torch=lambda t, a, b: t.linalg.solve_triangular(a, b, upper=False),
        numpy=lambda a, b: scipy.linalg.solve_triangular(a, b, lower=True, check_finite=False),
        flops=float(n) * n * columns,
        tolerance=4,
    )
