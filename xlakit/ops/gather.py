"""Gather: many slices of one array, each starting where an index vector says.

Source: XLA's document "Operation semantics", section Gather; the batching dimensions are XLA's of today.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from xlakit.arguments import constructing
from xlakit.data.shape import UNBOUNDED, Shape
from xlakit.dataclass import dataclass
from xlakit.errors import ArgumentError, ShapeError
from xlakit.ir.operation import Array, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ops.handle import OperandLike, XlaOp, as_op, building, common_builder, emit
from xlakit.ops.shared.hints import below
from xlakit.ops.shared.padding import zero_extend

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@constructing
@dataclass(frozen=True, slots=True, kw_only=True)
class GatherDimensionNumbers:
    """How the dimensions of operand, start indices and result of a gather belong together."""

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    index_vector_dim: int
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


def check_dimension_set(name: str, numbers: Sequence[int], rank: int, *, ascending: bool = True) -> None:
    """Raise ShapeError unless ``numbers`` are different dimension numbers below ``rank``, in order if ``ascending``."""
    for number in numbers:
        if not 0 <= number < rank:
            raise ShapeError(f"{name} names dimension {number}, the valid range is 0 .. {rank - 1}", hint=below(rank))
    if len(set(numbers)) != len(numbers):
        raise ShapeError(f"{name} {list(numbers)} repeats a dimension", hint="name each dimension once")
    if ascending and list(numbers) != sorted(numbers):
        raise ShapeError(f"{name} {list(numbers)} must be ascending", hint=f"give {sorted(numbers)}")


def expanded_indices(indices: Shape, index_vector_dim: int, name: str) -> Shape:
    """The shape of the index array with the trailing dimension of size 1 that XLA adds where there is no vector."""
    if not indices.is_array or not indices.element_type.is_integral:
        raise ShapeError(
            f"{name} must be an array of integers, got {indices}", hint="convert it with convert_element_type to s32"
        )
    if not 0 <= index_vector_dim <= indices.rank:
        raise ShapeError(
            f"index_vector_dim {index_vector_dim} is out of range, {name} has rank {indices.rank}",
            hint=f"give a number from 0 to {indices.rank}; {indices.rank} stands for vectors of one index",
        )
    if index_vector_dim < indices.rank:
        return indices.without_layout()
    return indices.with_dimensions((*indices.dimensions, 1), (*indices.dynamic_dimensions, False))


def check_index_map(name: str, index_map: Sequence[int], operand: Shape, indices: Shape, vector_dim: int) -> None:
    """Raise ShapeError unless ``index_map`` maps each component of an index vector to its own operand dimension."""
    length = indices.dimensions[vector_dim]
    if length not in (UNBOUNDED, len(index_map)):
        raise ShapeError(
            f"{name} has {len(index_map)} elements, the index vectors in dimension {vector_dim} of {indices} "
            f"have {length}",
            hint="say for each component of an index vector which operand dimension it is for",
        )
    check_dimension_set(name, index_map, operand.rank, ascending=False)


def check_batching(
    operand_name: str,
    operand_dims: Sequence[int],
    operand: Shape,
    indices_name: str,
    indices_dims: Sequence[int],
    indices: Shape,
    index_vector_dim: int,
) -> None:
    """Raise ShapeError unless batching dimensions of the operand and of the indices pair up, in number and size."""
    if len(operand_dims) != len(indices_dims):
        raise ShapeError(
            f"{operand_name} has {len(operand_dims)} elements, {indices_name} {len(indices_dims)}; they must pair up",
            hint="give as many dimensions of the indices as of the operand",
        )
    check_dimension_set(operand_name, operand_dims, operand.rank)
    check_dimension_set(indices_name, indices_dims, indices.rank, ascending=False)
    if index_vector_dim in indices_dims:
        raise ShapeError(
            f"{indices_name} {list(indices_dims)} names index_vector_dim {index_vector_dim}",
            hint=f"take {index_vector_dim} out of it; the index vectors lie along that dimension",
        )
    for own, other in zip(operand_dims, indices_dims, strict=True):
        size, wanted = operand.dimensions[own], indices.dimensions[other]
        if UNBOUNDED not in (size, wanted) and size != wanted:
            raise ShapeError(
                f"{operand_name} names dimension {own} of size {size}, {indices_name} for it dimension {other} of size "
                f"{wanted}; they must be equal",
                hint="batching dimensions run along together; slice or pad the longer one",
            )


def check_indexed_once(name: str, index_map: Sequence[int], batching_name: str, batching: Sequence[int]) -> None:
    """Raise ShapeError where a dimension of the operand is indexed by an index vector and by batching."""
    twice = [dimension for dimension in index_map if dimension in batching]
    if twice:
        raise ShapeError(
            f"{name} {list(index_map)} and {batching_name} {list(batching)} both name dimension {twice[0]}",
            hint=f"take {twice[0]} out of one of them; the index in a dimension comes from one source",
        )


def start_positions(
    indices: Array, index_vector_dim: int, index_map: Sequence[int], operand_rank: int, batching: dict[int, int]
) -> list[Array]:
    """Where each slice starts in each operand dimension: int64 arrays of the batch dimensions of ``indices``.

    ``batching`` maps batching dimensions of the operand to the paired dimensions of ``indices``.
    """
    vectors = indices[..., None] if index_vector_dim == indices.ndim else np.moveaxis(indices, index_vector_dim, -1)
    # Unsigned indices beyond int64 stay out of bounds on the high side, where a plain conversion would wrap them.
    if vectors.dtype == np.uint64:
        vectors = np.minimum(vectors, np.uint64(2**63 - 1))
    vectors = vectors.astype(np.int64)
    batch = vectors.shape[:-1]
    starts = [np.zeros(batch, dtype=np.int64) for _ in range(operand_rank)]
    for component, dimension in enumerate(index_map):
        starts[dimension] = vectors[..., component]
    for dimension, index_dimension in batching.items():
        axis = index_dimension - (index_dimension > index_vector_dim)
        column = [1] * len(batch)
        column[axis] = -1
        starts[dimension] = np.broadcast_to(np.arange(batch[axis]).reshape(column), batch)
    return starts


@operation("gather", arity=2, documents=("Gather",))
class Gather(Op):
    """For every index vector, the slice of ``slice_sizes`` that starts there, moved inside the operand."""

    offset_dims: tuple[int, ...] = attribute(Kind.INT64_LIST, proto="gather_dimension_numbers.offset_dims", always=True)
    collapsed_slice_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, proto="gather_dimension_numbers.collapsed_slice_dims", always=True
    )
    start_index_map: tuple[int, ...] = attribute(
        Kind.INT64_LIST, proto="gather_dimension_numbers.start_index_map", always=True
    )
    operand_batching_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, default=(), proto="gather_dimension_numbers.operand_batching_dims"
    )
    start_indices_batching_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, default=(), proto="gather_dimension_numbers.start_indices_batching_dims"
    )
    index_vector_dim: int = attribute(Kind.INT64, proto="gather_dimension_numbers.index_vector_dim", always=True)
    slice_sizes: tuple[int, ...] = attribute(Kind.INT64_LIST, proto="gather_slice_sizes", always=True)
    indices_are_sorted: bool = attribute(Kind.BOOL, default=False)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        operand, start_indices = operands
        if not operand.is_array:
            raise ShapeError(
                f"the operand must be an array, got {operand}", hint="gather from each array of a tuple by itself"
            )
        indices = expanded_indices(start_indices, self.index_vector_dim, "start_indices")
        check_dimension_set("offset_dims", self.offset_dims, len(self.offset_dims) + indices.rank - 1)
        check_index_map("start_index_map", self.start_index_map, operand, indices, self.index_vector_dim)
        check_dimension_set("collapsed_slice_dims", self.collapsed_slice_dims, operand.rank)
        check_batching(
            "operand_batching_dims",
            self.operand_batching_dims,
            operand,
            "start_indices_batching_dims",
            self.start_indices_batching_dims,
            indices,
            self.index_vector_dim,
        )
        check_indexed_once("start_index_map", self.start_index_map, "operand_batching_dims", self.operand_batching_dims)
        self._check_slices(operand)
        return self._arrange(operand, indices)

    def _check_slices(self, operand: Shape) -> None:
        if len(self.slice_sizes) != operand.rank:
            raise ShapeError(
                f"slice_sizes {list(self.slice_sizes)} must have one size for each of {operand}'s dimensions",
                hint=f"give {operand.rank} sizes; 1 for dimensions that are collapsed",
            )
        covered = (*self.collapsed_slice_dims, *self.operand_batching_dims)
        if len(self.offset_dims) + len(covered) != operand.rank:
            raise ShapeError(
                f"{len(self.offset_dims)} offset_dims, {len(self.collapsed_slice_dims)} collapsed_slice_dims and "
                f"{len(self.operand_batching_dims)} operand_batching_dims do not cover the {operand.rank} dimensions "
                "of the operand",
                hint="each operand dimension is an offset dimension of the result, or collapsed, or a batching one",
            )
        check_dimension_set("collapsed_slice_dims and operand_batching_dims", covered, operand.rank, ascending=False)
        for i, (size, bound) in enumerate(zip(self.slice_sizes, operand.dimensions, strict=True)):
            if bound != UNBOUNDED and not 0 <= size <= bound:
                raise ShapeError(
                    f"slice size {size} in dimension {i} must be from 0 to {bound}",
                    hint=f"make it {bound} to take all of dimension {i}",
                )
            if i in covered and size > 1:
                raise ShapeError(
                    f"dimension {i} is collapsed or batching, so its slice size must be 1 or 0, not {size}",
                    hint=f"give size 1 there, or take {i} out of collapsed_slice_dims",
                )

    def _arrange(self, operand: Shape, indices: Shape) -> Shape:
        batch = [i for i in range(indices.rank) if i != self.index_vector_dim]
        kept = self._kept_dims(operand.rank)
        sizes: list[int] = []
        dynamic: list[bool] = []
        sources = (iter(batch), iter(kept))
        for i in range(len(batch) + len(kept)):
            if i in self.offset_dims:
                d = next(sources[1])
                sizes.append(self.slice_sizes[d])
                # A slice that covers a dynamic dimension has that dimension's current size.
                dynamic.append(operand.dynamic_dimensions[d] and self.slice_sizes[d] == operand.dimensions[d])
            else:
                d = next(sources[0])
                sizes.append(indices.dimensions[d])
                dynamic.append(indices.dynamic_dimensions[d])
        return operand.with_dimensions(sizes, dynamic)

    def _kept_dims(self, rank: int) -> list[int]:
        return [d for d in range(rank) if d not in self.collapsed_slice_dims and d not in self.operand_batching_dims]

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        operand: Array = operands[0]
        batching = dict(zip(self.operand_batching_dims, self.start_indices_batching_dims, strict=True))
        starts = start_positions(operands[1], self.index_vector_dim, self.start_index_map, operand.ndim, batching)
        batch = operands[1].shape[: self.index_vector_dim] + operands[1].shape[self.index_vector_dim + 1 :]
        kept = self._kept_dims(operand.ndim)
        # The slice size of a whole dynamic dimension is its bound; its current size may be less.
        sizes = [min(size, bound) for size, bound in zip(self.slice_sizes, operand.shape, strict=True)]
        offsets = tuple(sizes[d] for d in kept)
        if 0 in sizes:
            result = np.zeros(batch + offsets, dtype=operand.dtype)
        else:
            # As bytes, since NumPy makes no strided views of some of ml_dtypes' types.
            cells = operand.view(np.dtype((np.void, operand.dtype.itemsize)))
            windows = np.lib.stride_tricks.sliding_window_view(cells, sizes)
            inside = tuple(np.clip(s, 0, count - 1) for s, count in zip(starts, windows.shape, strict=False))
            found = windows[inside].view(operand.dtype)
            result = np.broadcast_to(found, (*batch, *sizes)).reshape(batch + offsets)
        result = np.moveaxis(result, range(len(batch), result.ndim), self.offset_dims)
        # A slice of fixed size is padded with zeros where a dynamic dimension has fewer elements now.
        marks = context.shape.dynamic_dimensions
        return zero_extend(result, [0 if mark else n for n, mark in zip(context.shape.dimensions, marks, strict=True)])


_NumbersT = TypeVar("_NumbersT", bound="DataclassInstance")


def last_dimension(indices: XlaOp) -> int:
    """The default of ``index_vector_dim``."""
    return max(indices.shape.rank - 1, 0)


def one_form(given: _NumbersT | None, single: _NumbersT, index_vector_dim: int | None) -> _NumbersT:
    """The dimension numbers: ``given``, or those of the separate lists; raises ArgumentError if both are given."""
    if given is None:
        return single
    lists = [getattr(single, f.name) for f in fields(single) if f.name != "index_vector_dim"]
    if index_vector_dim is not None or any(lists):
        raise ArgumentError("dimension numbers are given twice", hint="give dimension_numbers or the single lists")
    return given


@building
def gather(
    operand: XlaOp,
    start_indices: OperandLike,
    dimension_numbers: GatherDimensionNumbers | None = None,
    slice_sizes: Sequence[int] = (),
    indices_are_sorted: bool = False,
    *,
    offset_dims: Sequence[int] = (),
    collapsed_slice_dims: Sequence[int] = (),
    start_index_map: Sequence[int] = (),
    index_vector_dim: int | None = None,
    operand_batching_dims: Sequence[int] = (),
    start_indices_batching_dims: Sequence[int] = (),
    unique_indices: bool = False,
) -> XlaOp:
    """Gather slices of ``operand``, each at its own start.

    operand: the array that the slices come from.
    start_indices: integers; along ``index_vector_dim`` (by default the last dimension) lie the index vectors. Where
        ``index_vector_dim`` is the rank of start_indices, each element is a vector of one index.
    dimension_numbers: the dimension numbers at once, or:
    offset_dims: which dimensions of the result run inside a slice.
    collapsed_slice_dims: operand dimensions of slice size 1 that the result leaves out.
    start_index_map: which operand dimension each component of an index vector is for.
    operand_batching_dims, start_indices_batching_dims: dimensions that operand and start_indices run along together.
    slice_sizes: the size of a slice in each operand dimension.
    indices_are_sorted, unique_indices: promises of the caller, which change nothing here.

    A slice that would reach outside is moved inside. Gives an array of the batch dimensions of start_indices and the
    offset dimensions, of the operand's type. Raises ShapeError. Source: Operation semantics, Gather.
    """
    del unique_indices  # HLO's gather has no field for this promise
    builder = common_builder([operand, start_indices])
    indices = as_op(builder, start_indices)
    single = GatherDimensionNumbers(
        offset_dims=tuple(offset_dims),
        collapsed_slice_dims=tuple(collapsed_slice_dims),
        start_index_map=tuple(start_index_map),
        index_vector_dim=last_dimension(indices) if index_vector_dim is None else index_vector_dim,
        operand_batching_dims=tuple(operand_batching_dims),
        start_indices_batching_dims=tuple(start_indices_batching_dims),
    )
    numbers = one_form(dimension_numbers, single, index_vector_dim)
    op = Gather(
        **asdict(numbers),
        slice_sizes=tuple(slice_sizes),
        indices_are_sorted=indices_are_sorted,
    )
    return emit(op, as_op(builder, operand), indices)
