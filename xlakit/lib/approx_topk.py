"""Approximate top-k: elements are divided into bins, of which each keeps its first element in an order.

Source: ``xla/hlo/builder/lib/approx_topk.h``; Chern et al., "TPU-KNN: K Nearest Neighbor Search at Peak FLOP/s" (2022).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from xlakit.errors import ArgumentError, ShapeError
from xlakit.ops.control import call
from xlakit.ops.data import get_tuple_element, tuple_
from xlakit.ops.elementwise.select import select
from xlakit.ops.handle import ComputationLike, XlaOp, building
from xlakit.ops.movement import concat_in_dim, reshape, slice_in_dim
from xlakit.ops.reduction import reduce
from xlakit.ops.sort import sort

# The sizes of the tiles that XLA's accelerators reduce at once: of a vector, and of a row of another array.
_VECTOR_TILE, _ROW_TILE = 1024, 128


def approx_top_k_reduction_output_size(
    input_size: int,
    rank: int,
    top_k: int,
    recall_target: float,
    aggregate_to_topk: bool = True,
    input_size_override: int = -1,
) -> tuple[int, int]:
    """How many elements :func:`approx_top_k` gives, and the logarithm to base 2 of how many fell into one bin.

    input_size, rank: the size of the dimension, and the rank of the array.
    input_size_override: the size of the whole input where this is a part of it; negative if it is not.

    The other arguments are those of :func:`approx_top_k`. ``top_k`` elements are lost to others in their bins in
    1 - recall_target of all cases with (1 - top_k) / log(recall_target) bins. Gives (top_k, -1) with
    ``aggregate_to_topk``. Raises ArgumentError. Source: ApproxTopKReductionOutputSize.
    """
    recall = float(np.float32(recall_target))
    if not 0 < recall <= 1:
        raise ArgumentError(f"recall_target is {recall_target}", hint="give a number above 0 and at most 1")
    if aggregate_to_topk:
        return top_k, -1
    if 0 <= input_size_override < input_size:
        raise ArgumentError(
            f"the whole input of {input_size_override} elements is smaller than this part of {input_size}",
            hint="leave it out, or give the size of all parts together",
        )
    return _bins(input_size, rank, top_k, recall, input_size_override)


def _bins(size: int, rank: int, top_k: int, recall: float, override: int) -> tuple[int, int]:
    tile = _VECTOR_TILE if rank == 1 else _ROW_TILE
    whole = override if override >= 0 else size
    if size <= tile:
        return size, 0
    if top_k == 1:
        return tile, (-(-whole // tile) - 1).bit_length()
    if recall == 1:
        return size, 0
    bins = max(int((1 - top_k) / math.log(recall)), tile)
    log2_reduction = (whole // bins).bit_length() - 1
    if log2_reduction <= 0:
        return size, 0
    # No more than one tile of bins is left of this part; one that is short of two tiles becomes two, as in jaxlib.
    log2_reduction = min(log2_reduction, (size // tile - 1).bit_length())
    tiles = -(-size // tile)
    return -(-tiles // (1 << log2_reduction)) * tile, log2_reduction


@building
def approx_top_k(
    operands: Sequence[XlaOp],
    init_values: Sequence[XlaOp],
    top_k: int,
    reduction_dim: int,
    comparator: ComputationLike,
    recall_target: float = 0.9,
    aggregate_to_topk: bool = True,
    reduction_input_size_override: int = -1,
) -> list[XlaOp]:
    """The first ``top_k`` elements along a dimension in an order, of which some may be missed.

    operands: N arrays of the same dimensions; all are ordered together.
    init_values: N scalars that go after all others in the order.
    reduction_dim: the dimension, from the end where negative.
    comparator: (T0, T0, T1, T1, ..) -> PRED: whether the elements 0, 2, .. go before the elements 1, 3, ..
    recall_target: above 0 and at most 1: which part of the first elements is found, if they are anywhere by chance.
    aggregate_to_topk: whether the result is sorted and has ``top_k`` elements; otherwise it is what the bins keep.
    reduction_input_size_override: the size of the dimension in the whole input, where this is a part of it.

    Gives N arrays with ``top_k`` elements along the dimension, or as many as approx_top_k_reduction_output_size says.
    Raises ShapeError, ArgumentError. Source: ApproxTopK.
    """
    dimension = _check(operands, init_values, top_k, reduction_dim)
    bins = _kept(operands, dimension, top_k, recall_target, False, reduction_input_size_override)
    found = _first_of_bins(operands, init_values, bins, dimension, comparator)
    return _sorted(found, top_k, dimension, comparator) if aggregate_to_topk else found


@building
def approx_top_k_fallback(
    operands: Sequence[XlaOp],
    init_values: Sequence[XlaOp],
    top_k: int,
    reduction_dim: int,
    comparator: ComputationLike,
    recall_target: float = 0.9,
    aggregate_to_topk: bool = True,
    reduction_input_size_override: int = -1,
) -> list[XlaOp]:
    """:func:`approx_top_k` by a sort of all elements, so that none is missed. Source: ApproxTopKFallback."""
    dimension = _check(operands, init_values, top_k, reduction_dim)
    kept = _kept(operands, dimension, top_k, recall_target, aggregate_to_topk, reduction_input_size_override)
    return _sorted(operands, kept, dimension, comparator)


def _check(operands: Sequence[XlaOp], init_values: Sequence[XlaOp], top_k: int, reduction_dim: int) -> int:
    if not operands or len(operands) != len(init_values):
        raise ShapeError(
            f"{len(operands)} operands have {len(init_values)} initial values", hint="give one for each operand"
        )
    dimension = operands[0].shape.dimension_number(reduction_dim)
    size = operands[0].shape.dimensions[dimension]
    if not 0 < top_k <= size:
        raise ShapeError(f"the first {top_k} of {size} elements", hint=f"give from 1 to {size}")
    return dimension


def _kept(
    operands: Sequence[XlaOp], dimension: int, top_k: int, recall_target: float, aggregate_to_topk: bool, override: int
) -> int:
    """How many elements are left along the dimension."""
    shape = operands[0].shape
    size = shape.dimensions[dimension]
    kept, _ = approx_top_k_reduction_output_size(size, shape.rank, top_k, recall_target, aggregate_to_topk, override)
    return min(kept, size)


def _first_of_bins(
    operands: Sequence[XlaOp], init_values: Sequence[XlaOp], bins: int, dimension: int, comparator: ComputationLike
) -> list[XlaOp]:
    """Put element i into bin i modulo ``bins``, so that neighbors, which are often similar, are in different bins."""
    size = operands[0].shape.dimensions[dimension]
    rows, rest = divmod(size, bins)
    if not rest and rows <= 1:
        return list(operands)

    def first(*elements: XlaOp) -> XlaOp:
        count = len(operands)
        old, new = elements[:count], elements[count:]
        pairs = [e for pair in zip(old, new, strict=True) for e in pair]
        is_before = call(elements[0].builder, comparator, pairs)
        chosen = [select(is_before, a, b) for a, b in zip(old, new, strict=True)]
        return tuple_(elements[0].builder, chosen) if count > 1 else chosen[0]

    def reduced(arrays: Sequence[XlaOp]) -> list[XlaOp]:
        result = reduce(list(arrays), list(init_values), first, [dimension])
        return [get_tuple_element(result, i) for i in range(len(arrays))] if len(arrays) > 1 else [result]

    # Rows of all bins, and a last one of only the first bins.
    whole = [_rows(slice_in_dim(x, 0, rows * bins, 1, dimension), rows, bins, dimension) for x in operands]
    if not rest:
        return reduced(whole)
    last = [_rows(slice_in_dim(x, rows * bins, size, 1, dimension), 1, rest, dimension) for x in operands]
    left = [
        concat_in_dim([slice_in_dim(x, 0, rest, 1, dimension + 1), y], dimension)
        for x, y in zip(whole, last, strict=True)
    ]
    right = [slice_in_dim(x, rest, bins, 1, dimension + 1) for x in whole]
    return [concat_in_dim([a, b], dimension) for a, b in zip(reduced(left), reduced(right), strict=True)]


def _rows(x: XlaOp, rows: int, bins: int, dimension: int) -> XlaOp:
    sizes = x.shape.dimensions
    return reshape(x, new_sizes=[*sizes[:dimension], rows, bins, *sizes[dimension + 1 :]])


def _sorted(operands: Sequence[XlaOp], kept: int, dimension: int, comparator: ComputationLike) -> list[XlaOp]:
    """The first elements in the order."""
    result = sort(list(operands), comparator, dimension, True)
    parts = [get_tuple_element(result, i) for i in range(len(operands))] if len(operands) > 1 else [result]
    return [slice_in_dim(part, 0, kept, 1, dimension) for part in parts]
