"""Rules for padded arrays in gathers and scatters, which stay within the valid elements."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Instruction
from xlakit.ops.gather import Gather
from xlakit.ops.movement import Concatenate
from xlakit.ops.scatter import Scatter
from xlakit.passes.dynamic.padded_values import Padded, PaddedRules, Padder, Size, array, bundle

INDEXING = PaddedRules()
_rule = INDEXING.rule


def _vectors(indices: Padded, vector_dim: int, make: Padder) -> Padded:
    """The indices in S32, with the dimension of the index vectors moved to the end, or appended."""
    value = make.saturated(indices.value)
    rank = value.shape.rank
    if vector_dim == rank:
        return array(make.reshape(value, (*value.shape.dimensions, 1)), indices.dims)
    order = (*(d for d in range(rank) if d != vector_dim), vector_dim)
    dims = {i: indices.dims[d] for i, d in enumerate(order) if d in indices.dims and d != vector_dim}
    if order != tuple(range(rank)):
        value = make.transpose(value, order)
    return array(value, dims)


# -- gather --------------------------------------------------------------------------------------------


@_rule("gather")
def gather(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Starts are clamped so that slices lie within the valid elements; a slice longer than these ends with zeros."""
    op, (x, indices) = old.op_as(Gather), operands
    bounds, rank = x.shape.dimensions, x.shape.rank
    vectors = _vectors(indices, op.index_vector_dim, make)
    batch = vectors.shape.rank - 1
    batching = _without(op.start_indices_batching_dims, op.index_vector_dim)
    limits = {d: make.most(0, make.minus(size, op.slice_sizes[d])) for d, size in x.dims.items()}
    starts = vectors.value
    if any(d in limits for d in op.start_index_map):
        known = [limits.get(d, bounds[d] - op.slice_sizes[d]) for d in op.start_index_map]
        starts = _clamped(starts, known, make)
    new = dataclasses.replace(op, index_vector_dim=batch, start_indices_batching_dims=batching)
    value = make.at_bounds([x.value, starts], new)
    kept = [d for d in range(rank) if d not in op.collapsed_slice_dims and d not in op.operand_batching_dims]
    sizes: dict[int, Size] = {}
    rest: dict[int, Size] = {}
    for dimension, d in zip(op.offset_dims, kept, strict=True):
        if d in x.dims:
            (sizes if op.slice_sizes[d] == bounds[d] else rest)[dimension] = x.dims[d]
    batch_dims = [i for i in range(value.shape.rank) if i not in op.offset_dims]
    for dimension, d in zip(batch_dims, range(batch), strict=True):
        if d in vectors.dims:
            sizes[dimension] = vectors.dims[d]
    valid = make.valid(value.shape.dimensions, rest)
    for d in op.collapsed_slice_dims:
        if d in x.dims:
            some = make.broadcast(make.compare(x.dims[d], make.number(0), "GT"), value.shape.dimensions)
            valid = some if valid is None else make.apply("and", valid, some)
    if valid is not None:
        value = make.chosen(valid, value, make.zero(value.shape.element_type))
    return array(value, {d: make.instruction(size) for d, size in sizes.items()})


def _without(dimensions: Sequence[int], removed: int) -> tuple[int, ...]:
    """Dimension numbers after the dimension ``removed`` has been moved to the end."""
    return tuple(d - (d > removed) for d in dimensions)


def _clamped(vectors: Instruction, limits: Sequence[Size], make: Padder) -> Instruction:
    """Index vectors with each component clamped to [0, limit]."""
    sizes = vectors.shape.dimensions
    row = make.broadcast(make.row(limits), sizes, (len(sizes) - 1,))
    return make.apply("maximum", make.apply("minimum", vectors, row), make.broadcast(make.number(0), sizes))


# -- scatter -------------------------------------------------------------------------------------------


