"""Slices, pads and concatenations: removes or merges them, and moves slices towards the operands.

These operations change no element, so the laws hold for every type.
"""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.ir.attributes import PaddingDimension, SliceDimension
from xlakit.ir.instruction import Instruction
from xlakit.ops.movement import Broadcast, Concatenate, Pad, Reshape, Reverse, Slice, Transpose
from xlakit.passes.core.matching import one_type, permutation_inverse, same_value, scalar_source
from xlakit.passes.core.rewriter import Rewriter
from xlakit.passes.core.rules import Rules

SLICES = Rules("slices")
_rule = SLICES.rule

# Nested concatenations are not flattened into one of more arrays than this: each nesting copies the list.
_LONGEST_CONCATENATION = 64


def _ranges(x: Instruction) -> tuple[SliceDimension, ...]:
    return x.op_as(Slice).slice


# -- slice -----------------------------------------------------------------------------------------


@_rule("slice")
def identity_slice(x: Instruction, make: Rewriter) -> Instruction | None:
    """slice(x) -> x, where the result has the dimensions of x."""
    (inner,) = x.operands
    return inner if inner.shape.dimensions == x.shape.dimensions else None


@_rule("slice", of=Slice)
def slice_twice(x: Instruction, make: Rewriter) -> Instruction | None:
    """slice(slice(x)) -> slice(x): element i of the outer one is element start + i * stride of the inner one."""
    (inner,) = x.operands
    ranges = [
        _range(first.start + second.start * first.stride, size, first.stride * second.stride)
        for first, second, size in zip(_ranges(inner), _ranges(x), x.shape.dimensions, strict=True)
    ]
    return make.slice(inner.operands[0], ranges)


def _range(start: int, count: int, stride: int) -> SliceDimension:
    # The limit is the index after the last element, so that it lies inside for every stride.
    return SliceDimension(start, start + (count - 1) * stride + 1, stride) if count else SliceDimension(0, 0)


@_rule("slice", of=Broadcast)
def slice_broadcast(x: Instruction, make: Rewriter) -> Instruction | None:
    """slice(broadcast(x)) -> broadcast(slice(x))."""
    (inner,) = x.operands
    dimensions = inner.op_as(Broadcast).dimensions
    part = make.slice(inner.operands[0], [_ranges(x)[d] for d in dimensions])
    return make.broadcast(part, x.shape.dimensions, dimensions)


@_rule("slice", of=Reshape)
def slice_reshape(x: Instruction, make: Rewriter) -> Instruction | None:
    """slice(reshape(x)) -> reshape(slice(x)), where the reshape only adds and removes dimensions of size 1.

    This brings a slice of a stack next to the concatenation that made the stack.
    """
    (inner,) = x.operands
    if not x.shape.num_elements:
        return None
    (source,) = inner.operands
    sizes = inner.shape.dimensions
    moved = iter([part for part, size in zip(_ranges(x), sizes, strict=True) if size != 1])
    if [n for n in sizes if n != 1] != [n for n in source.shape.dimensions if n != 1]:
        return None
    ranges = [SliceDimension(0, 1) if size == 1 else next(moved) for size in source.shape.dimensions]
    return make.reshape(make.slice(source, ranges), x.shape.dimensions)


@_rule("slice", of=Transpose)
def slice_transpose(x: Instruction, make: Rewriter) -> Instruction | None:
    """slice(transpose(x)) -> transpose(slice(x)), where such slices for all users have no more elements than x."""
    (inner,) = x.operands
    uses = make.uses(inner)
    if uses > 1 and uses * x.shape.num_elements > inner.shape.num_elements:
        return None
    permutation = inner.op_as(Transpose).dimensions
    inverse = permutation_inverse(permutation)
    part = make.slice(inner.operands[0], [_ranges(x)[d] for d in inverse])
    return make.transpose(part, permutation)


