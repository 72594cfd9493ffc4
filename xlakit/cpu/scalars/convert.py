"""Conversions between element types: of values, and of bits."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.llvm import F32, F64, I8, I32, I64, Function, Type, Value, integer
from xlakit.cpu.math.arithmetic import at_least, at_most, format_of, where
from xlakit.cpu.math.narrow import from_f64
from xlakit.cpu.scalars.memory import (
    Scalar,
    as_real,
    from_stored,
    is_narrow,
    memory_type as memory_type_of,
    register_type,
    rounded,
    to_stored,
    wrap,
)
from xlakit.data.primitive import PrimitiveType
from xlakit.ops.elementwise.convert import ReducePrecision
from xlakit.target import is_x86

# Narrow types with the range of F32, and the greatest integer up to which F32 has all integers.
_AS_FAR_AS_F32 = (PrimitiveType.BF16, PrimitiveType.F8E8M0FNU)
_EXACT_IN_F32 = 1 << 24


def convert(fn: Function, source: PrimitiveType, target: PrimitiveType, scalar: Scalar) -> Scalar:
    """The same value in another type: rounded half to even, saturated or wrapped, as XLA does."""
    if source is target:
        return scalar
    if isinstance(scalar, tuple):
        if not target.is_complex:
            return convert(fn, source.real_part, target, scalar[0])
        both = [as_real(convert(fn, source.real_part, target.real_part, v)) for v in scalar]
        return both[0], both[1]
    if target is PrimitiveType.PRED:
        return scalar.ne(0.0 if source.is_floating else 0)
    if target.is_complex:
        real = as_real(convert(fn, source, target.real_part, scalar))
        return real, fn.constant(real.type, 0.0)
    if source.is_floating:
        return _float_to_float(fn, target, scalar) if target.is_floating else _float_to_integer(fn, target, scalar)
    if target.is_floating:
        return _integer_to_float(fn, source, target, scalar)
    return _integer_to_integer(source, target, scalar)


def _float_to_float(fn: Function, target: PrimitiveType, value: Value) -> Value:
    type = value.type.with_element(register_type(target))
    if is_narrow(target) and value.type.element is F64:
        return from_stored(fn, target, from_f64(fn, target, value))
    if type.bits > value.type.bits:
        return value.cast("fpext", type)
    if type.bits < value.type.bits:
        return value.cast("fptrunc", type)
    return rounded(fn, target, value)


def _float_to_integer(fn: Function, target: PrimitiveType, value: Value) -> Value:
    """The float truncated to an integer, saturated at the bounds of the type; 0 for NaN."""
    low, high = _bounds(target)
    if is_x86():
        exact = high < 1 << (format_of(value).fraction + 1)
        return _within(target, value, low, high) if exact else _saturated(target, value, low, high)
    type = value.type.with_element(register_type(target))
    sign = "s" if target.is_signed else "u"
    truncated = fn.intrinsic(f"llvm.fpto{sign}i.sat", type, value, of=value.type)
    return truncated if target.bit_width >= 8 else _clamped(fn, target, truncated, low, high)


def _bounds(kind: PrimitiveType) -> tuple[int, int]:
    """The least and the greatest number of an integer type."""
    low = -(1 << (kind.bit_width - 1)) if kind.is_signed else 0
    return low, low + (1 << kind.bit_width) - 1


def _clamped(fn: Function, source: PrimitiveType, value: Value, low: int, high: int) -> Value:
    sign = "s" if source.is_signed else "u"
    value = fn.intrinsic(f"llvm.{sign}min", value.type, value, fn.constant(value.type, high))
    return fn.intrinsic(f"llvm.{sign}max", value.type, value, fn.constant(value.type, low))


def _within(target: PrimitiveType, value: Value, low: int, high: int) -> Value:
    """A float as an integer, for a type whose bounds are exact in the float's type.

    On x86, LLVM's own saturating conversion of a vector converts each lane separately.
    """
    # For unsigned types the comparison also replaces NaN.
    known = where(value.is_nan(), 0.0, at_least(value, low)) if low else where(value > 0.0, value, 0.0)
    wide = value.type.with_element(integer(max(32, target.bit_width)))
    type = value.type.with_element(register_type(target))
    truncated = at_most(known, high).cast("fptosi" if high < 1 << 31 else "fptoui", wide)
    return truncated if type is wide else truncated.cast("trunc", type)


def _saturated(target: PrimitiveType, value: Value, low: int, high: int) -> Value:
    """The same if the upper bound is no float: numbers beyond it, and NaN, are replaced after the conversion."""
    type = value.type.with_element(register_type(target))
    if low:
        truncated = at_least(value, low).cast("fptosi", type)
        return where(value.is_nan(), 0, where(value >= high + 1, high, truncated))
    known = where(value > 0.0, value, 0.0)
    return where(known >= high + 1, high, known.cast("fptoui", type))


def _integer_to_float(fn: Function, source: PrimitiveType, target: PrimitiveType, value: Value) -> Value:
    opcode = "sitofp" if source.is_signed else "uitofp"
    if is_narrow(target) and source.bit_width >= 32:
        if target not in _AS_FAR_AS_F32:
            # The clamped bounds are far beyond the type's range, and all integers between them are exact in F32.
            value = _clamped(fn, source, value, -_EXACT_IN_F32 if source.is_signed else 0, _EXACT_IN_F32)
            if source.bit_width > 32:
                value = value.cast("trunc", value.type.with_element(I32))
            return rounded(fn, target, value.cast("sitofp", value.type.with_element(F32)))
        return from_stored(fn, target, from_f64(fn, target, value.cast(opcode, value.type.with_element(F64))))
    return rounded(fn, target, value.cast(opcode, value.type.with_element(register_type(target))))


def _integer_to_integer(source: PrimitiveType, target: PrimitiveType, value: Value) -> Value:
    type = value.type.with_element(register_type(target))
    if type.bits > value.type.bits:
        return value.cast("sext" if source.is_signed else "zext", type)
    if type.bits < value.type.bits:
        value = value.cast("trunc", type)
    return wrap(target, value)


def stochastic_convert(fn: Function, random: PrimitiveType, target: PrimitiveType, value: Value, bits: Value) -> Scalar:
    """Round a float to a signed integer, away from zero if its fraction, scaled to an integer, exceeds random bits.

    Raises DeclinedError for unsigned targets, for which the operation is not defined.
    """
    if not target.is_signed:
        raise DeclinedError(f"stochastic-convert to {target.hlo_name} has no agreed meaning")
    wide = value.cast("fpext", F64)
    size = fn.intrinsic("llvm.fabs", F64, wide)
    whole = fn.intrinsic("llvm.floor", F64, size)
    fraction = (size - whole) * 2.0**random.bit_width
    # The fraction of an infinity is NaN.
    fraction = fn.select(fraction.is_nan(), fn.constant(F64, 0.0), fraction).cast("fptoui", I64)
    up = bits.cast("zext", I64).compare("ult", fraction)
    size = fn.select(up, whole + 1.0, whole)
    return _float_to_integer(fn, target, fn.intrinsic("llvm.copysign", F64, size, wide))


# -- bits ----------------------------------------------------------------------------------------


def to_bits(fn: Function, kind: PrimitiveType, scalar: Scalar) -> Value:
    """The bits of an element, as an integer of its width in memory."""
    if isinstance(scalar, tuple):
        half = integer(kind.bit_width // 2)
        whole = integer(kind.bit_width)
        low, high = (part.bits_as(half).cast("zext", whole) for part in scalar)
        return low | (high << (kind.bit_width // 2))
    stored = to_stored(fn, kind, scalar)
    bits = stored.bits_as(stored.type.with_element(integer(memory_type_of(kind).bits)))
    return bits & ((1 << kind.bit_width) - 1) if kind.bit_width < 8 else bits


def from_bits(fn: Function, kind: PrimitiveType, bits: Value) -> Scalar:
    """The element with the given bits."""
    if kind.is_complex:
        part = register_type(kind)
        half = integer(part.bits)
        return bits.cast("trunc", half).bits_as(part), (bits >> part.bits).cast("trunc", half).bits_as(part)
    if kind is PrimitiveType.PRED:
        return from_stored(fn, kind, bits)
    return from_stored(fn, kind, bits.bits_as(bits.type.with_element(memory_type_of(kind))))


def bitcast(fn: Function, source: PrimitiveType, target: PrimitiveType, scalar: Scalar) -> Scalar:
    """The same bits as another type of the same width."""
    return from_bits(fn, target, to_bits(fn, source, scalar).resized(_bits_type(target)))


def split_bits(fn: Function, source: PrimitiveType, target: PrimitiveType, scalar: Scalar, number: Value) -> Scalar:
    """Piece ``number`` (an I64) of an element as a narrower type; piece 0 has the lowest bits."""
    bits = to_bits(fn, source, scalar)
    amount = number.resized(bits.type.element) * target.bit_width
    piece = (bits >> amount).resized(_bits_type(target))
    return from_bits(fn, target, piece)


def join_bits(fn: Function, source: PrimitiveType, target: PrimitiveType, scalars: Sequence[Scalar]) -> Scalar:
    """One element made of pieces, the first of which has the lowest bits."""
    wide = _bits_type(target)
    result = fn.constant(wide, 0)
    for number, scalar in enumerate(scalars):
        result = result | (to_bits(fn, source, scalar).resized(wide) << (number * source.bit_width))
    return from_bits(fn, target, result)


def _bits_type(kind: PrimitiveType) -> Type:
    return I8 if kind.bit_width < 8 else integer(kind.bit_width)


_MANTISSA_BITS = {PrimitiveType.BF16: 7, PrimitiveType.F16: 10, PrimitiveType.F32: 23, PrimitiveType.F64: 52}


def reduce_precision(fn: Function, op: ReducePrecision, kind: PrimitiveType, value: Value) -> Value:
    """Round to fewer bits, half to even; numbers beyond the exponent range become infinity and zero."""
    if kind.bit_width >= 16:
        return _reduced(fn, op, kind, value)
    # As in the interpreter: through a format that contains the narrow one.
    via = PrimitiveType.BF16 if kind is PrimitiveType.F8E8M0FNU else PrimitiveType.F16
    return rounded(fn, kind, _reduced(fn, op, via, value))


def _reduced(fn: Function, op: ReducePrecision, kind: PrimitiveType, value: Value) -> Value:
    width, mantissa = kind.bit_width, _MANTISSA_BITS[kind]
    stored = to_stored(fn, kind, value) if is_narrow(kind) else value
    word = stored.type.with_element(integer(width))
    bits = stored.bits_as(word)
    exponent = width - 1 - mantissa
    sign = bits & (1 << (width - 1))
    size = bits ^ sign
    infinity = ((1 << exponent) - 1) << mantissa
    nan = size.compare("ugt", infinity)
    dropped = mantissa - op.mantissa_bits
    if dropped > 0:
        last = (size >> dropped) & 1
        size = ((size + ((1 << (dropped - 1)) - 1) + last) >> dropped) << dropped
    if op.exponent_bits < exponent:
        bias, reduced = (1 << (exponent - 1)) - 1, (1 << (op.exponent_bits - 1)) - 1
        field = size & infinity
        # The narrower format has no subnormal numbers: they become zero.
        size = fn.select(field.compare("ugt", (bias + reduced) << mantissa), fn.constant(word, infinity), size)
        size = fn.select(field.compare("ule", (bias - reduced) << mantissa), fn.constant(word, 0), size)
    combined = (sign | size).bits_as(stored.type)
    back = from_stored(fn, kind, combined) if is_narrow(kind) else combined
    return fn.select(nan, value, back)
