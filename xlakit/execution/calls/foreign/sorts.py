"""Sorts of other backends: CUB's radix sort, and the TPU's approximate selection."""

from __future__ import annotations

import math

from xlakit.errors import ShapeError
from xlakit.execution.calls.foreign.meaning import Foreign
from xlakit.ops.data import constant, get_tuple_element
from xlakit.ops.elementwise.compare import eq, gt_total_order, lt_total_order
from xlakit.ops.elementwise.select import select
from xlakit.ops.handle import XlaOp
from xlakit.ops.movement import slice as slice_part
from xlakit.ops.sort import sort


def radix_sort(foreign: Foreign) -> XlaOp:
    """Keys, and values with them, along the last dimension; a workspace follows. Both zeros are one key."""
    if len(foreign.operands) not in (1, 2):
        foreign.need_operands(["keys", "values"])
    is_descending = foreign.config.flag("descending")
    # Only calls of the typed FFI have this attribute.
    rows, sizes = foreign.config.integer("batch_size", -1), foreign.operands[0].shape.dimensions
    if rows >= 0 and rows != math.prod(sizes[:-1]):
        raise ShapeError(
            f"backend_config has batch_size {rows}, the keys are {foreign.operands[0].shape}",
            hint="the dimensions before the last are those of the batch",
        )

    def goes_before(first: XlaOp, second: XlaOp, *_: XlaOp) -> XlaOp:
        compared = gt_total_order if is_descending else lt_total_order
        return compared(_one_zero(first), _one_zero(second))

    return foreign.all_finished(_parts(sort(foreign.operands, goes_before, is_stable=True), len(foreign.operands)))


def partial_reduce(foreign: Foreign) -> XlaOp:
    """The first elements of each row by the comparator, as many as the result has.

    A TPU keeps the best element of each of that many bins, which finds the true first elements with some probability;
    this implementation always finds them.
    """
    count = len(foreign.operands) // 2
    along = foreign.config.integer("reduction_dim")
    computations = foreign.op.computations
    if not count or len(foreign.operands) % 2 or len(foreign.results) != count or len(computations) != 1:
        raise ShapeError(
            f"it takes arrays, as many scalars and a comparator, and has a result for each array, got "
            f"{len(foreign.operands)} operands, {len(computations)} computations and {foreign.declared}",
            hint="compare it with the text that XLA printed",
        )
    arrays = foreign.operands[:count]
    rank = arrays[0].shape.rank
    if not 0 <= along < rank:
        raise ShapeError(f"backend_config has reduction_dim {along}", hint=f"it must be from 0 to {rank - 1}")
    if foreign.result.rank != rank:
        raise ShapeError(
            f"the result {foreign.result} has another rank than {arrays[0].shape}",
            hint=f"declare a result with the sizes of the array, apart from that of dimension {along}",
        )
    sizes = list(arrays[0].shape.dimensions)
    result_size = foreign.result.dimensions[along]
    if result_size > sizes[along]:
        raise ShapeError(
            f"the result {foreign.result} has more elements along dimension {along} than {arrays[0].shape}",
            hint="compare it with the text that XLA printed",
        )
    ordered = _parts(sort(arrays, computations[0], along, is_stable=True), count)
    sizes[along] = result_size
    first = [slice_part(part, [0] * rank, sizes) for part in ordered]
    return foreign.all_finished(first) if foreign.declared.is_tuple else foreign.finished(first[0])


def _parts(ordered: XlaOp, count: int) -> list[XlaOp]:
    return [ordered] if count == 1 else [get_tuple_element(ordered, i) for i in range(count)]


def _one_zero(key: XlaOp) -> XlaOp:
    """The key, positive zero for negative zero."""
    if not key.shape.element_type.is_floating:
        return key
    zero = constant(key.builder, 0, key.shape.element_type)
    return select(eq(key, zero), zero, key)
