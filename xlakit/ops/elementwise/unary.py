"""Unary operations that give exact results: signs, rounding to integers, parts of complex numbers, bits.

The elementary functions, from ``exp`` to ``atanh``, are on the page ``elementary`` and are offered here too.
Source: XLA's document "Operation semantics", Element-wise unary functions.
"""

from __future__ import annotations

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.operation import Array, operation
from xlakit.ops.elementwise import binary
from xlakit.ops.elementwise.elementary import (
    acos,
    acosh,
    asin,
    asinh,
    atanh,
    cbrt,
    cos,
    cosh,
    erf,
    exp,
    expm1,
    log,
    log1p,
    logistic,
    rsqrt,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)
from xlakit.ops.handle import XlaOp, building, emit
from xlakit.ops.shared import complex_functions as of_complex
from xlakit.ops.shared.elementwise import (
    FLOATING,
    FLOATING_OR_COMPLEX,
    INTEGRAL,
    NUMERIC,
    PRED_OR_INTEGRAL,
    SIGNED,
    Unary,
)
from xlakit.ops.shared.numerics import (
    element_type,
    exactly,
    of_doubles,
    of_integers,
    of_wider_complex,
    to_bits,
    to_double,
    wrap,
    zeros,
)

__all__ = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atanh",
    "cbrt",
    "ceil",
    "clz",
    "conj",
    "cos",
    "cosh",
    "erf",
    "exp",
    "expm1",
    "floor",
    "imag",
    "is_finite",
    "log",
    "log1p",
    "logical_not",
    "logistic",
    "neg",
    "not_",
    "population_count",
    "real",
    "round",
    "round_nearest_even",
    "rsqrt",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]


# -- signs ---------------------------------------------------------------------------------------


@operation("abs", arity=1, pointwise=True, documents=("Abs",))
class Abs(Unary):
    """|x|; of a complex number its length, of the least signed integer itself."""

    takes = SIGNED

    def result_type(self, operand: PrimitiveType) -> PrimitiveType:
        return operand.real_part

    def value(self, x: Array) -> Array:
        kind = element_type(x)
        if kind.is_complex:
            # Not in a wider type: C's hypot is right, and the parts of c64 have room in f64.
            return np.hypot(to_double(np.real(x)), to_double(np.imag(x))).astype(kind.real_part.dtype)
        return of_integers(np.abs)(x) if kind.is_integral else np.abs(x)


@operation("sign", arity=1, pointwise=True, documents=("Sign",))
class Sign(Unary):
    """-1, 0 or 1; zeros and NaN give themselves, complex numbers z give z / |z|."""

    takes = SIGNED

    def value(self, x: Array) -> Array:
        kind = element_type(x)
        if kind.is_integral:
            return of_integers(np.sign)(x)
        if kind.is_complex:
            return of_wider_complex(of_complex.sign)(x)
        return of_doubles(lambda d: np.where(np.isnan(d) | (d == 0), d, np.copysign(1.0, d)))(x)


@operation("negate", arity=1, pointwise=True, documents=("Neg",))
class Negate(Unary):
    """-x; integers wrap."""

    takes = NUMERIC

    def value(self, x: Array) -> Array:
        return of_integers(np.negative)(x) if element_type(x).is_integral else np.negative(x)


# -- rounding to integers ------------------------------------------------------------------------


@operation("floor", arity=1, pointwise=True, documents=("Floor",))
class Floor(Unary):
    """The greatest integer that is not greater."""

    takes = FLOATING

    def value(self, x: Array) -> Array:
        return exactly(np.floor)(x)


@operation("ceil", arity=1, pointwise=True, documents=("Ceil",))
class Ceil(Unary):
    """The least integer that is not less."""

    takes = FLOATING

    def value(self, x: Array) -> Array:
        return exactly(np.ceil)(x)


@operation("round-nearest-afz", arity=1, pointwise=True, documents=("Round",))
class RoundNearestAfz(Unary):
    """The nearest integer, halves away from zero."""

    takes = FLOATING

    def value(self, x: Array) -> Array:
        return exactly(_away_from_zero)(x)


def _away_from_zero(x: Array) -> Array:
    whole = np.trunc(x)
    # Adding a half first would round 0.49999999999999994 up.
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1.0, x), whole)


@operation("round-nearest-even", arity=1, pointwise=True, documents=("RoundNearestEven",))
class RoundNearestEven(Unary):
    """The nearest integer, halves to the even one."""

    takes = FLOATING

    def value(self, x: Array) -> Array:
        return exactly(np.rint)(x)


# -- parts and tests -----------------------------------------------------------------------------


@operation("real", arity=1, pointwise=True, documents=("Real",))
class Real(Unary):
    """The real part; of a real number itself."""

    takes = FLOATING_OR_COMPLEX

    def result_type(self, operand: PrimitiveType) -> PrimitiveType:
        return operand.real_part

    def value(self, x: Array) -> Array:
        return np.real(x).copy() if element_type(x).is_complex else x


@operation("imag", arity=1, pointwise=True, documents=("Imag",))
class Imag(Unary):
    """The imaginary part; of a real number 0."""

    takes = FLOATING_OR_COMPLEX

    def result_type(self, operand: PrimitiveType) -> PrimitiveType:
        return operand.real_part

    def value(self, x: Array) -> Array:
        return np.imag(x).copy() if element_type(x).is_complex else zeros(x.shape, element_type(x))


