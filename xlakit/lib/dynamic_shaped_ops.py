"""Arrays whose sizes are known when the program runs: their sizes set, and conditionals that give different ones.

Source: ``xla/hlo/builder/lib/dynamic_shaped_ops.h``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from xlakit.arguments import converting
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import ArgumentError, ShapeError
from xlakit.lib.constants import scalar_like
from xlakit.lib.value_inference import value_bounds
from xlakit.ops.control import call, conditional
from xlakit.ops.data import constant, get_tuple_element, tuple_
from xlakit.ops.dynamic import get_dimension_size, set_dimension_size
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.handle import Builder, ComputationLike, OperandLike, XlaOp, as_op, building, common_builder
from xlakit.ops.movement import pad_in_dim, reshape, slice_in_dim


@overload
def dynamic_conditional(
    predicate: XlaOp,
    true_operand: XlaOp,
    true_computation: ComputationLike,
    false_operand: XlaOp,
    false_computation: ComputationLike,
) -> XlaOp: ...


@overload
def dynamic_conditional(
    branch_index: XlaOp, branch_computations: Sequence[ComputationLike], branch_operands: Sequence[XlaOp]
) -> XlaOp: ...


@building
def dynamic_conditional(*args: Any, **named: Any) -> XlaOp:
    """``xlakit.conditional`` whose branches may give arrays of different sizes.

    ``dynamic_conditional(predicate, true_operand, true_computation, false_operand, false_computation)`` or
    ``dynamic_conditional(branch_index, branch_computations, branch_operands)``, as there. Ranks and element types of
    the results must be equal, in tuples those of each element.

    A dimension in which the results differ is a dynamic one of the greatest of their sizes. Raises ShapeError.
    Source: DynamicConditional.
    """
    count = len(args) + len(named)
    if count not in (3, 5):
        raise ArgumentError(f"takes 3 or 5 arguments, got {count}", hint="see xlakit.conditional")
    return (_by_predicate if count == 5 else _by_index)(*args, **named)


@converting
def _by_predicate(
    predicate: XlaOp,
    true_operand: XlaOp,
    true_computation: ComputationLike,
    false_operand: XlaOp,
    false_computation: ComputationLike,
) -> XlaOp:
    return _by_index(predicate, [true_computation, false_computation], [true_operand, false_operand])


@converting
def _by_index(
    branch_index: XlaOp, branch_computations: Sequence[ComputationLike], branch_operands: Sequence[XlaOp]
) -> XlaOp:
    builder: Builder = common_builder([branch_index, *branch_operands])
    if len(branch_computations) != len(branch_operands):
        raise ShapeError(
            f"{len(branch_computations)} branches have {len(branch_operands)} operands", hint="give one for each branch"
        )
    branches = list(zip(branch_computations, branch_operands, strict=True))
    called = [builder.subcomputation(c, [operand.shape]) for c, operand in branches]
    results = [c.program_shape.result for c in called]
    if not results or all(r.compatible(results[0]) for r in results):
        return conditional(branch_index, list(branch_computations), list(branch_operands))
    common = _common(results)
    if branch_index.shape.element_type is PrimitiveType.PRED:
        (on_true, on_false), (true_operand, false_operand) = (_sized(c, common) for c in called), branch_operands
        return conditional(branch_index, true_operand, on_true, false_operand, on_false)
    return conditional(branch_index, [_sized(c, common) for c in called], list(branch_operands))


@building
def set_dimension_size_with_rebound(operand: XlaOp, size: OperandLike, dimension: int) -> XlaOp:
    """``xlakit.set_dimension_size`` of a dimension whose bound becomes less where ``size`` is known to be less.

    operand: an array. size: an S32 scalar from 0 to the dimension's bound. dimension: a number from 0 to rank - 1.

    The bound is what :func:`xlakit.lib.value_bounds` finds for ``size``: ``min(n, 8)`` makes it 8. Elements behind it
    are sliced away. Raises ShapeError. Source: SetDimensionSizeWithRebound.
    """
    builder: Builder = operand.builder
    length = as_op(builder, size, PrimitiveType.S32)
    made = set_dimension_size(operand, length, dimension)
    most = max(int(value_bounds(length).high), 0)
    if most >= operand.shape.dimensions[dimension]:
        return made
    return set_dimension_size(slice_in_dim(operand, 0, most, 1, dimension), length, dimension)


@building
def set_all_dimension_sizes(operand: XlaOp, size_vector: XlaOp) -> XlaOp:
    """An array whose dimensions are dynamic where elements of a vector of sizes may vary, and static elsewhere.

    operand: an array. size_vector: a vector of integers, one for each dimension, from 0 to its bound.

    Bounds become less as in :func:`set_dimension_size_with_rebound`. Raises ShapeError. Source: SetAllDimensionSizes.
    """
    given, rank = size_vector.shape, operand.shape.rank
    if not given.is_array or given.dimensions != (rank,) or not given.element_type.is_integral:
        raise ShapeError(f"sizes are {given}", hint=f"give a vector of {rank} integers, one for each dimension")
    varies = value_bounds(size_vector).varies
    for dimension in range(rank):
        if varies[dimension]:
            size = reshape(slice_in_dim(size_vector, dimension, dimension + 1, 1, 0), ())
            size = convert_element_type(size, PrimitiveType.S32)
            operand = set_dimension_size_with_rebound(operand, size, dimension)
    return operand


def _common(shapes: Sequence[Shape]) -> Shape | list[Any]:
    """The shape whose arrays hold those of all shapes; a list for a tuple."""
    first = shapes[0]
    if first.is_tuple:
        if any(not s.is_tuple or len(s.tuple_shapes) != len(first.tuple_shapes) for s in shapes):
            raise _different(shapes)
        return [_common(parts) for parts in zip(*(s.tuple_shapes for s in shapes), strict=True)]
    same = all(s.is_array and s.rank == first.rank and s.element_type is first.element_type for s in shapes)
    if not same and any(not s.compatible(first) for s in shapes):
        raise _different(shapes)
    if not first.is_array:
        return first
    sizes = [max(column) for column in zip(*(s.dimensions for s in shapes), strict=True)]
    dynamic = [
        len({s.dimensions[d] for s in shapes}) > 1 or any(s.dynamic_dimensions[d] for s in shapes)
        for d in range(first.rank)
    ]
    return first.without_layout().with_dimensions(sizes, dynamic)


def _different(shapes: Sequence[Shape]) -> ShapeError:
    return ShapeError(
        f"branches give {', '.join(str(s) for s in shapes)}",
        hint="they may differ in the sizes of arrays, not in rank, element type or number",
    )


def _sized(computation: ComputationLike, common: Shape | list[Any]) -> Callable[[XlaOp], XlaOp]:
    """A branch whose result has the common shape."""

    def fitted(value: XlaOp, shape: Shape | list[Any]) -> XlaOp:
        if isinstance(shape, list):
            return tuple_(value.builder, [fitted(get_tuple_element(value, i), s) for i, s in enumerate(shape)])
        for d in (d for d, is_dynamic in enumerate(shape.dynamic_dimensions) if is_dynamic):
            given = value.shape
            size: OperandLike = constant(value.builder, given.dimensions[d], PrimitiveType.S32)
            if given.dynamic_dimensions[d]:
                size = get_dimension_size(value, d)
            missing = shape.dimensions[d] - given.dimensions[d]
            if missing:
                value = pad_in_dim(value, scalar_like(value, 0), d, 0, missing)
            value = set_dimension_size(value, size, d)
        return value

    return lambda operand: fitted(call(operand.builder, computation, [operand]), common)
