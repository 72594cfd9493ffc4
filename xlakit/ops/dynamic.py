"""Start indices and sizes that are known only when the program runs: dynamic slices, dimension sizes, dynamic reshape.

Source: XLA's document "Operation semantics", sections DynamicSlice, DynamicUpdateSlice, GetDimensionSize and
SetDimensionSize. A value with dynamic dimensions holds just the elements that are there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType, same_type_family
from xlakit.data.shape import UNBOUNDED, Shape
from xlakit.errors import ExecutionError, ShapeError
from xlakit.ir.operation import Array, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ops.handle import OperandLike, XlaOp, as_op, building, emit
from xlakit.ops.shared.checks import check_distinct, need_array, need_declared_like
from xlakit.ops.shared.hints import converted
from xlakit.ops.shared.numerics import convert, element_type
from xlakit.ops.shared.padding import zero_extend
from xlakit.ops.shared.regrouping import check_same_count

_INT32_MAX = 2**31 - 1

# Custom calls by which compiled programs raise the interpreter's errors about dynamic sizes: each takes the arguments
# of the function of the same name below, as S32.
CHECK_SIZE, CHECK_RESHAPE, CHECK_REGROUPING = "xlakit.CheckSize", "xlakit.CheckReshape", "xlakit.CheckRegrouping"
CHECK_GROUP = "xlakit.CheckGroup"
# The custom call for an operation on dynamic dimensions that Python runs; see ``execution/calls/at_sizes.py``.
AT_SIZES = "xlakit.AtSizes"


def _check_start_indices(operand: Shape, indices: Sequence[Shape]) -> None:
    """Raise ShapeError unless there is one integer scalar for each dimension, or one vector of them all."""
    rank = operand.rank
    as_vector = bool(indices) and indices[0].is_array and indices[0].rank == 1
    if as_vector:
        if len(indices) != 1:
            raise ShapeError(
                f"a vector of start indices stands alone, got {len(indices)} index operands",
                hint=f"give one vector, or {rank} scalars",
            )
        if indices[0].dimensions[0] != rank:
            raise ShapeError(
                f"start indices {indices[0]} must have {rank} elements, one for each dimension",
                hint=f"give {rank} start indices",
            )
    elif len(indices) != rank:
        raise ShapeError(
            f"{len(indices)} start indices are given for rank {rank}", hint="give one scalar for each dimension"
        )
    for index in indices:
        if not index.is_array or not index.element_type.is_integral:
            raise ShapeError(
                f"start indices must be integers, got {index}", hint="convert them with convert_element_type to s32"
            )
        if index.without_layout() != indices[0].without_layout():
            raise ShapeError(
                f"start indices must all have one type, got {indices[0]} and {index}",
                hint="convert all to one integer type",
            )
        if index.rank and not as_vector:
            raise ShapeError(
                f"start indices must be scalars, got {index}",
                hint=f"give {rank} scalars, or one vector of {rank} elements alone",
            )


def _starts(indices: Sequence[Array]) -> list[int]:
    return [int(i) for index in indices for i in np.asarray(index).reshape(-1)]


def _clamp(start: int, room: int) -> int:
    return max(0, min(start, room))


@operation("dynamic-slice", documents=("DynamicSlice",))
class DynamicSlice(Op):
    """A box of fixed size of the first operand; the others say where it starts, clamped so that it lies inside."""

    dynamic_slice_sizes: tuple[int, ...] = attribute(Kind.INT64_LIST, always=True)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        if not operands:
            raise ShapeError(
                "takes an array and its start indices",
                hint="give the array, then one start index for each of its dimensions",
            )
        shape = need_array(operands[0])
        _check_start_indices(shape, operands[1:])
        sizes = self.dynamic_slice_sizes
        if len(sizes) != shape.rank:
            raise ShapeError(
                f"dynamic_slice_sizes {list(sizes)} has {len(sizes)} entries for rank {shape.rank}",
                hint=f"give {shape.rank} sizes, those of the result",
            )
        for d, (size, bound) in enumerate(zip(sizes, shape.dimensions, strict=True)):
            if size < 0:
                raise ShapeError(
                    f"slice size {size} of dimension {d} is negative", hint=f"give a size from 0 to {bound}"
                )
            if size > bound != UNBOUNDED:
                raise ShapeError(
                    f"slice size {size} of dimension {d} is greater than its size {bound}",
                    hint=f"give a size from 0 to {bound}",
                )
        dynamic = [
            mark and size > 1 and size == bound
            for mark, size, bound in zip(shape.dynamic_dimensions, sizes, shape.dimensions, strict=True)
        ]
        return shape.with_dimensions(sizes, dynamic)

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        array: Array = operands[0]
        wanted = zip(_starts(operands[1:]), self.dynamic_slice_sizes, array.shape, strict=True)
        corners = [(_clamp(start, have - size), size) for start, size, have in wanted]
        part = array[tuple(slice(start, start + size) for start, size in corners)]
        shape = context.shape
        fixed = [0 if mark else n for n, mark in zip(shape.dimensions, shape.dynamic_dimensions, strict=True)]
        return zero_extend(part, fixed)


@building
def dynamic_slice(operand: XlaOp, start_indices: Sequence[OperandLike] | XlaOp, size_indices: Sequence[int]) -> XlaOp:
    """A part of an array whose start indices are computed by the program.

    operand: an array of T of rank N.
    start_indices: N integer scalars of one type, or one vector of N integers. Each is clamped to
        0 .. size - slice size, so that the part always lies inside.
    size_indices: N sizes, from 0 to the dimension's. The document wants them greater than zero; XLA takes 0, too, and
        JAX makes such slices.

    Gives T[size_indices]. Raises ShapeError. Source: Operation semantics, DynamicSlice.
    """
    return emit(DynamicSlice(dynamic_slice_sizes=tuple(size_indices)), operand, *_index_ops(operand, start_indices))


def _index_ops(operand: XlaOp, start_indices: Sequence[OperandLike] | XlaOp) -> list[XlaOp]:
    if isinstance(start_indices, XlaOp):
        return [start_indices]
    # Numbers among handles become constants of the handles' type.
    like = next((i.shape.element_type for i in start_indices if isinstance(i, XlaOp)), PrimitiveType.S32)
    return [as_op(operand.builder, i, like) for i in start_indices]


@operation("dynamic-update-slice", documents=("DynamicUpdateSlice",))
class DynamicUpdateSlice(Op):
    """The first operand with the second written over it where the others say, clamped so that it lies inside."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        if len(operands) < 2:
            raise ShapeError(
                "takes an array, an update and its start indices",
                hint="give the array, the update, then one start index for each dimension",
            )
        shape = operands[0].tuple_shapes[0] if operands[0].is_buffer else need_array(operands[0])
        update = need_array(operands[1])
        _check_start_indices(shape, operands[2:])
        if update.rank != shape.rank:
            raise ShapeError(
                f"the update has rank {update.rank}, the operand {shape.rank}", hint=f"reshape it to rank {shape.rank}"
            )
        if not same_type_family(shape.element_type, update.element_type):
            raise ShapeError(
                f"an update of {update.element_type.hlo_name} does not fit {shape}", hint=converted(shape.element_type)
            )
        for d, (size, bound) in enumerate(zip(update.dimensions, shape.dimensions, strict=True)):
            if size > bound != UNBOUNDED:
                raise ShapeError(
                    f"update size {size} of dimension {d} is greater than the operand's {bound}",
                    hint=f"slice the update to at most {bound} there",
                )
        if operands[0].is_buffer:
            return operands[0].without_layout()
        dynamic = [
            mark or (new and size == bound)
            for mark, new, size, bound in zip(
                shape.dynamic_dimensions, update.dynamic_dimensions, update.dimensions, shape.dimensions, strict=True
            )
        ]
        return shape.with_dimensions(shape.dimensions, dynamic)

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        array, update = operands[0], operands[1]
        declared = context.instruction.operands[1].shape
        bounds = context.shape.dimensions if context.shape.is_array else array.shape
        # In a dimension in which the update is dynamic and as large as the operand, the result has the update's size.
        sizes = [
            new if dynamic and bound == whole else have
            for have, new, dynamic, bound, whole in zip(
                array.shape, update.shape, declared.dynamic_dimensions, declared.dimensions, bounds, strict=True
            )
        ]
        result = np.array(zero_extend(array[tuple(slice(0, n) for n in sizes)], sizes))
        update = update[tuple(slice(0, n) for n in sizes)]
        ranges = zip(_starts(operands[2:]), update.shape, sizes, strict=True)
        corners = [(_clamp(start, have - new), new) for start, new, have in ranges]
        result[tuple(slice(start, start + new) for start, new in corners)] = convert(update, element_type(array))
        return result


