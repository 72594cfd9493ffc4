"""The inverses of the hyperbolic functions, by log(1 + u) with u as a sum of two numbers."""

from __future__ import annotations

import math

from xlakit.cpu.llvm.types import F32
from xlakit.cpu.llvm.values import Value
from xlakit.cpu.math.arithmetic import (
    absolute,
    constant,
    exact_sum_ordered,
    fma,
    narrowed,
    square_root,
    where,
    widened,
    with_sign_of,
)
from xlakit.cpu.math.logarithm import log1p_of_sum

# From here on, 1 + u is as good as 2x: squares, which might overflow, are not asked.
_GREAT = 2.0**60


def asinh(x: Value) -> Value:
    """The number whose hyperbolic sine is x.

    log1p(|x| + x^2 / (sqrt(x^2 + 1) + 1)), the sum in two floats; log(2 |x|) for great |x|; x
    where it is tiny, infinite or NaN. F32 goes through F64.
    """
    if x.type.element is F32:
        return narrowed(asinh(widened(x)))
    size = absolute(x)
    great = size > _GREAT
    square = size * size
    more = where(great, 0.0, square / (square_root(square + 1.0) + 1.0))
    u, low = exact_sum_ordered(size, more)
    result = log1p_of_sum(u, low, where(great, constant(x, 1.0), 0.0))
    usual = (size >= 2.0**-28) & (size < math.inf)
    return with_sign_of(where(usual, result, size), x)


def acosh(x: Value) -> Value:
    """The number, positive or 0, whose hyperbolic cosine is x."""
    if x.type.element is F32:
        return narrowed(acosh(widened(x)))
    great = x > _GREAT
    beyond = x - 1.0
    root = where(great, 0.0, square_root(beyond * (x + 1.0)))
    u = where(great, x, beyond + root)
    low = where(great, 0.0, root - (u - beyond))
    result = log1p_of_sum(u, low, where(great, constant(x, 1.0), 0.0))
    result = where(x >= 1.0, where(x.eq(1.0), 0.0, result), math.nan)
    return where(x.eq(math.inf), x, result)


def atanh(x: Value) -> Value:
    """The number whose hyperbolic tangent is x."""
    if x.type.element is F32:
        return narrowed(atanh(widened(x)))
    size = absolute(x)
    # u = 2x / (1 - x), with what the difference and the quotient lack.
    below = 1.0 - size
    lost = (1.0 - below) - size
    inverse = 1.0 / below
    u = size * 2.0 * inverse
    low = (fma(-u, below, size * 2.0) - u * lost) * inverse
    result = log1p_of_sum(u, low, constant(x, 0.0)) * 0.5
    result = where(size < 1.0, result, where(size.eq(1.0), constant(x, math.inf), math.nan))
    return with_sign_of(where(size < 2.0**-28, size, result), x)
