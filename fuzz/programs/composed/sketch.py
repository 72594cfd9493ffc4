"""Sketches: values of one computation in the making, which steps add to.

Numbers stay small whole numbers, whatever their type, so that results are exact in any order of adding them up: results
of two compilations can be compared bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import xlakit as xla
from fuzz.programs.chance import Chance
from xlakit.errors import ShapeError

# Floating point values are kept between this and its negative: products of two are exact, but in eight bits.
LARGEST = 7
MOST_ELEMENTS = 600
Op = xla.XlaOp


@dataclass(frozen=True, slots=True)
class Sketched:
    """A module with its arguments, and which of them are donated."""

    module: xla.HloModule
    arguments: tuple[Any, ...]
    donated: tuple[int, ...] = ()
    # Whether two compilations must agree in every bit; otherwise as far as roundings go.
    is_exact: bool = True


@dataclass
class Frame:
    """The values of one computation in the making."""

    chance: Chance
    builder: Any
    values: list[Op] = field(default_factory=list[Op])
    # S32 scalars that count: indices, and what predicates are made of.
    counters: list[Op] = field(default_factory=list[Op])
    depth: int = 0

    def pick(self, test: Callable[[Op], bool] = lambda _: True) -> Op:
        """One of the values that pass a test, any as likely; ShapeError where there is none."""
        found = [v for v in self.values if test(v)]
        if not found:
            raise ShapeError("there is no such value")
        return self.chance.pick(found)

    def array(self, test: Callable[[Op], bool] = lambda _: True) -> Op:
        """One of those values that are no scalars."""
        return self.pick(lambda v: v.shape.rank > 0 and test(v))

    def axis(self, value: Op) -> int:
        """A dimension of an array."""
        return self.chance.integer(0, value.shape.rank - 1)

    def like(self, value: Op) -> Op:
        """A value of the same shape: another one, where there is any."""
        others = [v for v in self.values if same_shape(v, value) and v is not value]
        return self.chance.pick(others) if others else value

    def counter(self) -> Op:
        """An S32 scalar, the loop's own more often."""
        if not self.counters:
            return self.scalar(xla.S32, 1)
        return self.counters[-1] if self.chance.chance(0.6) else self.chance.pick(self.counters)

    def scalar(self, kind: xla.PrimitiveType, number: float) -> Op:
        """A constant."""
        with np.errstate(all="ignore"):
            return xla.constant(self.builder, np.asarray(number).astype(kind.dtype), kind)

    def full(self, value: Op, number: float) -> Op:
        """A constant of a value's shape."""
        return xla.broadcast(self.scalar(kind_of(value), number), value.shape.dimensions)

    def spread(self, scalar: Op, dims: Sequence[int]) -> Op:
        """A scalar in all places."""
        return xla.broadcast(scalar, dims) if dims else scalar

    def places(self, value: Op, along: int) -> Op:
        """The indices of a value's elements along a dimension, in an array of its sizes."""
        made = xla.iota(self.builder, xla.make_shape(xla.S32, value.shape.dimensions), along)
        for d, is_dynamic in enumerate(value.shape.dynamic_dimensions):
            made = xla.set_dimension_size(made, xla.get_dimension_size(value, d), d) if is_dynamic else made
        return made

    def test(self) -> Op:
        """A scalar predicate: of a counter mostly, or of a value."""
        chance = self.chance
        scalars = [v for v in self.values if not v.shape.rank and is_real(v)]
        if scalars and chance.chance(0.3):
            left = chance.pick(scalars)
            right = self.like(left) if chance.chance() else self.scalar(kind_of(left), chance.integer(0, 2))
            return chance.pick([xla.lt, xla.ge, xla.eq, xla.ne])(left, right)
        modulus = self.scalar(xla.S32, chance.integer(2, 4))
        part = xla.rem(self.counter(), modulus)
        return chance.pick([xla.eq, xla.ne, xla.gt])(part, self.scalar(xla.S32, chance.integer(0, 1)))

    def tests(self, dims: Sequence[int]) -> Op:
        """Predicates of these dimensions: one in all places, or one for each."""
        if not dims or self.chance.chance():
            return self.spread(self.test(), dims)
        along = self.chance.integer(0, len(dims) - 1)
        places = xla.iota(self.builder, xla.make_shape(xla.S32, dims), along)
        limit = self.spread(self.counter(), dims)
        return self.chance.pick([xla.lt, xla.eq, xla.ge])(places, limit)

    def keep(self, value: Op) -> Op:
        """Go on with a value, made small again."""
        if value.shape.num_elements > MOST_ELEMENTS:
            raise ShapeError("that is too large")
        made = self.small(value)
        self.values.append(made)
        return made

    def small(self, value: Op) -> Op:
        """A value in the range in which all is exact. Integers go round."""
        kind = kind_of(value)
        if kind.is_complex:
            real, imag = self.small(xla.real(value)), self.small(xla.imag(value))
            return xla.complex(real, imag)
        if not kind.is_floating:
            return value
        return xla.clamp(self.scalar(kind, -LARGEST), value, self.scalar(kind, LARGEST))


def kind_of(value: Op) -> xla.PrimitiveType:
    """The element type."""
    return value.shape.element_type


def is_number(value: Op) -> bool:
    """Whether it can be added to."""
    return kind_of(value) is not xla.PRED


def is_real(value: Op) -> bool:
    """Whether it can be added to and compared."""
    return is_number(value) and not kind_of(value).is_complex


def same_shape(a: Op, b: Op) -> bool:
    """Whether one can stand where the other does."""
    return a.shape.dimensions == b.shape.dimensions and kind_of(a) is kind_of(b)


def elements(value: Op) -> list[Op]:
    """The elements of a tuple."""
    return [xla.get_tuple_element(value, i) for i in range(len(value.shape.tuple_shapes))]


def values_of(rng: np.random.Generator, kind: xla.PrimitiveType, dims: Sequence[int]) -> Any:
    """Small whole numbers of any type."""
    if kind is xla.PRED:
        return rng.integers(0, 2, dims).astype(np.bool_)
    low = 0 if kind.is_unsigned else -2 if kind.bit_width < 4 else -LARGEST
    high = min(LARGEST, (1 << (kind.bit_width - (not kind.is_unsigned))) - 1) if kind.is_integral else LARGEST
    if kind.is_complex:
        parts = rng.integers(low, high + 1, (2, *dims))
        return (parts[0] + 1j * parts[1]).astype(kind.dtype)
    wide = rng.integers(low, high + 1, dims)
    if kind.bit_width < 8:
        return wide.astype(np.int8).astype(kind.dtype)
    return wide.astype(kind.dtype)


def count_of(dims: Sequence[int]) -> int:
    """How many elements."""
    return math.prod(dims)
