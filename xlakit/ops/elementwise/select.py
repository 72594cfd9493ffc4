"""Select and Clamp: one of several values, element by element.

Source: XLA's document "Operation semantics", sections Select and Clamp.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import ShapeError
from xlakit.ir.operation import Evaluation, Op, Value, operation
from xlakit.ir.traits import Elementwise
from xlakit.ops.data import get_tuple_element, tuple_
from xlakit.ops.handle import OperandLike, XlaOp, as_op, as_ops, building, common_builder, emit
from xlakit.ops.shared.broadcasting import expand
from xlakit.ops.shared.elementwise import ORDERED, alike, check_array, common_dimensions, common_element_type
from xlakit.ops.shared.numerics import convert, greater, lesser


@operation("select", arity=3, pointwise=True, documents=("Select",))
class Select(Op, Elementwise):
    """Elements of on_true where pred holds, of on_false elsewhere; operands are pred, on_true, on_false."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        pred, on_true, on_false = operands
        for name, operand in zip(("pred", "on_true", "on_false"), operands, strict=True):
            check_array(operand, name)
        if pred.element_type is not PrimitiveType.PRED:
            raise ShapeError(
                f"pred must have element type pred, has {pred.element_type.hlo_name}",
                hint="compare it with something, such as xlakit.ne(x, 0)",
            )
        kind = common_element_type((on_true, on_false))
        arrays = (on_true, on_false) if pred.is_scalar else (on_true, on_false, pred)
        return common_dimensions(arrays).with_element_type(kind)

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        on_true, on_false = alike(operands[1:])
        chosen = np.where(operands[0], on_true, on_false)
        return convert(chosen, context.shape.element_type)


@building
def select(pred: OperandLike, on_true: OperandLike, on_false: OperandLike) -> XlaOp:
    """Choose between two values.

    pred: an array of PRED, or one scalar of it for all elements.
    on_true, on_false: arrays of one element type and of the same dimensions (those of ``pred``, if it is no scalar),
        or scalars; or, under a scalar ``pred``, two tuples of the same shape, of which one is chosen as a whole.

    Gives an array (or a tuple) of their shape. Raises ShapeError. Source: Operation semantics, Select.
    """
    builder = common_builder([pred, on_true, on_false])
    condition = as_op(builder, pred, PrimitiveType.PRED)
    if isinstance(on_true, XlaOp) or isinstance(on_false, XlaOp):
        left, right = as_ops(on_true, on_false)
    else:
        left, right = as_op(builder, on_true), as_op(builder, on_false)
    if left.shape.is_tuple or right.shape.is_tuple:
        return _select_tuples(condition, left, right)
    largest = max((condition, left, right), key=lambda op: len(op.shape.dimensions)).shape
    return emit(Select(), condition, _spread(left, largest), _spread(right, largest))


def _select_tuples(pred: XlaOp, on_true: XlaOp, on_false: XlaOp) -> XlaOp:
    """HLO selects between arrays only, so tuples are taken apart and put together again."""
    if not pred.shape.is_scalar:
        raise ShapeError("a choice between tuples takes a scalar pred", hint="tuples count as scalars here")
    if not on_true.shape.compatible(on_false.shape):
        raise ShapeError(
            f"on_true and on_false must be tuples of the same shape, are {on_true.shape} and {on_false.shape}",
            hint=f"give both the shape {on_true.shape.without_layout()}",
        )
    parts = [
        select(pred, get_tuple_element(on_true, i), get_tuple_element(on_false, i))
        for i in range(len(on_true.shape.tuple_shapes))
    ]
    return tuple_(pred.builder, *parts)


def _spread(operand: XlaOp, shape: Shape) -> XlaOp:
    """A scalar broadcast to the dimensions of ``shape``; anything else as it is."""
    return expand(operand, shape.dimensions, ()) if operand.shape.is_scalar and shape.rank else operand


@operation("clamp", arity=3, pointwise=True, documents=("Clamp",))
class Clamp(Op, Elementwise):
    """min(max(operand, min), max), NaN if any of them is; operands are min, operand, max."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        for name, operand in zip(("min", "operand", "max"), operands, strict=True):
            ORDERED.check(operand, name)
        common_element_type(operands)
        low, operand, high = operands
        for limit in (low, high):
            if not limit.is_scalar:
                common_dimensions((operand, limit))
        return operand.without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        low, operand, high = alike(operands)
        with np.errstate(all="ignore"):
            return convert(lesser(greater(operand, low), high), context.shape.element_type)


@building
def clamp(min: OperandLike, operand: OperandLike, max: OperandLike) -> XlaOp:
    """Keep the elements of an array between two limits.

    min, max: arrays of the operand's shape, or scalars of its element type; where they cross, ``max`` wins.
    operand: an array of any element type but complex.

    Gives an array of the operand's shape, with NaN where any of the three is. Raises ShapeError.
    Source: Operation semantics, Clamp.
    """
    return emit(Clamp(), *as_ops(min, operand, max))