@_rule("slice", of=Reverse)
def slice_reverse(x: Instruction, make: Rewriter) -> Instruction | None:
    """slice(reverse(x)) -> reverse(slice(x)): element i of reverse(x) is element size - 1 - i of x."""
    (inner,) = x.operands
    if not x.shape.num_elements:
        return None
    ranges = list(_ranges(x))
    for d in inner.op_as(Reverse).dimensions:
        size, count, stride = inner.shape.dimensions[d], x.shape.dimensions[d], ranges[d].stride
        ranges[d] = _range(size - 1 - ranges[d].start - (count - 1) * stride, count, stride)
    return make.add(inner.op, make.slice(inner.operands[0], ranges))


@_rule("slice", of=Pad)
def slice_pad(x: Instruction, make: Rewriter) -> Instruction | None:
    """slice(pad(x, v)) -> slice(x) inside of x, broadcast(v) outside of it."""
    (inner,) = x.operands
    if not one_type(inner):
        return None
    source, value = inner.operands
    moved: list[SliceDimension] = []
    for part, pad, size in zip(_ranges(x), inner.op_as(Pad).padding, source.shape.dimensions, strict=True):
        if pad.interior_padding:
            return None
        start, limit = part.start - pad.edge_padding_low, part.limit - pad.edge_padding_low
        if limit <= 0 or start >= size:
            return make.broadcast(value, x.shape.dimensions)
        if start >= 0 and limit <= size:
            moved.append(SliceDimension(start, limit, part.stride))
    return make.slice(source, moved) if len(moved) == len(_ranges(x)) else None


@_rule("slice", of=Concatenate)
def slice_concatenate(x: Instruction, make: Rewriter) -> Instruction | None:
    """slice(concatenate(x, y, z)) -> slice(y), or slice(concatenate(x, y)), without arrays that the slice misses."""
    (inner,) = x.operands
    if not one_type(inner):
        return None
    dimension = inner.op_as(Concatenate).dimension
    part = _ranges(x)[dimension]
    touched: list[Instruction] = []
    offset = skipped = 0
    for operand in inner.operands:
        size = operand.shape.dimensions[dimension]
        if offset < part.limit and offset + size > part.start:
            touched.append(operand)
        elif not touched:
            skipped = offset + size
        offset += size
    if not touched or len(touched) == len(inner.operands):
        return None
    ranges = list(_ranges(x))
    ranges[dimension] = SliceDimension(part.start - skipped, part.limit - skipped, part.stride)
    return make.slice(_concatenate(touched, dimension, make), ranges)


def _concatenate(operands: Sequence[Instruction], dimension: int, make: Rewriter) -> Instruction:
    return operands[0] if len(operands) == 1 else make.add(Concatenate(dimension=dimension), *operands)


# -- pad -------------------------------------------------------------------------------------------


@_rule("pad")
def identity_pad(x: Instruction, make: Rewriter) -> Instruction | None:
    """pad(x, v) -> x, where all padding is 0."""
    return x.operands[0] if all(p == PaddingDimension() for p in x.op_as(Pad).padding) else None


@_rule("pad")
def negative_pad_as_slice(x: Instruction, make: Rewriter) -> Instruction | None:
    """pad(x, v) -> slice(x), where all its padding is negative or 0."""
    operand = x.operands[0]
    padding = x.op_as(Pad).padding
    if any(p.interior_padding or p.edge_padding_low > 0 or p.edge_padding_high > 0 for p in padding):
        return None
    ranges = [
        SliceDimension(-p.edge_padding_low, size + p.edge_padding_high)
        for p, size in zip(padding, operand.shape.dimensions, strict=True)
    ]
    return make.slice(operand, ranges)


@_rule("pad")
def pad_with_the_same(x: Instruction, make: Rewriter) -> Instruction | None:
    """pad(broadcast(v), v) -> broadcast(v); pad(x, v) -> broadcast(v) of an empty x."""
    operand, value = x.operands
    source = scalar_source(operand)
    same = source is not None and bool(operand.shape.dimensions) and same_value(source, value)
    if not one_type(x) or not (same or 0 in operand.shape.dimensions):
        return None
    return make.broadcast(value, x.shape.dimensions)