@building
def dynamic_update_slice(operand: XlaOp, update: XlaOp, start_indices: Sequence[OperandLike] | XlaOp) -> XlaOp:
    """An array with a part replaced whose start indices are computed by the program.

    operand: an array of T of rank N.
    update: an array of T of rank N, no dimension larger than the operand's. The document wants its sizes greater than
        zero; XLA takes an update without elements, too, which changes nothing, and JAX makes such updates.
    start_indices: N integer scalars of one type, or one vector of N integers. Each is clamped to
        0 .. size - update size.

    Gives an array of the operand's shape. Raises ShapeError. Source: Operation semantics, DynamicUpdateSlice.
    """
    return emit(DynamicUpdateSlice(), operand, update, *_index_ops(operand, start_indices))


# -- sizes of dimensions -------------------------------------------------------------------------


def _check_sized(shape: Shape, dimension: int) -> None:
    check_distinct("dimension", [dimension], need_array(shape).rank)
    if shape.dimensions[dimension] > _INT32_MAX:
        raise ShapeError(
            f"dimension {dimension} of {shape} is larger than an s32 counts",
            hint="split the dimension in two with reshape",
        )


@operation("get-dimension-size", arity=1, documents=("GetDimensionSize",))
class GetDimensionSize(Op):
    """How many elements a dimension has now, as an S32 scalar."""

    dimension: int = attribute(Kind.SINGLE_DIMENSION, text="dimensions", proto="dimensions", always=True)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        _check_sized(operands[0], self.dimension)
        return Shape(PrimitiveType.S32)

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return np.array(operands[0].shape[self.dimension], dtype=np.int32)


