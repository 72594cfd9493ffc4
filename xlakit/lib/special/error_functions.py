"""The complement and the inverse of the error function."""

from __future__ import annotations

import math

from xlakit.data.primitive import PrimitiveType
from xlakit.lib.special import coefficients
from xlakit.lib.special.support import chebyshev, first_of, in_f64, is_nan
from xlakit.ops.elementwise.binary import max as max_, min as min_
from xlakit.ops.elementwise.compare import eq, gt, lt
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.elementwise.elementary import erf, exp, log, sqrt
from xlakit.ops.elementwise.select import select
from xlakit.ops.elementwise.unary import abs, sign
from xlakit.ops.handle import XlaOp, building


@building
def erfc(operand: XlaOp) -> XlaOp:
    """1 - erf(x), exact also where erf(x) is nearly 1.

    Raises ShapeError. Source: Erfc.
    """
    return in_f64(erfc_f64, operand)


@building
def erf_inv(operand: XlaOp) -> XlaOp:
    """The inverse of the error function: infinite at 1 and -1, NaN beyond them.

    Raises ShapeError. Source: ErfInv.
    """
    return in_f64(_erf_inv, operand)


def erfc_f64(x: XlaOp) -> XlaOp:
    """``erfc`` for F64."""
    size = min_(abs(x), 28.0)  # erfc(28) is less than any number of F64
    # exp(-x^2) of a rounded square would lose as many bits as x^2 is large: 24 bits of x have an exact square.
    head = convert_element_type(convert_element_type(size, PrimitiveType.F32), PrimitiveType.F64)
    decay = exp(-(head * head)) * exp((head - size) * (head + size))
    tail = decay * (chebyshev((size - 4.0) / (size + 4.0), coefficients.ERFC) / (size * 2.0 + 1.0))
    far = select(lt(x, 0.0), 2.0 - tail, tail)
    return first_of([(is_nan(x), x), (lt(abs(x), 0.5), 1.0 - erf(x))], far)


def _erf_inv(x: XlaOp) -> XlaOp:
    w = -log((1.0 - x) * (x + 1.0))
    root = sqrt(max_(w, 0.0))
    center = chebyshev(min_(w, 6.25) / 3.125 - 1.0, coefficients.ERF_INV_CENTER)
    middle = chebyshev((root - 3.25) / 0.75, coefficients.ERF_INV_MIDDLE)
    tail = chebyshev((root - 5.125) / 1.125, coefficients.ERF_INV_TAIL)
    result = x * first_of([(lt(w, 6.25), center), (lt(w, 16.0), middle)], tail)
    size = abs(x)
    return first_of([(is_nan(x), x), (gt(size, 1.0), math.nan), (eq(size, 1.0), sign(x) * math.inf)], result)
