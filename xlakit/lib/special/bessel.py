"""Modified Bessel functions of the first kind, scaled by exp(-|x|)."""

from __future__ import annotations

import math

from xlakit.lib.special import coefficients
from xlakit.lib.special.support import chebyshev, first_of, full, in_f64, is_nan
from xlakit.ops.elementwise.binary import max as max_, min as min_
from xlakit.ops.elementwise.compare import eq, lt
from xlakit.ops.elementwise.elementary import sqrt
from xlakit.ops.elementwise.select import select
from xlakit.ops.elementwise.unary import abs, sign
from xlakit.ops.handle import XlaOp, building


@building
def bessel_i0e(operand: XlaOp) -> XlaOp:
    """exp(-|x|) times the modified Bessel function of order 0.

    Raises ShapeError. Source: BesselI0e.
    """
    return in_f64(_i0e, operand)


@building
def bessel_i1e(operand: XlaOp) -> XlaOp:
    """exp(-|x|) times the modified Bessel function of order 1.

    Raises ShapeError. Source: BesselI1e.
    """
    return in_f64(_i1e, operand)


def _tail(size: XlaOp, table: tuple[float, ...]) -> XlaOp:
    far = max_(size, 8.0)
    return chebyshev(16.0 / far - 1.0, table) / sqrt(far)


def _i0e(x: XlaOp) -> XlaOp:
    size = abs(x)
    near = chebyshev(min_(size, 8.0) * 0.25 - 1.0, coefficients.BESSEL_I0E)
    return first_of([(is_nan(x), x), (lt(size, 8.0), near)], _tail(size, coefficients.BESSEL_I0E_TAIL))


def _i1e(x: XlaOp) -> XlaOp:
    size = abs(x)
    near = x * chebyshev(min_(size, 8.0) * 0.25 - 1.0, coefficients.BESSEL_I1E)
    far = sign(x) * select(eq(size, math.inf), full(x, 0.0), _tail(size, coefficients.BESSEL_I1E_TAIL))
    return first_of([(is_nan(x), x), (lt(size, 8.0), near)], far)
