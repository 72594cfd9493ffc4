"""Parts of arrays: read, replaced, and chosen by indices.

Source: ``xla/hlo/builder/lib/slicing.h``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape, make_shape
from xlakit.errors import ShapeError
from xlakit.lib.constants import full_like, scalar_like, zero, zeros, zeros_like
from xlakit.ops.data import constant, iota
from xlakit.ops.dynamic import dynamic_slice, dynamic_update_slice
from xlakit.ops.elementwise.binary import add, or_
from xlakit.ops.elementwise.compare import eq
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.elementwise.select import select
from xlakit.ops.gather import gather
from xlakit.ops.handle import OperandLike, XlaOp, building
from xlakit.ops.movement import broadcast_in_dim, concat_in_dim, slice as slice_part, transpose
from xlakit.ops.reduction import reduce
from xlakit.ops.scatter import scatter


@building
def dynamic_strided_slice(
    input: XlaOp, base_indices: Sequence[OperandLike], window_sizes: Sequence[int], strides: Sequence[int]
) -> XlaOp:
    """``input[base : base + window : stride]`` along each dimension.

    base_indices: integer scalars, one for each dimension. A window that would reach outside is moved inside.
    window_sizes, strides: one for each dimension; strides are at least 1.

    Raises ShapeError. Source: DynamicStridedSlice.
    """
    window = dynamic_slice(input, base_indices, window_sizes)
    return slice_part(window, [0] * len(window_sizes), window_sizes, strides)


@building
def update_slice(x: XlaOp, update: XlaOp, start: Sequence[int]) -> XlaOp:
    """``x`` with ``update`` written over its elements from ``start`` on.

    update: an array of the rank and type of ``x``. start: one index for each dimension.

    Raises ShapeError where ``update`` does not lie inside. Source: UpdateSlice.
    """
    shape, part = x.shape, update.shape
    sizes = list(zip(start, part.dimensions, shape.dimensions, strict=False))
    if not len(start) == shape.rank == part.rank or any(s < 0 or s + n > size for s, n, size in sizes):
        raise ShapeError(
            f"{part} from {list(start)} on does not lie in {shape}",
            hint=f"give an update of rank {shape.rank} and {shape.rank} indices, so that it lies inside",
        )
    return dynamic_update_slice(x, update, [constant(x.builder, np.int32(s)) for s in start])


def _minor(x: XlaOp, count: int) -> tuple[int, ...]:
    """The sizes of the dimensions before the last ``count``."""
    shape = x.shape
    if not shape.is_array or count > shape.rank:
        raise ShapeError(f"{shape} has no {count} dimensions", hint=f"give at most {shape.rank} indices")
    return shape.dimensions[: shape.rank - count]


@building
def slice_in_minor_dims(x: XlaOp, start: Sequence[int], end: Sequence[int]) -> XlaOp:
    """``x[..., start : end]`` along the last dimensions, as many as there are indices.

    start, end: from 0 to the size, ends exclusive. Raises ShapeError. Source: SliceInMinorDims.
    """
    major = _minor(x, len(start))
    return slice_part(x, [*[0] * len(major), *start], [*major, *end])


@building
def update_slice_in_minor_dims(x: XlaOp, update: XlaOp, start: Sequence[int]) -> XlaOp:
    """``x`` with ``update`` written over ``x[..., start:]``, along as many last dimensions as there are indices.

    update: an array of the rank and type of ``x``. Raises ShapeError where it does not lie inside.
    Source: UpdateSliceInMinorDims.
    """
    return update_slice(x, update, [*[0] * len(_minor(x, len(start))), *start])


@building
def dynamic_slice_in_minor_dims(x: XlaOp, starts: Sequence[OperandLike], sizes: Sequence[int]) -> XlaOp:
    """``x[..., start : start + size]`` along the last dimensions, as many as there are starts.

    starts: integer scalars of one type; a slice that would reach outside is moved inside.

    Raises ShapeError. Source: DynamicSliceInMinorDims.
    """
    major = _minor(x, len(starts))
    return dynamic_slice(x, _starts(x, len(major), starts), [*major, *sizes])


@building
def dynamic_update_slice_in_minor_dims(x: XlaOp, update: XlaOp, starts: Sequence[OperandLike]) -> XlaOp:
    """``x`` with ``update`` written over ``x[..., start:]``, along as many last dimensions as there are starts.

    starts: integer scalars of one type; an update that would reach outside is moved inside.

    Raises ShapeError. Source: DynamicUpdateSliceInMinorDims.
    """
    return dynamic_update_slice(x, update, _starts(x, len(_minor(x, len(starts))), starts))


def _starts(x: XlaOp, major: int, starts: Sequence[OperandLike]) -> list[OperandLike]:
    kinds = [s.shape.element_type for s in starts if isinstance(s, XlaOp)]
    return [*[zero(x.builder, kinds[0] if kinds else PrimitiveType.S32)] * major, *starts]


@building
def concat_vectors(a: XlaOp, b: XlaOp) -> XlaOp:
    """Two vectors of one type, one after the other. Raises ShapeError for other ranks."""
    if not a.shape.rank == b.shape.rank == 1:
        raise ShapeError(f"takes two vectors, got {a.shape} and {b.shape}", hint="use concatenate for other arrays")
    return concat_in_dim([a, b], 0)


def _others(input: Shape, index: Shape, dim: int) -> tuple[int, list[int]]:
    """The normalized dimension, and all other dimensions; checks that the arrays differ in that dimension only."""
    dim = input.dimension_number(dim)
    others = [d for d in range(input.rank) if d != dim]
    is_fit = index.is_array and index.element_type.is_integral and index.rank == input.rank
    if not is_fit or any(index.dimensions[d] != input.dimensions[d] for d in others):
        raise ShapeError(
            f"{index} does not index {input} along dimension {dim}",
            hint="give integers with the sizes of the input in all other dimensions",
        )
    return dim, others


@building
def torch_gather(input: XlaOp, index: XlaOp, dim: int, sparse: bool = True) -> XlaOp:
    """``out[i][j][k] = input[i][index[i][j][k]][k]``, here for dimension 1 of 3.

    index: integers; its sizes are those of ``input`` but for dimension ``dim``.
    sparse: whether elements are gathered, so that an index outside stands for the nearest inside; otherwise each is
        compared with all positions, and one outside gives 0. In an array without elements all do.

    Gives an array of the sizes of ``index`` and the type of ``input``. Raises ShapeError. Source: TorchGather.
    """
    dim, others = _others(input.shape, index.shape, dim)
    if 0 in input.shape.dimensions:
        return zeros(input.builder, input.shape.without_layout().with_dimensions(index.shape.dimensions))
    if sparse:
        ones = [1] * input.shape.rank
        return gather(
            input,
            index,
            slice_sizes=ones,
            collapsed_slice_dims=[dim],
            start_index_map=[dim],
            index_vector_dim=index.shape.rank,
            operand_batching_dims=others,
            start_indices_batching_dims=others,
        )
    # Compare each index with all positions along a new dimension, and sum over it: one element is selected.
    rank = index.shape.rank
    if index.shape.element_type.bit_width < 32:
        index = convert_element_type(index, PrimitiveType.S32)
    sizes = [*index.shape.dimensions, input.shape.dimensions[dim]]
    positions = iota(input.builder, make_shape(index.shape.element_type, sizes), rank)
    wide = broadcast_in_dim(index, sizes, list(range(rank)))
    elements = broadcast_in_dim(transpose(input, [*others, dim]), sizes, [*others, rank])
    kind = input.shape.element_type
    is_pred = kind is PrimitiveType.PRED
    # The sum of -0 and 0 is 0, so that only -0 keeps every element.
    nothing: float | bool = False if is_pred else -0.0 if kind.is_floating else 0
    neutral = full_like(elements, nothing)
    is_meant = eq(wide, positions)
    start = scalar_like(input, nothing)
    found = reduce(select(is_meant, elements, neutral), start, or_ if is_pred else add, [rank])
    if not kind.is_floating:
        return found
    return select(reduce(is_meant, False, or_, [rank]), found, zeros_like(found))


@building
def torch_scatter_dense(
    input: XlaOp, index: XlaOp, src: XlaOp, dim: int, combiner: Callable[[XlaOp, XlaOp], XlaOp]
) -> XlaOp:
    """``input`` with elements of ``src`` combined into it at positions along one dimension.

    For dimension 1 of 3, ``p = index[i][j][k]`` and ``out[i][p][k] = combiner(out[i][p][k], src[i][j][k])`` for each j.

    index: integers; its sizes are those of ``input`` but for dimension ``dim``. Elements whose index lies outside have
        no effect.
    src: the elements to combine, of the sizes of ``index`` and the type of ``input``.
    combiner: a function of two scalars, those so far and the new one; where indices repeat, in any order.

    Gives an array like ``input``. Raises ShapeError. Source: TorchScatterDense.
    """
    dim, others = _others(input.shape, index.shape, dim)
    if not src.shape.same_dimensions(index.shape):
        raise ShapeError(f"{src.shape} is scattered by {index.shape}", hint="both need the same sizes")
    return scatter(
        input,
        index,
        src,
        combiner,
        index_vector_dim=index.shape.rank,
        inserted_window_dims=[dim],
        scatter_dims_to_operand_dims=[dim],
        input_batching_dims=others,
        scatter_indices_batching_dims=others,
    )


@building
def torch_index_select(input: XlaOp, index: XlaOp, dim: int, batch_dims: int = 0) -> XlaOp:
    """The elements of ``input`` at positions along one dimension: ``out[:, n] = input[:, index[n]]`` for dimension 1.

    index: integers, of rank ``batch_dims`` + 1; one outside stands for the nearest inside, or for 0 where none is.
    dim: the dimension, not below ``batch_dims``.
    batch_dims: so many first dimensions are those of ``input`` and ``index``, each entry with indices of its own.

    Gives an array like ``input`` with as many entries along ``dim`` as there are indices. Raises ShapeError.
    Source: TorchIndexSelect.
    """
    shape, indices = input.shape, index.shape
    dim = shape.dimension_number(dim)
    is_fit = indices.is_array and indices.element_type.is_integral and 0 <= batch_dims <= dim
    if not is_fit or indices.rank != batch_dims + 1 or indices.dimensions[:-1] != shape.dimensions[:batch_dims]:
        raise ShapeError(
            f"{indices} does not select from dimension {dim} of {shape} with {batch_dims} batch dimensions",
            hint="give integers of the batch dimensions and one more",
        )
    batch = list(range(batch_dims))
    if 0 in shape.dimensions:
        sizes = [*shape.dimensions[:dim], indices.dimensions[-1], *shape.dimensions[dim + 1 :]]
        return zeros(input.builder, shape.without_layout().with_dimensions(sizes))
    return gather(
        input,
        index,
        slice_sizes=[1 if d in batch or d == dim else n for d, n in enumerate(shape.dimensions)],
        offset_dims=[d for d in range(shape.rank) if d not in batch and d != dim],
        collapsed_slice_dims=[dim],
        start_index_map=[dim],
        index_vector_dim=indices.rank,
        operand_batching_dims=batch,
        start_indices_batching_dims=batch,
    )
