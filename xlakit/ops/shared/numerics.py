"""Arithmetic on values of every element type: they are widened exactly, computed, and rounded once.

NumPy and ml_dtypes implement the formats, but their casts from float64 to a narrow type round twice (through float32),
and their casts from float to integer do not saturate. This module implements XLA's rules for all pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.operation import Array

# Types to which NumPy itself rounds float64 correctly.
_NATIVE_FLOATS = frozenset(map(np.dtype, (np.float16, np.float32, np.float64)))
# Types in which NumPy computes directly, correctly rounded.
_EXACT_FLOATS = frozenset(map(np.dtype, (np.float32, np.float64)))
_ELEMENT_TYPES = {kind.dtype: kind for kind in PrimitiveType if kind.is_array}


def element_type(x: Array) -> PrimitiveType:
    """The element type of an array."""
    known = _ELEMENT_TYPES.get(x.dtype)
    return PrimitiveType.from_dtype(x.dtype) if known is None else known


# -- floating point ------------------------------------------------------------------------------


def to_double(x: Array) -> Array:
    """The same values as float64; exact for every real floating point type."""
    with np.errstate(all="ignore"):  # ml_dtypes warns of NaN
        return np.asarray(x, dtype=np.float64)


def to_widest(x: Array) -> Array:
    """The same values as float64, or as complex128 where they are complex."""
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def from_double(x: Array, dtype: np.dtype[np.generic]) -> Array:
    """float64 values rounded once, half to even, to a floating point type; overflow is the type's own."""
    x = np.asarray(x)
    with np.errstate(all="ignore"):
        if dtype in _NATIVE_FLOATS:
            return np.asarray(x.astype(dtype))
        if PrimitiveType.from_dtype(dtype).bit_width < 8:
            x = np.where(np.isnan(x), np.nan, x)  # those formats have no NaN: it becomes -0, whatever its sign
        rounded = np.asarray(_odd_float32(x).astype(dtype))
        if dtype == PrimitiveType.F8E8M0FNU.dtype:
            # As in XLA, what is above the least number is never rounded to it; ml_dtypes does so from 0.7 on.
            least = np.zeros((), np.uint8).view(dtype)
            return np.where((rounded == least) & (x > float(least)), dtype.type(2 * float(least)), rounded)
        return rounded


def _odd_float32(x: Array) -> Array:
    """float64 values as float32, rounded to odd: inexact ones go towards zero and get a last bit of 1.

    Rounding the outcome again to a type of at most 22 bits of precision gives what one rounding would have given.
    """
    near = np.asarray(x.astype(np.float32))
    away = np.abs(near) > np.abs(x)
    inexact = (near != x) & ~np.isnan(x)
    bits = near.view(np.uint32)
    return np.where(inexact, (bits - away) | np.uint32(1), bits).view(np.float32)


# The types in which complex functions are computed. If long double has 11 more bits than double and more exponents, as
# on x86, the rounded result is correct almost to the last bit; if it is plain double, to a few units in the last place.
_WIDER_COMPLEX = {np.dtype(np.complex64): np.complex128, np.dtype(np.complex128): np.clongdouble}


def to_wider_complex(x: Array) -> Array:
    """The same complex values in a wider complex type."""
    return np.asarray(x).astype(_WIDER_COMPLEX[x.dtype])


