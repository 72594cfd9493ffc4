"""Unary operations that give exact results: signs, rounding to integers, parts of complex numbers, bits.

The elementary functions, from ``exp`` to ``atanh``, are on the page ``elementary``.
Source: XLA's document "Operation semantics", Element-wise unary functions.
"""

from __future__ import annotations

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.operation import Array, operation
from xlakit.ops.elementwise import binary
from xlakit.ops.handle import XlaOp, building
from xlakit.ops.shared import complex_functions as of_complex
from xlakit.ops.shared.elementwise import (
    FLOATING,
    FLOATING_OR_COMPLEX,
    INTEGRAL,
    NUMERIC,
    PRED_OR_INTEGRAL,
    SIGNED,
    Unary,
    unary_function,
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

abs = unary_function(Abs, "abs")
sign = unary_function(Sign, "sign")
neg = unary_function(Negate, "neg")
floor = unary_function(Floor, "floor")
ceil = unary_function(Ceil, "ceil")
round = unary_function(RoundNearestAfz, "round")
round_nearest_even = unary_function(RoundNearestEven, "round_nearest_even")
real = unary_function(Real, "real")
imag = unary_function(Imag, "imag")
is_finite = unary_function(IsFinite, "is_finite")
not_ = unary_function(Not, "not_")
logical_not = not_
population_count = unary_function(PopulationCount, "population_count")
clz = unary_function(CountLeadingZeros, "clz")


@building
def conj(operand: XlaOp) -> XlaOp:
    """The conjugates of complex numbers; f32 and f64 become complex.

    Raises ShapeError for other types. Source: XlaBuilder's Conj.
    """
    return binary.complex(real(operand), neg(imag(operand)))
