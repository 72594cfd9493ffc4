"""Binary operations: arithmetic, logic, shifts. Comparisons are on the page ``compare``.

Source: XLA's document "Operation semantics", Element-wise binary arithmetic operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.errors import ShapeError
from xlakit.ir.operation import Array, operation
from xlakit.ir.traits import Associative, Commutative, Expensive, Idempotent, Transcendental
from xlakit.ops.handle import OperandLike, XlaOp, building
from xlakit.ops.shared import complex_functions as of_complex
from xlakit.ops.shared.elementwise import (
    ANY,
    FLOATING,
    FLOATING_OR_COMPLEX,
    INTEGRAL,
    NUMERIC,
    PRED_OR_INTEGRAL,
    REAL_NUMERIC,
    Binary,
    emit_binary,
)
from xlakit.ops.shared.numerics import (
    element_type,
    exactly,
    greater,
    lesser,
    of_doubles,
    of_integers,
    of_wider_complex,
    to_bits,
    to_integer,
    to_signed,
    wrap,
)

Function = Callable[[Array, Array], Array]


def _static(function: Function) -> staticmethod[[Array, Array], Array]:
    # Gives a plain type to the attribute: type checkers take the first overload of a ufunc in a bare staticmethod.
    return staticmethod(function)


class Arithmetic(Binary):
    """An operation defined by one function for each kind of number: PRED, integers, floats, complex."""

    __slots__ = ()

    pred: ClassVar[Function | None] = None
    integer: ClassVar[Function | None] = None
    real: ClassVar[Function | None] = None
    complex: ClassVar[Function | None] = None

    def value(self, lhs: Array, rhs: Array) -> Array:
        kind = element_type(lhs)
        if kind is PrimitiveType.PRED:
            return _known(type(self).pred)(lhs, rhs)
        if kind.is_complex:
            return _known(type(self).complex)(lhs, rhs)
        if kind.is_floating:
            return _known(type(self).real)(lhs, rhs)
        return of_integers(_known(type(self).integer))(lhs, rhs)


def _known(function: Function | None) -> Function:
    if function is None:
        raise ShapeError(
            "the operation is not defined for this element type",
            hint="convert the operands with convert_element_type to another type",
        )
    return function


class BinaryFunction(Protocol):
    """The type of the builder's functions for binary operations."""

    def __call__(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
        """Add the operation, and the broadcasts that it needs, to the operands' builder."""
        ...


def _function(op: type[Binary], name: str) -> BinaryFunction:
    def function(lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
        return emit_binary(op(), lhs, rhs, broadcast_dimensions)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{(op.__doc__ or "").rstrip(".")}, for every pair of elements.

    lhs, rhs: arrays of one {op.takes.words} element type; a number takes the type of the other operand.
    broadcast_dimensions: for operands of different ranks, which dimension of the higher-rank one each dimension of
        the other matches.

    Gives an array of the dimensions that both are broadcast to. Raises ShapeError.
    Source: Operation semantics, Element-wise binary arithmetic operations.
    """
    return building(function)


# -- how numbers do it ---------------------------------------------------------------------------


def _divide_integers(lhs: Array, rhs: Array) -> Array:
    """Towards zero; x / 0 is all ones, and the least integer divided by -1 is itself."""
    zero = rhs == 0
    safe = np.where(zero, rhs.dtype.type(1), rhs)
    # Without the remainder the dividend is a multiple of the divisor, so floor_divide does not round.
    quotient = np.floor_divide(lhs - np.fmod(lhs, safe), safe)
    return np.where(zero, np.invert(rhs.dtype.type(0)), quotient)


def _remainder_of_integers(lhs: Array, rhs: Array) -> Array:
    """With the sign of the dividend; x % 0 is x."""
    zero = rhs == 0
    return np.where(zero, lhs, np.fmod(lhs, np.where(zero, rhs.dtype.type(1), rhs)))


def _power_of_integers(base: Array, exponent: Array) -> Array:
    """By squaring, wrapping; a negative power is 0, except of 1 and -1."""
    one = base.dtype.type(1)
    negative = exponent < 0
    # A negative exponent only has a result other than 0 for the bases 1 and -1, whose powers depend on its parity
    # alone.
    rest = np.where(negative, exponent & one, exponent)
    base = np.where(negative & (base != one) & (base != np.invert(one - one)), base.dtype.type(0), base)
    rest = np.where(negative & (base == 0), one, rest)
    result = np.ones(np.broadcast_shapes(base.shape, rest.shape), dtype=base.dtype)
    while np.any(rest):
        result = np.where(rest & one, result * base, result)
        base = base * base
        rest = rest >> one
    return result


def _power_of_floats(base: Array, exponent: Array) -> Array:
    """In double precision; a power of F8E8M0FNU, which has positive numbers alone, is never rounded to 0 there."""

    def power(x: Array, y: Array) -> Array:
        result = np.asarray(np.power(x, y))
        if base.dtype == PrimitiveType.F8E8M0FNU.dtype:
            result[result == 0] = np.finfo(np.float64).smallest_subnormal
        return result

    return of_doubles(power)(base, exponent)


# -- arithmetic and logic ------------------------------------------------------------------------


@operation("add", arity=2, pointwise=True, documents=("Add",))
class Add(Arithmetic, Commutative, Associative):
    """lhs + rhs; or of PRED."""

    takes = ANY
    pred = _static(np.logical_or)
    integer = _static(np.add)
    real = _static(exactly(np.add))
    complex = _static(np.add)


@operation("subtract", arity=2, pointwise=True, documents=("Sub",))
class Subtract(Arithmetic):
    """lhs - rhs."""

    takes = NUMERIC
    integer = _static(np.subtract)
    real = _static(exactly(np.subtract))
    complex = _static(np.subtract)


@operation("multiply", arity=2, pointwise=True, documents=("Mul",))
class Multiply(Arithmetic, Commutative, Associative):
    """lhs * rhs; and of PRED."""

    takes = ANY
    pred = _static(np.logical_and)
    integer = _static(np.multiply)
    real = _static(exactly(np.multiply))
    complex = _static(of_wider_complex(of_complex.multiply))


@operation("divide", arity=2, pointwise=True, documents=("Div",))
class Divide(Arithmetic, Expensive):
    """lhs / rhs, for integers towards zero, x / 0 being -1 (all ones)."""

    takes = NUMERIC
    integer = _static(_divide_integers)
    real = _static(exactly(np.divide))
    complex = _static(of_wider_complex(of_complex.divide))


@operation("remainder", arity=2, pointwise=True, documents=("Rem",))
class Remainder(Arithmetic, Expensive):
    """The remainder of lhs / rhs with the sign of lhs, for integers x % 0 being x."""

    takes = REAL_NUMERIC
    integer = _static(_remainder_of_integers)
    real = _static(exactly(np.fmod))


@operation("maximum", arity=2, pointwise=True, documents=("Max",))
class Maximum(Arithmetic, Commutative, Associative, Idempotent):
    """The greater of lhs and rhs, NaN if either is; of complex numbers by the real, then by the imaginary part."""

    takes = ANY
    pred = _static(greater)
    integer = _static(greater)
    real = _static(greater)
    complex = _static(np.maximum)


@operation("minimum", arity=2, pointwise=True, documents=("Min",))
class Minimum(Arithmetic, Commutative, Associative, Idempotent):
    """The lesser of lhs and rhs, NaN if either is; of complex numbers by the real, then by the imaginary part."""

    takes = ANY
    pred = _static(lesser)
    integer = _static(lesser)
    real = _static(lesser)
    complex = _static(np.minimum)


@operation("power", arity=2, pointwise=True)
class Power(Arithmetic, Transcendental, Expensive):
    """lhs to the power of rhs, 1 wherever lhs is 1 or rhs is 0."""

    takes = NUMERIC
    integer = _static(_power_of_integers)
    real = _static(_power_of_floats)
    complex = _static(of_wider_complex(of_complex.power))


@operation("atan2", arity=2, pointwise=True)
class Atan2(Arithmetic, Transcendental, Expensive):
    """The angle of the point (rhs, lhs)."""

    takes = FLOATING_OR_COMPLEX
    real = _static(of_doubles(np.arctan2))
    complex = _static(of_wider_complex(of_complex.atan2))


@operation("and", arity=2, pointwise=True, documents=("LogicalAnd",))
class And(Arithmetic, Commutative, Associative, Idempotent):
    """lhs and rhs, bit by bit."""

    takes = PRED_OR_INTEGRAL
    pred = _static(np.logical_and)
    integer = _static(np.bitwise_and)


@operation("or", arity=2, pointwise=True, documents=("LogicalOr",))
class Or(Arithmetic, Commutative, Associative, Idempotent):
    """lhs or rhs, bit by bit."""

    takes = PRED_OR_INTEGRAL
    pred = _static(np.logical_or)
    integer = _static(np.bitwise_or)


@operation("xor", arity=2, pointwise=True)
class Xor(Arithmetic, Commutative, Associative):
    """lhs or rhs but not both, bit by bit."""

    takes = PRED_OR_INTEGRAL
    pred = _static(np.logical_xor)
    integer = _static(np.bitwise_xor)


# -- what needs the width of its type ------------------------------------------------------------


def _shift_count(count: Array) -> tuple[Array, Array]:
    """Shift counts that are safe to use, and which of them were out of range: negative, or at least the width."""
    bits = to_bits(count)
    over = bits >= np.uint64(element_type(count).bit_width)
    return np.where(over, np.uint64(0), bits), over


@operation("shift-left", arity=2, pointwise=True)
class ShiftLeft(Binary):
    """lhs shifted left; 0 where rhs is negative or not less than the width."""

    takes = INTEGRAL

    def value(self, lhs: Array, rhs: Array) -> Array:
        count, over = _shift_count(rhs)
        return wrap(np.where(over, np.uint64(0), to_bits(lhs) << count), lhs.dtype)


@operation("shift-right-logical", arity=2, pointwise=True)
class ShiftRightLogical(Binary):
    """lhs shifted right, zeros coming in; 0 where rhs is negative or not less than the width."""

    takes = INTEGRAL

    def value(self, lhs: Array, rhs: Array) -> Array:
        count, over = _shift_count(rhs)
        return wrap(np.where(over, np.uint64(0), to_bits(lhs) >> count), lhs.dtype)


@operation("shift-right-arithmetic", arity=2, pointwise=True)
class ShiftRightArithmetic(Binary):
    """lhs shifted right, its sign bit coming in; nothing but the sign where rhs is negative or too great."""

    takes = INTEGRAL

    def value(self, lhs: Array, rhs: Array) -> Array:
        count, over = _shift_count(rhs)
        return wrap(to_signed(lhs) >> np.where(over, 63, count.view(np.int64)), lhs.dtype)


@operation("mulhi", arity=2, pointwise=True)
class Mulhi(Binary, Commutative):
    """The upper half of the product in twice the width."""

    takes = INTEGRAL

    def value(self, lhs: Array, rhs: Array) -> Array:
        kind = element_type(lhs)
        if kind.bit_width < 64:
            return wrap((to_integer(lhs) * to_integer(rhs)) >> np.int64(kind.bit_width), lhs.dtype)
        half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
        a, b = to_bits(lhs), to_bits(rhs)
        a_high, a_low, b_high, b_low = a >> half, a & low, b >> half, b & low
        middle = a_high * b_low + ((a_low * b_low) >> half)
        carried = a_low * b_high + (middle & low)
        high = a_high * b_high + (middle >> half) + (carried >> half)
        if kind.is_signed:
            # The unsigned product took a negative factor as its value plus 2^64: subtract the other factor.
            high -= np.where(lhs < 0, b, np.uint64(0)) + np.where(rhs < 0, a, np.uint64(0))
        return high.view(lhs.dtype)


@operation("complex", arity=2, pointwise=True)
class Complex(Binary):
    """The complex number of a real and an imaginary part."""

    takes = FLOATING

    def result_type(self, operands: PrimitiveType) -> PrimitiveType:
        found = {PrimitiveType.F32: PrimitiveType.C64, PrimitiveType.F64: PrimitiveType.C128}.get(operands)
        if found is None:
            raise ShapeError(
                f"complex numbers have parts of f32 or f64, not {operands.hlo_name}",
                hint="convert the parts with convert_element_type to f32 or f64",
            )
        return found

    def value(self, lhs: Array, rhs: Array) -> Array:
        return of_complex.compose(lhs, rhs)


# -- what a person calls -------------------------------------------------------------------------

add = _function(Add, "add")
sub = _function(Subtract, "sub")
mul = _function(Multiply, "mul")
div = _function(Divide, "div")
rem = _function(Remainder, "rem")
max = _function(Maximum, "max")
min = _function(Minimum, "min")
pow = _function(Power, "pow")
atan2 = _function(Atan2, "atan2")
and_ = _function(And, "and_")
or_ = _function(Or, "or_")
xor = _function(Xor, "xor")
logical_and, logical_or = and_, or_
shift_left = _function(ShiftLeft, "shift_left")
shift_right_logical = _function(ShiftRightLogical, "shift_right_logical")
shift_right_arithmetic = _function(ShiftRightArithmetic, "shift_right_arithmetic")
mulhi = _function(Mulhi, "mulhi")
complex = _function(Complex, "complex")


@building
def atan(operand: XlaOp) -> XlaOp:
    """The angle whose tangent is x, for floats or complex numbers; HLO has it as atan2(x, 1).

    Source: Atan of XLA's client library.
    """
    return atan2(operand, 1)
