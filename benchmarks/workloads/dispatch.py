"""What a call costs when there is nothing to do."""

from __future__ import annotations

import functools
import operator

import numpy as np

from benchmarks.program import Program, normal, workload


@workload("dispatch", full={"n": 8}, quick={"n": 8})
def tiny_add(rng: np.random.Generator, n: int) -> Program:
    """Two small arrays added."""
    return Program(
        [normal(rng, n), normal(rng, n)],
        jax=lambda x, y: x + y,
        torch=lambda t, x, y: x + y,
        numpy=lambda x, y: x + y,
    )


@workload("dispatch", full={"arguments": 64, "n": 8}, quick={"arguments": 8, "n": 8})
def many_arguments(rng: np.random.Generator, arguments: int, n: int) -> Program:
    """Many small arrays summed."""
    return Program(
        [normal(rng, n) for _ in range(arguments)],
        jax=lambda *x: functools.reduce(operator.add, x),
        torch=lambda t, *x: functools.reduce(operator.add, x),
        numpy=lambda *x: functools.reduce(operator.add, x),
        tolerance=4,
    )
