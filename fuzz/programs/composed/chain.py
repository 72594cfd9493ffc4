"""Chains: values in the making, each operation on one of those before it, drawn at random.

All numbers are small integers, whatever their type, so that results are exact in any order of adding them up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import xlakit as xla
from fuzz.programs.composed.sketch import Chance
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.ops.handle import Builder

_MOST_ELEMENTS = 512
# Values are kept between this and its negative.
LARGEST = 9


class Chain(Chance):
    """Values in the making, and the next operation on one of them."""

    def __init__(self, rng: np.random.Generator, builder: Builder, scalars: Sequence[xla.XlaOp]) -> None:
        super().__init__(rng)
        self.builder = builder
        self.values: list[xla.XlaOp] = []
        # S32 numbers from 0 to 6, for sizes and places.
        self.scalars = list(scalars)

    # -- drawing ---------------------------------------------------------------------------------

    def pick(self, test: Callable[[xla.XlaOp], bool] = lambda _: True) -> xla.XlaOp:
        """One of the values that pass a test, later ones more often; ShapeError where there is none."""
        found = [v for v in self.values if test(v)]
        if not found:
            raise ShapeError("there is no such value")
        return found[-1 - min(len(found) - 1, int(self.rng.exponential(2)))]

    def array(self, least_rank: int = 1) -> xla.XlaOp:
        """An array, of dynamic dimensions mostly."""
        if self.chance(0.9):
            return self.pick(lambda v: v.shape.rank >= least_rank and v.shape.is_dynamic)
        return self.pick(lambda v: v.shape.rank >= least_rank)

    def like(self, value: xla.XlaOp) -> xla.XlaOp:
        """A value of the same bounds and type."""
        shape = value.shape
        return self.pick(lambda v: v.shape.dimensions == shape.dimensions and kind_of(v) is kind_of(value))

    def number(self, value: xla.XlaOp, low: int = -2, high: int = 3) -> xla.XlaOp:
        """A constant of a value's type."""
        low = max(low, 0) if kind_of(value).is_unsigned or kind_of(value) is xla.PRED else low
        return xla.constant(self.builder, np.asarray(self.integer(low, max(low, high))).astype(kind_of(value).dtype))

    def keep(self, value: xla.XlaOp) -> None:
        """Go on with a value, made small again."""
        if value.shape.num_elements > _MOST_ELEMENTS:
            raise ShapeError("that is too large")
        if kind_of(value) is not xla.PRED and not kind_of(value).is_unsigned:
            low, high = (np.asarray(n).astype(kind_of(value).dtype) for n in (-LARGEST, LARGEST))
            value = xla.clamp(xla.constant(self.builder, low), value, xla.constant(self.builder, high))
        self.values.append(value)

    def step(self, steps: Sequence[Callable[[Chain], None]]) -> None:
        """One more operation, or none where what was drawn does not fit."""
        try:
            self.one_of(steps)(self)
        except (ShapeError, UnsupportedError):
            return


def kind_of(value: xla.XlaOp) -> xla.PrimitiveType:
    """The element type."""
    return value.shape.element_type


def is_number(value: xla.XlaOp) -> bool:
    """Whether it can be computed with."""
    return kind_of(value) is not xla.PRED