@building
def get_dimension_size(operand: XlaOp, dimension: int) -> XlaOp:
    """The size of a dimension as an S32 scalar; of a dynamic one, how many elements are there.

    operand: an array. dimension: a number from 0 to rank - 1.
    Raises ShapeError. Source: Operation semantics, GetDimensionSize.
    """
    return emit(GetDimensionSize(dimension=dimension), operand)


def check_size(size: int, dimension: int, bound: int) -> None:
    """Raise ExecutionError for a size of a dimension that is not within its bound."""
    if not 0 <= size <= bound and bound != UNBOUNDED:
        raise ExecutionError(
            f"size {size} of dimension {dimension} is outside 0 .. {bound}",
            hint=f"clamp the size to 0 .. {bound} in the program, or give such an argument",
        )


@operation("set-dimension-size", arity=2, documents=("SetDimensionSize",))
class SetDimensionSize(Op):
    """The operand with another number of elements along a dimension, up to its bound.

    Declared with a static dimension it removes the dynamic mark, and the size must be the bound.
    """

    dimension: int = attribute(Kind.SINGLE_DIMENSION, text="dimensions", proto="dimensions", always=True)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        shape, size = operands
        _check_sized(shape, self.dimension)
        if not size.is_scalar or size.element_type is not PrimitiveType.S32:
            raise ShapeError(
                f"the size must be an s32 scalar, got {size}",
                hint="convert it with convert_element_type to s32, and reshape it to a scalar",
            )
        dynamic = list(shape.dynamic_dimensions)
        stays = declared is not None and declared.is_array and declared.rank == shape.rank
        dynamic[self.dimension] = not stays or declared is None or declared.dynamic_dimensions[self.dimension]
        return shape.with_dimensions(shape.dimensions, dynamic)

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        array: Array = operands[0]
        size, bound = int(operands[1]), context.shape.dimensions[self.dimension]
        check_size(size, self.dimension, bound)
        if not context.shape.dynamic_dimensions[self.dimension]:
            size = bound
        sizes = [size if d == self.dimension else have for d, have in enumerate(array.shape)]
        return zero_extend(array[tuple(slice(0, n) for n in sizes)], sizes)


