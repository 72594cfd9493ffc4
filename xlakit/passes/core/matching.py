"""The predicates and matchers of rules: whether an instruction is a known number, or has one element type."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import Array, Op
from xlakit.ops.data import Constant
from xlakit.ops.movement import Broadcast
from xlakit.ops.shared.numerics import limits, to_double, to_integer


def literal(x: Instruction) -> Array | None:
    """The value of an array constant; None for other instructions."""
    if not isinstance(x.op, Constant) or not x.shape.is_array:
        return None
    op: Any = x.op
    return op.literal.array


def uniform(x: Instruction) -> Array | None:
    """The scalar that all elements of ``x`` are, if ``x`` is a scalar constant or a broadcast of one; else None."""
    if isinstance(x.op, Broadcast):
        x = x.operands[0]
    if not isinstance(x.op, Constant) or x.shape.dimensions:
        return None
    return literal(x)


def scalar_source(x: Instruction) -> Instruction | None:
    """The scalar instruction that ``x`` broadcasts, or ``x`` itself if it is a scalar; else None."""
    if isinstance(x.op, Broadcast):
        x = x.operands[0]
    return x if x.shape.is_scalar else None


def as_integer(number: Array | None) -> int | None:
    """The value of an integer or PRED scalar; None for other numbers."""
    if number is None:
        return None
    kind = PrimitiveType.from_dtype(number.dtype)
    if kind is PrimitiveType.PRED:
        return int(number)
    return int(to_integer(number)) if kind.is_integral else None


def as_real(number: Array | None) -> float | None:
    """The value of a real floating point scalar; None for other numbers."""
    if number is None or not PrimitiveType.from_dtype(number.dtype).is_floating:
        return None
    return float(to_double(number))


def is_zero(number: Array | None, *, negative: bool | None = False) -> bool:
    """Whether a number is 0; of floats ``negative`` chooses which: False for +0, True for -0, None for either.

    A complex number is 0 if both its parts are that 0.
    """
    if number is None:
        return False
    if (integer := as_integer(number)) is not None:
        return integer == 0
    if (real := as_real(number)) is not None:
        return real == 0 and (negative is None or (math.copysign(1, real) < 0) == negative)
    parts = (float(np.real(number)), float(np.imag(number)))
    return all(p == 0 and (negative is None or (math.copysign(1, p) < 0) == negative) for p in parts)


def is_number(number: Array | None, value: int) -> bool:
    """Whether a real or integer scalar equals ``value``, which must not be 0 (that has a sign: see :func:`is_zero`)."""
    if number is None:
        return False
    return as_integer(number) == value or as_real(number) == value


def is_all_ones(number: Array | None) -> bool:
    """Whether a scalar is an integer with all bits set, or the PRED true."""
    if number is None:
        return False
    kind = PrimitiveType.from_dtype(number.dtype)
    if kind is PrimitiveType.PRED:
        return bool(number)
    return kind.is_integral and as_integer(number) == (-1 if kind.is_signed else limits(kind)[1])


def power_of_two(number: Array | None) -> int | None:
    """k where an integer scalar is 2^k, k > 0; None otherwise."""
    integer = as_integer(number)
    if integer is None or integer < 2 or integer & (integer - 1):
        return None
    return integer.bit_length() - 1


def one_type(x: Instruction) -> bool:
    """Whether ``x`` and its operands are arrays of one element type.

    A program may declare a result of another floating point precision than the operands: then ``x`` also rounds or
    widens, and algebraic laws of the operation do not hold for it.
    """
    kind = x.shape.element_type
    return all(o.shape.element_type is kind for o in x.operands)


def is_operation(x: Instruction, *kinds: type[Op]) -> bool:
    """Whether ``x`` is one of these operations, and its result and operands have the same element type."""
    return isinstance(x.op, kinds) and one_type(x)


def same_value(a: Instruction, b: Instruction) -> bool:
    """Whether two instructions are the same object, or both constants (or broadcasts of them) of the same bits."""
    if a is b:
        return True
    if not isinstance(a.op, (Constant, Broadcast)) or a.shape.dimensions != b.shape.dimensions:
        return False
    left, right = uniform(a), uniform(b)
    return left is not None and right is not None and same_bits(left, right)


def same_bits(a: Array, b: Array) -> bool:
    """Whether two arrays have the same type, shape and bits: NaN equals itself, and 0 differs from -0."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def permutation_inverse(permutation: tuple[int, ...]) -> tuple[int, ...]:
    """The inverse of a permutation."""
    inverse = [0] * len(permutation)
    for position, dimension in enumerate(permutation):
        inverse[dimension] = position
    return tuple(inverse)
