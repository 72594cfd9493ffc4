"""Scatters of one window, and gathers of equally spaced windows, at constant indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from xlakit.ir.attributes import SliceDimension
from xlakit.ir.instruction import Instruction
from xlakit.ops.data import Iota
from xlakit.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from xlakit.ops.movement import Reshape
from xlakit.ops.reduction import reducer_op
from xlakit.ops.scatter import Scatter
from xlakit.ops.shared.numerics import to_integer
from xlakit.passes.core.matching import literal, one_type, scalar_source, uniform
from xlakit.passes.core.rewriter import Rewriter
from xlakit.passes.core.rules import Rules

INDEXING = Rules("indexing")
_rule = INDEXING.rule


# -- scatter ---------------------------------------------------------------------------------------


@_rule("scatter")
def scatter_at_known_index(x: Instruction, make: Rewriter) -> Instruction | None:
    """scatter(x, c, u, f) -> dynamic-update-slice(x, f(dynamic-slice(x, c), u), c) of one window, inside of x.

    A scatter drops a window that is not inside: then the result is x.
    """
    sizes = only_window(x)
    if sizes is None:
        return None
    starts = _known_components(x.operands[1])
    if starts is None:
        return None
    mapped = x.op_as(Scatter).scatter_dims_to_operand_dims
    bounds = x.operands[0].shape.dimensions
    if any(not 0 <= start <= bounds[d] - sizes[d] for start, d in zip(starts, mapped, strict=True)):
        return x.operands[0]
    kind = x.operands[1].shape.element_type
    return update_window(x, sizes, [make.scalar(start, kind) for start in starts], make)


def only_window(x: Instruction) -> tuple[int, ...] | None:
    """The sizes of the window of a scatter, in its operand, if it has a single window and one operand; else None."""
    op = x.op_as(Scatter)
    if len(x.operands) != 3:
        return None
    updates = x.operands[2].shape
    if not updates.num_elements or updates.element_type is not x.shape.element_type:
        return None
    covered = {*op.inserted_window_dims, *op.input_batching_dims}
    window_sizes = iter([updates.dimensions[d] for d in op.update_window_dims])
    sizes = tuple(1 if d in covered else next(window_sizes) for d in range(x.operands[0].shape.rank))
    # With several windows, there are more updates than a window has elements.
    return sizes if math.prod(sizes) == updates.num_elements else None


def update_window(
    x: Instruction, sizes: tuple[int, ...], starts: Sequence[Instruction], make: Rewriter
) -> Instruction | None:
    """The dynamic-update-slice for a scatter of one window at ``starts``, which lies inside of the operand."""
    op = x.op_as(Scatter)
    operand, indices, updates = x.operands
    zero = make.scalar(0, indices.shape.element_type)
    dynamic_starts = [zero] * operand.shape.rank
    for dimension, start in zip(op.scatter_dims_to_operand_dims, starts, strict=True):
        dynamic_starts[dimension] = start
    window = make.reshape(updates, sizes)
    combiner = op.to_apply
    if combiner.root is not combiner.parameters[1]:
        op = reducer_op(combiner)
        if op is None or not one_type(combiner.root):
            return None
        before = make.add(DynamicSlice(dynamic_slice_sizes=sizes), operand, *dynamic_starts)
        window = make.add(op, before, window)
    return make.add(DynamicUpdateSlice(), operand, window, *dynamic_starts)


@_rule("select")
def select_of_scatters(x: Instruction, make: Rewriter) -> Instruction | None:
    """select(p, scatter(x, i, u), scatter(x, i, v)) -> scatter(x, i, select(p, u, v)), select(p, scatter(x, i, u), x)
    -> scatter(x, select(p, i, -1), u), and the same for select(p, x, scatter(x, i, u)), of one window, for a scalar p.

    A scatter drops a window that is not inside. It can take place in memory, where a select needs another array.
    """
    chooser = scalar_source(x.operands[0])
    left, right = x.operands[1:]
    if chooser is None or any(o.shape.element_type is not x.shape.element_type for o in (left, right)):
        return None
    if _is_alone(left, make) and _is_alone(right, make):
        if not _same_places(left, right):
            return None
        chosen = _choose(make, chooser, left.operands[2], right.operands[2])
        return make.on(left, *left.operands[:2], chosen)
    for scatter, other in ((left, right), (right, left)):
        if _is_alone(scatter, make) and scatter.operands[0] is other and _may_be_outside(scatter):
            indices = scatter.operands[1]
            outside = make.full(-1, indices.shape)
            places = _choose(make, chooser, *((indices, outside) if scatter is left else (outside, indices)))
            return make.on(scatter, other, places, scatter.operands[2])
    return None


def _is_alone(x: Instruction, make: Rewriter) -> bool:
    """Whether an instruction is a scatter of one window, all of one type, with one user."""
    if not isinstance(x.op, Scatter) or make.uses(x) > 1 or only_window(x) is None:
        return False
    return x.operands[0].shape.element_type is x.shape.element_type


def _same_places(left: Instruction, right: Instruction) -> bool:
    """Whether scatters write the same window of the same array in the same way."""
    ours, theirs = left.op_as(Scatter), right.op_as(Scatter)
    return left.operands[:2] == right.operands[:2] and ours == theirs


def _may_be_outside(scatter: Instruction) -> bool:
    """Whether the index -1 makes a scatter drop its window."""
    return scatter.operands[1].shape.element_type.is_signed and bool(
        scatter.op_as(Scatter).scatter_dims_to_operand_dims
    )


def _choose(make: Rewriter, chooser: Instruction, yes: Instruction, no: Instruction) -> Instruction:
    return make.apply("select", make.broadcast(chooser, yes.shape.dimensions), yes, no)


def _known_components(indices: Instruction) -> list[int] | None:
    """The components of a single index vector, if they are constants; else None."""
    array = literal(indices)
    if array is None:
        number = uniform(indices)
        return None if number is None else [int(to_integer(number))] * indices.shape.num_elements
    return [int(i) for i in to_integer(array).reshape(-1)]


# -- gather ----------------------------------------------------------------------------------------


@_rule("gather")
def gather_in_a_row(x: Instruction, make: Rewriter) -> Instruction | None:
    """gather(x, {a, a + s, a + 2 s, ..}) -> slice(x) of whole rows, inside of x, transposed if rows go elsewhere."""
    operand, indices = x.operands
    op: Any = x.op
    sizes = operand.shape.dimensions
    if op.operand_batching_dims or len(op.start_index_map) != 1 or op.collapsed_slice_dims != op.start_index_map:
        return None
    (row,) = op.start_index_map
    if any(n != (1 if d == row else sizes[d]) for d, n in enumerate(op.slice_sizes)):
        return None
    counted = _counted(indices)
    if counted is None or counted.limit > sizes[row]:
        return None
    part = make.slice(operand, [counted if d == row else SliceDimension(0, n) for d, n in enumerate(sizes)])
    others = iter([d for d in range(len(sizes)) if d != row])
    permutation: list[int] = []
    for dimension, size in enumerate(x.shape.dimensions):
        if dimension in op.offset_dims:
            permutation.append(next(others))
        elif size > 1:
            permutation.append(row)
    return make.reshape(make.transpose(part, permutation), x.shape.dimensions)


def _counted(indices: Instruction) -> SliceDimension | None:
    """The slice of the indices in an array that counts upwards in equal steps along one dimension; else None."""
    proper = [d for d, size in enumerate(indices.shape.dimensions) if size != 1]
    if len(proper) != 1:
        return None
    size = indices.shape.dimensions[proper[0]]
    inner = indices
    while isinstance(inner.op, Reshape):
        (inner,) = inner.operands
    if isinstance(inner.op, Iota):
        along = inner.shape.dimensions[inner.op_as(Iota).iota_dimension] == size
        fits = indices.shape.element_type.bit_width > size.bit_length()
        return SliceDimension(0, size) if along and fits else None
    array = literal(inner)
    if array is None or array.size < 2:
        return None
    numbers = to_integer(array).reshape(-1)
    start, step = int(numbers[0]), int(numbers[1]) - int(numbers[0])
    if start < 0 or step <= 0 or any(int(n) != start + i * step for i, n in enumerate(numbers)):
        return None
    return SliceDimension(start, int(numbers[-1]) + 1, step)
