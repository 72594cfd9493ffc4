"""reduce-precision of one element."""

from __future__ import annotations

from xlakit.cpu.llvm import Function, Value, integer
from xlakit.cpu.scalars.memory import from_stored, is_narrow, rounded, to_stored
from xlakit.data.primitive import PrimitiveType
from xlakit.ops.elementwise.convert import ReducePrecision

_MANTISSA_BITS = {PrimitiveType.BF16: 7, PrimitiveType.F16: 10, PrimitiveType.F32: 23, PrimitiveType.F64: 52}


def reduce_precision(fn: Function, op: ReducePrecision, kind: PrimitiveType, value: Value) -> Value:
    """Round to fewer bits, half to even; beyond the exponents are infinity and zero."""
    if kind.bit_width >= 16:
        return _reduced(fn, op, kind, value)
    # As the reference: through a format that has all that the narrow one has.
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
        # The narrower format has no denormal numbers here: they become zero.
        size = fn.select(field.compare("ugt", (bias + reduced) << mantissa), fn.constant(word, infinity), size)
        size = fn.select(field.compare("ule", (bias - reduced) << mantissa), fn.constant(word, 0), size)
    made = (sign | size).bits_as(stored.type)
    back = from_stored(fn, kind, made) if is_narrow(kind) else made
    return fn.select(nan, value, back)