def of_wider_complex(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function of complex numbers of any type, computed in a wider one and rounded to theirs."""

    def narrowed(*operands: Array) -> Array:
        return np.asarray(function(*map(to_wider_complex, operands)).astype(operands[0].dtype))

    return narrowed


def of_doubles(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function of floats of any type, computed in double precision and rounded to theirs."""

    def narrowed(*operands: Array) -> Array:
        return from_double(function(*map(to_double, operands)), operands[0].dtype)

    return narrowed


def exactly(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function of floats that NumPy rounds correctly in f32 and f64; other types go through double precision.

    Sums, products and quotients survive that second rounding: 53 bits are more than twice what narrower types have.
    """
    in_double = of_doubles(function)

    def chosen(*operands: Array) -> Array:
        native = operands[0].dtype in _EXACT_FLOATS
        return function(*operands) if native else in_double(*operands)

    return chosen


# -- integers ------------------------------------------------------------------------------------


def to_integer(x: Array) -> Array:
    """Integers of any width as int64, or as uint64 where they are U64."""
    x = np.asarray(x)
    return x if x.dtype == np.uint64 else np.asarray(x.astype(np.int64))


def to_bits(x: Array) -> Array:
    """The bit patterns of integers of any width, as uint64."""
    width = element_type(x).bit_width
    bits = to_integer(x).view(np.uint64)
    return bits if width == 64 else bits & np.uint64((1 << width) - 1)


def to_signed(x: Array) -> Array:
    """The bit patterns of integers of any width, read as two's complement, as int64."""
    kind = element_type(x)
    value = to_integer(x).view(np.int64)
    if kind.is_signed or kind.bit_width == 64:
        return value
    gap = np.int64(64 - kind.bit_width)
    return (value << gap) >> gap


def wrap(x: Array, dtype: np.dtype[np.generic]) -> Array:
    """64-bit integers modulo the range of an integer type."""
    x = np.asarray(x)
    # The types below a byte know how to be made from bytes.
    return np.asarray((x if dtype.kind in "iu" else x.astype(np.int8)).astype(dtype))


def limits(kind: PrimitiveType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    if kind.is_signed:
        return -(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1
    return 0, (1 << kind.bit_width) - 1


def lowest(kind: PrimitiveType) -> Array | None:
    """The least value of a type: -infinity if it has one; None for complex types."""
    return _bound(kind, -1)


def highest(kind: PrimitiveType) -> Array | None:
    """The greatest value of a type: infinity if it has one; None for complex types."""
    return _bound(kind, 1)


def last_in_total_order(kind: PrimitiveType, *, greatest: bool) -> Array | None:
    """The greatest or the least number of a type, of floats in their total order; None for narrow floats."""
    if not kind.is_floating:
        return highest(kind) if greatest else lowest(kind)
    if kind.bit_width < 8 or kind.name.startswith("F8"):
        return None
    # A NaN with all bits set: with the sign bit it is the first in the total order, without it the last.
    bits = (1 << (kind.bit_width - greatest)) - 1
    return np.asarray(bits, dtype=f"u{kind.byte_width}").view(kind.dtype)


def _bound(kind: PrimitiveType, sign: int) -> Array | None:
    if kind is PrimitiveType.PRED:
        return np.asarray(sign > 0)
    if kind.is_integral:
        least, greatest = limits(kind)
        wide = np.int64 if least < 0 else np.uint64
        return wrap(np.asarray(greatest if sign > 0 else least, dtype=wide), kind.dtype)
    if kind.is_complex:
        return None
    with np.errstate(all="ignore"):
        number = np.asarray(sign * np.inf, dtype=np.float64).astype(kind.dtype)
    # Some narrow formats have no infinity.
    return number if float(number) == sign * math.inf else None


def of_integers(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function of integers that NumPy wraps in its own types; those below a byte go through int64."""

    def wrapped(*operands: Array) -> Array:
        if operands[0].dtype.kind in "iu":
            return function(*operands)
        return wrap(function(*map(to_integer, operands)), operands[0].dtype)

    return wrapped


def from_double_to_integer(x: Array, kind: PrimitiveType) -> Array:
    """float64 values truncated to an integer type; those beyond its range become its limits, NaN becomes 0."""
    low, high = limits(kind)
    with np.errstate(all="ignore"):
        whole = np.trunc(np.where(np.isnan(x), 0.0, x))
        # float(high) of a 64-bit type rounds up to one more than the limit, so values above are set to it afterwards.
        over = whole >= float(high)
        wide = np.where(over, 0.0, np.maximum(whole, float(low)))
        integers = wide.astype(np.uint64) if kind is PrimitiveType.U64 else wide.astype(np.int64)
        return wrap(np.where(over, integers.dtype.type(high), integers), kind.dtype)


def from_integer_to_double(x: Array) -> Array:
    """Integers as float64, such that rounding the float64 to a narrower type gives the correctly rounded integer.

    Beyond 2^53 the bits that do not fit are or-ed into the last bit (a sticky bit), which lies below the last bits of
    all narrower types.
    """
    wide = to_integer(x)
    one = wide.dtype.type
    high = wide >> one(53)
    large = (high != 0) & (high != one(0) - one(1)) if wide.dtype == np.int64 else high != 0
    lost = wide & one(0x7FF)
    sticky = (wide - lost) | np.where(lost != 0, one(0x800), one(0))
    return np.where(large, sticky, wide).astype(np.float64)


# -- conversion ----------------------------------------------------------------------------------


def convert(x: Array, kind: PrimitiveType) -> Array:
    """Values of any type in another type, as convert does it.

    Floats round half to even, become integers by truncation and saturation (NaN becomes 0) and PRED by comparison
    with zero; integers wrap; a complex number gives its real part.
    """
    x = np.asarray(x)
    source = element_type(x)
    if source is kind:
        return x
    with np.errstate(all="ignore"):
        if kind.is_complex:
            parts = x if source.is_complex else convert(x, kind.real_part)
            return np.asarray(parts.astype(kind.dtype))
        if source.is_complex:
            return convert(np.real(x), kind)
        if source is PrimitiveType.PRED:
            return convert(x.astype(np.uint8), kind)
        if source.is_floating:
            return _convert_float(to_double(x), kind)
        return _convert_integer(x, kind)


def _convert_float(x: Array, kind: PrimitiveType) -> Array:
    if kind is PrimitiveType.PRED:
        return np.asarray(x != 0)
    return from_double(x, kind.dtype) if kind.is_floating else from_double_to_integer(x, kind)


def _convert_integer(x: Array, kind: PrimitiveType) -> Array:
    if kind is PrimitiveType.PRED:
        return np.asarray(to_integer(x) != 0)
    if kind.is_integral:
        return wrap(to_integer(x), kind.dtype)
    if kind is PrimitiveType.F64:
        return np.asarray(to_integer(x).astype(np.float64))
    return from_double(from_integer_to_double(x), kind.dtype)


# -- the greater and the lesser --------------------------------------------------------------------


@exactly
def _greater_float(a: Array, b: Array) -> Array:
    found = np.maximum(a, b)
    return found if found.all() else np.where((a == 0) & (b == 0), a + b, found)


@exactly
def _lesser_float(a: Array, b: Array) -> Array:
    found = np.minimum(a, b)
    return found if found.all() else np.where((a == 0) & (b == 0), -(-a - b), found)


_greater_integer, _lesser_integer = of_integers(np.maximum), of_integers(np.minimum)


def greater(a: Array, b: Array) -> Array:
    """The greater of two reals, integers or PREDs; NaN wins, and +0 is greater than -0."""
    kind = element_type(a)
    if kind is PrimitiveType.PRED:
        return np.logical_or(a, b)
    return _greater_float(a, b) if kind.is_floating else _greater_integer(a, b)


def lesser(a: Array, b: Array) -> Array:
    """The lesser of two reals, integers or PREDs; NaN wins, and -0 is less than +0."""
    kind = element_type(a)
    if kind is PrimitiveType.PRED:
        return np.logical_and(a, b)
    return _lesser_float(a, b) if kind.is_floating else _lesser_integer(a, b)


# -- zero ----------------------------------------------------------------------------------------


def zeros(sizes: Sequence[int], kind: PrimitiveType) -> Array:
    """An array of zeros; of NaN in f8e8m0fnu, which has none."""
    has_zero = kind is not PrimitiveType.F8E8M0FNU
    return np.zeros(sizes, kind.dtype) if has_zero else np.zeros(sizes, np.float32).astype(kind.dtype)


def that_can_be_zero(x: Array) -> Array:
    """The array in a type that has a zero: f8e8m0fnu becomes f32."""
    return x.astype(np.float32) if element_type(x) is PrimitiveType.F8E8M0FNU else x


# -- order ---------------------------------------------------------------------------------------


def raw_bits(x: Array) -> Array:
    """The bit patterns of floats, as unsigned integers of the width of their memory."""
    x = np.ascontiguousarray(x) if x.ndim else x
    return x.view(f"u{x.dtype.itemsize}")


def total_order_key(x: Array) -> Array:
    """Unsigned integers that sort as -NaN < -Inf < -finite < -0 < +0 < +finite < +Inf < +NaN do."""
    kind = element_type(x)
    bits = raw_bits(x)
    if kind is PrimitiveType.F8E8M0FNU:  # has no sign
        return bits
    word = bits.dtype.type
    sign = word(1 << (kind.bit_width - 1))
    ones = word((1 << kind.bit_width) - 1)
    negative = bits ^ ones
    if kind.has_nan_for_negative_zero:
        # Their one NaN has the bits that are -0 elsewhere, so its sign is negative.
        negative = np.where(bits == sign, word(0), negative + word(1))
    return np.where(bits & sign, negative, bits | sign)
