"""Between the types that numbers are stored in and those that are computed in.

Values of F16 are LLVM's half; those of BF16, and of the types of 8 bits and fewer, are their bits as I16 and I8.
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
    """A format of 8 bits or fewer with a sign; a code is a number's bits without the sign."""

    sign_bit: int
    fraction: int
    bias: int
    # The greatest finite number, and the codes that it and what is beyond it have.
    greatest: float
    greatest_code: int
    overflow: int
    # The bits of NaN, if there is one; whether the sign stays with it.
    nan: int
    signed_nan: bool
    has_nan: bool
    # Formats without a negative zero have their NaN instead.
    negative_zero: bool


@cache
def minifloat(kind: PrimitiveType) -> Minifloat:
    """The format of a type, as the casts of its dtype show it."""
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


# F16, for processors without instructions that convert it; LLVM would call functions of a C library there.
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
    """The LLVM type that a value of a floating point type is stored as."""
    wide = {PrimitiveType.F64: F64, PrimitiveType.F32: F32, PrimitiveType.F16: F16, PrimitiveType.BF16: I16}
    if not kind.is_floating:
        raise InternalError(f"{kind.hlo_name} is no floating point type")
    return wide.get(kind, I8)


# -- to F32 ----------------------------------------------------------------------------------------


def to_f32(fn: Function, primitive_type: PrimitiveType, stored: Value) -> Value:
    """The F32 of a stored value of any floating point type but F64; exact.

    Raises InternalError where ``stored`` is not of the type's storage.
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
        # An exponent and no more: 2^-127 is a subnormal number of F32, and the last one is NaN.
        shifted = where(bits.eq(0), 1 << 22, bits << _WIDE_FRACTION)
        return float_of(where(bits.eq(0xFF), _WIDE_NAN, shifted))
    return _from_minifloat(minifloat(primitive_type), bits)


def _from_minifloat(form: Minifloat, bits: Value) -> Value:
    code = bits & (form.sign_bit - 1)
    sign = (bits & form.sign_bit) << (32 - form.sign_bit.bit_length())
    shifted = code << (_WIDE_FRACTION - form.fraction)
    normal = shifted + ((_WIDE_BIAS - form.bias) << _WIDE_FRACTION)
    # A subnormal number has no leading one: it is added, and subtracted as a float. No step is subnormal in F32, which
    # would take long, or be zero.
    subnormal = bits_of(float_of(normal + (1 << _WIDE_FRACTION)) - 2.0 ** (1 - form.bias))
    result = where(code < 1 << form.fraction, subnormal, normal)
    if form.has_nan and form.negative_zero:
        # Formats with infinity have more than one NaN; which one it is stays in the fraction, beside all ones above it.
        beyond = shifted | _WIDE_INFINITY if form.overflow != form.nan else _WIDE_NAN
        result = where(code > form.greatest_code, beyond, result)
    elif form.has_nan:
        result = where(bits.eq(form.nan), _WIDE_NAN, result)
    return float_of(result | sign)


def _from_half(stored: Value) -> Value:
    """The F32 of an F16; a NaN keeps its bits and becomes a quiet one, as instructions do it."""
    bits = stored.bits_as(stored.type.with_element(I16)).cast("zext", stored.type.with_element(I32))
    wide = bits_of(_from_minifloat(_HALF, bits))
    return float_of(where((bits & 0x7FFF) > _HALF_INFINITY, wide | _WIDE_NAN, wide))


def _to_half(value: Value) -> Value:
    """The F16 of an F32, rounded half to even; a NaN keeps its first bits and becomes a quiet one."""
    bits = bits_of(value)
    sign = (bits >> 16) & _HALF.sign_bit
    payload = (bits >> (_WIDE_FRACTION - _HALF.fraction)) & ((1 << _HALF.fraction) - 1)
    found = where(value.is_nan(), sign | _HALF_NAN | payload, _to_minifloat(_HALF, value))
    return found.cast("trunc", value.type.with_element(I16)).bits_as(value.type.with_element(F16))


# -- from F32 and F64 ------------------------------------------------------------------------------


def from_f32(fn: Function, primitive_type: PrimitiveType, value: Value) -> Value:
    """An F32 rounded, half to even, to a floating point type, as it is stored; overflow is the type's own.

    Raises InternalError where ``value`` is not of F32.
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
        # The one type whose halves go up, though the least number, 2^-127, is where the bits have such a half. What is
        # not positive is NaN, and so is what rounds beyond the greatest.
        half = 1 << (_WIDE_FRACTION - 1)
        rounded = where(bits > half, bits + half, 0) >> _WIDE_FRACTION
        # By the bits: a float that is subnormal may count as zero.
        return where((bits > 0) & ~value.is_nan(), rounded, 0xFF).cast("trunc", value.type.with_element(I8))
    return _to_minifloat(minifloat(primitive_type), value).cast("trunc", value.type.with_element(I8))


