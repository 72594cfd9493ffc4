"""The logarithm of the gamma function, and its derivatives."""

from __future__ import annotations

import math

from xlakit.lib.special import coefficients
from xlakit.lib.special.support import HALF_LOG_TWO_PI, chebyshev, first_of, full, in_f64, is_nan, polynomial
from xlakit.ops.elementwise.binary import and_, max as max_, min as min_
from xlakit.ops.elementwise.compare import eq, ge, gt, le, lt
from xlakit.ops.elementwise.elementary import cos, log, log1p, sin
from xlakit.ops.elementwise.select import select
from xlakit.ops.elementwise.unary import abs, floor, round_nearest_even
from xlakit.ops.handle import XlaOp, building

# The terms B(2k) / (2k (2k - 1)) of Stirling's series, and B(2k) / 2k of the digamma function's.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798)
_STIRLING = tuple(b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1))
_DIGAMMA_TAIL = tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI, 1))
LARGE = 8.0
LARGE_DIGAMMA = 10.0


@building
def lgamma(operand: XlaOp) -> XlaOp:
    """The logarithm of the absolute value of the gamma function; infinity at 0, -1, -2, ... and at the infinities.

    Raises ShapeError. Source: Lgamma.
    """
    return in_f64(lgamma_f64, operand)


@building
def digamma(operand: XlaOp) -> XlaOp:
    """The derivative of the logarithm of the gamma function; NaN at 0, -1, -2, ... and at minus infinity.

    Raises ShapeError. Source: Digamma.
    """
    return in_f64(digamma_f64, operand)


def stirling_rest(x: XlaOp) -> XlaOp:
    """log(gamma(x)) - ((x - 1/2) log(x) - x + log(2 pi) / 2), for x from LARGE on."""
    inverse = 1.0 / max_(x, LARGE)
    return inverse * polynomial(inverse * inverse, _STIRLING)


def lgamma1p_f64(a: XlaOp) -> XlaOp:
    """log(gamma(1 + a)) for |a| <= 1/2, with its digits where a is nearly 0."""
    return a * chebyshev(a * 2.0, coefficients.LGAMMA) - log1p(a)


def _lgamma_of_positive(x: XlaOp) -> XlaOp:
    # From 8 on Stirling's series; below, the recurrence leads to [1.5, 2.5], where d = x - 2 is exact.
    large = (x - 0.5) * (log(x) - 1.0) + (HALF_LOG_TWO_PI - 0.5) + stirling_rest(x)
    z, product = x, full(x, 1.0)
    for _ in range(6):
        above = and_(gt(z, 2.5), lt(x, LARGE))
        z = select(above, z - 1.0, z)
        product = select(above, product * z, product)
    tiny, small = lt(x, 0.5), lt(x, 1.5)
    d = first_of([(tiny, x), (small, x - 1.0)], z - 2.0)
    near = min_(max_(d, -0.5), 0.5)
    center = near * chebyshev(near * 2.0, coefficients.LGAMMA)
    logarithm = log(first_of([(tiny, x), (small, x)], product))
    rest = select(tiny, log(x + 1.0), full(x, 0.0))
    below = select(small, center - logarithm - rest, center + logarithm)
    return select(ge(x, LARGE), large, below)


def lgamma_f64(x: XlaOp) -> XlaOp:
    """``lgamma`` for F64."""
    size = abs(x)
    # gamma(x) gamma(1 - x) = pi / sin(pi x); the distance to the next integer is exact.
    distance = size - floor(size)
    sine = sin(min_(distance, 1.0 - distance) * math.pi)
    reflected = lt(x, 0.0)
    positive = _lgamma_of_positive(select(reflected, 1.0 - x, x))
    result = select(reflected, math.log(math.pi) - log(sine) - positive, positive)
    # Large negative integers are poles, too, where the other terms have no finite sum.
    pole = and_(reflected, eq(distance, 0.0))
    return first_of([(is_nan(x), x), (pole, math.inf), (eq(size, math.inf), math.inf)], result)


def digamma_rest(x: XlaOp) -> XlaOp:
    """log(x) - digamma(x), for x from LARGE_DIGAMMA on."""
    inverse = 1.0 / max_(x, LARGE_DIGAMMA)
    square = inverse * inverse
    return inverse * 0.5 + square * polynomial(square, _DIGAMMA_TAIL)


def _digamma_of_positive(x: XlaOp) -> XlaOp:
    # Of large numbers the asymptotic series; below, the recurrence leads to [1, 2], which contains the root.
    large = log(x) - digamma_rest(x)
    z = x
    top, bottom = full(x, 0.0), full(x, 1.0)
    for _ in range(8):
        above = and_(gt(z, 2.0), lt(x, LARGE_DIGAMMA))
        z = select(above, z - 1.0, z)
        top = select(above, top * z + bottom, top)
        bottom = select(above, bottom * z, bottom)
    small = lt(x, 1.0)
    z = select(small, x + 1.0, z)
    z = min_(max_(z, 1.0), 2.0)
    from_root = z - coefficients.DIGAMMA_ROOT - coefficients.DIGAMMA_ROOT_REST
    center = from_root * chebyshev(z * 2.0 - 3.0, coefficients.DIGAMMA)
    below = center + select(small, -1.0 / x, top / bottom)
    return select(ge(x, LARGE_DIGAMMA), large, below)


def digamma_f64(x: XlaOp) -> XlaOp:
    """``digamma`` for F64."""
    # digamma(1 - x) - digamma(x) = pi / tan(pi x).
    reflected = le(x, 0.0)
    positive = _digamma_of_positive(select(reflected, 1.0 - x, x))
    angle = (x - round_nearest_even(x)) * math.pi
    result = select(reflected, positive - cos(angle) * math.pi / sin(angle), positive)
    pole = and_(reflected, eq(x, floor(x)))
    return first_of([(is_nan(x), x), (pole, math.nan), (eq(x, math.inf), math.inf)], result)