@building
def set_dimension_size(operand: XlaOp, size: OperandLike, dimension: int) -> XlaOp:
    """Mark a dimension as dynamic and say how many elements of it count.

    operand: an array. size: an S32 scalar from 0 to the dimension's bound. dimension: a number from 0 to rank - 1.

    Gives the operand's shape with the dimension dynamic; operations that follow see only the elements that count.
    Raises ShapeError. Source: Operation semantics, SetDimensionSize.
    """
    return emit(SetDimensionSize(dimension=dimension), operand, as_op(operand.builder, size, PrimitiveType.S32))


@building
def remove_dynamic_dimension(operand: XlaOp, dimension: int) -> XlaOp:
    """Make a dynamic dimension static with its bound; missing elements are zero.

    Raises ShapeError. Source: XlaBuilder.
    """
    shape = need_array(operand.shape)
    _check_sized(shape, dimension)
    size = as_op(operand.builder, shape.dimensions[dimension], PrimitiveType.S32)
    dynamic = [mark and d != dimension for d, mark in enumerate(shape.dynamic_dimensions)]
    result = shape.with_dimensions(shape.dimensions, dynamic)
    return emit(SetDimensionSize(dimension=dimension), operand, size, shape=result)


@operation("dynamic-reshape", documents=("Reshape",))
class DynamicReshape(Op):
    """A reshape to sizes that the program computes: the first operand is the array, the others are the sizes."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        if not operands:
            raise ShapeError(
                "takes an array and one size for each dimension of the result",
                hint="give the array, then the s32 size of each dimension of the result",
            )
        shape, sizes = need_array(operands[0]), operands[1:]
        result = need_declared_like(shape, declared)
        if len(sizes) != result.rank:
            raise ShapeError(
                f"{len(sizes)} sizes are given for a result of rank {result.rank}", hint=f"give {result.rank} sizes"
            )
        for size in sizes:
            if not size.is_scalar or size.element_type is not PrimitiveType.S32:
                raise ShapeError(
                    f"sizes must be s32 scalars, got {size}",
                    hint="convert each with convert_element_type to s32, and reshape it to a scalar",
                )
        check_same_count(shape, result.dimensions)
        return result

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        array: Array = operands[0]
        shape = context.shape
        sizes = [
            int(size) if dynamic else bound
            for size, bound, dynamic in zip(operands[1:], shape.dimensions, shape.dynamic_dimensions, strict=True)
        ]
        check_reshape(array.size, sizes, shape.dimensions)
        return array.reshape(sizes)


def check_reshape(count: int, sizes: Sequence[int], bounds: Sequence[int]) -> None:
    """Raise ExecutionError unless ``count`` elements become an array of ``sizes``, which are within their bounds."""
    for size, bound in zip(sizes, bounds, strict=True):
        if not 0 <= size <= bound:
            raise ExecutionError(f"size {size} is outside 0 .. {bound}", hint="give sizes within new_size_bounds")
    if math.prod(sizes) != count:
        raise ExecutionError(
            f"an array of {count} elements cannot become {list(sizes)}", hint=f"give sizes whose product is {count}"
        )


@building
def dynamic_reshape(
    operand: XlaOp, dim_sizes: Sequence[OperandLike], new_size_bounds: Sequence[int], dims_are_dynamic: Sequence[bool]
) -> XlaOp:
    """A reshape whose sizes the program computes.

    operand: an array of T. dim_sizes: an S32 scalar for each dimension of the result; those of static dimensions
        are not looked at. new_size_bounds: the bounds of the result, of the operand's product.
    dims_are_dynamic: which dimensions of the result are dynamic.

    Gives T[new_size_bounds] with those dimensions dynamic. Raises ShapeError. Source: XlaBuilder::DynamicReshape.
    """
    if len(new_size_bounds) != len(dims_are_dynamic):
        raise ShapeError(
            f"new_size_bounds has {len(new_size_bounds)} entries, dims_are_dynamic {len(dims_are_dynamic)}",
            hint="give one bound and one mark for each dimension of the result",
        )
    result = need_array(operand.shape).with_dimensions(new_size_bounds, dims_are_dynamic)
    sizes = [as_op(operand.builder, size, PrimitiveType.S32) for size in dim_sizes]
    return emit(DynamicReshape(), operand, *sizes, shape=result)
