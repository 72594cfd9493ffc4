"""The base of operations that call computations, and their checks: agreement of shapes, effects, zero values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.errors import ShapeError
from xlakit.ir.attributes import OutputOperandAliasing
from xlakit.ir.instruction import Computation
from xlakit.ir.operation import TOKEN, Op, Value
from xlakit.ops.shared.hints import below


class Calling(Op):
    """The base of operations that have the effects of the computations that they call."""

    __slots__ = ()

    @property
    def has_side_effect(self) -> bool:
        return any(c.has_side_effect for c in self.called_computations)


def agree(a: Shape, b: Shape) -> bool:
    """Whether a value of shape ``a`` may be passed where ``b`` is declared: layouts and dynamic marks are ignored."""
    if a.tuple_shapes or b.tuple_shapes or not a.is_array:
        return (
            a.element_type is b.element_type
            and len(a.tuple_shapes) == len(b.tuple_shapes)
            and all(agree(x, y) for x, y in zip(a.tuple_shapes, b.tuple_shapes, strict=True))
        )
    return (
        a.element_type is b.element_type
        and len(a.dimensions) == len(b.dimensions)
        and all(x == y or x < 0 or y < 0 for x, y in zip(a.dimensions, b.dimensions, strict=True))
    )


def check_arguments(computation: Computation, arguments: Sequence[Shape], what: str = "computation") -> Shape:
    """The result of ``computation`` for these arguments; raises ShapeError where it does not take them."""
    program = computation.program_shape
    if len(program.parameters) != len(arguments):
        raise ShapeError(
            f"{what} {computation.name} takes {len(program.parameters)} parameters, got {len(arguments)} arguments",
            hint=f"give {len(program.parameters)} arguments, or build {computation.name} for {len(arguments)}",
        )
    for number, (parameter, argument) in enumerate(zip(program.parameters, arguments, strict=True)):
        if not agree(argument, parameter):
            raise ShapeError(
                f"{what} {computation.name} takes {parameter.without_layout()} as parameter {number}, "
                f"got {argument.without_layout()}",
                hint=f"give {parameter.without_layout()}, or build {computation.name} for {argument.without_layout()}",
            )
    return program.result.without_layout()


def check_aliasing(
    aliasing: Sequence[OutputOperandAliasing], operands: Sequence[Shape], result: Shape, *, across_buffers: bool = False
) -> None:
    """Raise ShapeError unless each pair names an output and an operand of the same shape.

    ``across_buffers``: whether an array may be paired with a buffer of its shape.
    """
    for pair in aliasing:
        if not 0 <= pair.operand_number < len(operands):
            raise ShapeError(
                f"output_to_operand_aliasing names operand {pair.operand_number} of {len(operands)}",
                hint=below(len(operands), "operand"),
            )
        source = operands[pair.operand_number].at(pair.operand_index)
        target = result.at(pair.output_index)
        if across_buffers:
            source, target = unbuffered(source), unbuffered(target)
        if not agree(source, target):
            raise ShapeError(
                f"output_to_operand_aliasing joins {target} with operand of shape {source}",
                hint="alias parts of the same element type and dimensions",
            )


def unbuffered(shape: Shape) -> Shape:
    """The shape with arrays instead of buffers of them."""
    if shape.is_buffer:
        return shape.tuple_shapes[0]
    return make_tuple_shape([unbuffered(s) for s in shape.tuple_shapes]) if shape.is_tuple else shape


def join_dynamic(shapes: Sequence[Shape]) -> Shape:
    """The common shape of shapes that agree: a dimension is dynamic if it is dynamic in any of them."""
    first = shapes[0]
    if first.is_tuple:
        columns = zip(*(s.tuple_shapes for s in shapes), strict=True)
        return make_tuple_shape([join_dynamic(column) for column in columns])
    if not first.is_array or not any(s.is_dynamic for s in shapes):
        return first
    marks = [any(column) for column in zip(*(s.dynamic_dimensions for s in shapes), strict=True)]
    return first.with_dimensions(first.dimensions, marks)


def zero_value(shape: Shape) -> Value:
    """A value of zeros of a shape, for data that no device sends and contexts that are not read."""
    if shape.is_tuple:
        return tuple(zero_value(s) for s in shape.tuple_shapes)
    if not shape.is_array:
        return TOKEN
    return np.broadcast_to(np.zeros((), shape.element_type.dtype), [max(size, 0) for size in shape.dimensions])
