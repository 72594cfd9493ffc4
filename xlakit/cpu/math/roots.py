"""Square and cube roots."""

from __future__ import annotations

from xlakit.cpu.llvm.types import F32, I32
from xlakit.cpu.llvm.values import Value
from xlakit.cpu.math.arithmetic import (
    absolute,
    bits_of,
    constant,
    exact_product,
    float_of,
    fma,
    narrowed,
    square_root,
    where,
    widened,
    with_sign_of,
)


def sqrt(x: Value) -> Value:
    """The square root."""
    return square_root(x)


def rsqrt(x: Value) -> Value:
    """1 / sqrt(x)."""
    return 1.0 / square_root(x)


def cbrt(x: Value) -> Value:
    """The real cube root."""
    if x.type.element is F32:
        size = widened(absolute(x))
        inverse = _inverse_cube_root(size)
        return with_sign_of(_or_itself(narrowed(size * inverse * inverse), absolute(x)), x)
    size = absolute(x)
    # Scaled away from both ends of the range by 2^3k, whose cube root 2^k is exact.
    small, great = size < 2.0**-900, size > 2.0**900
    scaled = size * where(small, 2.0**300, where(great, constant(x, 2.0**-300), 1.0))
    inverse = _inverse_cube_root(scaled)
    square = inverse * inverse
    root = scaled * square
    # One step of Newton's method, with a residual that is exact up to its last bits.
    second, lost_of_second = exact_product(root, root)
    third, lost_of_third = exact_product(root, second)
    residual = ((scaled - third) - lost_of_third) - root * lost_of_second
    root = fma(residual, square * (1 / 3), root)
    root = root * where(small, 2.0**-100, where(great, constant(x, 2.0**100), 1.0))
    return with_sign_of(_or_itself(root, size), x)


def _or_itself(root: Value, size: Value) -> Value:
    """The root, but zero, infinity and NaN are their own roots."""
    return where((size > 0.0) & (size < float("inf")), root, size)


def _inverse_cube_root(x: Value) -> Value:
    """x^(-1/3) of a positive normal F64, except for about the last two bits."""
    # The initial guess: a third of the exponent, and a linear function of the fraction, by arithmetic on the upper
    # bits.
    bits = bits_of(x)
    upper = (bits >> 32).cast("trunc", bits.type.with_element(I32))
    guess = 0x553EF0FF - upper.integer("udiv", 3)
    y = float_of(guess.cast("zext", bits.type) << 32)
    for _ in range(2):
        # 1/cbrt(1 - h) = 1 + h/3 + 2/9 h^2 + 14/81 h^3 + ...
        h = fma(-(x * y), y * y, 1.0)
        y = fma(y * h, fma(h, fma(h, fma(h, 35 / 243, 14 / 81), 2 / 9), 1 / 3), y)
    return y
