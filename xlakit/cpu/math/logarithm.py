"""Functions built on the logarithm: x = 2^n (1 + f) with 1 + f between sqrt(1/2) and sqrt(2)."""

from __future__ import annotations

import math

from xlakit.cpu.llvm.types import F32
from xlakit.cpu.llvm.values import Value
from xlakit.cpu.math.arithmetic import (
    absolute,
    bits_of,
    float_of,
    fma,
    format_of,
    polynomial,
    two_to,
    where,
)
from xlakit.cpu.math.coefficients import LOG_DOUBLE, LOG_SINGLE

# The bits of sqrt(1/2): what is below them in a number's bits belongs to the next lower power of two.
_ROOT_OF_HALF = {23: 0x3F3504F3, 52: 0x3FE6A09E667F3BCD}
# ln(2) in two parts, for each format; the high one has enough zeros at its end that multiples by exponents are exact.
_LN2 = {23: (0.693145751953125, 1.428606765330187e-06), 52: (0.6931471803691238, 1.9082149292705877e-10)}


def split(x: Value) -> tuple[Value, Value, Value]:
    """A positive normal x as (m, n, n as a float): x = 2^n m with m from sqrt(1/2) to sqrt(2)."""
    form = format_of(x)
    moved = bits_of(x) - _ROOT_OF_HALF[form.fraction]
    m = float_of((moved & form.fraction_mask) + _ROOT_OF_HALF[form.fraction])
    if x.type.element is F32:
        n = moved.integer("ashr", form.fraction)
        return m, n, n.cast("sitofp", x.type)
    # Not all processors have arithmetic shifts and conversions of vectors of 64-bit integers. So the exponent is made
    # positive, shifted as unsigned, and put into the low bits of the fraction of 2^fraction, which is then subtracted.
    positive = (moved + (form.bias << form.fraction)) >> form.fraction
    n = positive - form.bias
    magic = (form.bias + form.fraction) << form.fraction
    return m, n, float_of(positive | magic) - (2.0**form.fraction + form.bias)


def normal(x: Value) -> tuple[Value, Value]:
    """``x``, multiplied by a power of two if it is subnormal, and what that adds to its exponent."""
    form = format_of(x)
    tiny = x < form.tiniest_normal
    shift = form.fraction + 2
    return where(tiny, x * 2.0**shift, x), where(tiny, x.function.constant(x.type, -float(shift)), 0.0)


def log_of_parts(f: Value, n: Value) -> Value:
    """log(1 + f) + n ln(2) for 1 + f from sqrt(1/2) to sqrt(2)."""
    high, low = _LN2[format_of(f).fraction]
    square = f * f
    if f.type.element is F32:
        tail = fma(f * square, polynomial(f, LOG_SINGLE), n * low)
        return fma(n, high, f + fma(square, -0.5, tail))
    # log((1 + s) / (1 - s)) is an odd function of s, with half as many terms.
    s = f / (f + 2.0)
    z = s * s
    half = square * 0.5
    rest = fma(s, fma(z, polynomial(z, LOG_DOUBLE), half), n * low)
    return fma(n, high, f - (half - rest))


def log(x: Value) -> Value:
    """The natural logarithm."""
    scaled, shift = normal(x)
    m, _, n = split(scaled)
    return with_ends(log_of_parts(m - 1.0, n + shift), x, x)


def with_ends(result: Value, x: Value, one_up: Value) -> Value:
    """The logarithm of ``one_up``, which is x or 1 + x, with the values at the ends of its domain put in."""
    result = where(one_up < math.inf, result, x)  # infinity and NaN are their own logarithms
    result = where(one_up < 0.0, math.nan, result)
    return where(one_up.eq(0.0), -math.inf, result)


def log1p(x: Value) -> Value:
    """log(1 + x)."""
    up = x + 1.0
    result = with_ends(_log1p(x, up), x, up)
    return where(absolute(x) < 2.0 ** -(format_of(x).fraction + 2), x, result)


def log1p_of_sum(x: Value, low: Value, exponent: Value) -> Value:
    """log(1 + x + low) + exponent ln(2) for finite x >= 0; ``low`` is far below x."""
    return _log1p(x, x + 1.0, low, exponent)


def _log1p(x: Value, up: Value, low: Value | None = None, exponent: Value | None = None) -> Value:
    """log(1 + x + low) + exponent ln(2), where ``up`` is 1 + x: positive, finite."""
    m, n, whole = split(up)
    # x 2^-n + (2^-n - 1) is m - 1 without the rounding of 1 + x; of great x it is m itself that counts.
    great = n > format_of(x).fraction + 4
    down = two_to(x, where(great, 0, 0 - n))
    f = fma(x, down, down - 1.0)
    if low is not None:
        f = fma(low, down, f)
    return log_of_parts(where(great, m - 1.0, f), whole if exponent is None else whole + exponent)
