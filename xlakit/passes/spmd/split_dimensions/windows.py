"""Operations whose parts read ranges of split dimensions: slices, pads, concatenations, reversals, moving windows.

A dimension of the result is split as that of the operand is. Each part fetches the range that it reads (:mod:`halo`),
and applies the operation to it, with the attributes of a part. If the result cannot be split evenly the last parts
are shorter, and their elements after the end are unspecified.

An operation is split in this way if members send less than it takes to gather what is read.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar, cast

import numpy as np

from xlakit.dataclass import dataclass
from xlakit.ir.attributes import PaddingDimension, SliceDimension, Window, WindowDimension
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import Op
from xlakit.ops.convolution import Convolution
from xlakit.ops.elementwise.binary import Add
from xlakit.ops.movement import Pad, Reverse, Slice
from xlakit.ops.reduction import identity_of
from xlakit.ops.windows import ReduceWindow
from xlakit.passes.spmd.pieces.local import local_op, local_slice, mirrored, splits_of
from xlakit.passes.spmd.pieces.reshard import resharded
from xlakit.passes.spmd.shardings.factors import Dims, Factors, can_be_in_parts, factors_of
from xlakit.passes.spmd.shardings.tilings import (
    Split,
    Tiling,
    divides,
    local_sizes,
    parts,
    teams_over,
    unequal_dims,
    whole,
    with_split,
)
from xlakit.passes.spmd.shardings.values import Piece
from xlakit.passes.spmd.split_dimensions.halo import Ranges, traffic
from xlakit.passes.spmd.split_dimensions.rows import can_be_added
from xlakit.passes.spmd.split_dimensions.splitter import Splitter

# The factors of dimensions that are split by ranges come after those of the rule.
RANGES: Final = 2_000
T = TypeVar("T")


@dataclass(frozen=True)
class Reading:
    """The ranges of an operand's dimension that the parts of a dimension of the result read.

    reads_outside: whether elements outside of the dimension are read, and need a value. attribute: of the operation of
    a part, for the dimension: its slice, padding or window.
    """

    ranges: Ranges
    reads_outside: bool
    attribute: object


# Called with the instruction, the dimension of the result, and the number of parts; None if it cannot be split so.
_Reads = Callable[[Instruction, int, int], Reading | None]


@dataclass(frozen=True)
class Dimension:
    """A dimension that is split by ranges: its number in the operand and in the result, the split and the ranges."""

    source: int
    target: int
    split: Split
    reading: Reading


# -- ranges that parts read ----------------------------------------------------------------------------


def lengths(size: int, count: int) -> tuple[int, ...]:
    """The number of elements of each of ``count`` parts of a dimension; the last parts may be shorter or empty."""
    part = -(-size // count)
    return tuple(max(0, min(part, size - p * part)) for p in range(count))


def _slice(old: Instruction, dimension: int, count: int) -> Reading:
    own, parts = old.op_as(Slice).slice[dimension], lengths(old.shape.dimensions[dimension], count)
    needed = tuple((n - 1) * own.stride + 1 if n else 0 for n in parts)
    starts = tuple(own.start + p * parts[0] * own.stride for p in range(count))
    return Reading(
        Ranges(starts, needed[0], needed), reads_outside=False, attribute=SliceDimension(0, needed[0], own.stride)
    )


def _pad(old: Instruction, dimension: int, count: int) -> Reading | None:
    own, parts = old.op_as(Pad).padding[dimension], lengths(old.shape.dimensions[dimension], count)
    reaches = [n - 1 if n else None for n in parts]
    found = dilated(parts[0], own.edge_padding_low, own.interior_padding + 1, reaches)
    if found is None:
        return None
    ranges, low, high = found
    return Reading(ranges, reads_outside=True, attribute=PaddingDimension(low, high, own.interior_padding))


def dilated(step: int, low: int, dilation: int, reaches: Sequence[int | None]) -> tuple[Ranges, int, int] | None:
    """The elements under ranges of a dimension whose elements are ``dilation`` apart, after ``low`` places of padding.

    Range p covers the places from p * step to p * step + reaches[p], or none; the first one is the longest. Gives the
    elements, and the numbers of places before the first and after the last element; None if these numbers differ
    between ranges, or the first range has no element.
    """
    if step % dilation or reaches[0] is None:
        return None
    first = -(low // dilation)
    before = first * dilation + low
    needed = tuple(0 if reach is None else max(0, (reach - before) // dilation + 1) for reach in reaches)
    if not needed[0]:
        return None
    starts = tuple(first + p * (step // dilation) for p in range(len(reaches)))
    return Ranges(starts, needed[0], needed), before, reaches[0] - before - (needed[0] - 1) * dilation


def _reverse(old: Instruction, dimension: int, count: int) -> Reading | None:
    """The range is reversed: its last elements are the first ones of the part, so all of them are needed."""
    if dimension not in old.op_as(Reverse).dimensions:
        return None
    size = old.shape.dimensions[dimension]
    parts = lengths(size, count)
    starts = tuple(size - (p + 1) * parts[0] for p in range(count))
    needed = tuple(parts[0] if n else 0 for n in parts)
    return Reading(Ranges(starts, parts[0], needed), reads_outside=False, attribute=None)


def _reduce_window(old: Instruction, dimension: int, count: int) -> Reading | None:
    """Padding is skipped, so elements outside of the operand must be the reducer's identity.

    If the reducer has no known identity, no window may reach outside.
    """
    op, kind = old.op_as(ReduceWindow), old.operands[0].shape.element_type
    reading = under_window(old.operands[0].shape.dimensions[dimension], op.window.dimensions[dimension], count)
    is_known = len(old.operands) == 2 and old.shape.element_type is kind and can_be_in_parts(op.to_apply, kind)
    return reading if reading is None or is_known or not reading.reads_outside else None


def _convolution(old: Instruction, dimension: int, count: int) -> Reading | None:
    op = old.op_as(Convolution)
    if dimension == op.dim_labels.output_batch_dimension:
        return under_window(old.shape.dimensions[dimension], WindowDimension(1), count)
    number = op.dim_labels.output_spatial_dimensions.index(dimension)
    source = op.dim_labels.input_spatial_dimensions[number]
    return under_window(old.operands[0].shape.dimensions[source], op.window.dimensions[number], count)


def under_window(size: int, window: WindowDimension, count: int) -> Reading | None:
    """The ranges that parts of a window's placements read, and the window of a part.

    The part's window has no padding except for dilation holes at its ends.
    """
    parts = lengths(window.output_size(size), count)
    reaches = [(n - 1) * window.stride + window.dilated_size - 1 if n else None for n in parts]
    found = dilated(parts[0] * window.stride, window.padding_low, window.base_dilation, reaches)
    if found is None:
        return None
    ranges, low, high = found
    own = dataclasses.replace(window, padding_low=low, padding_high=high)
    return Reading(ranges, reads_outside=not ranges.within(size), attribute=own)


# -- the operation of a part -----------------------------------------------------------------------------


def windowed(s: Splitter) -> Piece | None:
    """An operation whose parts read ranges of its first operand; None if it is not split so."""
    old, given, scope, rule = s.old, s.given, s.scope, factors_of(s.old)
    if rule is None or old.shape.is_tuple or 0 in (*old.operands[0].shape.dimensions, *old.shape.dimensions):
        return None
    along = _dimensions(s, rule)
    if not along:
        return None
    factors = with_ranges(rule, [(dim.source, dim.target) for dim in along])
    first = {RANGES + dim.source: dim.split for dim in along}
    operands, (tiling,) = s.tilings(factors, first)
    sizes = given[0].shape.dimensions
    moved = traffic(sizes, operands[0], [(dim.source, dim.reading.ranges) for dim in along])
    if moved is None or moved[0] >= moved[1] or any(_leaves_few(old, dim) for dim in along):
        return _slice_in_sums(s, along, operands[0])
    local = s.local(operands)
    fill = _outside(s, local) if any(dim.reading.reads_outside for dim in along) else None
    for dim in along:
        halo = s.halo(operands[0], dim.source, dim.split, sizes[dim.source])
        local[0] = halo.fetched(local[0], dim.reading.ranges, fill if dim.reading.reads_outside else None)
    op = _of_part(local_op(old, operands, [tiling]), {dim.target: dim.reading.attribute for dim in along})
    shape = old.shape.with_dimensions(local_sizes(tiling, old.shape.dimensions))
    made = local[0] if isinstance(op, Slice) and shape == local[0].shape else s.make.like(old, op, local, shape)
    if isinstance(op, Reverse):
        # Reversing each part alone leaves the parts of evenly split dimensions in the opposite order.
        now = mirrored(tiling, set(op.dimensions) - {dim.target for dim in along})
        made = resharded(s.make, made, now, tiling, scope)
    splits = splits_of(factors, operands)
    summed = next((splits[f] for f in rule.summed if f in splits), None)
    if summed is not None and not divides(tiling, old.shape.dimensions):
        made, summed = s.make.all_reduce(made, Add(), scope.groups(teams_over(summed, tiling))), None
    if isinstance(op, Slice) and len(along) == 1 and _is_sum_cheaper(old, tiling, along[0]):
        found = _added_up(s, along[0], operands[0])
        found.unequal = (tiling, made)
        return found
    found = s.finished(tiling, made)
    if summed is not None:
        found.unreduced = summed
    return found


def _leaves_few(old: Instruction, along: Dimension) -> bool:
    """Whether half of the parts of the result would be empty, or more, and the operand is not much larger.

    Such parts are mostly taken apart further, as by the upper levels of an associative scan, until they are needed
    whole; gathering the operand once sends less.
    """
    few = 2 * old.shape.dimensions[along.target] <= parts(along.split)
    return few and old.operands[0].shape.num_elements <= 2 * old.shape.num_elements


def _is_sum_cheaper(old: Instruction, tiling: Tiling, along: Dimension) -> bool:
    """Whether summing a slice over the members sends less than gathering its parts, most of which are empty."""
    count, size = parts(along.split), old.shape.dimensions[along.target]
    is_odd = unequal_dims(tiling, old.shape.dimensions) == [along.target]
    return is_odd and can_be_added(old.shape) and 2 * size < -(-size // count) * count


def _slice_in_sums(s: Splitter, along: Sequence[Dimension], tiling: Tiling) -> Piece | None:
    """A slice of which members cannot fetch parts; None if adding it up sends more than gathering what is sliced."""
    old, (table, *_) = s.old, s.given
    if not isinstance(old.op, Slice) or len(along) != 1 or not can_be_added(old.shape):
        return None
    sliced = local_sizes(with_split(tiling, along[0].source, None), old.shape.dimensions)
    part = local_sizes(tiling, table.shape.dimensions)
    is_there = whole(len(tiling)) in table.parts
    is_cheaper = not is_there and 2 * math.prod(sliced) < math.prod(part) * parts(along[0].split)
    return _added_up(s, along[0], tiling) if is_cheaper else None


def _added_up(s: Splitter, along: Dimension, operand: Tiling) -> Piece:
    """A slice as partial sums: each member has the elements of its own part, and -0 elsewhere."""
    old, table, d = s.old, s.given[0], along.source
    halo = s.halo(operand, d, along.split, table.shape.dimensions[d])
    own = old.op_as(Slice).slice[d]
    length = (old.shape.dimensions[d] - 1) * own.stride + 1
    placed = halo.as_summand(s.at(table, operand), own.start, length)
    tiling = with_split(operand, d, None)
    ranges = _changed(local_slice(old.op_as(Slice), tiling).slice, {d: SliceDimension(0, length, own.stride)})
    return Piece(s.make.slice(placed, ranges), tiling, s.scope, old.shape, unreduced=along.split)


def _dimensions(s: Splitter, rule: Factors) -> list[Dimension]:
    """The split dimensions of the first operand along which the result is split by ranges."""
    found: list[Dimension] = []
    tiling = s.known()[0]
    odd = unequal_dims(tiling, s.given[0].shape.dimensions)
    for source, target in _pairs(s.old):
        split = tiling[source]
        if split is None or (rule.operands[0][source] is not None and source not in odd):
            continue
        reading = _READS[s.old.opcode](s.old, target, parts(split))
        if reading is not None:
            found.append(Dimension(source, target, split, reading))
    return found


def _pairs(old: Instruction) -> list[tuple[int, int]]:
    """Pairs of a dimension of the first operand and the dimension of the result whose parts read ranges of it."""
    if isinstance(old.op, Convolution):
        labels = old.op.dim_labels
        space = zip(labels.input_spatial_dimensions, labels.output_spatial_dimensions, strict=True)
        return [(labels.input_batch_dimension, labels.output_batch_dimension), *space]
    return [(d, d) for d in range(old.shape.rank)]


def with_ranges(rule: Factors, along: Sequence[tuple[int, int]]) -> Factors:
    """A rule with additional factors for (operand, result) dimensions that are split by ranges."""
    operand = with_factors(rule.operands[0], {source: source for source, _ in along})
    result = with_factors(rule.results[0], {target: source for source, target in along})
    return dataclasses.replace(rule, operands=(operand, *rule.operands[1:]), results=(result,))


def with_factors(dims: Dims, numbers: Mapping[int, int]) -> Dims:
    """Factors of dimensions, with those in ``numbers`` replaced by additional factors for ranges."""
    return tuple(RANGES + numbers[d] if d in numbers else factor for d, factor in enumerate(dims))


def _outside(s: Splitter, local: Sequence[Instruction]) -> Instruction:
    """The value of elements outside of the operand."""
    old, kind = s.old, s.old.operands[0].shape.element_type
    if isinstance(old.op, ReduceWindow):
        return s.make.constant(np.asarray(identity_of(old.op.to_apply, kind)))
    return local[1] if isinstance(old.op, Pad) else s.make.zeros(kind)


def _of_part(op: Op, attributes: dict[int, object]) -> Op:
    """The operation with the attributes of a part in the dimensions that are split by ranges."""
    if isinstance(op, Slice):
        return dataclasses.replace(op, slice=_changed(op.slice, attributes))
    if isinstance(op, Pad):
        return dataclasses.replace(op, padding=_changed(op.padding, attributes))
    if isinstance(op, ReduceWindow):
        return dataclasses.replace(op, window=Window(_changed(op.window.dimensions, attributes)))
    if isinstance(op, Convolution):
        space = op.dim_labels.output_spatial_dimensions
        by_number = {space.index(d): own for d, own in attributes.items() if d in space}
        return dataclasses.replace(op, window=Window(_changed(op.window.dimensions, by_number)))
    return op


def _changed(known: tuple[T, ...], attributes: dict[int, object]) -> tuple[T, ...]:
    return tuple(cast("T", attributes.get(d, own)) for d, own in enumerate(known))


_READS: Final[dict[str, _Reads]] = {
    "convolution": _convolution,
    "pad": _pad,
    "reduce-window": _reduce_window,
    "reverse": _reverse,
    "slice": _slice,
}
