"""Functions built on the exponential: e^x = 2^n e^r with an integer n and |r| <= ln(2)/2."""

from __future__ import annotations

import math
from typing import NamedTuple

from xlakit.cpu.llvm.types import F32
from xlakit.cpu.llvm.values import Value
from xlakit.cpu.math.arithmetic import (
    SINGLE,
    absolute,
    at_least,
    at_most,
    bits_of,
    bits_of_rounder,
    constant,
    float_of,
    fma,
    format_of,
    horner,
    narrowed,
    nearest,
    or_sign_of,
    polynomial,
    scaled_by_power,
    scales,
    two_to,
    unless_any,
    where,
    widened,
    with_sign_of,
)
from xlakit.cpu.math.coefficients import (
    ERF_DOUBLE,
    ERF_SINGLE,
    ERFC_ROOT_SINGLE,
    EXP2_SINGLE,
    EXP_DOUBLE,
    EXP_SINGLE,
    EXPM1_SINGLE,
    LOG_ERFC_DOUBLE,
    TANH_SINGLE,
)
from xlakit.options import current


class _Constants(NamedTuple):
    log2_e: float
    # ln(2) in two parts. The fused product n * ln2_high is exact enough: its last bit is above that of r.
    ln2_high: float
    ln2_low: float
    # The least and the greatest x for which e^x is normal and finite, and an x at which it rounds to zero.
    normal: float
    most: float
    least: float
    # (e^r - 1 - r) / r^2
    tail: tuple[float, ...]


_SINGLE = _Constants(
    log2_e=1.44269504,
    ln2_high=0.693147182464599609375,
    ln2_low=-1.904654299957767878541e-9,
    normal=-87.33654022216797,
    most=88.72283172607422,
    least=-104.0,
    tail=EXP_SINGLE,
)
_DOUBLE = _Constants(
    log2_e=1.4426950408889634,
    ln2_high=0.69314718055994528623,
    ln2_low=2.319046813846299558418e-17,
    normal=-708.3964185322641,
    most=709.782712893384,
    least=-746.0,
    tail=EXP_DOUBLE,
)


# Rounded to F32, because its rounding error matters.
_TWICE_LOG2_E = 2.885390043258667


def _constants(x: Value) -> _Constants:
    return _SINGLE if x.type.element is F32 else _DOUBLE


def reduced_exponential(x: Value, tail: tuple[float, ...] | None = None) -> tuple[Value, Value, Value]:
    """e^x = p 2^n as (p, n, n as :func:`nearest` gives it); x is finite or NaN, n in the range of exponents.

    tail: coefficients of (e^r - 1 - r) / r^2, if not those of the format.
    """
    known = _constants(x)
    whole, n = nearest(x, known.log2_e)
    r = fma(whole, -known.ln2_low, fma(whole, -known.ln2_high, x))
    # The rounding error of the inner sum counts a third, since |r| does.
    return fma(fma(polynomial(r, tail or known.tail), r, 1.0), r, 1.0), whole, n


def reduced_exponential_of_sum(
    x: Value, low: Value | None, tail: tuple[float, ...] | None = None
) -> tuple[Value, Value, Value]:
    """e^(x + low) = (1 + r + t) 2^n as (r, t, n): like the above, but t includes the rounding error of r."""
    known = _constants(x)
    whole, n = nearest(x, known.log2_e)
    high = fma(whole, -known.ln2_high, x)
    less = whole * -known.ln2_low if low is None else fma(whole, -known.ln2_low, low)
    r = high + less
    lost = less - (r - high)
    return r, fma(r * r, polynomial(r, tail or known.tail), lost), n


def scaled(x: Value, n: Value) -> Value:
    """``x * 2^n`` for x near 1 and n of :func:`nearest`; the result may be subnormal, or slightly beyond the range."""
    form = format_of(x)
    # In two steps, because 2^n itself may not be a normal number. Adding both biases makes the shifted number positive.
    both = n + (2 * form.bias - bits_of_rounder(form))
    half = both >> 1
    return x * float_of(half << form.fraction) * float_of((both - half) << form.fraction)


def exp(x: Value) -> Value:
    """e^x.

    No product is subnormal, which many processors compute a hundred times as slowly; programs often take exponentials
    of numbers from -90 to -180, such as masked scores and distances in a Gaussian kernel.
    """
    known, form = _constants(x), format_of(x)
    size = at_least(x, known.least)
    if current().flush_subnormals and scales(x):
        # In the mode of these programs the instruction gives 0 for subnormal results, at once.
        power, whole, _ = reduced_exponential(at_most(size, known.most + 1.0))
        return scaled_by_power(power, whole)
    power, _, n = reduced_exponential(size)
    # The product with 2^n, computed by adding n to the exponent bits.
    bits = bits_of(power) + (n << form.fraction)

    def at_ends() -> tuple[Value]:
        small = bits.function.constant(bits.type, 0) if current().flush_subnormals else _subnormal(x, bits)
        # Compared so that NaN, too, is added to infinity, and so that the sum is the chosen side of the selection:
        # instructions with masks do both at once.
        return (where(x.compare("ugt", known.most), x + math.inf, float_of(where(x < known.normal, small, bits))),)

    (result,) = unless_any(absolute(x).compare("ugt", -known.normal), at_ends, (float_of(bits),))
    return result


