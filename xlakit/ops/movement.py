"""Moving elements without computing: broadcast, reshape, transpose, reverse, slice, pad, concatenate.

Source: XLA's document "Operation semantics", sections Broadcast, BroadcastInDim, Collapse, Concatenate, Pad, Reshape,
Rev, Slice, Transpose. A value with dynamic dimensions has only the elements of its current size, so ``evaluate`` uses
the sizes of the values, and the declared shape only for sizes that no operand has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from xlakit.data.primitive import higher_precision, same_type_family
from xlakit.data.shape import UNBOUNDED, Shape
from xlakit.errors import ShapeError
from xlakit.ir.attributes import PaddingDimension, SliceDimension
from xlakit.ir.operation import Array, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ir.traits import DataMovement
from xlakit.ops.handle import OperandLike, XlaOp, as_op, as_ops, building, emit
from xlakit.ops.shared.broadcasting import check_broadcast_dimensions, expand
from xlakit.ops.shared.checks import check_distinct, need_array, need_declared_like
from xlakit.ops.shared.hints import converted
from xlakit.ops.shared.numerics import convert
from xlakit.ops.shared.padding import pad_array, padded_size, zero_extend
from xlakit.ops.shared.regrouping import check_same_count, dynamic_dimensions_after_reshape, sizes_after_reshape

# The built-in slice, whose name the builder's function below takes.
_range = slice


# -- broadcast -----------------------------------------------------------------------------------


@operation("broadcast", arity=1, documents=("Broadcast", "BroadcastInDim"))
class Broadcast(Op, DataMovement):
    """Repeat the operand; its dimension i is dimension ``dimensions[i]`` of the result, with the same size."""

    dimensions: tuple[int, ...] = attribute(Kind.INT64_LIST, default=(), always=True)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        operand = need_array(operands[0])
        result = need_declared_like(operand, declared)
        if len(self.dimensions) != operand.rank:
            raise ShapeError(
                f"dimensions {list(self.dimensions)} has {len(self.dimensions)} entries for rank {operand.rank}",
                hint="say for each dimension of the operand which dimension of the result it is",
            )
        check_distinct("dimensions", self.dimensions, result.rank)
        for i, dimension in enumerate(self.dimensions):
            size, wanted = operand.dimensions[i], result.dimensions[dimension]
            if size != wanted and UNBOUNDED not in (size, wanted):
                raise ShapeError(
                    f"dimension {i} of size {size} cannot be dimension {dimension} of size {wanted} of the result",
                    hint="sizes must be equal; broadcast_in_dim stretches dimensions of size 1",
                )
        return result

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        array: Array = operands[0]
        sizes = list(context.shape.dimensions)
        aligned = [1] * len(sizes)
        for size, dimension in zip(array.shape, self.dimensions, strict=True):
            sizes[dimension] = aligned[dimension] = size
        order = sorted(range(array.ndim), key=self.dimensions.__getitem__)
        return np.broadcast_to(array.transpose(order).reshape(aligned), sizes)


@building
def broadcast(operand: XlaOp, broadcast_sizes: Sequence[int]) -> XlaOp:
    """Add dimensions on the left by repeating the array.

    operand: an array of T with dimensions {b0, .., bM}.
    broadcast_sizes: {a0, .., aN}, the sizes of the new dimensions.

    Gives T[a0, .., aN, b0, .., bM]. Raises ShapeError. Source: Operation semantics, Broadcast.
    """
    shape = need_array(operand.shape)
    added = len(broadcast_sizes)
    for size in broadcast_sizes:
        if size < 0:
            raise ShapeError(f"broadcast size {size} is negative", hint="give sizes of 0 or more")
    result = shape.with_dimensions(
        (*broadcast_sizes, *shape.dimensions), (*([False] * added), *shape.dynamic_dimensions)
    )
    return emit(Broadcast(dimensions=tuple(range(added, result.rank))), operand, shape=result)


@building
def broadcast_in_dim(operand: XlaOp, out_dim_size: Sequence[int], broadcast_dimensions: Sequence[int]) -> XlaOp:
    """Repeat an array into a larger one: add dimensions anywhere, and stretch those of size 1.

    operand: an array of T.
    out_dim_size: the dimensions of the result.
    broadcast_dimensions: for each dimension of the operand, which dimension of the result it is; strictly
        increasing. Its size must be that dimension's size, or 1.

    Gives T[out_dim_size]. Raises ShapeError. Source: Operation semantics, BroadcastInDim.
    """
    shape = need_array(operand.shape)
    check_broadcast_dimensions(shape, len(out_dim_size), broadcast_dimensions)
    for i, dimension in enumerate(broadcast_dimensions):
        if shape.dimensions[i] not in (1, out_dim_size[dimension]):
            raise ShapeError(
                f"dimension {i} of size {shape.dimensions[i]} cannot become dimension {dimension} of size "
                f"{out_dim_size[dimension]}",
                hint="its size must be 1 or the result's",
            )
    return expand(operand, out_dim_size, broadcast_dimensions)


# -- reshape -------------------------------------------------------------------------------------


@operation("reshape", arity=1, documents=("Reshape", "Collapse"))
class Reshape(Op, DataMovement):
    """The same elements in the same order, dimension 0 slowest, under other dimensions.

    ``inferred_dimension`` says which dimension of the result is dynamic where several could be.
    """

    inferred_dimension: int = attribute(Kind.INT64, default=-1, proto="dimensions")

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        operand = need_array(operands[0])
        result = need_declared_like(operand, declared)
        if not -1 <= self.inferred_dimension < max(result.rank, 1):
            raise ShapeError(
                f"inferred_dimension {self.inferred_dimension} is out of range for {result}",
                hint=f"give -1 where no dimension is meant, or a dimension from 0 to {max(result.rank, 1) - 1}",
            )
        if UNBOUNDED not in operand.dimensions:
            check_same_count(operand, result.dimensions)
        return result

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        array: Array = operands[0]
        bounds = context.instruction.operands[0].shape.dimensions
        if array.shape == bounds:
            return array.reshape(context.shape.dimensions)
        return array.reshape(sizes_after_reshape(array.shape, bounds, context.shape))


@building
def reshape(
    operand: XlaOp,
    dimensions: Sequence[int] | None = None,
    new_sizes: Sequence[int] | None = None,
    *,
    inferred_dimension: int = -1,
) -> XlaOp:
    """The elements of an array under other dimensions: ``reshape(x, new_sizes)`` or ``reshape(x, order, new_sizes)``.

    operand: an array of T.
    dimensions: the order in which the dimensions are collapsed, slowest varying first; 0 .. rank-1 if left out.
    new_sizes: the dimensions of the result, of the same product as the operand's.
    inferred_dimension: which dimension of the result is dynamic, where the operand's dynamic one is split.

    Gives T[new_sizes]. Raises ShapeError. Source: Operation semantics, Reshape.
    """
    order, sizes = (None, dimensions) if new_sizes is None else (dimensions, new_sizes)
    if sizes is None:
        raise ShapeError("new_sizes is missing", hint="give the dimensions of the result")
    shape = need_array(operand.shape)
    if order is not None and list(order) != list(range(shape.rank)):
        if sorted(order) != list(range(shape.rank)):
            raise ShapeError(
                f"dimensions {list(order)} do not permute those of {shape}",
                hint=f"give each of 0 .. {shape.rank - 1} once" if shape.rank else "a scalar has none: give []",
            )
        operand = transpose(operand, order)
        shape = operand.shape
    dynamic: Sequence[bool] = ()
    if UNBOUNDED not in shape.dimensions:
        check_same_count(shape, sizes)
        dynamic = dynamic_dimensions_after_reshape(shape, sizes, inferred_dimension)
    return emit(Reshape(inferred_dimension=inferred_dimension), operand, shape=shape.with_dimensions(sizes, dynamic))


@building
def collapse(operand: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """Merge consecutive dimensions into one.

    operand: an array of T.
    dimensions: consecutive dimension numbers in order, such as {1, 2}.

    Gives T with those dimensions replaced by one of the product of their sizes, at the index of the first.
    Raises ShapeError. Source: Operation semantics, Collapse.
    """
    shape = need_array(operand.shape)
    check_distinct("dimensions", dimensions, shape.rank)
    if not dimensions:
        return operand
    first, last = dimensions[0], dimensions[-1]
    if list(dimensions) != list(range(first, last + 1)):
        raise ShapeError(
            f"dimensions {list(dimensions)} are not consecutive and in order",
            hint="transpose first, or give reshape an order of dimensions",
        )
    if first == last:
        return operand
    merged = math.prod(shape.dimensions[first : last + 1])
    return reshape(operand, [*shape.dimensions[:first], merged, *shape.dimensions[last + 1 :]])


# -- transpose and reverse -----------------------------------------------------------------------


@operation("transpose", arity=1, documents=("Transpose",))
class Transpose(Op, DataMovement):
    """Permute dimensions: dimension i of the result is dimension ``dimensions[i]`` of the operand."""

    dimensions: tuple[int, ...] = attribute(Kind.INT64_LIST, always=True)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        shape = need_array(operands[0])
        if sorted(self.dimensions) != list(range(shape.rank)):
            raise ShapeError(
                f"permutation {list(self.dimensions)} does not permute the dimensions of {shape}",
                hint=f"give each of 0 .. {shape.rank - 1} once" if shape.rank else "a scalar has none",
            )
        return shape.with_dimensions(
            [shape.dimensions[d] for d in self.dimensions], [shape.dynamic_dimensions[d] for d in self.dimensions]
        )

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return operands[0].transpose(self.dimensions)


@building
def transpose(operand: XlaOp, permutation: Sequence[int]) -> XlaOp:
    """Permute the dimensions of an array.

    operand: an array of T.
    permutation: for each dimension of the result, the operand's dimension that it is.

    Gives T with the permuted dimensions. Raises ShapeError. Source: Operation semantics, Transpose.
    """
    return emit(Transpose(dimensions=tuple(permutation)), operand)


@operation("reverse", arity=1, documents=("Rev",))
class Reverse(Op, DataMovement):
    """Turn the order of elements around along ``dimensions``."""

    dimensions: tuple[int, ...] = attribute(Kind.INT64_LIST, always=True)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        shape = need_array(operands[0])
        check_distinct("dimensions", self.dimensions, shape.rank)
        return shape.without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return np.flip(operands[0], axis=self.dimensions)


@building
def rev(operand: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """Reverse an array along ``dimensions``: index i becomes size - 1 - i there.

    operand: an array of T. dimensions: different dimension numbers.
    Gives an array of the same shape. Raises ShapeError. Source: Operation semantics, Rev.
    """
    return emit(Reverse(dimensions=tuple(dimensions)), operand)


# -- slice ---------------------------------------------------------------------------------------


@operation("slice", arity=1, documents=("Slice",))
class Slice(Op, DataMovement):
    """A box of the operand, whose corners and steps are known: ``[start:limit:stride]`` for each dimension."""

    slice: tuple[SliceDimension, ...] = attribute(Kind.SLICE_RANGES, proto="slice_dimensions", always=True)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        shape = need_array(operands[0])
        if len(self.slice) != shape.rank:
            raise ShapeError(
                f"{len(self.slice)} slice ranges are given for rank {shape.rank}",
                hint=f"give {shape.rank} ranges; 0 .. size keeps all of a dimension",
            )
        sizes = [
            _slice_size(d, part, size) for d, (part, size) in enumerate(zip(self.slice, shape.dimensions, strict=True))
        ]
        # A slice of one element is static, as is a slice of an unbounded dimension.
        dynamic = [
            mark and size != 1 and bound != UNBOUNDED
            for mark, size, bound in zip(shape.dynamic_dimensions, sizes, shape.dimensions, strict=True)
        ]
        return shape.with_dimensions(sizes, dynamic)

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        part = operands[0][tuple(_range(s.start, s.limit, s.stride) for s in self.slice)]
        shape = context.shape
        fixed = [0 if mark else size for size, mark in zip(shape.dimensions, shape.dynamic_dimensions, strict=True)]
        return zero_extend(part, fixed)


def _slice_size(dimension: int, part: SliceDimension, size: int) -> int:
    start, limit, stride = part.start, part.limit, part.stride
    if start < 0:
        raise ShapeError(f"start {start} of dimension {dimension} is negative", hint=f"give a start from 0 to {size}")
    if limit < start:
        raise ShapeError(
            f"limit {limit} of dimension {dimension} is less than its start {start}",
            hint=f"give a limit from {start} on; it is not part of the slice",
        )
    if size not in (UNBOUNDED,) and limit > size:
        raise ShapeError(
            f"limit {limit} of dimension {dimension} is greater than its size {size}",
            hint=f"give at most {size}, or pad first",
        )
    if stride < 1:
        raise ShapeError(f"stride {stride} of dimension {dimension} must be at least 1", hint="use rev to go backwards")
    return -((start - limit) // stride)


@building
def slice(
    operand: XlaOp, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> XlaOp:
    """A part of an array with bounds known when the program is built.

    operand: an array of T of rank N.
    start_indices: N first indices, at least 0.
    limit_indices: N ends (exclusive), from the start to the dimension's size.
    strides: N steps, at least 1; all 1 if left out.

    Gives T with ceil((limit - start) / stride) elements along each dimension.
    Raises ShapeError. Source: Operation semantics, Slice.
    """
    steps = [1] * len(start_indices) if strides is None else strides
    if not len(start_indices) == len(limit_indices) == len(steps):
        raise ShapeError(
            f"start_indices, limit_indices and strides have {len(start_indices)}, {len(limit_indices)} and "
            f"{len(steps)} entries",
            hint="give one of each for every dimension",
        )
    parts = zip(start_indices, limit_indices, steps, strict=True)
    return emit(Slice(slice=tuple(SliceDimension(*part) for part in parts)), operand)


@building
def slice_in_dim(operand: XlaOp, start_index: int, limit_index: int, stride: int, dimno: int) -> XlaOp:
    """``slice`` along dimension ``dimno`` only, all of the others.

    Raises ShapeError. Source: XlaBuilder::SliceInDim.
    """
    shape = need_array(operand.shape)
    check_distinct("dimno", [dimno], shape.rank)
    parts = [SliceDimension(0, size) for size in shape.dimensions]
    parts[dimno] = SliceDimension(start_index, limit_index, stride)
    return emit(Slice(slice=tuple(parts)), operand)


# -- pad -----------------------------------------------------------------------------------------


@operation("pad", arity=2, documents=("Pad",))
class Pad(Op):
    """Put a value around the elements and between them; negative edge padding takes elements away."""

    padding: tuple[PaddingDimension, ...] = attribute(Kind.PADDING_CONFIG, proto="padding_config", always=True)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        shape, value = need_array(operands[0]), operands[1]
        if not value.is_scalar:
            raise ShapeError(f"the padding value must be a scalar, not {value}", hint="reshape it to a scalar")
        if not same_type_family(shape.element_type, value.element_type):
            raise ShapeError(
                f"padding value {value} does not have the type of {shape}", hint=converted(shape.element_type)
            )
        if len(self.padding) != shape.rank:
            raise ShapeError(
                f"padding has {len(self.padding)} dimensions, the operand has {shape.rank}",
                hint=f"give {shape.rank} entries, (0, 0, 0) for dimensions that stay",
            )
        sizes: list[int] = []
        for d, (size, pad) in enumerate(zip(shape.dimensions, self.padding, strict=True)):
            if pad.interior_padding < 0:
                raise ShapeError(
                    f"interior padding {pad.interior_padding} of dimension {d} is negative",
                    hint="only edge padding may be negative",
                )
            padded = UNBOUNDED if size == UNBOUNDED else padded_size(size, pad)
            if padded < 0 and size != UNBOUNDED:
                raise ShapeError(
                    f"padding gives dimension {d} the negative size {padded}",
                    hint=f"take away at most the {size} elements that are there",
                )
            sizes.append(padded)
        result = shape.with_dimensions(sizes, shape.dynamic_dimensions)
        return result.with_element_type(higher_precision(shape.element_type, value.element_type))

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        kind = context.shape.element_type
        return pad_array(convert(operands[0], kind), convert(operands[1], kind), self.padding)


@building
def pad(
    operand: XlaOp, padding_value: OperandLike, padding_config: Sequence[PaddingDimension | tuple[int, int, int]]
) -> XlaOp:
    """Pad an array at its edges and between its elements.

    operand: an array of T. padding_value: a scalar of T.
    padding_config: for each dimension (edge_padding_low, edge_padding_high, interior_padding), or a
        PaddingDimension. Interior padding is at least 0 and comes first; negative edge padding then removes.

    Gives T with the padded sizes. Raises ShapeError. Source: Operation semantics, Pad.
    """
    config = tuple(p if isinstance(p, PaddingDimension) else PaddingDimension(*p) for p in padding_config)
    value = as_op(operand.builder, padding_value, operand.shape.element_type)
    return emit(Pad(padding=config), operand, value)


@building
def pad_in_dim(operand: XlaOp, padding_value: OperandLike, dimno: int, pad_lo: int, pad_hi: int) -> XlaOp:
    """``pad`` at the edges of dimension ``dimno`` only. Raises ShapeError. Source: XlaBuilder::PadInDim."""
    shape = need_array(operand.shape)
    check_distinct("dimno", [dimno], shape.rank)
    config = [PaddingDimension()] * shape.rank
    config[dimno] = PaddingDimension(pad_lo, pad_hi)
    return pad(operand, padding_value, config)


# -- concatenate ---------------------------------------------------------------------------------


@operation("concatenate", documents=("Concatenate",))
class Concatenate(Op):
    """Put arrays one after the other along a dimension."""

    dimension: int = attribute(Kind.SINGLE_DIMENSION, text="dimensions", proto="dimensions", always=True)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        if not operands:
            raise ShapeError("takes at least one array", hint="give the arrays to join")
        first = need_array(operands[0])
        check_distinct("dimension", [self.dimension], first.rank)
        kind = first.element_type
        sizes, dynamic = list(first.dimensions), list(first.dynamic_dimensions)
        for shape in operands[1:]:
            if need_array(shape).rank != first.rank:
                raise ShapeError(
                    f"cannot concatenate arrays of rank {first.rank} and {shape.rank}",
                    hint=f"reshape all to rank {first.rank}",
                )
            if not same_type_family(kind, shape.element_type):
                raise ShapeError(
                    f"cannot concatenate {kind.hlo_name} and {shape.element_type.hlo_name}", hint=converted(kind)
                )
            kind = higher_precision(kind, shape.element_type)
            for d, (size, mark) in enumerate(zip(shape.dimensions, shape.dynamic_dimensions, strict=True)):
                if d == self.dimension:
                    sizes[d] = UNBOUNDED if UNBOUNDED in (sizes[d], size) else sizes[d] + size
                    dynamic[d] = dynamic[d] or mark
                else:
                    sizes[d], dynamic[d] = _merge(d, (sizes[d], dynamic[d]), (size, mark))
        return first.with_dimensions(sizes, dynamic).with_element_type(kind)

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        kind = context.shape.element_type
        return np.concatenate([convert(o, kind) for o in operands], axis=self.dimension)


def _merge(dimension: int, a: tuple[int, bool], b: tuple[int, bool]) -> tuple[int, bool]:
    """The more exact of two sizes that must be equal; an unbounded one is the less exact."""
    if UNBOUNDED in (a[0], b[0]):
        return b if a[0] == UNBOUNDED else a
    if a[0] != b[0]:
        raise ShapeError(
            f"arrays differ in dimension {dimension}: {a[0]} and {b[0]}",
            hint="all dimensions but the one that is concatenated must be equal",
        )
    return a[0], a[1] or b[1]


@building
def concat_in_dim(operands: Sequence[OperandLike], dimension: int) -> XlaOp:
    """Concatenate arrays along ``dimension``.

    operands: N >= 1 arrays of T of the same rank, at least 1, equal in all dimensions but ``dimension``.
    dimension: a dimension number.

    Gives T whose ``dimension`` is the sum of theirs. Raises ShapeError.
    Source: Operation semantics, Concatenate (ConcatInDim).
    """
    return emit(Concatenate(dimension=dimension), *as_ops(*operands))


concatenate = concat_in_dim
