"""Integer quotients and remainders with XLA's special cases: division by 0, and of the least number by -1."""

from __future__ import annotations

from xlakit.cpu.llvm import F32, F64, I1, I32, Function, Value
from xlakit.data.primitive import PrimitiveType
from xlakit.target import has_feature

# No processor divides vectors of integers, so quotients of vectors are computed in floats, of a wider type where there
# is one. A quotient a / b that is not an integer is at least 1 / b away from the nearest one. Rounding moves it by at
# most a / b times 2^-24 in F32, where a < 2^24, so by less. The truncated quotient is therefore exact; the same holds
# for F64.
_MOST_BITS_EXACT = 32
_ESTIMATED_BELOW = 1 - 2.0**-50


def divides_vectors(kind: PrimitiveType) -> bool:
    """Whether vectors of an integer type are divided faster than one element after the other.

    Without AVX-512, x86 has no conversions between F64 and vectors of 64 bits, and AArch64 no products of these.
    """
    return kind.bit_width <= _MOST_BITS_EXACT or has_feature("avx512dq")


def divide(fn: Function, kind: PrimitiveType, a: Value, b: Value) -> Value:
    """The truncated quotient; all bits set for a divisor of 0, the dividend if the quotient overflows."""
    if _is_plain_divisor(b):
        return a.integer("sdiv" if kind.is_signed else "udiv", b)
    zero, _, safe = _divisor(fn, kind, a, b)
    if a.type.lanes > 1 and divides_vectors(kind):
        quotient = _in_floats(fn, kind, a, b, safe)[0]
    else:
        quotient = a.integer("sdiv" if kind.is_signed else "udiv", safe)
    ones = fn.constant(a.type, -1 if kind.is_signed else (1 << kind.bit_width) - 1)
    return fn.select(zero, ones, quotient)


def remainder(fn: Function, kind: PrimitiveType, a: Value, b: Value) -> Value:
    """The remainder, with the sign of the dividend; the dividend for a divisor of 0."""
    if _is_plain_divisor(b):
        return a.integer("srem" if kind.is_signed else "urem", b)
    zero, overflow, safe = _divisor(fn, kind, a, b)
    if a.type.lanes > 1 and divides_vectors(kind):
        # If the quotient would overflow, the remainder is 0 here as well.
        rest = _in_floats(fn, kind, a, b, safe)[1]
    else:
        rest = a.integer("srem" if kind.is_signed else "urem", safe)
        if kind.is_signed:
            rest = fn.select(overflow, fn.constant(a.type, 0), rest)
    return fn.select(zero, a, rest)


def _is_plain_divisor(b: Value) -> bool:
    """Whether a divisor is a constant other than 0 and -1; LLVM multiplies by an approximate inverse, or shifts."""
    if b.number is None:
        return False
    # A negative constant may be given as an unsigned number.
    number, limit = b.number & ((1 << b.type.bits) - 1), 1 << b.type.bits
    if b.type.lanes > 1 and b.type.bits > _MOST_BITS_EXACT:
        # AVX-512 has no upper halves of products of 64 bits.
        number = min(number, limit - number)
        return number > 1 and number.bit_count() == 1
    return number not in (0, limit - 1)


def _divisor(fn: Function, kind: PrimitiveType, a: Value, b: Value) -> tuple[Value, Value, Value]:
    """Whether b is 0, whether the division overflows, and b, or 1 in these cases."""
    zero = b.eq(0)
    overflow = fn.constant(zero.type, 0)
    if kind.is_signed:
        least = fn.constant(a.type, -(1 << (a.type.bits - 1)))
        overflow = a.eq(least) & b.eq(-1)
    return zero, overflow, fn.select(zero | overflow, fn.constant(b.type, 1), b)


def _in_floats(fn: Function, kind: PrimitiveType, a: Value, b: Value, safe: Value) -> tuple[Value, Value]:
    """Quotients and remainders of vectors, given divisors and safe ones; any number for a divisor of 0."""
    return _from_inverse(fn, kind, a, b) if a.type.bits > _MOST_BITS_EXACT else _from_wider(kind, a, safe)


def _from_wider(kind: PrimitiveType, a: Value, b: Value) -> tuple[Value, Value]:
    """Quotients and remainders of vectors of at most 32 bits, for safe divisors, from the quotients of wider floats."""
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


def _from_inverse(fn: Function, kind: PrimitiveType, a: Value, b: Value) -> tuple[Value, Value]:
    """Quotients and remainders of vectors of 64 bits, from the inverses of the divisors; any number for a divisor of 0.

    With x and d the sizes of both operands, at most 2^64 - 1, x times the inverse of d is rounded four times: x, d, the
    inverse and the product, each by at most u = 2^-53 of it. The inverse is 8 u too small, so the estimate of x / d is
    at most (1 - 3 u) x / d, and at least (1 - 13 u) x / d. It is thus less than 2^64, its whole part q is at most the
    quotient, and the rest x - q d is from 0 to d + 13 u x, which is at most d + 2^15. The same again, with that rest as
    x, leaves at most d + 13 u (d + 2^15), which is less than 2 d. So one more step of 1 gives the quotient. No number
    wraps on the way.
    """
    type, real = a.type, a.type.with_element(F64)
    # The least number, of which LLVM's own intrinsic gives itself, is a size as an unsigned number.
    rest, size = (fn.intrinsic("llvm.abs", type, v, fn.constant(I1, 0)) if kind.is_signed else v for v in (a, b))
    size = size.umax(1)
    inverse = fn.constant(real, _ESTIMATED_BELOW) / size.cast("uitofp", real)
    quotient = fn.constant(type, 0)
    for _ in range(2):
        estimate = (rest.cast("uitofp", real) * inverse).cast("fptoui", type)
        quotient, rest = quotient + estimate, rest - estimate * size
    is_more = rest.compare("uge", size)
    quotient = fn.select(is_more, quotient + 1, quotient)
    rest = fn.select(is_more, rest - size, rest)
    if not kind.is_signed:
        return quotient, rest
    # The one quotient that overflows is that of equal signs, and stays the least number.
    return fn.select((a ^ b) < 0, -quotient, quotient), fn.select(a < 0, -rest, rest)
