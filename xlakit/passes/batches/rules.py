"""Rules for operations in batch-minor form: each gives the same operation with renumbered dimensions.

A rule is called with an instruction, the batch, and the batch dimension of the result. It gives None if the operation
works along the batch dimension, else a maker of the instruction. A maker takes operands that have a batch dimension in
batch-minor form, and others unchanged.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from xlakit.ir.instruction import Instruction
from xlakit.ir.traits import Elementwise
from xlakit.ops.data import Constant, Iota
from xlakit.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from xlakit.ops.elementwise.convert import BitcastConvert
from xlakit.ops.gather import Gather
from xlakit.ops.movement import Broadcast, Concatenate, Pad, Reverse, Slice, Transpose
from xlakit.ops.reduction import Reduce
from xlakit.ops.windows import ReduceWindow
from xlakit.passes.batches.forms import Batch, Maker, minor_dimension, minor_shape, order
from xlakit.passes.batches.products import decomposition, product

_Rule = Callable[[Instruction, Batch, int], Maker | None]


def maker_of(x: Instruction, batch: Batch) -> Maker | None:
    """The maker of an instruction in batch-minor form; None if that is not possible."""
    rule = _elementwise if isinstance(x.op, (Elementwise, BitcastConvert)) else _RULES.get(x.opcode)
    own = batch.dimension(x.shape.tuple_shapes[0] if x.shape.is_tuple and x.shape.tuple_shapes else x.shape)
    return None if rule is None or own is None else rule(x, batch, own)


def _same(x: Instruction, own: int, op: Any) -> Maker:
    """The maker that applies ``op`` to the operands; its result is x in batch-minor form."""
    shape = minor_shape(x.shape, own)
    return lambda operands, make: make.add(op, *operands, shape=shape)


def _elementwise(x: Instruction, batch: Batch, own: int) -> Maker | None:
    sizes = x.shape.dimensions
    if not all(o.shape.is_array and o.shape.dimensions in (sizes, ()) for o in x.operands):
        return None
    fits = all(batch.dimension(o.shape) == own for o in x.operands if o.shape.dimensions)
    return _same(x, own, x.op) if fits else None


def _constant(x: Instruction, batch: Batch, own: int) -> Maker | None:
    array = x.op_as(Constant).literal.array
    return lambda _, make: make.constant(array.transpose(order(array.ndim, own)))


def _iota(x: Instruction, batch: Batch, own: int) -> Maker | None:
    op = x.op_as(Iota)
    return _same(x, own, dataclasses.replace(op, iota_dimension=minor_dimension(op.iota_dimension, x.shape.rank, own)))


def _broadcast(x: Instruction, batch: Batch, own: int) -> Maker | None:
    op, (operand,) = x.op_as(Broadcast), x.operands
    given = batch.dimension(operand.shape)
    if own in op.dimensions and (given is None or op.dimensions[given] != own):
        return None
    if own not in op.dimensions and given is not None:
        return None
    axes = range(operand.shape.rank) if given is None else order(operand.shape.rank, given)
    dimensions = tuple(minor_dimension(op.dimensions[d], x.shape.rank, own) for d in axes)
    shape = minor_shape(x.shape, own)
    return lambda operands, make: make.broadcast(operands[0], shape.dimensions, dimensions)


def _reshape(x: Instruction, batch: Batch, own: int) -> Maker | None:
    (operand,) = x.operands
    given = batch.dimension(operand.shape)
    if given is None or math.prod(x.shape.dimensions[:own]) != math.prod(operand.shape.dimensions[:given]):
        return None
    shape = minor_shape(x.shape, own)
    return lambda operands, make: make.reshape(operands[0], shape.dimensions)


def _transpose(x: Instruction, batch: Batch, own: int) -> Maker | None:
    (operand,) = x.operands
    given = batch.dimension(operand.shape)
    if given is None:
        return None
    rank = x.shape.rank
    permutation = [minor_dimension(x.op_as(Transpose).dimensions[d], rank, given) for d in order(rank, own)]
    return lambda operands, make: make.transpose(operands[0], permutation)


def _slice(x: Instruction, batch: Batch, own: int) -> Maker | None:
    if batch.dimension(x.operands[0].shape) != own:
        return None
    ranges = x.op_as(Slice).slice
    moved = [ranges[d] for d in order(len(ranges), own)]
    part = ranges[own]
    whole = (part.start, part.limit, part.stride) == (0, batch.size, 1)
    return (lambda operands, make: make.slice(operands[0], moved)) if whole else None


def _pad(x: Instruction, batch: Batch, own: int) -> Maker | None:
    if batch.dimension(x.operands[0].shape) != own:
        return None
    padding = x.op_as(Pad).padding
    part = padding[own]
    if part.edge_padding_low or part.edge_padding_high or part.interior_padding:
        return None
    return _same(x, own, Pad(padding=tuple(padding[d] for d in order(len(padding), own))))


def _concatenate(x: Instruction, batch: Batch, own: int) -> Maker | None:
    along = x.op_as(Concatenate).dimension
    if own == along or any(batch.dimension(o.shape) != own for o in x.operands):
        return None
    return _same(x, own, Concatenate(dimension=minor_dimension(along, x.shape.rank, own)))


def _reverse(x: Instruction, batch: Batch, own: int) -> Maker | None:
    along = x.op_as(Reverse).dimensions
    if batch.dimension(x.operands[0].shape) != own or own in along:
        return None
    return _same(x, own, Reverse(dimensions=tuple(sorted(minor_dimension(d, x.shape.rank, own) for d in along))))


def _dynamic_slice(x: Instruction, batch: Batch, own: int) -> Maker | None:
    if batch.dimension(x.operands[0].shape) != own or not _has_starts(x, 1):
        return None
    sizes = x.op_as(DynamicSlice).dynamic_slice_sizes
    axes = order(len(sizes), own)
    op = DynamicSlice(dynamic_slice_sizes=tuple(sizes[d] for d in axes))
    return lambda operands, make: make.add(op, operands[0], *[operands[1 + d] for d in axes])


def _dynamic_update_slice(x: Instruction, batch: Batch, own: int) -> Maker | None:
    if (
        batch.dimension(x.operands[0].shape) != own
        or not _has_starts(x, 2)
        or batch.dimension(x.operands[1].shape) != own
    ):
        return None
    axes = order(x.shape.rank, own)
    return lambda operands, make: make.add(
        DynamicUpdateSlice(), operands[0], operands[1], *[operands[2 + d] for d in axes]
    )


def _has_starts(x: Instruction, first: int) -> bool:
    """Whether each dimension has a scalar start index, from operand ``first`` on (and not one vector of them)."""
    return len(x.operands) == first + x.operands[0].shape.rank


def _reduce(x: Instruction, batch: Batch, own: int) -> Maker | None:
    op, count = x.op_as(Reduce), len(x.operands) // 2
    given = batch.dimension(x.operands[0].shape)
    if given is None or given in op.dimensions:
        return None
    if any(batch.dimension(o.shape) != given for o in x.operands[:count]):
        return None
    rank = x.operands[0].shape.rank
    moved = dataclasses.replace(op, dimensions=tuple(sorted(minor_dimension(d, rank, given) for d in op.dimensions)))
    return lambda operands, make: make.add(moved, *operands)


def _reduce_window(x: Instruction, batch: Batch, own: int) -> Maker | None:
    op = x.op_as(ReduceWindow)
    if len(x.operands) != 2 or batch.dimension(x.operands[0].shape) != own:
        return None
    windows = op.window.dimensions
    part = windows[own]
    if part.size != 1 or part.padding_low or part.padding_high:
        return None
    window = dataclasses.replace(op.window, dimensions=tuple(windows[d] for d in order(len(windows), own)))
    return _same(x, own, dataclasses.replace(op, window=window))


def _gather(x: Instruction, batch: Batch, own: int) -> Maker | None:
    """A gather whose windows hold the whole batch, with indices that all members share."""
    op: Any = x.op_as(Gather)
    operand, indices = x.operands
    given = batch.dimension(operand.shape)
    if given is None or batch.dimension(indices.shape) is not None:
        return None
    fixed = (*op.collapsed_slice_dims, *op.start_index_map, *op.operand_batching_dims)
    window = [d for d in range(operand.shape.rank) if d not in (*op.collapsed_slice_dims, *op.operand_batching_dims)]
    if given in fixed or op.slice_sizes[given] != batch.size or op.offset_dims[window.index(given)] != own:
        return None
    rank, result_rank = operand.shape.rank, x.shape.rank

    def moved(dimensions: Sequence[int]) -> tuple[int, ...]:
        return tuple(minor_dimension(d, rank, given) for d in dimensions)

    changed = dataclasses.replace(
        op,
        offset_dims=tuple(sorted(minor_dimension(d, result_rank, own) for d in op.offset_dims)),
        collapsed_slice_dims=moved(op.collapsed_slice_dims),
        start_index_map=moved(op.start_index_map),
        operand_batching_dims=moved(op.operand_batching_dims),
        slice_sizes=tuple(op.slice_sizes[d] for d in order(rank, given)),
    )
    return lambda operands, make: make.add(changed, *operands)


_RULES: dict[str, _Rule] = {
    "broadcast": _broadcast,
    "cholesky": decomposition,
    "concatenate": _concatenate,
    "constant": _constant,
    "dot": product,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "iota": _iota,
    "pad": _pad,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "reshape": _reshape,
    "reverse": _reverse,
    "slice": _slice,
    "transpose": _transpose,
    "triangular-solve": decomposition,
}
