"""Conversions between the types in which floats are stored and the types in which they are computed.

Stored F16 values have LLVM's type half; stored BF16 values, and those of at most 8 bits, are bits in an I16 or I8.
"""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np

from xlakit.cpu.llvm.function import Function
from xlakit.cpu.llvm.types import F16, F32, F64, I8, I16, I32, Type
from xlakit.cpu.llvm.values import Value
from xlakit.cpu.math.arithmetic import DOUBLE, absolute, at_most, bits_of, float_of, narrowed, where, widened
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.errors import InternalError
from xlakit.target import converts_halves

_WIDE_FRACTION, _WIDE_BIAS = 23, 127
_WIDE_INFINITY, _WIDE_NAN = 0x7F800000, 0x7FC00000
_HALF_INFINITY, _HALF_NAN = 0x7C00, 0x7E00


@dataclass(frozen=True, slots=True)
class Minifloat:
    """A format with a sign and at most 8 bits, or F16; a code is a number's bits without the sign."""

    sign_bit: int
    fraction: int
    bias: int
    # The greatest finite number, its code, and the code of numbers beyond it.
    greatest: float
    greatest_code: int
    overflow: int
    # The bits of NaN, if there is one, and whether NaN keeps the sign.
    nan: int
    signed_nan: bool
    has_nan: bool
    # Formats without a negative zero use its bits for NaN.
    negative_zero: bool


@cache
def minifloat(kind: PrimitiveType) -> Minifloat:
    """The format of a type, derived from the casts of its dtype."""
    info = ml_dtypes.finfo(kind.dtype)

    def code(x: float) -> int:
        with np.errstate(all="ignore"):
            return int(np.float32(x).astype(kind.dtype).view(np.uint8))

    sign_bit = 1 << (kind.bit_width - 1)
    nan, negative_nan = code(np.nan), code(-np.nan)
    return Minifloat(
        sign_bit=sign_bit,
        fraction=int(info.nmant),
        bias=1 - int(info.minexp),
        greatest=float(info.max),
        greatest_code=code(float(info.max)),
        overflow=code(np.inf),
        nan=nan,
        signed_nan=nan not in (sign_bit, negative_nan),
        has_nan=kind.bit_width == 8,
        negative_zero=code(-0.0) != 0,
    )


# F16, for processors without conversion instructions; LLVM would call functions of a C library there.
_HALF = Minifloat(
    sign_bit=0x8000,
    fraction=10,
    bias=15,
    greatest=65504.0,
    greatest_code=_HALF_INFINITY - 1,
    overflow=_HALF_INFINITY,
    nan=_HALF_NAN,
    signed_nan=True,
    has_nan=True,
    negative_zero=True,
)


def storage(kind: PrimitiveType) -> Type:
    """The LLVM type in which a value of a floating point type is stored."""
    wide = {PrimitiveType.F64: F64, PrimitiveType.F32: F32, PrimitiveType.F16: F16, PrimitiveType.BF16: I16}
    if not kind.is_floating:
        raise InternalError(f"{kind.hlo_name} is no floating point type")
    return wide.get(kind, I8)


# -- to F32 ----------------------------------------------------------------------------------------


def to_f32(fn: Function, primitive_type: PrimitiveType, stored: Value) -> Value:
    """Convert a stored value of any floating point type but F64 to F32, exactly.

    Raises InternalError if ``stored`` does not have the type's storage.
    """
    if primitive_type is PrimitiveType.F64 or stored.type.element is not storage(primitive_type):
        raise InternalError(f"{stored} is no stored {primitive_type.hlo_name}")
    if primitive_type is PrimitiveType.F32:
        return stored
    if primitive_type is PrimitiveType.F16:
        return stored.cast("fpext", stored.type.with_element(F32)) if converts_halves() else _from_half(stored)
    bits = stored.cast("zext", stored.type.with_element(I32))
    if primitive_type is PrimitiveType.BF16:
        return float_of(bits << 16)
    if primitive_type is PrimitiveType.F8E8M0FNU:
        # The format has only an exponent: 2^-127 is a subnormal number of F32, and the last code is NaN.
        shifted = where(bits.eq(0), 1 << 22, bits << _WIDE_FRACTION)
        return float_of(where(bits.eq(0xFF), _WIDE_NAN, shifted))
    return _from_minifloat(minifloat(primitive_type), bits)


