"""Select-and-scatter along a split dimension, as in gradients of pooling.

Each member computes the windows that reach its part of the array: it fetches the elements under them, and their
sources. Windows beyond the ends, which do not exist, get the identity as their source.

Padding must not be selected. It is replaced by copies of the first or the last element: if the selection is a
comparison, a window selects a copy only if it would have selected the element. The sources that are scattered to copies
are then combined into the element.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from xlakit.dataclass import dataclass
from xlakit.errors import InternalError
from xlakit.ir.attributes import PaddingDimension, Window, WindowDimension
from xlakit.ir.enums import ComparisonDirection
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.elementwise.compare import Compare
from xlakit.ops.elementwise.select import Select
from xlakit.ops.movement import Pad
from xlakit.ops.reduction import Reduce, identity_of, reducer_op
from xlakit.ops.windows import SelectAndScatter
from xlakit.passes.spmd.shardings.factors import Factors, can_be_in_parts, factors_of
from xlakit.passes.spmd.shardings.tilings import Split, Tiling, parts, unequal_dims
from xlakit.passes.spmd.shardings.values import Piece
from xlakit.passes.spmd.split_dimensions.halo import Halo, Ranges, traffic
from xlakit.passes.spmd.split_dimensions.splitter import Splitter
from xlakit.passes.spmd.split_dimensions.windows import RANGES, with_factors


@dataclass(frozen=True)
class _Dimension:
    """A dimension that is split.

    ``array``, ``source``: the ranges of the two that parts of the result read; ``padding``: the (mostly negative)
    padding that cuts a part out of the result under these windows. before, behind: whether windows reach padding at
    the begin and the end.
    """

    number: int
    split: Split
    array: Ranges
    source: Ranges
    padding: PaddingDimension
    before: bool
    behind: bool


@dataclass(frozen=True)
class _Edges:
    """The ends of a dimension, of which members have ranges, with copies of the end elements for padding."""

    halo: Halo
    ranges: Ranges
    before: bool
    behind: bool

    def copied(self, array: Instruction) -> Instruction:
        """The ranges, with padding replaced by copies of the first and the last element."""
        for edge, outside in self._ends():
            make, d = self.halo.make, self.halo.dimension
            places = [min(max(0, edge - start), self.ranges.length - 1) for start in self.ranges.starts]
            row = make.reshape(self.halo.elements(array, places, 1), _without(array.shape.dimensions, d))
            kept = [e for e in range(array.shape.rank) if e != d]
            copies = make.broadcast(row, array.shape.dimensions, kept)
            array = make.add(Select(), self.halo.along(outside, array), copies, array)
        return array

    def given_back(self, made: Instruction, scatter: Computation, nothing: Instruction) -> Instruction:
        """The result with the values that were scattered to copies combined into their elements."""
        for edge, outside in self._ends():
            make, d, dims = self.halo.make, self.halo.dimension, made.shape.dimensions
            kept = [e for e in range(made.shape.rank) if e != d]
            fallen = make.add(Select(), self.halo.along(outside, made), made, make.broadcast(nothing, dims))
            total = make.add(Reduce(dimensions=(d,), to_apply=scatter), fallen, nothing)
            both = make.add(combiner(scatter), made, make.broadcast(total, dims, kept))
            where = self.halo.positions(self.ranges.length, self.ranges.starts)
            is_edge = make.compare(where, make.full(edge, where.shape), "EQ")
            made = make.add(Select(), self.halo.along(is_edge, made), both, made)
        return made

    def _ends(self) -> list[tuple[int, Instruction]]:
        """The indices of the end elements next to padding, each with flags for the elements beyond it."""
        make, last = self.halo.make, self.halo.size - 1
        where = self.halo.positions(self.ranges.length, self.ranges.starts)
        ends = [(0, "LT")] * self.before + [(last, "GT")] * self.behind
        return [(edge, make.compare(where, make.full(edge, where.shape), beyond)) for edge, beyond in ends]


def _without(sizes: Sequence[int], dimension: int) -> list[int]:
    return [size for d, size in enumerate(sizes) if d != dimension]


def combiner(computation: Computation) -> Op:
    """The operation of a reducer that is a single operation; raises InternalError for others."""
    op = reducer_op(computation)
    if op is None:
        raise InternalError("a reducer that is not a single operation is combined with others")
    return op


def select_and_scatter(s: Splitter) -> Piece | None:
    """A select-and-scatter whose array is split along windows; None if gathering is cheaper."""
    old, given, op, rule = s.old, s.given, s.old.op_as(SelectAndScatter), factors_of(s.old)
    kind = old.shape.element_type
    one_type = all(o.shape.element_type is kind for o in old.operands)
    if rule is None or not one_type or not can_be_in_parts(op.scatter, kind) or 0 in old.operands[1].shape.dimensions:
        return None
    known, sources, _ = s.known()
    along = _dimensions(old, given[0], known, rule)
    if not along:
        return None
    by_number = {d.number: d for d in along}
    dims = with_factors(rule.operands[0], {n: n for n in by_number})
    other = with_factors(rule.operands[1], {n: n for n, d in by_number.items() if sources[n] == d.split})
    first = {RANGES + dim.number: dim.split for dim in along}
    factors = Factors((dims, other, ()), (dims,))
    tilings, (tiling,) = s.tilings(factors, first)
    if not _is_cheaper(given, tilings, along):
        return None
    array, source, init = s.local(tilings)
    nothing = s.make.constant(np.asarray(identity_of(op.scatter, kind)))
    windows = list(op.window.dimensions)
    edges: list[_Edges] = []
    for dim in along:
        halos = [
            s.halo(own, dim.number, dim.split, piece.shape.dimensions[dim.number])
            for piece, own in zip(given[:2], tilings, strict=False)
        ]
        array = halos[0].fetched(array, dim.array, None)
        source = halos[1].fetched(source, dim.source, nothing)
        windows[dim.number] = dataclasses.replace(windows[dim.number], padding_low=0, padding_high=0)
        edges.append(_Edges(halos[0], dim.array, dim.before, dim.behind))
    for one in edges:
        array = one.copied(array)
    local = dataclasses.replace(op, window=Window(tuple(windows)))
    if any(one.before or one.behind for one in edges):
        made = s.make.like(old, local, [array, source, nothing], array.shape)
        for one in edges:
            made = one.given_back(made, op.scatter, nothing)
        made = s.make.add(combiner(op.scatter), s.make.broadcast(init, made.shape.dimensions), made)
    else:
        made = s.make.like(old, local, [array, source, init], array.shape)
    padding = [by_number[d].padding if d in by_number else PaddingDimension() for d in range(old.shape.rank)]
    made = s.make.add(Pad(padding=tuple(padding)), made, init)
    return s.finished(tiling, made)


def _dimensions(old: Instruction, piece: Piece, known: Tiling, rule: Factors) -> list[_Dimension]:
    odd = unequal_dims(known, piece.shape.dimensions)
    found: list[_Dimension] = []
    for d, (split, window) in enumerate(zip(known, old.op_as(SelectAndScatter).window.dimensions, strict=True)):
        if split is None or (rule.operands[0][d] is not None and d not in odd):
            continue
        size, placements = old.shape.dimensions[d], old.operands[1].shape.dimensions[d]
        reading = _reading(size, placements, window, parts(split))
        before, behind = (
            window.padding_low > 0,
            (placements - 1) * window.stride - window.padding_low + window.size > size,
        )
        if reading is not None and (not (before or behind) or _compares(old.op_as(SelectAndScatter).select)):
            found.append(_Dimension(d, split, *reading, before, behind))
    return found


def _compares(select: Computation) -> bool:
    """Whether a computation is an ordering comparison of its two parameters, for which copies stand for padding."""
    op = select.root.op
    is_order = isinstance(op, Compare) and op.direction not in (ComparisonDirection.EQ, ComparisonDirection.NE)
    return is_order and set(select.root.operands) == set(select.parameters)


def _reading(
    size: int, placements: int, window: WindowDimension, count: int
) -> tuple[Ranges, Ranges, PaddingDimension] | None:
    """The ranges of array and source that parts read, and the padding that cuts a part out of the result."""
    part, stride, low = -(-size // count), window.stride, window.padding_low
    is_plain = window.window_dilation == window.base_dilation == 1
    if not is_plain or part % stride or low >= window.size or (placements - 1) * stride - low >= size:
        # The last two conditions: some window covers only padding.
        return None
    # The first and the last window that reach part 0, including windows that do not exist.
    first, last = -((window.size - 1 - low) // stride), (part - 1 + low) // stride
    taken = last - first + 1
    length = (taken - 1) * stride + window.size
    begin = first * stride - low
    step = part // stride
    array = Ranges(tuple(begin + p * part for p in range(count)), length, (length,) * count)
    source = Ranges(tuple(first + p * step for p in range(count)), taken, (taken,) * count)
    return array, source, PaddingDimension(begin, part - begin - length)


def _is_cheaper(given: Sequence[Piece], tilings: Sequence[Tiling], along: Sequence[_Dimension]) -> bool:
    """Whether the exchanges send less than gathering array and source."""
    ranges = [[(dim.number, dim.array) for dim in along], [(dim.number, dim.source) for dim in along]]
    moved = [traffic(given[n].shape.dimensions, tilings[n], ranges[n]) for n in range(2)]
    known = [pair for pair in moved if pair is not None]
    return len(known) == 2 and sum(sent for sent, _ in known) < sum(gathered for _, gathered in known)
