"""Functions of the builder that make several operations each, as in XLA's math library.

Source: ``xla/hlo/builder/lib/math.h``, whose names these are.
"""

from __future__ import annotations

import numpy as np

from xlakit.ops.elementwise.binary import div, mul
from xlakit.ops.elementwise.compare import eq, ne
from xlakit.ops.elementwise.unary import abs
from xlakit.ops.handle import XlaOp, building
from xlakit.ops.shared.elementwise import FLOATING


@building
def square(operand: XlaOp) -> XlaOp:
    """The operand times itself, for numbers of any type. Source: Square."""
    return mul(operand, operand)


@building
def reciprocal(operand: XlaOp) -> XlaOp:
    """One divided by the operand, for numbers of any type. Raises ShapeError for PRED. Source: Reciprocal."""
    return div(1, operand)


@building
def is_nan(operand: XlaOp) -> XlaOp:
    """PRED: which floats are NaN. Raises ShapeError for other types. Source: IsNan."""
    FLOATING.check(operand.shape)
    return ne(operand, operand)


@building
def is_inf(operand: XlaOp) -> XlaOp:
    """PRED: which floats are infinite. Raises ShapeError for other types. Source: IsInf."""
    FLOATING.check(operand.shape)
    return eq(abs(operand), np.inf)


@building
def is_pos_inf(operand: XlaOp) -> XlaOp:
    """PRED: which floats are positive infinity. Raises ShapeError for other types. Source: IsPosInf."""
    FLOATING.check(operand.shape)
    return eq(operand, np.inf)


@building
def is_neg_inf(operand: XlaOp) -> XlaOp:
    """PRED: which floats are negative infinity. Raises ShapeError for other types. Source: IsNegInf."""
    FLOATING.check(operand.shape)
    return eq(operand, -np.inf)
