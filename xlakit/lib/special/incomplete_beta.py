"""The regularized incomplete beta function."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlakit.lib.special.error_functions import erfc_f64
from xlakit.lib.special.gamma import LARGE, lgamma_f64, stirling_rest
from xlakit.lib.special.support import first_of, full, in_f64, iterate, log1p_minus
from xlakit.ops.elementwise.binary import and_, max as max_, min as min_, or_
from xlakit.ops.elementwise.compare import eq, ge, gt, le, lt
from xlakit.ops.elementwise.elementary import exp, log, log1p, sqrt
from xlakit.ops.elementwise.select import select
from xlakit.ops.elementwise.unary import abs, not_
from xlakit.ops.handle import XlaOp, building

_STEPS = 1 << 16
# From here on for both arguments, the first correction to the normal distribution is exact to rounding.
_NORMAL = 1e12
# What is less, relative to a sum, is below its rounding.
_EPSILON = 2.0**-55


@building
def regularized_incomplete_beta(a: XlaOp, b: XlaOp, x: XlaOp) -> XlaOp:
    """The regularized incomplete beta function I_x(a, b) of a, b > 0 and x from 0 to 1; NaN for other arguments.

    The loop of its continued fraction takes a number of steps that grows with the root of the smaller of a and b. From
    1e12 on, the distribution is so nearly a normal one that it needs no loop.
    Source: RegularizedIncompleteBeta.
    """
    return in_f64(_beta, a, b, x)


def _log_beta(a: XlaOp, b: XlaOp) -> XlaOp:
    """log(beta(a, b)), without the cancellation of its three terms where one argument is large."""
    small, large = min_(a, b), max_(max_(a, b), LARGE)
    total = small + large
    ratio = (large - 0.5) * log1p(small / large) + small * (log(total) - 1.0)
    far = lgamma_f64(small) - ratio + (stirling_rest(large) - stirling_rest(total))
    near_large = min_(max_(a, b), LARGE)
    near = lgamma_f64(small) + lgamma_f64(near_large) - lgamma_f64(small + near_large)
    return select(ge(max_(a, b), LARGE), far, near)


def _factor(a: XlaOp, b: XlaOp, x: XlaOp, y: XlaOp) -> XlaOp:
    """x^a y^b / beta(a, b), for y = 1 - x."""
    # Of the two, the one near 1 has fewer digits than its distance from 1.
    log_x, log_y = select(gt(x, 0.5), log1p(-y), log(x)), select(gt(y, 0.5), log1p(-x), log(y))
    small = exp(a * log_x + b * log_y - _log_beta(a, b))
    # For large a and b, relative to the greatest value, at x = a / (a + b).
    large_a, large_b = max_(a, LARGE), max_(b, LARGE)
    distance = x * large_b - y * large_a
    exponent = large_a * log1p_minus(distance / large_a) + large_b * log1p_minus(-(distance / large_b))
    total = large_a + large_b
    exponent = exponent + stirling_rest(total) - stirling_rest(large_a) - stirling_rest(large_b)
    large = exp(exponent) * sqrt(large_a / total * large_b * (0.5 / math.pi))
    return select(ge(min_(a, b), LARGE), large, small)


def _nearly_normal(a: XlaOp, b: XlaOp, x: XlaOp, y: XlaOp) -> XlaOp:
    """I_x(a, b) below the mean, where a and b are both ``_NORMAL`` or more.

    Temme's expansion, which is uniform in x: the normal distribution at a point w that gives the same exponent, and the
    first correction, 1/w - 1/u, for the distance u from the mean in standard deviations. The next one is less by a
    factor of the smaller of a and b.
    """
    # Sums of the largest numbers are infinite.
    halved = select(gt(max_(a, b), 2.0**1022), full(a, 0.25), full(a, 1.0))
    a, b = a * halved, b * halved
    total = a + b
    deviation = sqrt(a / total * b)
    distance = min_(x * b - y * a, 0.0)
    exponent = a * log1p_minus(distance / a) + b * log1p_minus(-(distance / b))
    w = sqrt(max_(exponent * -2.0, 0.0))
    u = -(distance / deviation)
    near = lt(w, 2.0**-6)
    skew = (b / total - a / total) / deviation * (1.0 / 3.0)
    one = full(a, 1.0)
    correction = select(near, skew, 1.0 / select(near, one, u) - 1.0 / select(near, one, w))
    density = exp(w * w * -0.5) * (1.0 / math.sqrt(2.0 * math.pi))
    return erfc_f64(w * math.sqrt(0.5)) * 0.5 + density * correction


def _fraction(a: XlaOp, b: XlaOp, x: XlaOp, y: XlaOp, active: XlaOp) -> XlaOp:
    """The continued fraction of I_x(a, b) a / (x^a y^b / beta(a, b)), below the mean.

    It is its even part, whose numerators and denominators are positive up to n = b, summed term by term: the terms
    decrease, and with them the errors of each step, which a product of the steps would all keep.
    """

    def step(values: Sequence[XlaOp]) -> tuple[Sequence[XlaOp], XlaOp]:
        n, a, b, x, y, excess, before, w, term, total = values
        place = a + n * 2.0 - 1.0
        drift = n * (b - n) * x / place
        below = n + drift + (a + n) / (place + 2.0) * (excess + n * (y + 1.0))
        c = drift * ((a + b + n - 1.0) / place) * x / (before * below)
        new_w = 1.0 / (c * w + 1.0)
        term = -(c * w) * new_w * term
        total = total + term
        more = gt(abs(term), abs(total) * _EPSILON)
        # The numerators' factor a + n is divided out: with it, small numbers would have few digits.
        return [a, b, x, y, excess, below / (a + n), new_w, term, total], more

    one = full(a, 1.0)
    excess = a * y - b * x + 1.0
    first = excess / (a + 1.0)
    *_, term, total = iterate(step, [a, b, x, y, excess, first, one, one, one], active, _STEPS)
    # A sum that is not complete is no result.
    done = or_(le(abs(term), abs(total) * _EPSILON), not_(active))
    return select(done, total / first, full(a, math.nan))


def _beta(a: XlaOp, b: XlaOp, x: XlaOp) -> XlaOp:
    valid = and_(and_(gt(a, 0.0), gt(b, 0.0)), and_(ge(x, 0.0), le(x, 1.0)))
    infinite_a, infinite_b = eq(a, math.inf), eq(b, math.inf)
    infinite = or_(infinite_a, infinite_b)
    inside = and_(and_(valid, not_(infinite)), and_(gt(x, 0.0), lt(x, 1.0)))
    a, b = select(inside, a, full(a, 1.0)), select(inside, b, full(a, 1.0))
    given = select(inside, x, full(a, 0.5))
    rest = 1.0 - given
    # The fraction converges fast below the mean; I_x(a, b) = 1 - I_y(b, a).
    swapped = gt(given, (a + 1.0) / (a + b + 2.0))
    first, second = select(swapped, b, a), select(swapped, a, b)
    position, other = select(swapped, rest, given), select(swapped, given, rest)
    normal = ge(min_(first, second), _NORMAL)
    slow = and_(inside, not_(normal))
    part = _factor(first, second, position, other) / first * _fraction(first, second, position, other, slow)
    part = select(normal, _nearly_normal(first, second, position, other), part)
    # Errors leave no probability below 0.
    part = select(gt(part, 1.0), full(a, 1.0), part)
    result = select(swapped, 1.0 - part, part)
    return first_of(
        [
            (not_(valid), math.nan),
            (and_(infinite_a, infinite_b), math.nan),
            (eq(x, 0.0), 0.0),
            (eq(x, 1.0), 1.0),
            (infinite_a, 0.0),
            (infinite_b, 1.0),
        ],
        result,
    )
