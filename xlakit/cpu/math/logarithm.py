"""Functions built on the logarithm: x = 2^n (1 + f) with 1 + f between sqrt(1/2) and sqrt(2).

Powers are e^(y log x), with a logarithm of more precision than the result; the inverses of the hyperbolic functions are
log(1 + u), with u as a sum of two numbers.
"""

from __future__ import annotations

import math

from xlakit.cpu.llvm.types import F32
from xlakit.cpu.llvm.values import Value
from xlakit.cpu.math.arithmetic import (
    Pair,
    absolute,
    at_least,
    at_most,
    bits_of,
    constant,
    exact_product,
    exact_sum,
    exact_sum_ordered,
    float_of,
    floor,
    fma,
    format_of,
    narrowed,
    negate_if,
    polynomial,
    sign_of,
    square_root,
    two_to,
    unless_any,
    where,
    widened,
    with_sign_of,
)
from xlakit.cpu.math.coefficients import EXP_WIDE, LOG_DOUBLE, LOG_SINGLE, LOG_WIDE, POW_LOG
from xlakit.cpu.math.exponential import reduced_exponential, reduced_exponential_of_sum, scaled

# The bits of sqrt(1/2): numbers whose fractions are less belong to the next lower power of two.
_ROOT_OF_HALF = {23: 0x3F3504F3, 52: 0x3FE6A09E667F3BCD}
# ln(2) in two parts, for each format; the high part ends in enough zeros that multiples by exponents are exact.
_LN2 = {23: (0.693145751953125, 1.428606765330187e-06), 52: (0.6931471803691238, 1.9082149292705877e-10)}


def split(x: Value) -> tuple[Value, Value, Value]:
    """A positive normal x as (m, n, n as a float): x = 2^n m with m from sqrt(1/2) to sqrt(2)."""
    form = format_of(x)
    moved = bits_of(x) - _ROOT_OF_HALF[form.fraction]
    m = float_of((moved & form.fraction_mask) + _ROOT_OF_HALF[form.fraction])
    if x.type.element is F32:
        n = moved.integer("ashr", form.fraction)
        return m, n, n.cast("sitofp", x.type)
    # Some processors lack arithmetic shifts and conversions of vectors of 64-bit integers. So the exponent is made
    # positive, shifted as unsigned, and put into the low bits of the fraction of 2^fraction, which is then subtracted.
    positive = (moved + (form.bias << form.fraction)) >> form.fraction
    n = positive - form.bias
    magic = (form.bias + form.fraction) << form.fraction
    return m, n, float_of(positive | magic) - (2.0**form.fraction + form.bias)


def normal(x: Value) -> tuple[Value, Value]:
    """``x``, multiplied by a power of two if it is subnormal, and the correction of its exponent."""
    form = format_of(x)
    tiny = x < form.tiniest_normal
    shift = form.fraction + 2
    return where(tiny, x * 2.0**shift, x), where(tiny, x.function.constant(x.type, -float(shift)), 0.0)


def is_positive_normal(x: Value) -> Value:
    """Whether a number is positive and neither subnormal, infinite nor NaN."""
    # With one exponent more, the bits of these numbers are the signed integers from here on.
    step = 1 << format_of(x).fraction
    return bits_of(x) + step >= 2 * step


def log_of_parts(f: Value, n: Value) -> Value:
    """log(1 + f) + n ln(2) for 1 + f from sqrt(1/2) to sqrt(2)."""
    high, low = _LN2[format_of(f).fraction]
    square = f * f
    if f.type.element is F32:
        tail = fma(f * square, polynomial(f, LOG_SINGLE), n * low)
        return fma(n, high, f + fma(square, -0.5, tail))
    # log((1 + s) / (1 - s)) is an odd function of s, and needs half as many terms.
    s = f / (f + 2.0)
    z = s * s
    half = square * 0.5
    rest = fma(s, fma(z, polynomial(z, LOG_DOUBLE), half), n * low)
    return fma(n, high, f - (half - rest))


def log(x: Value) -> Value:
    """The natural logarithm."""
    is_usual = is_positive_normal(x)
    scaled, shift = unless_any(~is_usual, lambda: normal(x), (x, x.function.constant(x.type, 0.0)))
    m, _, n = split(scaled)
    inside = log_of_parts(m - 1.0, n + shift)
    (result,) = unless_any(~is_usual, lambda: (with_ends(inside, x, x),), (inside,))
    return result


def with_ends(result: Value, x: Value, one_up: Value) -> Value:
    """The logarithm of ``one_up``, which is x or 1 + x, with the values at the ends of its domain filled in."""
    result = where(one_up < math.inf, result, x)  # infinity and NaN are their own logarithms
    result = where(one_up < 0.0, math.nan, result)
    return where(one_up.eq(0.0), -math.inf, result)


def log1p(x: Value) -> Value:
    """log(1 + x)."""
    up = x + 1.0
    inside = _log1p(x, up)
    (result,) = unless_any(~is_positive_normal(up), lambda: (with_ends(inside, x, up),), (inside,))
    return where(absolute(x) < 2.0 ** -(format_of(x).fraction + 2), x, result)


def log1p_of_sum(x: Value, low: Value, exponent: Value) -> Value:
    """log(1 + x + low) + exponent ln(2) for finite x >= 0; ``low`` is much less than x."""
    return _log1p(x, x + 1.0, low, exponent)