def _subnormal(x: Value, bits: Value) -> Value:
    """The bits of a subnormal e^x, from bits with an exponent that is 0 or less."""
    # It is a multiple of the least subnormal number, 2^-lowest. Its bits are this integer, which a sum with 2^fraction
    # rounds to and has in its low bits. For other numbers this overflows, and is not selected.
    form = format_of(x)
    lowest = form.bias + form.fraction - 1
    anchor = 2.0**form.fraction
    return bits_of(float_of(bits + (lowest << form.fraction)) + anchor) - bits_of(constant(x, anchor))


def exp_within(x: Value) -> Value:
    """e^x, if that is a normal number."""
    power, _, n = reduced_exponential(x)
    return power * two_to(x, n)


def expm1(x: Value) -> Value:
    """e^x - 1."""
    # The result rounds to -1 below these bounds, and overflows above.
    least, most, tail = (-18.0, 89.0, EXPM1_SINGLE) if x.type.element is F32 else (-38.0, 710.0, EXP_DOUBLE)
    r, t, n = reduced_exponential_of_sum(at_least(at_most(x, most), least), None, tail)
    # Halved, so that 2^n does not overflow before the result does.
    half = two_to(x, n - 1)
    result = fma(half, t, fma(half, r, half - 0.5)) * 2.0
    return where(absolute(x) < 2.0 ** -(format_of(x).fraction + 2), x, result)


def logistic(x: Value) -> Value:
    """1 / (1 + e^-x)."""
    known, form = _constants(x), format_of(x)
    # Of 2^-k / (2^-k + 2^-k e^-x), with k half of the exponent's bias, no part but the result is subnormal or
    # overflows, up to where the result rounds to zero or one. The low bits of the shifted number are the biased
    # exponent of 2^(n - k).
    half_bias = form.bias // 2
    rounder = form.rounder + (form.bias - half_bias)
    size = at_least(at_most(x, 2.0 + form.fraction), known.least)
    shifted = fma(size, -known.log2_e, rounder)
    whole = shifted - rounder
    r = fma(whole, -known.ln2_low, fma(whole, -known.ln2_high, -size))
    power = fma(fma(polynomial(r, known.tail), r, 1.0), r, 1.0)
    one = constant(x, 2.0**-half_bias)
    return one / fma(power, float_of(bits_of(shifted) << form.fraction), one)


def tanh(x: Value) -> Value:
    """The hyperbolic tangent."""
    size = absolute(x)
    if x.type.element is F32:
        square = x * x
        small = fma(size * square, polynomial(square, TANH_SINGLE), size)
        large = 1.0 - 2.0 / (_exp_of_twice(at_most(size, 10.0)) + 1.0)
        return or_sign_of(where(size < 0.6, small, large), x)
    grown = expm1(at_most(size, 20.0) * 2.0)
    return with_sign_of(where(size < 2.0**-28, size, grown / (grown + 2.0)), x)


def _exp_of_twice(x: Value) -> Value:
    """e^2x of an F32, if that is a normal number; adds a relative error of 2^-25 x to that of the exponential."""
    # The product with 1/ln(2) has no error but that of the factor, so ln(2) needs no second part. The low bits of the
    # shifted number are the biased exponent.
    rounder = SINGLE.rounder + SINGLE.bias
    shifted = fma(x, _TWICE_LOG2_E, rounder)
    fraction = fma(x, _TWICE_LOG2_E, rounder - shifted)
    power = fma(fraction, polynomial(fraction, EXP2_SINGLE), 1.0)
    return power * float_of(bits_of(shifted) << SINGLE.fraction)


def sinh(x: Value) -> Value:
    """The hyperbolic sine."""
    if x.type.element is F32:
        return narrowed(sinh(widened(x)))
    size = absolute(x)
    # (E + E / (E + 1)) / 2 with E = e^|x| - 1; beyond 700, where E may overflow, only half of it is computed.
    grown = expm1(at_most(size, 700.0))
    usual = fma(grown / (grown + 1.0), 0.5, grown * 0.5)
    return with_sign_of(where(size > 700.0, _half_exponential(size), where(size < 2.0**-28, size, usual)), x)


def cosh(x: Value) -> Value:
    """The hyperbolic cosine."""
    if x.type.element is F32:
        return narrowed(cosh(widened(x)))
    size = absolute(x)
    grown = exp_within(at_most(size, 700.0))
    usual = fma(grown, 0.5, 0.5 / grown)
    return where(size > 700.0, _half_exponential(size), usual)


def _half_exponential(size: Value) -> Value:
    """e^size / 2 for large sizes."""
    power, _, n = reduced_exponential(at_most(size, 712.0))
    return scaled(power, n - 1)


def erf(x: Value) -> Value:
    """The error function."""
    size = absolute(x)
    square = x * x
    if x.type.element is F32:
        small = fma(size, polynomial(square, ERF_SINGLE), size)
        # The fourth power needs no exponential; the errors of the root and of the power count relative to 1 - result.
        # Beyond the bound the result rounds to 1.
        root = horner(at_most(size, 4.05), ERFC_ROOT_SINGLE)
        half = root * root
        return or_sign_of(where(size < 1.1, small, fma(-half, half, 1.0)), x)
    small = fma(size, polynomial(square, ERF_DOUBLE), size)
    large = 1.0 - exp_within(polynomial(at_most(size, 5.93), LOG_ERFC_DOUBLE))
    return with_sign_of(where(size < 1.0, small, large), x)