@_rule("pad")
def pad_twice(x: Instruction, make: Rewriter) -> Instruction | None:
    """pad(pad(x, v), v) -> pad(x, v), of edge padding that is not negative."""
    inner, value = x.operands
    if (
        not isinstance(inner.op, Pad)
        or not (one_type(x) and one_type(inner))
        or not same_value(inner.operands[1], value)
    ):
        return None
    first, second = inner.op_as(Pad).padding, x.op_as(Pad).padding
    if any(p.interior_padding or min(p.edge_padding_low, p.edge_padding_high) < 0 for p in (*first, *second)):
        return None
    both = tuple(
        PaddingDimension(a.edge_padding_low + b.edge_padding_low, a.edge_padding_high + b.edge_padding_high)
        for a, b in zip(first, second, strict=True)
    )
    return make.add(Pad(padding=both), inner.operands[0], value)


# -- concatenate -----------------------------------------------------------------------------------


@_rule("concatenate")
def concatenate_one(x: Instruction, make: Rewriter) -> Instruction | None:
    """concatenate(x) -> x, and arrays without elements are left out."""
    dimension = x.op_as(Concatenate).dimension
    operands = [o for o in x.operands if o.shape.dimensions[dimension]]
    if not one_type(x) or (len(operands) == len(x.operands) and len(operands) > 1):
        return None
    return _concatenate(operands or x.operands[:1], dimension, make)


@_rule("concatenate")
def concatenate_flat(x: Instruction, make: Rewriter) -> Instruction | None:
    """concatenate(concatenate(x, y), z) -> concatenate(x, y, z), along one dimension."""
    dimension = x.op_as(Concatenate).dimension

    def is_inner(operand: Instruction) -> bool:
        return operand.op == x.op and one_type(operand) and make.uses(operand) <= 1

    if len(x.operands) > _LONGEST_CONCATENATION or not one_type(x) or not any(map(is_inner, x.operands)):
        return None
    flat = [leaf for o in x.operands for leaf in (o.operands if is_inner(o) else (o,))]
    return _concatenate(flat, dimension, make) if len(flat) <= _LONGEST_CONCATENATION else None


@_rule("concatenate")
def concatenate_neighbors(x: Instruction, make: Rewriter) -> Instruction | None:
    """concatenate(x[0:2], x[2:5]) -> x[0:5]; broadcasts of the same scalar become one."""
    if not one_type(x):
        return None
    dimension = x.op_as(Concatenate).dimension
    merged: list[Instruction] = []
    for operand in x.operands:
        joined = _joined(merged[-1], operand, dimension, make) if merged else None
        if joined is None:
            merged.append(operand)
        else:
            merged[-1] = joined
    return _concatenate(merged, dimension, make) if len(merged) < len(x.operands) else None


def _joined(a: Instruction, b: Instruction, dimension: int, make: Rewriter) -> Instruction | None:
    """Two neighbors as one array, if they are adjacent slices of an array or broadcasts of one scalar; else None."""
    if type(a.op) is not type(b.op):
        return None
    if isinstance(a.op, Broadcast) and not a.operands[0].shape.dimensions:
        if b.operands[0].shape.dimensions or not same_value(a.operands[0], b.operands[0]):
            return None
        sizes = list(a.shape.dimensions)
        sizes[dimension] += b.shape.dimensions[dimension]
        return make.broadcast(a.operands[0], sizes)
    if not isinstance(a.op, Slice) or a.operands[0] is not b.operands[0]:
        return None
    first, second = list(_ranges(a)), list(_ranges(b))
    left, right = first[dimension], second[dimension]
    first[dimension] = second[dimension] = SliceDimension(left.start, right.limit)
    if first != second or (left.stride, right.stride) != (1, 1) or left.limit != right.start:
        return None
    return make.slice(a.operands[0], first)
