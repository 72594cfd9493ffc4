"""Scatter: slices of update values, each combined into an array at its own start.

Source: XLA's document "Operation semantics", section Scatter; the batching dimensions are XLA's of today.

The document leaves open in which order updates of one element are applied. Here it is the row-major order of the
index vectors; sums and products of floating-point updates of 32 bits and fewer are computed in double precision and
rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from xlakit.arguments import constructing
from xlakit.data.shape import UNBOUNDED, Shape, make_tuple_shape
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError
from xlakit.ir.instruction import Computation
from xlakit.ir.operation import Array, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ops.gather import (
    check_batching,
    check_dimension_set,
    check_index_map,
    check_indexed_once,
    expanded_indices,
    last_dimension,
    one_form,
    start_positions,
)
from xlakit.ops.handle import (
    ComputationLike,
    OperandLike,
    XlaOp,
    as_op,
    as_sequence,
    building,
    common_builder,
    emit,
    scalar_shapes,
)
from xlakit.ops.reduction import Folder, check_reducer, folder


@constructing
@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterDimensionNumbers:
    """How the dimensions of operands, scatter indices and updates of a scatter belong together."""

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    index_vector_dim: int
    input_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()


@operation("scatter", documents=("Scatter",))
class Scatter(Op):
    """The operands with every update window combined into them; operands are N arrays, the indices, N updates."""

    update_window_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, proto="scatter_dimension_numbers.update_window_dims", always=True
    )
    inserted_window_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, proto="scatter_dimension_numbers.inserted_window_dims", always=True
    )
    scatter_dims_to_operand_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, proto="scatter_dimension_numbers.scatter_dims_to_operand_dims", always=True
    )
    input_batching_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, default=(), proto="scatter_dimension_numbers.input_batching_dims"
    )
    scatter_indices_batching_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, default=(), proto="scatter_dimension_numbers.scatter_indices_batching_dims"
    )
    index_vector_dim: int = attribute(Kind.INT64, proto="scatter_dimension_numbers.index_vector_dim", always=True)
    indices_are_sorted: bool = attribute(Kind.BOOL, default=False)
    unique_indices: bool = attribute(Kind.BOOL, default=False)
    to_apply: Computation = attribute(Kind.COMPUTATION)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        if len(operands) < 3 or len(operands) % 2 == 0:
            raise ShapeError(
                f"takes N arrays, the scatter indices and N updates, got {len(operands)} operands",
                hint="give the arrays, one array of indices, and an array of updates for each array",
            )
        count = len(operands) // 2
        arrays, updates = operands[:count], operands[count + 1 :]
        indices = expanded_indices(operands[count], self.index_vector_dim, "scatter_indices")
        for array, update in zip(arrays, updates, strict=True):
            if not array.same_dimensions(arrays[0]):
                raise ShapeError(
                    "all operands must be arrays of the same dimensions",
                    hint="scatter into arrays of different dimensions one by one",
                )
            if not update.same_dimensions(updates[0]):
                raise ShapeError(
                    "all updates must be arrays of the same dimensions",
                    hint=f"broadcast or slice all updates to {list(updates[0].dimensions)}",
                )
        self._check_dimension_numbers(arrays[0], indices)
        self._check_updates(arrays[0], indices, updates[0])
        check_reducer(self.to_apply, [u.element_type for u in updates], [Shape(a.element_type) for a in arrays])
        shapes = [array.without_layout() for array in arrays]
        return shapes[0] if count == 1 else make_tuple_shape(shapes)

    def _check_dimension_numbers(self, operand: Shape, indices: Shape) -> None:
        check_dimension_set("inserted_window_dims", self.inserted_window_dims, operand.rank)
        check_index_map(
            "scatter_dims_to_operand_dims", self.scatter_dims_to_operand_dims, operand, indices, self.index_vector_dim
        )
        check_batching(
            "input_batching_dims",
            self.input_batching_dims,
            operand,
            "scatter_indices_batching_dims",
            self.scatter_indices_batching_dims,
            indices,
            self.index_vector_dim,
        )
        check_indexed_once(
            "scatter_dims_to_operand_dims",
            self.scatter_dims_to_operand_dims,
            "input_batching_dims",
            self.input_batching_dims,
        )
        covered = (*self.inserted_window_dims, *self.input_batching_dims)
        check_dimension_set("inserted_window_dims and input_batching_dims", covered, operand.rank, ascending=False)
        if len(self.update_window_dims) + len(covered) != operand.rank:
            raise ShapeError(
                f"{len(self.update_window_dims)} update_window_dims, {len(self.inserted_window_dims)} "
                f"inserted_window_dims and {len(self.input_batching_dims)} input_batching_dims do not cover the "
                f"{operand.rank} dimensions of the operand",
                hint="each operand dimension is a window dimension of the updates, or inserted, or a batching one",
            )

    def _check_updates(self, operand: Shape, indices: Shape, updates: Shape) -> None:
        rank = len(self.update_window_dims) + indices.rank - 1
        if updates.rank != rank:
            raise ShapeError(
                f"updates {updates} must have rank {rank}: {len(self.update_window_dims)} update_window_dims and "
                f"{indices.rank - 1} dimensions of scatter_indices",
                hint=f"reshape the updates to rank {rank}, or name other update_window_dims",
            )
        check_dimension_set("update_window_dims", self.update_window_dims, rank)
        for dimension, into in zip(self.update_window_dims, self._window_dims(operand.rank), strict=True):
            size, bound = updates.dimensions[dimension], operand.dimensions[into]
            if UNBOUNDED not in (size, bound) and size > bound:
                raise ShapeError(
                    f"window dimension {dimension} of the updates has size {size}, more than the {bound} of the "
                    f"operand's dimension {into}",
                    hint=f"slice the updates to at most {bound} there",
                )
        batch = [size for i, size in enumerate(indices.dimensions) if i != self.index_vector_dim]
        for dimension, expected in zip(self._scatter_dims(rank), batch, strict=True):
            size = updates.dimensions[dimension]
            if UNBOUNDED not in (size, expected) and size != expected:
                raise ShapeError(
                    f"dimension {dimension} of the updates has size {size}, scatter_indices has {expected} there",
                    hint=f"give {expected} updates along dimension {dimension}, one for each index vector",
                )

    def _window_dims(self, rank: int) -> list[int]:
        return [d for d in range(rank) if d not in self.inserted_window_dims and d not in self.input_batching_dims]

    def _scatter_dims(self, rank: int) -> list[int]:
        return [d for d in range(rank) if d not in self.update_window_dims]

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        count = len(operands) // 2
        arrays: list[Array] = list(operands[:count])
        indices: Array = operands[count]
        order = (*self._scatter_dims(operands[-1].ndim), *self.update_window_dims)
        updates: list[Array] = [u.transpose(order) for u in operands[count + 1 :]]
        split = len(order) - len(self.update_window_dims)
        window = updates[0].shape[split:]
        batching = dict(zip(self.input_batching_dims, self.scatter_indices_batching_dims, strict=True))
        starts = start_positions(
            indices, self.index_vector_dim, self.scatter_dims_to_operand_dims, arrays[0].ndim, batching
        )
        if starts and starts[0].shape != updates[0].shape[:split]:
            # Indices and updates may have different current sizes; the smaller one is the number of windows.
            both = tuple(slice(min(pair)) for pair in zip(starts[0].shape, updates[0].shape, strict=False))
            starts, updates = [s[both] for s in starts], [u[both] for u in updates]
        starts = [s.reshape(-1) for s in starts]
        extents = [1] * arrays[0].ndim
        for dimension, size in zip(self._window_dims(arrays[0].ndim), window, strict=True):
            extents[dimension] = size
        windows = math.prod(updates[0].shape[:split])
        kept, targets = _targets(windows, starts, extents, arrays[0].shape)
        rows = [u.reshape(windows, math.prod(window))[kept].reshape(targets.shape) for u in updates]
        results = _combine(context, self.to_apply, arrays, targets, rows)
        return results if count > 1 else results[0]


def _targets(count: int, starts: Sequence[Array], extents: Sequence[int], bounds: Sequence[int]) -> tuple[Array, Array]:
    """The numbers of the windows, of ``count``, that are applied, and the linear operand indices of their elements.

    A window that is partly outside of the operand is dropped. Each row of the second result has the elements of one
    window, or a single element if windows may overlap: rows with the same first element are equal, all others disjoint.
    """
    inside = np.ones(count, dtype=np.bool_)
    for start, extent, bound in zip(starts, extents, bounds, strict=True):
        inside &= (start >= 0) & (start <= bound - extent)
    kept = np.flatnonzero(inside)
    base = np.zeros(len(kept), dtype=np.int64)
    offsets = np.zeros((1,) * len(bounds), dtype=np.int64)
    may_overlap = False
    stride = 1
    for d in range(len(bounds) - 1, -1, -1):
        start = starts[d][kept]
        base += start * stride
        column = [1] * len(bounds)
        column[d] = -1
        offsets = offsets + (np.arange(extents[d]) * stride).reshape(column)
        may_overlap |= extents[d] > 1 and start.size > 0 and bool((start != start[0]).any())
        stride *= bounds[d]
    targets = base[:, None] + offsets.reshape(1, -1)
    return kept, targets.reshape(-1, 1) if may_overlap else targets


def _combine(
    context: Evaluation, computation: Computation, arrays: Sequence[Array], targets: Array, updates: Sequence[Array]
) -> tuple[Array, ...]:
    """Combine each row of updates into the elements in the row of ``targets``; rows with equal targets in order."""
    flat = [a.reshape(-1).copy() for a in arrays]
    if targets.size:
        order = np.argsort(targets[:, 0], kind="stable")
        keys = targets[order, 0]
        firsts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        if len(arrays) == 1 and computation.root is computation.parameters[1]:
            lasts = order[np.append(firsts[1:], len(keys)) - 1]
            _store(flat[0], targets[lasts], updates[0][lasts])
        else:
            fold = folder(context, computation)
            sources = fold.widen([u[order] for u in updates])
            if fold.ufunc is None:
                combine = _combine_in_rounds
            else:
                combine = _combine_min_max if fold.blurs_zeros else _combine_runs
            combine(fold, flat, targets[order], sources, firsts)
    return tuple(f.reshape(a.shape) for f, a in zip(flat, arrays, strict=True))


def _combine_runs(fold: Folder, flat: Sequence[Array], targets: Array, updates: Sequence[Array], firsts: Array) -> None:
    """For a reducer that is a ufunc: reduces the updates of each target, a run that begins at one of ``firsts``."""
    where = targets[firsts]
    totals = fold.widen([flat[0][where]])[0]
    run_of = np.repeat(np.arange(len(firsts)), np.diff(np.append(firsts, len(targets))))
    ufunc: Any = fold.ufunc
    with np.errstate(all="ignore"):
        ufunc.at(totals, run_of, updates[0])
    _store(flat[0], where, fold.finish([totals])[0])


def _combine_min_max(
    fold: Folder, flat: Sequence[Array], targets: Array, updates: Sequence[Array], firsts: Array
) -> None:
    """Maximum or minimum of floats: their order does not matter, so each run is reduced first."""
    where, (values,) = targets[firsts], updates
    ufunc: Any = fold.ufunc
    with np.errstate(all="ignore"):
        chosen = ufunc.reduceat(values, firsts, axis=0)
    if not chosen.all():
        # NumPy takes 0 and -0 for equal: the sign of a zero result is set from the greater, or lesser, zero in the run.
        least = ufunc is np.minimum
        wins = np.logical_or.reduceat((values == 0) & (np.signbit(values) == least), firsts, axis=0)
        zeros = np.where(wins == least, -0.0, 0.0)
        chosen = np.where(chosen == 0, zeros, chosen)
    _store(flat[0], where, fold.finish(fold.combine(*fold.widen([flat[0][where]]), chosen))[0])


def _combine_in_rounds(
    fold: Folder, flat: Sequence[Array], targets: Array, updates: Sequence[Array], firsts: Array
) -> None:
    """For any reducer: combines the first updates of all targets at once, then the second ones, and so on."""
    lengths = np.diff(np.append(firsts, len(targets)))
    # Longest runs first, so that those still running in a round are a prefix.
    longest = np.argsort(-lengths, kind="stable")
    firsts, lengths = firsts[longest], lengths[longest]
    for number in range(int(lengths[0])):
        rows = firsts[: np.searchsorted(-lengths, -number, side="left")] + number
        where = targets[rows]
        results = fold.finish(fold.combine(*fold.widen([f[where] for f in flat]), *(u[rows] for u in updates)))
        for array, result in zip(flat, results, strict=True):
            _store(array, where, result)


def _store(array: Array, where: Array, values: Array) -> None:
    with np.errstate(all="ignore"):
        array[where] = values.astype(array.dtype, copy=False)


@building
def scatter(
    operands: OperandLike | Sequence[OperandLike],
    scatter_indices: OperandLike,
    updates: OperandLike | Sequence[OperandLike],
    update_computation: ComputationLike,
    dimension_numbers: ScatterDimensionNumbers | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    *,
    index_vector_dim: int | None = None,
    update_window_dims: Sequence[int] = (),
    inserted_window_dims: Sequence[int] = (),
    scatter_dims_to_operand_dims: Sequence[int] = (),
    input_batching_dims: Sequence[int] = (),
    scatter_indices_batching_dims: Sequence[int] = (),
) -> XlaOp:
    """Combine slices of updates into arrays, each at its own start.

    operands: N arrays of the same dimensions, of types T_0 .. T_{N-1}.
    scatter_indices: integers; along ``index_vector_dim`` (by default the last dimension) lie the index vectors. Where
        ``index_vector_dim`` is the rank of scatter_indices, each element is a vector of one index.
    updates: N arrays of the same dimensions and of the operands' types.
    update_computation: (T_0, .., T_{N-1}, T_0, .., T_{N-1}) -> T_0 for N = 1, or a tuple of N; or a Python function.
        It gets the values so far, then those of the updates.
    dimension_numbers: the dimension numbers at once, or:
    update_window_dims: which dimensions of the updates run inside a window.
    inserted_window_dims: operand dimensions of window size 1 that the updates leave out.
    scatter_dims_to_operand_dims: which operand dimension each component of an index vector is for.
    input_batching_dims, scatter_indices_batching_dims: dimensions that operands and indices run along together.
    indices_are_sorted, unique_indices: promises of the caller, which change nothing here.

    A window that would reach outside is left out. Gives an array like the operand, or a tuple of N.
    Raises ShapeError. Source: Operation semantics, Scatter.
    """
    arrays, values = as_sequence(operands), as_sequence(updates)
    if len(arrays) != len(values):
        raise ShapeError(
            f"{len(arrays)} operands have {len(values)} updates", hint="give one array of updates for each operand"
        )
    builder = common_builder([*arrays, scatter_indices, *values])
    ops = [as_op(builder, a) for a in arrays]
    indices = as_op(builder, scatter_indices)
    sources = [as_op(builder, u, o.shape.element_type) for u, o in zip(values, ops, strict=True)]
    single = ScatterDimensionNumbers(
        update_window_dims=tuple(update_window_dims),
        inserted_window_dims=tuple(inserted_window_dims),
        scatter_dims_to_operand_dims=tuple(scatter_dims_to_operand_dims),
        index_vector_dim=last_dimension(indices) if index_vector_dim is None else index_vector_dim,
        input_batching_dims=tuple(input_batching_dims),
        scatter_indices_batching_dims=tuple(scatter_indices_batching_dims),
    )
    numbers = one_form(dimension_numbers, single, index_vector_dim)
    op = Scatter(
        **asdict(numbers),
        indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices,
        to_apply=builder.subcomputation(update_computation, scalar_shapes(ops) + scalar_shapes(sources)),
    )
    return emit(op, *ops, indices, *sources)
