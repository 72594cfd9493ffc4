"""x to the power of y, as e^(y log x) with a logarithm of more precision than the result has."""

from __future__ import annotations

import math

from xlakit.cpu.llvm.types import F32
from xlakit.cpu.llvm.values import Value
from xlakit.cpu.math.arithmetic import (
    Pair,
    absolute,
    at_least,
    at_most,
    constant,
    exact_product,
    exact_sum,
    exact_sum_ordered,
    floor,
    fma,
    narrowed,
    negate_if,
    polynomial,
    sign_of,
    two_to,
    where,
    widened,
)
from xlakit.cpu.math.coefficients import EXP_WIDE, LOG_WIDE, POW_LOG
from xlakit.cpu.math.exponential import reduced_exponential, reduced_exponential_of_sum, scaled
from xlakit.cpu.math.logarithm import normal, split


def pow(x: Value, y: Value) -> Value:
    """x^y."""
    size = absolute(x)
    result = _power_single(size, y) if x.type.element is F32 else _power_double(size, y)
    # pow(1, y) = pow(x, 0) = 1 even where the other is NaN; -1 to an infinite power is 1 too.
    one = size.eq(1.0) & y.eq(y)
    result = where(one, 1.0, result)
    half = y * 0.5
    whole = floor(y).eq(y)
    odd = whole & floor(half).ne(half)
    impossible = (x < 0.0) & (size < math.inf) & ~whole
    result = negate_if(where(impossible, math.nan, result), where(odd, sign_of(x), 0))
    return where(y.eq(0.0) | x.eq(1.0), 1.0, result)


# ln(2) in three parts: multiples of the first by exponents are exact.
_LN2 = (0.6931471805598903, 5.497923018708371e-14, 1.1612227229362533e-26)
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)


def _with_end(size: Value, logarithm: Value) -> Value:
    """The logarithm of a magnitude, with the values at the ends put in."""
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
    m, n = reduced_exponential(exponent, EXP_WIDE)
    return narrowed((m + 1.0) * two_to(m, n))


def _power_double(size: Value, y: Value) -> Value:
    high, low = _logarithm(size)
    high = _with_end(size, high)
    product, lost = exact_product(y, high)
    lost = fma(y, low, lost)
    # Past the range of results, and where a logarithm or y is infinite, there is no more to know.
    exponent = at_least(at_most(product, 710.0), -746.0)
    r, t, n = reduced_exponential_of_sum(exponent, where(absolute(product) < 746.0, lost, 0.0))
    return scaled((r + t) + 1.0, n)


def _logarithm(x: Value) -> Pair:
    """The logarithm of a positive finite F64 to about 66 bits."""
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
    # The series after 2s is s z (2/3 + t), of which t need not be a sum.
    t, t_low = exact_sum_ordered(constant(z, _TWO_THIRDS[0]), z * polynomial(z, POW_LOG))
    t_low = t_low + _TWO_THIRDS[1]
    w, w_low = exact_product(z, t)
    w_low = w_low + fma(z, t_low, z_low * t)
    v, v_low = exact_product(s, w)
    v_low = v_low + fma(s, w_low, s_low * w)
    total, lost = exact_sum_ordered(n * _LN2[0], s * 2.0)
    total, more = exact_sum(total, v)
    low = fma(n, _LN2[1], lost) + (more + fma(s_low, 2.0, v_low))
    return exact_sum_ordered(total, low)
