"""Determinants by their logarithms.

Source: ``xla/hlo/builder/lib/logdet.h``.
"""

from __future__ import annotations

from typing import NamedTuple

from xlakit.errors import ShapeError
from xlakit.lib.constants import full_like, nan_value, one, zero, zeros_like
from xlakit.lib.linear_algebra import lu
from xlakit.lib.matrix import matrix_diagonal
from xlakit.ops.data import iota
from xlakit.ops.elementwise.binary import add, complex, mul, xor
from xlakit.ops.elementwise.compare import lt, ne
from xlakit.ops.elementwise.elementary import log
from xlakit.ops.elementwise.select import select
from xlakit.ops.elementwise.unary import abs, neg, sign
from xlakit.ops.handle import XlaOp, building
from xlakit.ops.movement import broadcast_in_dim
from xlakit.ops.reduction import reduce


class SignAndLogDet(NamedTuple):
    """The sign of determinants, and the logarithms of their absolute values. Source: SignAndLogDet."""

    sign: XlaOp
    logdet: XlaOp


@building
def slog_det(a: XlaOp) -> SignAndLogDet:
    """The sign of the determinant, and the logarithm of its absolute value.

    a: square matrices [.., n, n] of F32, F64, C64 or C128.

    Gives two arrays of the batch dimensions: 1, -1 or 0, of complex matrices a number of size 1 or 0; and real numbers,
    -infinity where the determinant is 0. Raises ShapeError. Source: SLogDet.
    """
    factors, pivots, _ = lu(a)
    builder, kind = a.builder, a.shape.element_type
    real_kind = kind.real_part
    *batch, rows, columns = a.shape.dimensions
    if rows != columns:
        raise ShapeError(f"takes square matrices, got {a.shape}", hint="the last two dimensions must be equal")
    if not columns:
        empty = broadcast_in_dim(one(builder, kind), batch, ()), broadcast_in_dim(zero(builder, real_kind), batch, ())
        return SignAndLogDet(*empty)
    diagonal, axis = matrix_diagonal(factors), [len(batch)]
    # Each row that was exchanged with another one changes the sign.
    exchanged = ne(pivots, iota(builder, pivots.shape.without_layout(), len(batch)))
    is_odd = reduce(exchanged, False, xor, axis)
    product = reduce(sign(diagonal), one(builder, kind), mul, axis)
    logarithms = reduce(log(abs(diagonal)), zero(builder, real_kind), add, axis)
    return SignAndLogDet(select(is_odd, neg(product), product), logarithms)


@building
def log_det(a: XlaOp) -> XlaOp:
    """The logarithm of the determinant of matrices [.., n, n]; NaN where that of real matrices is negative.

    a: as :func:`slog_det` takes. Gives an array of the batch dimensions and the type of ``a``. Raises ShapeError.
    Source: LogDet.
    """
    found, logarithm = slog_det(a)
    if found.shape.element_type.is_complex:
        return add(log(found), complex(logarithm, zeros_like(logarithm)))
    nan = broadcast_in_dim(nan_value(a.builder, found.shape.element_type), found.shape.dimensions, ())
    return select(lt(found, full_like(found, 0)), nan, logarithm)
