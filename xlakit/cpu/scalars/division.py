"""Integer quotients and remainders with XLA's special cases: division by 0, and of the least number by -1."""

from __future__ import annotations

from collections.abc import Callable

from xlakit.cpu.llvm import F32, F64, I32, Function, Value
from xlakit.data.primitive import PrimitiveType

# No processor divides vectors of integers, so quotients of vectors are computed in floats of a wider type. A quotient a
# / b that is not an integer is at least 1 / b away from the nearest one. Rounding moves it by at most a / b times 2^-24
# in F32, where a < 2^24, so by less. The truncated quotient is therefore exact; the same holds for F64, where a < 2^53.
_MOST_BITS_IN_FLOATS = 32
# Integers from -2^51 to 2^51 - 1, and from 0 to 2^52 - 1, become the lowest bits of F64 numbers from 2^52 to 2^53, which
# are the integers between: no processor before AVX-512 converts vectors of 64 bits.
_BITS_OF_SHORT = 52
_EXPONENT = 0x433 << 52


def divide(fn: Function, kind: PrimitiveType, a: Value, b: Value) -> Value:
    """The truncated quotient; all bits set for a divisor of 0, the dividend if the quotient overflows."""
    if _is_plain_divisor(b):
        return a.integer("sdiv" if kind.is_signed else "udiv", b)
    zero, _, safe = _divisor(fn, kind, a, b)

    def alone() -> Value:
        return a.integer("sdiv" if kind.is_signed else "udiv", safe)

    if a.type.lanes > 1:
        quotient = _in_floats(kind, a, safe)[0] if _fits(a) else _if_short(fn, kind, a, b, alone, is_remainder=False)
    else:
        quotient = alone()
    ones = fn.constant(a.type, -1 if kind.is_signed else (1 << kind.bit_width) - 1)
    return fn.select(zero, ones, quotient)


def remainder(fn: Function, kind: PrimitiveType, a: Value, b: Value) -> Value:
    """The remainder, with the sign of the dividend; the dividend for a divisor of 0."""
    if _is_plain_divisor(b):
        return a.integer("srem" if kind.is_signed else "urem", b)
    zero, overflow, safe = _divisor(fn, kind, a, b)

    def alone() -> Value:
        rest = a.integer("srem" if kind.is_signed else "urem", safe)
        return fn.select(overflow, fn.constant(a.type, 0), rest) if kind.is_signed else rest

    if a.type.lanes > 1:
        # If the quotient would overflow, the divisor is 1 in floats, whose remainder is 0 as well.
        rest = _in_floats(kind, a, safe)[1] if _fits(a) else _if_short(fn, kind, a, b, alone, is_remainder=True)
    else:
        rest = alone()
    return fn.select(zero, a, rest)


def _is_plain_divisor(b: Value) -> bool:
    """Whether a divisor is a constant other than 0 and -1; LLVM multiplies by an approximate inverse."""
    ones = (1 << b.type.bits) - 1
    # The constant -1 may be given as an unsigned number.
    return b.number is not None and b.number & ones not in (0, ones)


def _fits(a: Value) -> bool:
    return a.type.bits <= _MOST_BITS_IN_FLOATS


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


def _if_short(
    fn: Function, kind: PrimitiveType, a: Value, b: Value, otherwise: Callable[[], Value], *, is_remainder: bool
) -> Value:
    """A quotient or a remainder of vectors of 64 bits: in F64 if all lanes are short, else one lane after the other.

    The quotients are at most 2^51 in size, and its products with the divisors and the remainders at most as large as
    the dividends. All of them are integers, so each step is exact. A divisor of 0 gives any number.
    """
    type, real = a.type, a.type.with_element(F64)
    # The sums are unsigned.
    half = 1 << (_BITS_OF_SHORT - 1) if kind.is_signed else 0
    shifted = a + half, b + half
    is_long = ((shifted[0] | shifted[1]) >> _BITS_OF_SHORT).ne(0).any_lane()
    offset = fn.constant(real, float((1 << _BITS_OF_SHORT) + half))

    def in_floats() -> list[Value]:
        numerator, denominator = ((s | _EXPONENT).bits_as(real) - offset for s in shifted)
        result = fn.intrinsic("llvm.trunc", real, numerator / denominator)
        if is_remainder:
            result = numerator - result * denominator
        return [(result + offset).bits_as(type) - (_EXPONENT + half)]

    return fn.if_else(is_long, lambda: [otherwise()], in_floats, likely=False)[0]
