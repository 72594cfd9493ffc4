"""Compare: two arrays to PRED.

Source: XLA's document "Operation semantics", Element-wise comparison operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import ShapeError
from xlakit.ir.enums import ComparisonDirection, ComparisonType
from xlakit.ir.operation import Array, Kind, attribute, operation
from xlakit.ops.handle import OperandLike, XlaOp, as_ops, building
from xlakit.ops.shared.elementwise import Binary, emit_binary
from xlakit.ops.shared.numerics import element_type, total_order_key

_FUNCTIONS = {
    ComparisonDirection.EQ: np.equal,
    ComparisonDirection.NE: np.not_equal,
    ComparisonDirection.GE: np.greater_equal,
    ComparisonDirection.GT: np.greater,
    ComparisonDirection.LE: np.less_equal,
    ComparisonDirection.LT: np.less,
}


@operation("compare", arity=2, pointwise=True, documents=("Eq", "Ne", "Ge", "Gt", "Le", "Lt"))
class Compare(Binary):
    """Whether two elements stand in a relation; floats in the order of IEEE 754, or in a total order.

    ``type`` is None for the default of the element type; TOTALORDER is the only other one with an effect.
    """

    direction: ComparisonDirection = attribute(
        Kind.ENUM, enum=ComparisonDirection, proto="comparison_direction", always=True
    )
    type: ComparisonType | None = attribute(Kind.ENUM, enum=ComparisonType, proto="comparison_type", default=None)

    def canonical(self, operands: Sequence[Shape]) -> Compare:
        if self.type is None or not operands or self.type is not _default_type(operands[0].element_type):
            return self
        return Compare(direction=self.direction)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        result = Binary.result_shape(self, operands, declared)
        ordered = self.direction not in (ComparisonDirection.EQ, ComparisonDirection.NE)
        if ordered and any(operand.element_type.is_complex for operand in operands):
            raise ShapeError(
                f"complex numbers have no order, so direction {self.direction.text} does not apply",
                hint="compare their real parts, imaginary parts or absolute values",
            )
        kind = operands[1].element_type
        usual = _default_type(kind)
        known = (usual, ComparisonType.TOTALORDER) if kind.is_floating else (usual,)
        if self.type is not None and self.type not in known:
            raise ShapeError(
                f"type {self.type.text} is not one that {kind.hlo_name} is compared by",
                hint=f"leave the type out, or give {' or '.join(t.text for t in known)}",
            )
        return result

    def result_type(self, operands: PrimitiveType) -> PrimitiveType:
        return PrimitiveType.PRED

    def value(self, lhs: Array, rhs: Array) -> Array:
        if self.type is ComparisonType.TOTALORDER and element_type(lhs).is_floating:
            lhs, rhs = total_order_key(lhs), total_order_key(rhs)
        return _FUNCTIONS[self.direction](lhs, rhs)


def _default_type(kind: PrimitiveType) -> ComparisonType:
    if kind.is_signed:
        return ComparisonType.SIGNED
    return ComparisonType.FLOAT if kind.is_floating or kind.is_complex else ComparisonType.UNSIGNED


@building
def compare(
    lhs: OperandLike,
    rhs: OperandLike,
    direction: ComparisonDirection | str,
    broadcast_dimensions: Sequence[int] = (),
    compare_type: ComparisonType | str | None = None,
) -> XlaOp:
    """Compare two arrays element by element.

    lhs, rhs: arrays of one element type; a number takes the type of the other operand.
    direction: a ComparisonDirection or its name: EQ, NE, GE, GT, LE, LT.
    broadcast_dimensions: for operands of different ranks, which dimension of the higher-rank one each dimension of
        the other matches.
    compare_type: TOTALORDER for -NaN < -Inf < -finite < -0 < +0 < +finite < +Inf < +NaN of floats; the default
        follows the element type.

    Gives PRED of the dimensions that both are broadcast to. Raises ShapeError.
    Source: Operation semantics, Element-wise comparison operations.
    """
    kind = None if compare_type is None else ComparisonType.of(compare_type)
    op = Compare(direction=ComparisonDirection.of(direction), type=kind)
    left, right = as_ops(lhs, rhs)
    return emit_binary(op.canonical([left.shape]), left, right, broadcast_dimensions)


class Comparison(Protocol):
    """The type of the builder's functions for comparisons."""

    def __call__(self, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
        """Add the comparison, and the broadcasts that it needs, to the operands' builder."""
        ...


def _comparison(name: str, direction: ComparisonDirection, words: str, *, total_order: bool = False) -> Comparison:
    def function(lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
        left, right = as_ops(lhs, rhs)
        kind = ComparisonType.TOTALORDER if total_order and left.shape.element_type.is_floating else None
        return emit_binary(Compare(direction=direction, type=kind), left, right, broadcast_dimensions)

    order = ", floats in the total order -NaN < -Inf < -0 < +0 < +Inf < +NaN" if total_order else ""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Whether lhs is {words} rhs, for every pair of elements{order}.

    lhs, rhs: arrays of one element type; a number takes the type of the other operand.
    broadcast_dimensions: for operands of different ranks, which dimension of the higher-rank one each dimension of
        the other matches.

    Gives PRED of the dimensions that both are broadcast to. Raises ShapeError.
    Source: Operation semantics, Element-wise comparison operations.
    """
    return building(function)


eq = _comparison("eq", ComparisonDirection.EQ, "equal to")
ne = _comparison("ne", ComparisonDirection.NE, "not equal to")
ge = _comparison("ge", ComparisonDirection.GE, "greater than or equal to")
gt = _comparison("gt", ComparisonDirection.GT, "greater than")
le = _comparison("le", ComparisonDirection.LE, "less than or equal to")
lt = _comparison("lt", ComparisonDirection.LT, "less than")
eq_total_order = _comparison("eq_total_order", ComparisonDirection.EQ, "equal to", total_order=True)
ne_total_order = _comparison("ne_total_order", ComparisonDirection.NE, "not equal to", total_order=True)
ge_total_order = _comparison("ge_total_order", ComparisonDirection.GE, "greater than or equal to", total_order=True)
gt_total_order = _comparison("gt_total_order", ComparisonDirection.GT, "greater than", total_order=True)
le_total_order = _comparison("le_total_order", ComparisonDirection.LE, "less than or equal to", total_order=True)
lt_total_order = _comparison("lt_total_order", ComparisonDirection.LT, "less than", total_order=True)