def _from_minifloat(form: Minifloat, bits: Value) -> Value:
    code = bits & (form.sign_bit - 1)
    sign = (bits & form.sign_bit) << (32 - form.sign_bit.bit_length())
    shifted = code << (_WIDE_FRACTION - form.fraction)
    normal = shifted + ((_WIDE_BIAS - form.bias) << _WIDE_FRACTION)
    # A subnormal number has no leading one, so one is added in the bits, and subtracted as a float. No intermediate
    # result is subnormal in F32, which could be slow or flushed to zero.
    subnormal = bits_of(float_of(normal + (1 << _WIDE_FRACTION)) - 2.0 ** (1 - form.bias))
    result = where(code < 1 << form.fraction, subnormal, normal)
    if form.has_nan and form.negative_zero:
        # Formats with infinity have several NaNs, distinguished by their fractions, which the F32 keeps.
        beyond = shifted | _WIDE_INFINITY if form.overflow != form.nan else _WIDE_NAN
        result = where(code > form.greatest_code, beyond, result)
    elif form.has_nan:
        result = where(bits.eq(form.nan), _WIDE_NAN, result)
    return float_of(result | sign)


def _from_half(stored: Value) -> Value:
    """The F32 of an F16; a NaN keeps its bits and becomes quiet, as with conversion instructions."""
    bits = stored.bits_as(stored.type.with_element(I16)).cast("zext", stored.type.with_element(I32))
    wide = bits_of(_from_minifloat(_HALF, bits))
    return float_of(where((bits & 0x7FFF) > _HALF_INFINITY, wide | _WIDE_NAN, wide))


def _to_half(value: Value) -> Value:
    """The F16 of an F32, rounded half to even; a NaN keeps its leading bits and becomes quiet."""
    bits = bits_of(value)
    sign = (bits >> 16) & _HALF.sign_bit
    payload = (bits >> (_WIDE_FRACTION - _HALF.fraction)) & ((1 << _HALF.fraction) - 1)
    half = where(value.is_nan(), sign | _HALF_NAN | payload, _to_minifloat(_HALF, value))
    return half.cast("trunc", value.type.with_element(I16)).bits_as(value.type.with_element(F16))


# -- from F32 and F64 ------------------------------------------------------------------------------


def from_f32(fn: Function, primitive_type: PrimitiveType, value: Value) -> Value:
    """Round an F32, half to even, to the stored form of a floating point type, with the type's own overflow.

    Raises InternalError if ``value`` is not F32.
    """
    if value.type.element is not F32:
        raise InternalError(f"{value} is not of F32")
    if primitive_type is PrimitiveType.F64:
        return widened(value)
    if primitive_type is PrimitiveType.F32:
        return value
    if primitive_type is PrimitiveType.F16:
        return value.cast("fptrunc", value.type.with_element(F16)) if converts_halves() else _to_half(value)
    bits = bits_of(value)
    if primitive_type is PrimitiveType.BF16:
        quiet = ((bits >> 16) & 0x8000) | 0x7FC0
        return where(value.is_nan(), quiet, _rounded(bits, 16)).cast("trunc", value.type.with_element(I16))
    if primitive_type is PrimitiveType.F8E8M0FNU:
        # The only type whose ties round up, but a tie at the least number, 2^-127, rounds down to it. Numbers that are
        # not positive become NaN, and so do those that round beyond the greatest.
        half = 1 << (_WIDE_FRACTION - 1)
        rounded = where(bits > half, bits + half, 0) >> _WIDE_FRACTION
        # The comparison is on bits, because a subnormal float may be flushed to zero.
        return where((bits > 0) & ~value.is_nan(), rounded, 0xFF).cast("trunc", value.type.with_element(I8))
    return _to_minifloat(minifloat(primitive_type), value).cast("trunc", value.type.with_element(I8))


def stored_again(fn: Function, primitive_type: PrimitiveType, value: Value) -> Value:
    """As :func:`from_f32`, but a NaN that :func:`to_f32` has read keeps its original bits."""
    stored = from_f32(fn, primitive_type, value)
    if primitive_type.bit_width != 8 or primitive_type is PrimitiveType.F8E8M0FNU:
        return stored
    form = minifloat(primitive_type)
    if form.overflow == form.nan or not form.negative_zero:
        return stored
    fraction = (bits_of(value) >> (_WIDE_FRACTION - form.fraction)) & ((1 << form.fraction) - 1)
    nan = ((bits_of(value) >> 24) & form.sign_bit) | form.overflow | fraction
    return where(value.is_nan() & fraction.ne(0), nan.cast("trunc", stored.type), stored)