def stored_again(fn: Function, primitive_type: PrimitiveType, value: Value) -> Value:
    """What :func:`from_f32` gives, but that a NaN which :func:`to_f32` has read has the bits that it had."""
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
    """An F32 rounded to what BF16 has, still an F32.

    NaNs that arithmetic with BF16 gives have no fraction bits that would carry, so they stay NaNs without a test;
    :func:`from_f32` gives them the bits that they are stored with.
    """
    return float_of(_rounded(bits_of(value), 16) << 16)


def bf16_bits(value: Value) -> Value:
    """An F32 that BF16 has, as :func:`from_f32` stores it, for less."""
    upper = (bits_of(value) >> 16).cast("trunc", value.type.with_element(I16))
    # In 16 bits a register has twice as many elements.
    return where((upper & 0x7FFF) > 0x7F80, (upper & -0x8000) | 0x7FC0, upper)


def _rounded(bits: Value, dropped: int) -> Value:
    """Bits without so many of the last ones, rounded half to even; a carry makes the exponent greater, as it should."""
    odd = (bits >> dropped) & 1
    return (bits + ((1 << (dropped - 1)) - 1) + odd) >> dropped


def _to_minifloat(form: Minifloat, value: Value) -> Value:
    # Bounded so that what is far beyond the range does not come round.
    size = at_most(absolute(value), form.greatest * 4)
    exponents = (_WIDE_BIAS - form.bias) << form.fraction
    normal = _rounded(bits_of(size), _WIDE_FRACTION - form.fraction) - exponents
    # Subnormal numbers are multiples of the least one: they are rounded to that by the sum with a number whose last
    # bit it is, and stand in the low bits of the sum.
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
    """An F64 rounded once, half to even, to a floating point type, as it is stored; overflow is the type's own.

    Raises InternalError where ``value`` is not of F64.
    """
    if value.type.element is not F64:
        raise InternalError(f"{value} is not of F64")
    if primitive_type is PrimitiveType.F64:
        return value
    if primitive_type is PrimitiveType.F32:
        return narrowed(value)
    if primitive_type is PrimitiveType.F8E8M0FNU:
        return _exponent_of_double(value)
    kept = int(ml_dtypes.finfo(primitive_type.dtype).nmant) + 3
    return from_f32(fn, primitive_type, _rounded_to_odd(value, kept))


def _exponent_of_double(value: Value) -> Value:
    """The F8E8M0 of an F64, by its bits: the least numbers are subnormal ones of F32, which may count as zero."""
    bits = bits_of(value)
    half, lower = 1 << (DOUBLE.fraction - 1), DOUBLE.bias - _WIDE_BIAS
    least = lower << DOUBLE.fraction
    # As F32's bits are rounded: what is above the least number goes up to the next one.
    above = where(bits > least + half, ((bits + half) >> DOUBLE.fraction) - lower, 1)
    # What is not positive is NaN, and what rounds beyond the greatest, with infinity and NaN.
    code = where(bits > least, where(above > 0xFE, 0xFF, above), 0)
    return where(bits > 0, code, 0xFF).cast("trunc", value.type.with_element(I8))


def _rounded_to_odd(value: Value, kept: int) -> Value:
    """An F64 with ``kept`` bits of its fraction, as F32: inexact ones go towards zero and get a last bit of 1.

    A second rounding, to a few bits less, then does no harm. F32 has the result unless it is far below the least
    number of any narrow type.
    """
    bits = bits_of(value)
    below = (1 << (DOUBLE.fraction - kept)) - 1
    # The sum carries into the last bit that stays where one below it is set.
    odd = bits | ((bits & below) + below)
    return narrowed(float_of(odd & ~below))
