"""The Hurwitz zeta function and the polygamma functions."""

from __future__ import annotations

import math

from xlakit.lib.special.gamma import digamma_f64
from xlakit.lib.special.support import first_of, full, in_f64, is_nan
from xlakit.ops.control import conditional
from xlakit.ops.data import tuple_
from xlakit.ops.elementwise.binary import and_, or_, pow
from xlakit.ops.elementwise.compare import eq, ge, gt, le, lt, ne
from xlakit.ops.elementwise.select import select
from xlakit.ops.elementwise.unary import floor
from xlakit.ops.handle import XlaOp, building
from xlakit.ops.reduction import reduce

# The terms that are summed, and B(2k) / (2k)! of the Euler-Maclaurin formula for the rest.
_SUMMED = 10
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
_LARGEST_FACTORIAL = 170


@building
def zeta(x: XlaOp, q: XlaOp) -> XlaOp:
    """The Hurwitz zeta function, the sum of (q + k)^-x over k >= 0.

    Infinity at x = 1; NaN where x < 1, or where q < 0 and x is no integer. At q = 0, -1, -2, ... infinity for even x,
    NaN for others. Source: Zeta.
    """
    return in_f64(_zeta, x, q)


@building
def polygamma(n: XlaOp, x: XlaOp) -> XlaOp:
    """The derivative of order n of the digamma function; NaN where n is no integer from 0 on.

    Raises ShapeError. Source: Polygamma.
    """
    return in_f64(_polygamma, n, x)


def _of_positive(x: XlaOp, q: XlaOp) -> XlaOp:
    total = pow(q, -x)
    for k in range(1, _SUMMED):
        total = total + pow(q + float(k), -x)
    end = q + float(_SUMMED)
    power = pow(end, -x)
    # A power of its own: where q is large it is there, and the next one is too small for a number.
    total = total + pow(end, 1.0 - x) / (x - 1.0)
    rest = full(x, 0.5)
    factor = x / end
    inverse_square = 1.0 / (end * end)
    for k, bernoulli in enumerate(_BERNOULLI, 1):
        rest = rest + factor * (bernoulli / math.factorial(2 * k))
        factor = factor * ((x + float(2 * k - 1)) * (x + float(2 * k))) * inverse_square
    # Where the power vanishes, so does the rest, though its factors may be infinite.
    return select(eq(power, 0.0), total, total + power * rest)


def _of_negative(values: XlaOp) -> XlaOp:
    """For integers x and q = f - m, 0 < f < 1: the sum over k < m is one over both signs without its tail."""
    x, q, _ = values
    part = q - floor(q)
    part = select(eq(part, 0.0), full(q, 0.5), part)
    below = _of_positive(x, 1.0 - part) - _of_positive(x, 1.0 - q)
    odd = ne(x * 0.5, floor(x * 0.5))
    return _of_positive(x, part) + select(odd, -below, below)


def _zeta(x: XlaOp, q: XlaOp) -> XlaOp:
    pole = and_(le(q, 0.0), eq(q, floor(q)))
    integer = eq(x, floor(x))
    negative = and_(and_(lt(q, 0.0), integer), gt(x, 1.0))
    result = _of_positive(x, select(gt(q, 0.0), q, full(q, 1.0)))
    given = select(negative, q, full(q, -0.5))
    some = reduce(negative, False, or_, list(range(q.shape.rank)))
    # Negative q are rare, and cost three sums.
    result = select(
        negative,
        conditional(
            some,
            tuple_(x.builder, [x, given, result]),
            _of_negative,
            tuple_(x.builder, [x, given, result]),
            lambda values: values[2],
        ),
        result,
    )
    even = and_(integer, eq(x * 0.5, floor(x * 0.5)))
    return first_of(
        [
            (or_(is_nan(x), is_nan(q)), math.nan),
            (eq(x, 1.0), math.inf),
            (lt(x, 1.0), math.nan),
            (and_(pole, even), math.inf),
            (pole, math.nan),
            (and_(lt(q, 0.0), or_(ne(integer, full(q, True)), eq(x, math.inf))), math.nan),
            (and_(eq(x, math.inf), eq(q, 1.0)), 1.0),
            (and_(eq(x, math.inf), lt(q, 1.0)), math.inf),
            (or_(eq(x, math.inf), eq(q, math.inf)), 0.0),
        ],
        result,
    )


def _factorial(n: XlaOp) -> XlaOp:
    """The product 1 2 ... n for integers, by a table; infinity beyond it."""
    result = full(n, math.inf)
    for k in range(_LARGEST_FACTORIAL + 1):
        result = select(eq(n, float(k)), full(n, float(math.factorial(k))), result)
    return result


def _polygamma(n: XlaOp, x: XlaOp) -> XlaOp:
    odd = ne(n * 0.5, floor(n * 0.5))
    size = _factorial(n) * _zeta(n + 1.0, x)
    signed = select(odd, size, -size)
    # Orders grow with the sign changing: there is no limit.
    integer = and_(and_(eq(n, floor(n)), ge(n, 0.0)), lt(n, math.inf))
    return first_of([(eq(n, 0.0), digamma_f64(x)), (integer, signed)], full(n, math.nan))