def as_bf16(value: Value) -> Value:
    """Round an F32 to the values of BF16, as an F32.

    NaNs from arithmetic on BF16 have no fraction bits that would carry, so they stay NaNs without a test;
    :func:`from_f32` gives them the bits that are stored.
    """
    return float_of(_rounded(bits_of(value), 16) << 16)


def bf16_bits(value: Value) -> Value:
    """The stored form, as from :func:`from_f32`, of an F32 that is exact in BF16; cheaper."""
    upper = (bits_of(value) >> 16).cast("trunc", value.type.with_element(I16))
    # A register has twice as many 16-bit elements as 32-bit ones.
    return where((upper & 0x7FFF) > 0x7F80, (upper & -0x8000) | 0x7FC0, upper)


def _rounded(bits: Value, dropped: int) -> Value:
    """Bits without the last ``dropped`` ones, rounded half to even; a carry correctly increases the exponent."""
    odd = (bits >> dropped) & 1
    return (bits + ((1 << (dropped - 1)) - 1) + odd) >> dropped


def _to_minifloat(form: Minifloat, value: Value) -> Value:
    # Bounded, so that numbers far beyond the range do not wrap around.
    size = at_most(absolute(value), form.greatest * 4)
    exponents = (_WIDE_BIAS - form.bias) << form.fraction
    normal = _rounded(bits_of(size), _WIDE_FRACTION - form.fraction) - exponents
    # Subnormal numbers are multiples of the least one: a sum with a number whose last bit has that value rounds to such
    # a multiple, which is in the low bits of the sum.
    least_normal = 2.0 ** (1 - form.bias)
    anchor = least_normal * 2.0 ** (_WIDE_FRACTION - form.fraction)
    anchor_bits = int(np.float32(anchor).view(np.int32))
    subnormal = bits_of(size + anchor) - anchor_bits
    code = where(size < least_normal, subnormal, normal)
    code = where(code > form.greatest_code, form.overflow, code)
    sign = (bits_of(value) >> (32 - form.sign_bit.bit_length())) & form.sign_bit
    if form.negative_zero:
        result = code | sign
        nan = (sign | form.nan) if form.signed_nan else form.nan
    else:
        result, nan = where(code.eq(0), 0, code | sign), form.nan
    return where(value.is_nan(), nan, result)


def from_f64(fn: Function, primitive_type: PrimitiveType, value: Value) -> Value:
    """Round an F64 once, half to even, to the stored form of a floating point type, with the type's own overflow.

    Raises InternalError if ``value`` is not F64.
    """
    if value.type.element is not F64:
        raise InternalError(f"{value} is not of F64")
    if primitive_type is PrimitiveType.F64:
        return value
    if primitive_type is PrimitiveType.F32:
        return narrowed(value)
    if primitive_type is PrimitiveType.F8E8M0FNU:
        return _exponent_of_double(value)
    fraction_bits = int(ml_dtypes.finfo(primitive_type.dtype).nmant) + 3
    return from_f32(fn, primitive_type, _rounded_to_odd(value, fraction_bits))


def _exponent_of_double(value: Value) -> Value:
    """The F8E8M0 of an F64, by its bits: the least numbers are subnormal in F32, and may be flushed to zero."""
    bits = bits_of(value)
    half, lower = 1 << (DOUBLE.fraction - 1), DOUBLE.bias - _WIDE_BIAS
    least = lower << DOUBLE.fraction
    # As in from_f32: numbers above the least one by more than half round up to the next one.
    above = where(bits > least + half, ((bits + half) >> DOUBLE.fraction) - lower, 1)
    # Numbers that are not positive become NaN, and so do infinities and numbers that round beyond the greatest.
    code = where(bits > least, where(above > 0xFE, 0xFF, above), 0)
    return where(bits > 0, code, 0xFF).cast("trunc", value.type.with_element(I8))


def _rounded_to_odd(value: Value, fraction_bits: int) -> Value:
    """Round an F64 to this many bits of its fraction, to odd: toward zero, with the last bit set if that is inexact.

    A second rounding to at least two bits less then gives the correctly rounded result. The result is exact in F32,
    unless it is far below the least number of any narrow type.
    """
    bits = bits_of(value)
    below = (1 << (DOUBLE.fraction - fraction_bits)) - 1
    # The sum carries into the last kept bit if any lower bit is set.
    odd = bits | ((bits & below) + below)
    return narrowed(float_of(odd & ~below))
