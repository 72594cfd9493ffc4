"""Defines workloads: a workload is one computation, written for JAX and, where possible, for PyTorch and NumPy."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class Bound(enum.Enum):
    """The resource of the machine that bounds a workload's speed."""

    NOTHING = "nothing"
    MEMORY = "memory"
    ARITHMETIC = "arithmetic"


@dataclass(frozen=True, slots=True)
class Program:
    """One workload at one size, with its arguments.

    arguments: NumPy arrays, one for each parameter.
    jax: the function that is exported to HLO; gives an array or a tuple of arrays.
    torch: the same for PyTorch, called with the module ``torch`` and a tensor for each argument.
    torch_arguments: rearranges the tensors once, before the clock runs (a layout or an index type PyTorch prefers).
    torch_compiles: whether torch.compile is given ``torch``; loops that it would unroll for minutes are not.
    gradients: positions of the tensors that ``torch`` asks gradients for.
    numpy: the same for NumPy or SciPy.
    flops: floating-point (or integer) operations, where the workload is held against the rate of a matrix product.
    traffic: bytes that must be read or written; by default those of the arguments and the results.
    tolerance: how many times the tolerance of the element type is allowed.
    differing: the fraction of elements that may differ at all, where rounding decides an integer.
    random: other generators than JAX's are held to the mean and the deviation alone.
    """

    arguments: Sequence[Array]
    jax: Callable[..., Any]
    torch: Callable[..., Any] | None = None
    torch_arguments: Callable[..., Sequence[Any]] | None = None
    torch_compiles: bool = True
    gradients: Sequence[int] = ()
    numpy: Callable[..., Any] | None = None
    flops: float = 0.0
    traffic: int = 0
    tolerance: float = 1.0
    differing: float = 0.0
    random: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """A named workload: how to make its Program, at the size that is timed and at one that is quick.

    x64: JAX is allowed 64-bit types. portable: exported as HLO's own operations, where JAX would call LAPACK by name
    on a CPU; XLA itself runs what JAX makes of it there, which is the faster of the two.
    """

    name: str
    group: str
    make: Callable[..., Program]
    full: Mapping[str, int]
    quick: Mapping[str, int]
    bound: Bound = Bound.NOTHING
    x64: bool = False
    portable: bool = False
    seed: int = field(default=20)

    def program(self, *, quick: bool = False) -> Program:
        """The program with its arguments, the same ones each time."""
        return self.make(np.random.default_rng(self.seed), **(self.quick if quick else self.full))


def workload(
    group: str,
    *,
    full: Mapping[str, int],
    quick: Mapping[str, int],
    bound: Bound = Bound.NOTHING,
    x64: bool = False,
    portable: bool = False,
) -> Callable[[Callable[..., Program]], Workload]:
    """Make a Workload of a function from a random generator and sizes to a Program; it takes the function's name."""

    def decorate(make: Callable[..., Program]) -> Workload:
        name = make.__name__.rstrip("_")
        return Workload(name, group, make, full, quick, bound=bound, x64=x64, portable=portable)

    return decorate


def normal(rng: np.random.Generator, *sizes: int, scale: float = 1.0) -> Array:
    """Normal numbers in float32."""
    return rng.standard_normal(sizes, dtype=np.float32) * np.float32(scale)


def uniform(rng: np.random.Generator, *sizes: int, low: float = 0.0, high: float = 1.0) -> Array:
    """Numbers between low and high in float32."""
    return rng.random(sizes, dtype=np.float32) * np.float32(high - low) + np.float32(low)


def integers(rng: np.random.Generator, *sizes: int, below: int) -> Array:
    """Integers from 0 in int32."""
    return rng.integers(0, below, sizes, dtype=np.int32)


def distinct(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Rows of float32 in which no two numbers are equal, so that all sorts agree on the indices."""
    row = np.arange(columns, dtype=np.float32) - np.float32(columns // 2)
    return rng.permuted(np.tile(row, (rows, 1)), axis=1)
