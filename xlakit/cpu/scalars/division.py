"""Integer quotients and remainders with XLA's special cases: division by 0, and of the least number by -1."""

from __future__ import annotations

from xlakit.cpu.llvm import F32, F64, I32, Function, Value
from xlakit.data.primitive import PrimitiveType

# No processor divides vectors of integers, so quotients of vectors are computed in floats of a wider type. A quotient a
# / b that is not an integer is at least 1 / b away from the nearest one. Rounding moves it by at most a / b times 2^-24
# in F32, where a < 2^24, so by less. The truncated quotient is therefore exact; the same holds for F64.
MOST_BITS_IN_VECTORS = 32


def divide(fn: Function, kind: PrimitiveType, a: Value, b: Value) -> Value:
    """The truncated quotient; all bits set for a divisor of 0, the dividend if the quotient overflows."""
    if _is_plain_divisor(b):
        return a.integer("sdiv" if kind.is_signed else "udiv", b)
    zero, _, safe = _divisor(fn, kind, a, b)
    quotient = _in_floats(kind, a, safe)[0] if _fits(a) else a.integer("sdiv" if kind.is_signed else "udiv", safe)
    ones = fn.constant(a.type, -1 if kind.is_signed else (1 << kind.bit_width) - 1)
    return fn.select(zero, ones, quotient)


def remainder(fn: Function, kind: PrimitiveType, a: Value, b: Value) -> Value:
    """The remainder, with the sign of the dividend; the dividend for a divisor of 0."""
    if _is_plain_divisor(b):
        return a.integer("srem" if kind.is_signed else "urem", b)
    zero, overflow, safe = _divisor(fn, kind, a, b)
    if _fits(a):
        # If the quotient would overflow, the divisor is 1 here, whose remainder is 0 as well.
        rest = _in_floats(kind, a, safe)[1]
    else:
        rest = a.integer("srem" if kind.is_signed else "urem", safe)
        if kind.is_signed:
            rest = fn.select(overflow, fn.constant(a.type, 0), rest)
    return fn.select(zero, a, rest)


def _is_plain_divisor(b: Value) -> bool:
    """Whether a divisor is a constant other than 0 and -1; LLVM multiplies by an approximate inverse."""
    ones = (1 << b.type.bits) - 1
    # The constant -1 may be given as an unsigned number.
    return b.number is not None and b.number & ones not in (0, ones)


def _fits(a: Value) -> bool:
    return a.type.lanes > 1 and a.type.bits <= MOST_BITS_IN_VECTORS


def _divisor(fn: Function, kind: PrimitiveType, a: Value, b: Value) -> tuple[Value, Value, Value]:
    """Whether b is 0, whether the division overflows, and b, or 1 in these cases."""
    zero = b.eq(0)
    overflow = fn.constant(zero.type, 0)
    if kind.is_signed:
        least = fn.constant(a.type, -(1 << (a.type.bits - 1)))
        overflow = a.eq(least) & b.eq(-1)
    return zero, overflow, fn.select(zero | overflow, fn.constant(b.type, 1), b)


def _in_floats(kind: PrimitiveType, a: Value, b: Value) -> tuple[Value, Value]:
    """Quotients and remainders of vectors, for safe divisors."""
    type, whole = a.type, a.type.with_element(I32)
    # An operand extended from fewer bits is in the range of signed 32-bit integers.
    is_signed = kind.is_signed or type.bits < 32
    if type.bits < 32:
        a, b = (v.cast("sext" if kind.is_signed else "zext", whole) for v in (a, b))
    real = type.with_element(F32 if type.bits < 32 else F64)
    numerator, denominator = (v.cast("sitofp" if is_signed else "uitofp", real) for v in (a, b))
    quotient = (numerator / denominator).cast("fptosi" if is_signed else "fptoui", whole)
    both = quotient, a - quotient * b
    return both if type is whole else (both[0].cast("trunc", type), both[1].cast("trunc", type))
