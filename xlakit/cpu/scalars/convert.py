"""From one element type to another: values, and bits."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.llvm import F64, I8, I64, Function, Type, Value, integer
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


def convert(fn: Function, source: PrimitiveType, target: PrimitiveType, scalar: Scalar) -> Scalar:
    """The same value in another type: rounded half to even, saturated, wrapped, as XLA does."""
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
    type = value.type.with_element(register_type(target))
    sign = "s" if target.is_signed else "u"
    found = fn.intrinsic(f"llvm.fpto{sign}i.sat", type, value, of=value.type)
    if target.bit_width >= 8:
        return found
    low = -(1 << (target.bit_width - 1)) if target.is_signed else 0
    high = low + (1 << target.bit_width) - 1
    found = fn.intrinsic(f"llvm.{sign}min", type, found, fn.constant(type, high))
    return fn.intrinsic(f"llvm.{sign}max", type, found, fn.constant(type, low))


def _integer_to_float(fn: Function, source: PrimitiveType, target: PrimitiveType, value: Value) -> Value:
    opcode = "sitofp" if source.is_signed else "uitofp"
    if is_narrow(target) and source.bit_width >= 32:
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
    """A float as a signed integer, away from zero where random bits of its width are less than its fraction.

    Raises DeclinedError for unsigned targets, for which it has no meaning.
    """
    if not target.is_signed:
        raise DeclinedError(f"stochastic-convert to {target.hlo_name} has no agreed meaning")
    wide = value.cast("fpext", F64)
    size = fn.intrinsic("llvm.fabs", F64, wide)
    whole = fn.intrinsic("llvm.floor", F64, size)
    fraction = (size - whole) * 2.0**random.bit_width
    # Infinity less infinity is NaN.
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
    """The element of given bits."""
    if kind.is_complex:
        part = register_type(kind)
        half = integer(part.bits)
        return bits.cast("trunc", half).bits_as(part), (bits >> part.bits).cast("trunc", half).bits_as(part)
    if kind is PrimitiveType.PRED:
        return from_stored(fn, kind, bits)
    return from_stored(fn, kind, bits.bits_as(bits.type.with_element(memory_type_of(kind))))


def bitcast(fn: Function, source: PrimitiveType, target: PrimitiveType, scalar: Scalar) -> Scalar:
    """The same bits as another type of the same width."""
    return from_bits(fn, target, _resized(to_bits(fn, source, scalar), _bits_type(target)))


def split_bits(fn: Function, source: PrimitiveType, target: PrimitiveType, scalar: Scalar, number: Value) -> Scalar:
    """Piece ``number`` (an I64) of an element, lowest bits first, as a narrower type."""
    bits = to_bits(fn, source, scalar)
    amount = _resized(number, bits.type.element) * target.bit_width
    piece = _resized(bits >> amount, _bits_type(target))
    return from_bits(fn, target, piece)


def join_bits(fn: Function, source: PrimitiveType, target: PrimitiveType, scalars: Sequence[Scalar]) -> Scalar:
    """One element of pieces, lowest bits first."""
    wide = _bits_type(target)
    result = fn.constant(wide, 0)
    for number, scalar in enumerate(scalars):
        result = result | (_resized(to_bits(fn, source, scalar), wide) << (number * source.bit_width))
    return from_bits(fn, target, result)


def _bits_type(kind: PrimitiveType) -> Type:
    return I8 if kind.bit_width < 8 else integer(kind.bit_width)


def _resized(value: Value, element: Type) -> Value:
    type = value.type.with_element(element)
    if type.bits > value.type.bits:
        return value.cast("zext", type)
    return value.cast("trunc", type) if type.bits < value.type.bits else value
