"""Dynamic slices, updates, gathers and scatters whose indices are constants, or do not matter."""

from __future__ import annotations

from typing import Any

from xlakit.ir.attributes import SliceDimension
from xlakit.ir.instruction import Instruction
from xlakit.ops.dynamic import DynamicSlice
from xlakit.ops.gather import Gather
from xlakit.ops.movement import Broadcast, Concatenate
from xlakit.ops.shared.numerics import to_integer
from xlakit.passes.core.matching import literal, same_value, scalar_source
from xlakit.passes.core.rewriter import Rewriter
from xlakit.passes.core.rules import Rules
from xlakit.passes.fusion.stacking import MOST_PIECES

DYNAMIC_SLICES = Rules("dynamic-slices")
_rule = DYNAMIC_SLICES.rule


@_rule("dynamic-slice")
def dynamic_slice_of_all(x: Instruction, make: Rewriter) -> Instruction | None:
    """dynamic-slice(x, i) -> x, where the slice has the size of x: the start is clamped to 0."""
    operand = x.operands[0]
    return operand if operand.shape.dimensions == x.shape.dimensions else None


@_rule("dynamic-slice")
def dynamic_slice_of_the_same(x: Instruction, make: Rewriter) -> Instruction | None:
    """dynamic-slice(broadcast(v), i) -> broadcast(v) of a scalar v: all elements are equal."""
    operand = x.operands[0]
    scalar = scalar_source(operand)
    return make.broadcast(scalar, x.shape.dimensions) if scalar is not None else None


@_rule("dynamic-slice")
def dynamic_slice_of_known_start(x: Instruction, make: Rewriter) -> Instruction | None:
    """dynamic-slice(x, c) -> slice(x), with the starts clamped so that the slice lies inside.

    Along dimensions that the slice takes whole, the start does not matter.
    """
    operand, *indices = x.operands
    sizes = x.op_as(DynamicSlice).dynamic_slice_sizes
    starts = _known_starts(indices, operand.shape.dimensions, sizes)
    if starts is None:
        return None
    return make.slice(operand, [SliceDimension(s, s + n) for s, n in zip(starts, sizes, strict=True)])


def _known_starts(indices: list[Instruction], bounds: tuple[int, ...], sizes: tuple[int, ...]) -> list[int] | None:
    """The clamped starts of a dynamic slice, if they are known; else None."""
    rooms = [bound - size for bound, size in zip(bounds, sizes, strict=True)]
    if len(indices) == 1 and indices[0].shape.dimensions:
        vector = literal(indices[0])
        numbers = [None] * len(rooms) if vector is None else [int(i) for i in to_integer(vector)]
    else:
        scalars = [literal(i) for i in indices]
        numbers = [None if s is None else int(to_integer(s)) for s in scalars]
    starts: list[int] = []
    for number, room in zip(numbers, rooms, strict=True):
        if number is None and room:
            return None
        starts.append(max(0, min(number or 0, room)))
    return starts


@_rule("dynamic-update-slice")
def update_all(x: Instruction, make: Rewriter) -> Instruction | None:
    """dynamic-update-slice(x, y, i) -> y, where y has the size of x; -> x, where y has no elements."""
    operand, update = x.operands[:2]
    if not operand.shape.is_array:
        return None
    if operand.shape.dimensions == update.shape.dimensions:
        return update
    return operand if 0 in update.shape.dimensions else None


@_rule("dynamic-update-slice")
def update_of_known_start(x: Instruction, make: Rewriter) -> Instruction | None:
    """dynamic-update-slice(x, y, c) -> concatenate(x[:c], y, x[c + n:]).

    An array that is filled piece by piece becomes a concatenation of its pieces; therefore x must be a broadcast or a
    concatenation, with no other user. y must be a large part of x, since a loop computes few pieces side by side.
    """
    operand, update, *indices = x.operands
    bounds, sizes = operand.shape.dimensions, update.shape.dimensions
    partial = [d for d, (bound, size) in enumerate(zip(bounds, sizes, strict=True)) if bound != size]
    if not isinstance(operand.op, (Broadcast, Concatenate)) or len(partial) != 1 or make.uses(operand) > 1:
        return None
    (dimension,) = partial
    kinds = {operand.shape.element_type, update.shape.element_type, x.shape.element_type}
    starts = _known_starts(indices, bounds, sizes)
    if starts is None or len(kinds) > 1 or sizes[dimension] * MOST_PIECES.value < bounds[dimension]:
        return None
    start, end = starts[dimension], starts[dimension] + sizes[dimension]
    pieces = [
        make.slice_along(operand, dimension, 0, start),
        update,
        make.slice_along(operand, dimension, end, bounds[dimension]),
    ]
    return make.add(Concatenate(dimension=dimension), *[p for p in pieces if p.shape.dimensions[dimension]])


@_rule("dynamic-update-slice")
def update_with_itself(x: Instruction, make: Rewriter) -> Instruction | None:
    """dynamic-update-slice(x, dynamic-slice(x, i), i) -> x: both clamp i alike."""
    operand, update, *indices = x.operands
    if not isinstance(update.op, DynamicSlice) or update.operands[0] is not operand:
        return None
    same = len(indices) == len(update.operands) - 1 and all(
        same_value(a, b) for a, b in zip(indices, update.operands[1:], strict=True)
    )
    return operand if same else None


@_rule("gather")
def gather_one(x: Instruction, make: Rewriter) -> Instruction | None:
    """gather(x, i) -> reshape(dynamic-slice(x, i)), of one index: both clamp it so that the slice lies inside.

    A slice without elements cannot be reshaped so: the result then has zeros.
    """
    operand, indices = x.operands
    op: Any = x.op
    mapped: tuple[int, ...] = op.start_index_map
    if op.operand_batching_dims or not mapped or indices.shape.num_elements != len(mapped) or 0 in op.slice_sizes:
        return None
    flat = make.reshape(indices, (len(mapped),))
    zero = make.scalar(0, indices.shape.element_type)
    starts = [zero] * operand.shape.rank
    for position, dimension in enumerate(mapped):
        index = make.slice(flat, (SliceDimension(position, position + 1),))
        starts[dimension] = make.reshape(index, ())
    part = make.add(DynamicSlice(dynamic_slice_sizes=tuple(op.slice_sizes)), operand, *starts)
    return make.reshape(part, x.shape.dimensions)


@_rule("scatter")
def empty_scatter(x: Instruction, make: Rewriter) -> Instruction | None:
    """scatter(x, i, u) -> x, where u has no elements."""
    if len(x.operands) != 3 or 0 not in x.operands[2].shape.dimensions or not x.shape.is_array:
        return None
    return x.operands[0]


@_rule("gather")
def gather_from_the_same(x: Instruction, make: Rewriter) -> Instruction | None:
    """gather(broadcast(v), i) -> broadcast(v) of a scalar v: an index out of bounds is clamped, so all are inside.

    Not if a slice size is 0: then the result may have elements, which are zeros.
    """
    if 0 in x.op_as(Gather).slice_sizes:
        return None
    scalar = scalar_source(x.operands[0])
    return make.broadcast(scalar, x.shape.dimensions) if scalar is not None else None