@_rule("scatter")
def scatter(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Windows that are padding, or reach beyond the valid elements, are dropped.

    Index vectors get one more component, for a new dimension of size 1: an index of 1 there is out of bounds.

    If windows have padding, each of their elements becomes a separate window.
    """
    op, count = old.op_as(Scatter), len(operands) // 2
    arrays, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    window, rank = op.update_window_dims, arrays[0].shape.rank
    batch = [d for d in range(updates[0].shape.rank) if d not in window]
    order = (*batch, *window)
    values = [x.value for x in updates]
    if order != tuple(range(len(order))):
        values = [make.transpose(x, order) for x in values]
    update_sizes = {order.index(d): size for x in reversed(updates) for d, size in x.dims.items()}
    # The dimensions of the operands that windows span, in the order of the updates' window dimensions.
    not_spanned = (*op.inserted_window_dims, *op.input_batching_dims)
    spanned = [d for d in range(rank) if d not in not_spanned]
    update_dims = values[0].shape.dimensions
    extents: dict[int, Size] = dict.fromkeys(range(rank), 1)
    extents |= {d: update_sizes.get(p, update_dims[p]) for p, d in enumerate(spanned, len(batch))}
    vectors = _vectors(indices, op.index_vector_dim, make)
    starts = _all_starts(op, vectors.value, rank, make)
    counts = {**vectors.dims, **{d: size for d, size in update_sizes.items() if d < len(batch)}}
    is_split = any(d >= len(batch) for d in update_sizes)
    outside = _outside(starts, counts, arrays, extents, make, all_dimensions=is_split)
    if is_split:
        starts, outside = _split(starts, outside, update_dims, spanned, make)
        # Windows that are padding as a whole are in ``outside`` already.
        valid_updates = make.valid(update_dims, {d: size for d, size in update_sizes.items() if d >= len(batch)})
        if valid_updates is not None:
            outside = make.apply("or", outside, make.apply("not", valid_updates))
        spanned = []
    batch_sizes = outside.shape.dimensions
    first = make.reshape(make.convert(outside, PrimitiveType.S32), (*batch_sizes, 1))
    new = Scatter(
        update_window_dims=tuple(range(len(batch_sizes), len(batch_sizes) + len(spanned))),
        inserted_window_dims=(0, *(d + 1 for d in range(rank) if d not in spanned)),
        scatter_dims_to_operand_dims=tuple(range(rank + 1)),
        index_vector_dim=len(batch_sizes),
        to_apply=op.to_apply,
    )
    targets = [make.reshape(x.value, (1, *x.shape.dimensions)) for x in arrays]
    value = make.add(new, *targets, make.add(Concatenate(dimension=len(batch_sizes)), first, starts), *values)
    results = [make.reshape(part, x.shape.dimensions) for part, x in zip(make.elements(value), arrays, strict=True)]
    return bundle(results[0] if count == 1 else make.tuple(*results), [x.dims for x in arrays])


def _all_starts(op: Scatter, vectors: Instruction, rank: int, make: Padder) -> Instruction:
    """Index vectors with a component for every dimension of the operands, in the order of dimensions."""
    sizes = (*vectors.shape.dimensions[:-1], 1)
    batching = _without(op.scatter_indices_batching_dims, op.index_vector_dim)
    along = dict(zip(op.input_batching_dims, batching, strict=True))
    parts: list[Instruction] = []
    for d in range(rank):
        if d in op.scatter_dims_to_operand_dims:
            number = op.scatter_dims_to_operand_dims.index(d)
            parts.append(make.slice_along(vectors, len(sizes) - 1, number, number + 1))
        elif d in along:
            parts.append(make.positions(sizes, along[d]))
        else:
            parts.append(make.broadcast(make.number(0), sizes))
    if not parts:
        return make.broadcast(make.number(0), (*sizes[:-1], 0))
    return parts[0] if rank == 1 else make.add(Concatenate(dimension=len(sizes) - 1), *parts)


def _outside(
    starts: Instruction,
    counts: Mapping[int, Size],
    arrays: Sequence[Padded],
    extents: Mapping[int, Size],
    make: Padder,
    *,
    all_dimensions: bool,
) -> Instruction:
    """For each index vector whether its window is padding, or reaches beyond the valid elements of the operands.

    all_dimensions: also check the dimensions without padding, which a scatter of whole windows does itself.
    """
    batch_sizes = starts.shape.dimensions[:-1]
    sizes = {d: size for x in reversed(arrays) for d, size in x.dims.items()}
    total = make.broadcast(make.scalar(False, PrimitiveType.PRED), batch_sizes)
    valid = make.valid(batch_sizes, counts)
    if valid is not None:
        total = make.apply("not", valid)
    bounds = arrays[0].shape.dimensions
    for d, extent in extents.items():
        if all_dimensions or d in sizes:
            start = make.reshape(make.slice_along(starts, len(batch_sizes), d, d + 1), batch_sizes)
            last_start = make.instruction(make.minus(sizes.get(d, bounds[d]), extent))
            beyond = make.compare(start, make.broadcast(last_start, batch_sizes), "GT")
            before = make.compare(start, make.broadcast(make.number(0), batch_sizes), "LT")
            total = make.apply("or", total, make.apply("or", beyond, before))
    return total


def _split(
    starts: Instruction, outside: Instruction, sizes: Sequence[int], spanned: Sequence[int], make: Padder
) -> tuple[Instruction, Instruction]:
    """For each element of each window its index vector, and whether its window is outside.

    sizes: the dimensions of the updates.
    """
    batch, rank = len(outside.shape.dimensions), starts.shape.dimensions[-1]
    whole = (*sizes, rank)
    total = make.broadcast(starts, whole, (*range(batch), len(sizes)))
    component = make.positions(whole, len(sizes))
    for number, d in enumerate(spanned, batch):
        own = make.compare(component, make.broadcast(make.number(d), whole), "EQ")
        offset = make.apply("select", own, make.positions(whole, number), make.broadcast(make.number(0), whole))
        total = make.apply("add", total, offset)
    return total, make.broadcast(outside, sizes, range(batch))
