"""The regularized incomplete gamma functions, and their derivatives by the first argument.

Up to x = a, or 1, a power series gives the lower function P; beyond, a continued fraction gives the upper one, Q. Both
have a factor D = x^a exp(-x) / gamma(a + 1). Each loop carries derivatives by ``a`` where these are asked for, and ends
when all elements have converged, after about 9 sqrt(a) steps where x is near a.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from xlakit.lib.special.error_functions import erfc_f64
from xlakit.lib.special.gamma import (
    LARGE,
    LARGE_DIGAMMA,
    digamma_f64,
    digamma_rest,
    lgamma1p_f64,
    lgamma_f64,
    stirling_rest,
)
from xlakit.lib.special.support import first_of, full, in_f64, iterate, log1p_minus, polynomial
from xlakit.ops.elementwise.binary import and_, max as max_, min as min_, or_, pow
from xlakit.ops.elementwise.compare import eq, ge, gt, le, lt
from xlakit.ops.elementwise.elementary import exp, expm1, log, log1p, sqrt
from xlakit.ops.elementwise.select import select
from xlakit.ops.elementwise.unary import abs, not_
from xlakit.ops.handle import XlaOp, building

_EPSILON = 2.0**-53
_STEPS = 1 << 16
# Beyond, neither the series nor the fraction converges within the steps, and a normal distribution is near.
_LARGEST = 1e7
# Up to a = 1, Q is computed without P where x <= 1, by a series of so many terms.
_SMALL_TERMS = 17


@building
def igamma(a: XlaOp, x: XlaOp) -> XlaOp:
    """The lower regularized incomplete gamma function P(a, x); NaN where a < 0 or x < 0, and at (0, 0).

    Raises ShapeError. Source: Igamma.
    """
    return in_f64(lambda a, x: _either(a, x, upper=False), a, x)


@building
def igammac(a: XlaOp, x: XlaOp) -> XlaOp:
    """The upper regularized incomplete gamma function Q(a, x) = 1 - P(a, x); NaN where P is.

    Raises ShapeError. Source: Igammac.
    """
    return in_f64(lambda a, x: _either(a, x, upper=True), a, x)


@building
def igamma_grad_a(a: XlaOp, x: XlaOp) -> XlaOp:
    """The derivative of ``igamma`` by ``a``; NaN where a <= 0 or x < 0.

    Raises ShapeError. Source: IgammaGradA.
    """
    return in_f64(_grad_a, a, x)


@building
def random_gamma_grad(a: XlaOp, x: XlaOp) -> XlaOp:
    """The derivative by ``a`` of the sample x of a gamma distribution, for a fixed value of P(a, x).

    Raises ShapeError. Source: RandomGammaGrad.
    """
    return in_f64(_sample_grad, a, x)


class _Domain(NamedTuple):
    """The arguments where the loops can work, and which way is taken. Elsewhere a = x = 1 stand in."""

    a: XlaOp
    x: XlaOp
    valid: XlaOp  # a > 0 and x >= 0, none of them NaN
    inside: XlaOp  # and both are finite, x is not 0
    by_series: XlaOp


def _domain(a: XlaOp, x: XlaOp) -> _Domain:
    valid = and_(gt(a, 0.0), ge(x, 0.0))
    inside = and_(and_(valid, gt(x, 0.0)), and_(le(a, _LARGEST), lt(x, math.inf)))
    one = full(a, 1.0)
    given_a, given_x = select(inside, a, one), select(inside, x, one)
    by_series = or_(le(given_x, 1.0), le(given_x, given_a))
    return _Domain(given_a, given_x, valid, inside, by_series)


def _factor(a: XlaOp, x: XlaOp) -> XlaOp:
    """D = x^a exp(-x) / gamma(a + 1)."""
    # For large a with Stirling's series: large terms that cancel are left out of the exponent.
    large_a = max_(a, LARGE)
    ratio, mu = x / large_a, (x - large_a) / large_a
    # Of a small x, which differences from a do not keep, the logarithm is not a sum.
    logarithm = select(lt(ratio, 0.5), log(ratio) - mu, log1p_minus(mu))
    exponent = large_a * logarithm - stirling_rest(large_a)
    large = exp(exponent) / sqrt(large_a * (2 * math.pi))
    near = min_(x, 2000.0)
    small_a = min_(a, LARGE)
    # exp(-x / 2) is a factor twice: exp(-x) may be subnormal, and imprecise, where the product is not.
    half = exp(near * -0.5)
    small = half * pow(near, small_a) * half * exp(-lgamma_f64(small_a + 1.0))
    return select(ge(a, LARGE), large, small)


def _series(domain: _Domain, *, derivative: bool) -> tuple[XlaOp, XlaOp]:
    """S = sum of x^n / ((a + 1) ... (a + n)), so that P = D S, and its derivative by a."""

    def step(values: Sequence[XlaOp]) -> tuple[Sequence[XlaOp], XlaOp]:
        n, a, x, term, total, term_grad, total_grad = values
        below = a + n
        ratio = x / below
        if derivative:
            term_grad = (term_grad - term / below) * ratio
            total_grad = total_grad + term_grad
        term = term * ratio
        total = total + term
        more = gt(term, total * _EPSILON)
        if derivative:
            more = or_(more, gt(abs(term_grad), abs(total_grad) * _EPSILON))
        return [a, x, term, total, term_grad, total_grad], more

    one, zero = full(domain.a, 1.0), full(domain.a, 0.0)
    active = and_(domain.inside, domain.by_series)
    start = [domain.a, domain.x, one, one, zero, zero]
    result = iterate(step, start, active, _STEPS)
    return result[3], result[5]


def _fraction(domain: _Domain, *, derivative: bool) -> tuple[XlaOp, XlaOp]:
    """H with Q = D a H, and the derivative by a of log(H).

    The continued fraction H = 1 / (b0 + t1 / (b1 + ...)), with t_n = n (a - n) and b_n = x + 1 - a + 2 n, is
    summed as Euler's series of the same value: errors of its small terms are small, where those of the factors of a
    product would all count. With c_n = t_n / (b_(n-1) b_n) and w_n = 1 / (1 + c_n w_(n-1)), H b0 is the sum of the
    products of w_1 - 1, ..., w_n - 1.
    """

    def step(values: Sequence[XlaOp]) -> tuple[Sequence[XlaOp], XlaOp]:
        n, a, first, w, term, total, w_grad, term_grad, total_grad = values
        after = first + n * 2.0
        before = after - 2.0
        inverse = n / (before * after)
        c = inverse * (a - n)
        new_w = 1.0 / (c * w + 1.0)
        rise = -(c * w) * new_w
        if derivative:
            c_grad = inverse + c * (1.0 / before + 1.0 / after)
            w_grad = -(new_w * new_w) * (c_grad * w + c * w_grad)
            term_grad = w_grad * term + rise * term_grad
            total_grad = total_grad + term_grad
        term = rise * term
        total = total + term
        more = gt(abs(term), total * _EPSILON)
        if derivative:
            more = or_(more, gt(abs(term_grad), abs(total_grad) * _EPSILON))
        return [a, first, new_w, term, total, w_grad, term_grad, total_grad], more

    active = and_(domain.inside, not_(domain.by_series))
    one, zero = full(domain.a, 1.0), full(domain.a, 0.0)
    first = select(active, domain.x + 1.0 - domain.a, one)
    result = iterate(step, [domain.a, first, one, one, one, zero, zero, zero], active, _STEPS)
    total, total_grad = result[4], result[7]
    return total / first, total_grad / total + 1.0 / first


def _either(a: XlaOp, x: XlaOp, *, upper: bool) -> XlaOp:
    domain = _domain(a, x)
    factor = _factor(domain.a, domain.x)
    lower_part = min_(factor * _series(domain, derivative=False)[0], 1.0)
    upper_part = factor * domain.a * _fraction(domain, derivative=False)[0]
    if upper:
        result = select(domain.by_series, 1.0 - lower_part, upper_part)
        is_small = and_(le(domain.a, 1.0), le(domain.x, 1.0))
        result = select(is_small, _upper_of_small(min_(domain.a, 1.0), min_(domain.x, 1.0)), result)
    else:
        result = select(domain.by_series, lower_part, 1.0 - upper_part)
    at_zero, at_infinity = (1.0, 0.0) if upper else (0.0, 1.0)
    infinite_a = eq(a, math.inf)
    return first_of(
        [
            # The limit: all of the distribution is at 0.
            (and_(eq(a, 0.0), gt(x, 0.0)), at_infinity),
            (not_(domain.valid), math.nan),
            (and_(infinite_a, eq(x, math.inf)), math.nan),
            (or_(eq(x, 0.0), infinite_a), at_zero),
            (eq(x, math.inf), at_infinity),
            (not_(domain.inside), _of_huge(a, x, upper=upper)),
        ],
        result,
    )


def _upper_of_small(a: XlaOp, x: XlaOp) -> XlaOp:
    """Q for a <= 1 and x <= 1, where 1 - P would lose digits: for small a it is a times an exponential integral.

    With L = a log(x) - log(gamma(1 + a)), Q = 1 - exp(L) - exp(L) a sum of (-x)^n / (n! (a + n)) for n > 0. The sum is
    negative; 1 - exp(L) is, too, where x is near 1, and then takes away half of the other part at most.
    """
    gamma = select(le(a, 0.5), lgamma1p_f64(min_(a, 0.5)), lgamma_f64(a + 1.0))
    exponent = a * log(x) - gamma
    term, total = full(a, 1.0), full(a, 0.0)
    for n in range(1, _SMALL_TERMS + 1):
        term = term * (x * (-1.0 / n))
        total = total + term / (a + float(n))
    return -expm1(exponent) - exp(exponent) * a * total


def _of_huge(a: XlaOp, x: XlaOp, *, upper: bool) -> XlaOp:
    """P or Q for a > 1e7, by Temme's uniform expansion around a normal distribution.

    Where the result is neither 0 nor 1, |eta| is below 0.012: few terms of the power series are left.
    """
    a = max_(a, _LARGEST)
    mu = (x - a) / a
    a = min_(a, 1e300)
    eta = sqrt(log1p_minus(max_(mu, -1.0)) * -2.0)
    eta = select(lt(mu, 0.0), -eta, eta)
    first = polynomial(eta, (-1 / 3, 1 / 12, -2 / 135, 1 / 864, 3.5273368606701940e-4))
    second = polynomial(eta, (-1 / 540, -1 / 288, 1 / 378))
    rest = exp(a * eta * eta * -0.5) / sqrt(a * (2 * math.pi)) * (first + second / a)
    rest = select(lt(abs(eta), 0.1), rest, full(a, 0.0))
    root = eta * sqrt(a * 0.5)
    return erfc_f64(root) * 0.5 + rest if upper else erfc_f64(-root) * 0.5 - rest


def _grad_a(a: XlaOp, x: XlaOp) -> XlaOp:
    domain = _domain(a, x)
    series, fraction = _grads(domain)
    factor = _factor(domain.a, domain.x)
    result = factor * select(domain.by_series, series, -(domain.a * fraction))
    ends = and_(domain.valid, not_(domain.inside))
    return first_of([(not_(domain.valid), math.nan), (and_(ends, gt(a, _LARGEST)), math.nan), (ends, 0.0)], result)


def _sample_grad(a: XlaOp, x: XlaOp) -> XlaOp:
    domain = _domain(a, x)
    series, fraction = _grads(domain)
    # The derivative of P by x is D a / x: D is in both and is left out.
    result = select(domain.by_series, -(domain.x / domain.a) * series, domain.x * fraction)
    return first_of([(not_(domain.valid), math.nan), (eq(x, 0.0), 0.0), (not_(domain.inside), math.nan)], result)


def _log_minus_digamma(a: XlaOp, x: XlaOp) -> XlaOp:
    """log(x) - digamma(a), which is small where x is near a large a: then log(a) is in neither."""
    large_a = max_(a, LARGE_DIGAMMA)
    mu = (x - large_a) / large_a
    # log1p keeps the digits of small differences, log(x) those of a small x.
    logarithm = select(lt(abs(mu), 0.5), log1p(mu), log(x / large_a))
    return select(ge(a, LARGE_DIGAMMA), logarithm + digamma_rest(large_a), log(x) - digamma_f64(a))


def _grads(domain: _Domain) -> tuple[XlaOp, XlaOp]:
    """The derivatives of P and Q by a: the first times 1 / D, the second times 1 / (D a)."""
    total, total_grad = _series(domain, derivative=True)
    fraction, log_grad = _fraction(domain, derivative=True)
    slope = _log_minus_digamma(domain.a, domain.x)
    series = (slope - 1.0 / domain.a) * total + total_grad
    return series, fraction * (slope + log_grad)