def _log1p(x: Value, up: Value, low: Value | None = None, exponent: Value | None = None) -> Value:
    """log(1 + x + low) + exponent ln(2), where ``up`` is 1 + x, positive and finite."""
    m, n, whole = split(up)
    # x 2^-n + (2^-n - 1) is m - 1 without the rounding error of 1 + x; for large x, m itself is accurate.
    great = n > format_of(x).fraction + 4
    down = two_to(x, where(great, 0, 0 - n))
    f = fma(x, down, down - 1.0)
    if low is not None:
        f = fma(low, down, f)
    return log_of_parts(where(great, m - 1.0, f), whole if exponent is None else whole + exponent)


def pow(x: Value, y: Value) -> Value:
    """x^y."""
    size = absolute(x)
    inside = _power_single(size, y) if x.type.element is F32 else _power_double(size, y)
    is_usual = is_positive_normal(x) & (absolute(y) < math.inf)
    (result,) = unless_any(~is_usual, lambda: (_power_with_ends(inside, x, y, size),), (inside,))
    return result


def _power_with_ends(result: Value, x: Value, y: Value, size: Value) -> Value:
    """x^y from |x|^y for finite numbers; ``size`` is |x|."""
    # pow(1, y) = pow(x, 0) = 1 even if the other operand is NaN; pow(-1, +-inf) is 1, too.
    one = size.eq(1.0) & y.eq(y)
    result = where(one, 1.0, result)
    half = y * 0.5
    whole = floor(y).eq(y)
    odd = whole & floor(half).ne(half)
    impossible = (x < 0.0) & (size < math.inf) & ~whole
    result = negate_if(where(impossible, math.nan, result), where(odd, sign_of(x), 0))
    return where(y.eq(0.0) | x.eq(1.0), 1.0, result)


# ln(2) in three parts; multiples of the first part by exponents are exact.
_LN2_IN_THREE = (0.6931471805598903, 5.497923018708371e-14, 1.1612227229362533e-26)
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)


def _with_end(size: Value, logarithm: Value) -> Value:
    """The logarithm of a magnitude, with the values at the ends of its domain filled in."""
    result = where(size.eq(0.0), -math.inf, logarithm)
    return where(size < math.inf, result, size)


def _power_single(size: Value, y: Value) -> Value:
    wide = widened(size)
    m, _, n = split(wide)
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    logarithm = fma(n, math.log(2), fma(s * z, polynomial(z, LOG_WIDE), s + s))
    exponent = at_least(at_most(_with_end(wide, logarithm) * widened(y), 150.0), -150.0)
    power, _, n = reduced_exponential(exponent, EXP_WIDE)
    return narrowed(power * two_to(power, n))


def _power_double(size: Value, y: Value) -> Value:
    high, low = _logarithm(size)
    high = _with_end(size, high)
    product, lost = exact_product(y, high)
    lost = fma(y, low, lost)
    # Beyond the range of results, and if a logarithm or y is infinite, the low part does not matter.
    exponent = at_least(at_most(product, 710.0), -746.0)
    r, t, n = reduced_exponential_of_sum(exponent, where(absolute(product) < 746.0, lost, 0.0))
    return scaled((r + t) + 1.0, n)


def _logarithm(x: Value) -> Pair:
    """The logarithm of a positive finite F64, with about 66 correct bits."""
    x, shift = normal(x)
    m, _, n = split(x)
    n = n + shift
    f = m - 1.0
    # s = f / (2 + f), so that log(1 + f) = 2s + 2/3 s^3 + ...
    below, lost = exact_sum_ordered(constant(f, 2.0), f)
    inverse = 1.0 / below
    s = f * inverse
    s_low = (fma(-s, below, f) - s * lost) * inverse
    z, z_low = exact_product(s, s)
    z_low = fma(s * 2.0, s_low, z_low)
    # The series after 2s is s z (2/3 + t), where t needs no low part.
    t, t_low = exact_sum_ordered(constant(z, _TWO_THIRDS[0]), z * polynomial(z, POW_LOG))
    t_low = t_low + _TWO_THIRDS[1]
    w, w_low = exact_product(z, t)
    w_low = w_low + fma(z, t_low, z_low * t)
    v, v_low = exact_product(s, w)
    v_low = v_low + fma(s, w_low, s_low * w)
    total, lost = exact_sum_ordered(n * _LN2_IN_THREE[0], s * 2.0)
    total, more = exact_sum(total, v)
    low = fma(n, _LN2_IN_THREE[1], lost) + (more + fma(s_low, 2.0, v_low))
    return exact_sum_ordered(total, low)


# From here on, 1 + u is 2x to the last bit, so squares, which might overflow, are not used.
_GREAT = 2.0**60


def asinh(x: Value) -> Value:
    """The number whose hyperbolic sine is x.

    Computed as log1p(|x| + x^2 / (sqrt(x^2 + 1) + 1)) with the sum in two floats; as log(2 |x|) for large |x|; and as x
    if x is tiny, infinite or NaN. F32 is computed in F64.
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
    """The number >= 0 whose hyperbolic cosine is x."""
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
    # u = 2x / (1 - x), with the rounding errors of the difference and the quotient.
    below = 1.0 - size
    lost = (1.0 - below) - size
    inverse = 1.0 / below
    u = size * 2.0 * inverse
    low = (fma(-u, below, size * 2.0) - u * lost) * inverse
    result = log1p_of_sum(u, low, constant(x, 0.0)) * 0.5
    result = where(size < 1.0, result, where(size.eq(1.0), constant(x, math.inf), math.nan))
    return with_sign_of(where(size < 2.0**-28, size, result), x)