@operation("is-finite", arity=1, pointwise=True, documents=("IsFinite",))
class IsFinite(Unary):
    """Whether x is neither infinite nor NaN."""

    takes = FLOATING

    def result_type(self, operand: PrimitiveType) -> PrimitiveType:
        return PrimitiveType.PRED

    def value(self, x: Array) -> Array:
        return np.isfinite(to_double(x))


# -- bits ----------------------------------------------------------------------------------------


@operation("not", arity=1, pointwise=True, documents=("LogicalNot",))
class Not(Unary):
    """Logical not of PRED, bitwise not of integers."""

    takes = PRED_OR_INTEGRAL

    def value(self, x: Array) -> Array:
        return of_integers(np.invert)(x) if element_type(x).is_integral else np.logical_not(x)


@operation("popcnt", arity=1, pointwise=True, documents=("PopulationCount",))
class PopulationCount(Unary):
    """How many bits are set."""

    takes = INTEGRAL

    def value(self, x: Array) -> Array:
        return wrap(np.bitwise_count(to_bits(x)).astype(np.int64), x.dtype)


@operation("count-leading-zeros", arity=1, pointwise=True, documents=("Clz",))
class CountLeadingZeros(Unary):
    """How many zero bits stand above the highest bit that is set; all of them for 0."""

    takes = INTEGRAL

    def value(self, x: Array) -> Array:
        rest = to_bits(x)
        length = np.zeros(rest.shape, dtype=np.int64)
        for shift in (32, 16, 8, 4, 2, 1):
            upper = rest >> np.uint64(shift)
            length += np.where(upper != 0, shift, 0)
            rest = np.where(upper != 0, upper, rest)
        return wrap(element_type(x).bit_width - length - rest.astype(np.int64), x.dtype)


# -- what a person calls -------------------------------------------------------------------------


@building
def abs(operand: XlaOp) -> XlaOp:
    """|x| of signed integers, floats, or complex numbers (which gives the type of their parts).

    Raises ShapeError for other types. Source: Operation semantics, Abs.
    """
    return emit(Abs(), operand)


@building
def sign(operand: XlaOp) -> XlaOp:
    """-1, -0, +0 or 1 of signed integers and floats (NaN of NaN), z / |z| of complex numbers.

    Raises ShapeError for other types. Source: Operation semantics, Sign.
    """
    return emit(Sign(), operand)


@building
def neg(operand: XlaOp) -> XlaOp:
    """-x of integers (which wrap), floats and complex numbers; raises ShapeError for PRED.

    Source: Operation semantics, Neg.
    """
    return emit(Negate(), operand)


@building
def floor(operand: XlaOp) -> XlaOp:
    """The greatest integers not above the floats of an array.

    Raises ShapeError for other types. Source: Operation semantics, Floor.
    """
    return emit(Floor(), operand)


@building
def ceil(operand: XlaOp) -> XlaOp:
    """The least integers not below the floats of an array.

    Raises ShapeError for other types. Source: Operation semantics, Ceil.
    """
    return emit(Ceil(), operand)


@building
def round(operand: XlaOp) -> XlaOp:
    """The nearest integers to the floats of an array, halves away from zero.

    Raises ShapeError for other types. Source: Operation semantics, Round.
    """
    return emit(RoundNearestAfz(), operand)


@building
def round_nearest_even(operand: XlaOp) -> XlaOp:
    """The nearest integers to the floats of an array, halves to even.

    Raises ShapeError for other types. Source: Operation semantics, RoundNearestEven.
    """
    return emit(RoundNearestEven(), operand)


@building
def real(operand: XlaOp) -> XlaOp:
    """The real parts of complex numbers; floats give themselves.

    Raises ShapeError for other types. Source: Operation semantics, Real.
    """
    return emit(Real(), operand)


@building
def imag(operand: XlaOp) -> XlaOp:
    """The imaginary parts of complex numbers; floats give 0.

    Raises ShapeError for other types. Source: Operation semantics, Imag.
    """
    return emit(Imag(), operand)


@building
def conj(operand: XlaOp) -> XlaOp:
    """The conjugates of complex numbers; f32 and f64 become complex.

    Raises ShapeError for other types. Source: XlaBuilder's Conj.
    """
    return binary.complex(real(operand), neg(imag(operand)))


@building
def is_finite(operand: XlaOp) -> XlaOp:
    """PRED: whether the floats of an array are neither infinite nor NaN.

    Raises ShapeError for other types. Source: Operation semantics, IsFinite.
    """
    return emit(IsFinite(), operand)


@building
def not_(operand: XlaOp) -> XlaOp:
    """Logical not of PRED, bitwise not of integers.

    Raises ShapeError for other types. Source: Operation semantics, LogicalNot.
    """
    return emit(Not(), operand)


logical_not = not_


@building
def population_count(operand: XlaOp) -> XlaOp:
    """How many bits of each integer are set, in its own type.

    Raises ShapeError for other types. Source: Operation semantics, PopulationCount.
    """
    return emit(PopulationCount(), operand)


@building
def clz(operand: XlaOp) -> XlaOp:
    """How many leading bits of each integer are zero, in its own type.

    Raises ShapeError for other types. Source: XlaBuilder's Clz.
    """
    return emit(CountLeadingZeros(), operand)
