"""Halo exchange: each part of a dimension fetches a range of it, from itself and from the other parts.

A stencil over parts of 4 elements reads one more on each side: part 1 elements 3 to 8. Starts (-1, 3, 7), length 6::

    parts          | 0  1  2  3 | 4  5  6  7 | 8  9 10 11 |
    part 0     -1    0  1  2  3   4
    part 1                   3    4  5  6  7   8
    part 2                                7    8  9 10 11   12

Two collective-permutes do this: one sends the last element to the next part, one the first element to the previous
part. Elements -1 and 12 are outside of the dimension: they get a fill value from the caller, or are unspecified.

The ranges are arbitrary. The elements that part p needs of part q are a segment; segments share a permute (a *block*)
if no part sends or receives twice in it. All segments of a block have one length, so a shorter segment is extended by
neighboring elements of its part. These are right for the positions where they arrive, so this is harmless.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import field
from typing import Final

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.errors import InternalError
from xlakit.ir.attributes import PaddingDimension, SliceDimension
from xlakit.ir.instruction import Instruction
from xlakit.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from xlakit.ops.elementwise.binary import And
from xlakit.ops.elementwise.select import Select
from xlakit.ops.movement import Concatenate, Pad
from xlakit.passes.spmd.pieces.emit import Emitter
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Split, Tiling, local_sizes, parts, teams_over, with_split

# An exchange takes at most so many permutes, or as many as half of the other parts.
_MOST_PERMUTES: Final = 4


@dataclass(frozen=True)
class Ranges:
    """For each part of a split the range of a dimension that it gets, which may reach beyond the dimension.

    needed: how many elements of a range, from its start, must be right; fewer than its length for a part that is
    shorter than others. among: only elements of the dimension in this interval must be right; None for all.
    """

    starts: tuple[int, ...]
    length: int
    needed: tuple[int, ...]
    among: tuple[int, int] | None = None

    def within(self, size: int) -> bool:
        """Whether all needed elements are inside of a dimension of this size."""
        known = [(start, start + n) for start, n in zip(self.starts, self.needed, strict=True) if n]
        return all(start >= 0 and end <= size for start, end in known)


@dataclass
class Block:
    """Segments of one length that one permute sends, or that parts already have.

    ``pairs``: the sending and receiving parts. ``firsts``: for each sending part the index of its segment in the part;
    ``places``: for each receiving part the index of the segment in its range.
    """

    length: int
    pairs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    firsts: dict[int, int] = field(default_factory=dict[int, int])
    places: dict[int, int] = field(default_factory=dict[int, int])

    def takes(self, source: int, target: int) -> bool:
        """Whether the pair may be added: the source does not send yet, and the target does not receive."""
        return source not in self.firsts and target not in self.places

    def goes_with(self, other: Block) -> bool:
        """Whether two blocks can share one permute."""
        same_parts = self.firsts.keys() & other.firsts.keys() or self.places.keys() & other.places.keys()
        return self.length == other.length and not same_parts


@dataclass(frozen=True)
class Exchange:
    """The plan by which parts of ``part`` elements, of a dimension of ``size``, get their ranges.

    own: the elements that parts already have. blocks: the permutes.
    """

    ranges: Ranges
    size: int
    part: int
    own: Block
    blocks: tuple[Block, ...]

    @property
    def sent(self) -> float:
        """The number of elements that a part sends, on average."""
        return sum(b.length * len(b.pairs) for b in self.blocks) / len(self.ranges.starts)


def exchange(size: int, part: int, ranges: Ranges) -> Exchange | None:
    """Plan an exchange: assign segments to permutes, the longest first, so that no block has to grow.

    None if that takes too many permutes: a gather has one rendezvous, an exchange has one for each permute. The more
    parts there are, the more a gather sends, so that more permutes are worth it.
    """
    own = Block(part)
    most = max(_MOST_PERMUTES, (len(ranges.starts) - 1) // 2)
    begin, end = ranges.among or (0, size)
    segments: list[tuple[int, int, int, int]] = []
    for target, start in enumerate(ranges.starts):
        low, high = max(start, begin), min(start + ranges.needed[target], end)
        sources = range(low // part, -(-high // part) if high > low else 0)
        if len(sources) > most + 1:
            return None
        for source in sources:
            first, last = max(low, source * part), min(high, (source + 1) * part)
            if source == target:
                own.places[target] = source * part - start
            else:
                segments.append((last - first, source - target, source, first - source * part))
    blocks: list[Block] = []
    for length, distance, source, first in sorted(segments, key=lambda s: (-s[0], s[1], s[2])):
        target = source - distance
        block = next((b for b in blocks if b.takes(source, target)), None)
        if block is None:
            if len(blocks) == most:
                return None
            blocks.append(block := Block(length))
        first = min(first, part - block.length)
        block.pairs.append((source, target))
        block.firsts[source] = first
        block.places[target] = source * part + first - ranges.starts[target]
    return Exchange(ranges, size, part, own, tuple(blocks))


def traffic(sizes: Sequence[int], tiling: Tiling, along: Sequence[tuple[int, Ranges]]) -> tuple[float, float] | None:
    """The elements that a member sends to fetch ranges of some dimensions, one after the other; and those that it sends
    to gather the array along these dimensions instead. Dimensions that are not split need neither.

    None if a dimension takes too many permutes.
    """
    own = list(local_sizes(tiling, sizes))
    split = {d: each for d, _ in along if (each := tiling[d]) is not None}
    gathered = math.prod(own) * (math.prod(map(parts, split.values())) - 1)
    sent = 0.0
    for d, ranges in along:
        if d not in split:
            continue
        plan = exchange(sizes[d], own[d], ranges)
        if plan is None:
            return None
        sent += plan.sent * math.prod(own) / own[d]
        own[d] = ranges.length
    return sent, gathered


@dataclass(frozen=True)
class Halo:
    """A dimension of an array of which each part of ``split`` fetches a range.

    tiling: of the array; in it the dimension has the split, or None if every member has it whole. size: of the
    dimension, over all parts.
    """

    make: Emitter
    scope: Scope
    tiling: Tiling
    dimension: int
    split: Split
    size: int

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups of devices that have different parts of the dimension, and the same of all other dimensions."""
        return self.scope.groups(teams_over(self.split, with_split(self.tiling, self.dimension, None)))

    def plan(self, value: Instruction, ranges: Ranges) -> Exchange:
        """The exchange of the ranges of an array in parts."""
        plan = exchange(self.size, value.shape.dimensions[self.dimension], ranges)
        if plan is None:
            raise InternalError("an exchange of more permutes than were counted before")
        return plan

    def fetched(
        self,
        value: Instruction,
        ranges: Ranges,
        fill: Instruction | None,
        received: Sequence[Instruction] | None = None,
    ) -> Instruction:
        """The range of each member; ``fill`` is the value outside of the dimension, unspecified if None.

        received: the received array of each block of the plan, if the blocks are sent already; its value is ignored on
        members that are no targets of the block.
        """
        if self.tiling[self.dimension] is None:
            return self._cut(value, ranges, fill)
        plan = self.plan(value, ranges)
        if received is None:
            received = [self.permuted(self.segment_to_send(block, value), block.pairs) for block in plan.blocks]
        sent = [(plan.own, value), *zip(plan.blocks, received, strict=True)]
        sent = [(block, own) for block, own in sent if block.places]
        found = self._in_a_row(sent, ranges) or self._updated(value, sent, ranges)
        return found if fill is None or ranges.within(self.size) else self._filled(found, ranges, fill)

    def padding_filled(self, value: Instruction, fill: Instruction) -> Instruction:
        """Each member's own part, with ``fill`` after the end of the dimension."""
        length, count = value.shape.dimensions[self.dimension], parts(self.split)
        return self.fetched(value, Ranges(tuple(p * length for p in range(count)), length, (length,) * count), fill)

    def segment_to_send(self, block: Block, value: Instruction) -> Instruction:
        """The array that members send in a block; unspecified on members that do not send."""
        some = next(iter(block.firsts.values()))
        return self.elements(value, [block.firsts.get(p, some) for p in range(parts(self.split))], block.length)

    def permuted(self, given: Instruction, pairs: Sequence[tuple[int, int]]) -> Instruction:
        """The array that members receive, for pairs of sending and receiving parts."""
        groups = teams_over(self.split, with_split(self.tiling, self.dimension, None))
        return self.make.permute(
            given, [(t[g[s]], t[g[r]]) for t in self.scope.teams for g in groups for s, r in pairs]
        )

    def chosen(self, members: Collection[int], one: Instruction, other: Instruction) -> Instruction:
        """``one`` on the members that have the parts ``members``, and ``other`` on all others."""
        flag = self._of_part([int(p in members) for p in range(parts(self.split))])
        is_one = self.make.compare(flag, self.make.scalar(1, PrimitiveType.S32), "EQ")
        return self.make.add(Select(), self.make.broadcast(is_one, one.shape.dimensions), one, other)

    def positions(self, length: int, starts: Sequence[int]) -> Instruction:
        """The indices, in the whole dimension, of ``length`` elements of each part; starts: the first index by part."""
        counted = self.make.iota(Shape(PrimitiveType.S32, (length,)), 0)
        return self.make.apply("add", counted, self.make.broadcast(self._of_part(starts), (length,)))

    def along(self, flags: Instruction, like: Instruction) -> Instruction:
        """Flags for the elements of the dimension, broadcast to the shape of an array."""
        return self.make.broadcast(flags, like.shape.dimensions, [self.dimension])

    def as_summand(self, value: Instruction, start: int, length: int) -> Instruction:
        """A range of the dimension with the elements of the member's own part; other elements are 0 (-0 of floats).

        The sum over the members is the range.
        """
        part = value.shape.dimensions[self.dimension]
        sizes = [length + 2 * part if d == self.dimension else n for d, n in enumerate(value.shape.dimensions)]
        around = self.make.broadcast(self.make.additive_identity(value.shape.element_type), sizes)
        # Parts outside of the range are written into margins, which are cut off.
        places = [min(max(0, (p + 1) * part - start), length + part) for p in range(parts(self.split))]
        placed = self.make.add(DynamicUpdateSlice(), around, value, *self._starts(places, len(sizes)))
        return self.between(placed, part, length)

    # -- parts of the dimension ----------------------------------------------------------------------

    def _of_part(self, numbers: Sequence[int]) -> Instruction:
        """A scalar that depends on the member's part of the split."""
        if len(set(numbers)) == 1:
            return self.make.scalar(numbers[0], PrimitiveType.S32)
        return self.make.number([numbers[part] for part in self.split], self.scope)

    def between(self, value: Instruction, start: int, length: int) -> Instruction:
        """``length`` elements of the dimension from index ``start``."""
        sizes = value.shape.dimensions
        ranges = [
            SliceDimension(start, start + length) if d == self.dimension else SliceDimension(0, size)
            for d, size in enumerate(sizes)
        ]
        return self.make.slice(value, ranges)

    def elements(self, value: Instruction, numbers: Sequence[int], length: int) -> Instruction:
        """``length`` elements of the dimension, from an index that depends on the part."""
        if len(set(numbers)) == 1:
            return self.between(value, numbers[0], length)
        sizes = [length if d == self.dimension else size for d, size in enumerate(value.shape.dimensions)]
        return self.make.add(DynamicSlice(dynamic_slice_sizes=tuple(sizes)), value, *self._starts(numbers, len(sizes)))

    def _starts(self, numbers: Sequence[int], rank: int) -> list[Instruction]:
        start, zero = self._of_part(numbers), self.make.scalar(0, PrimitiveType.S32)
        return [start if d == self.dimension else zero for d in range(rank)]

    def _in_a_row(self, sent: Sequence[tuple[Block, Instruction]], ranges: Ranges) -> Instruction | None:
        """The concatenation of the blocks, if each has the same place in all ranges and no two overlap; else None."""
        if not sent or any(len(set(block.places.values())) != 1 for block, _ in sent):
            return None
        placed = sorted((next(iter(b.places.values())), b.length, n) for n, (b, _) in enumerate(sent))
        found: list[Instruction] = []
        end = 0
        for place, length, number in placed:
            first, last = max(place, 0), min(place + length, ranges.length)
            if first < end and found:
                return None
            if first > end:
                found.append(self._zeros(sent[number][1], first - end))
            found.append(self.between(sent[number][1], first - place, last - first))
            end = last
        if end < ranges.length:
            found.append(self._zeros(sent[0][1], ranges.length - end))
        return found[0] if len(found) == 1 else self.make.add(Concatenate(dimension=self.dimension), *found)

    def _updated(self, value: Instruction, sent: Sequence[tuple[Block, Instruction]], ranges: Ranges) -> Instruction:
        """The blocks at places that depend on the part: the first, mostly the own, shifted, and the others over it.

        Margins at both ends take received elements beyond the range, and the blocks of members that receive nothing.
        """
        if not sent:
            return self._zeros(value, ranges.length)
        (first, shifted), *others = sent
        margin = max((block.length for block, _ in others), default=0)
        # Where members without a place have the first block is of no account: they need no element of it.
        some = next(iter(first.places.values()))
        places = [first.places.get(part, some) + margin for part in range(len(ranges.starts))]
        length = ranges.length + 2 * margin
        before, after = max(0, *places), max(0, length - min(places) - first.length)
        padded = self._padded(shifted, before, after, self.make.zeros(value.shape.element_type))
        found = self.elements(padded, [before - place for place in places], length)
        for block, own in others:
            places = [block.places.get(part, -margin) + margin for part in range(len(ranges.starts))]
            found = self.make.add(DynamicUpdateSlice(), found, own, *self._starts(places, own.shape.rank))
        return self.between(found, margin, ranges.length)

    def _padded(self, value: Instruction, before: int, after: int, fill: Instruction) -> Instruction:
        padding = [
            PaddingDimension(before, after) if d == self.dimension else PaddingDimension()
            for d in range(value.shape.rank)
        ]
        return self.make.add(Pad(padding=tuple(padding)), value, fill)

    def _zeros(self, like: Instruction, length: int) -> Instruction:
        sizes = [length if d == self.dimension else size for d, size in enumerate(like.shape.dimensions)]
        return self.make.zeros(like.shape.element_type, sizes)

    def _cut(self, value: Instruction, ranges: Ranges, fill: Instruction | None) -> Instruction:
        """The ranges of a dimension that every member has whole."""
        low = max(0, -min(ranges.starts))
        high = max(0, max(ranges.starts) + ranges.length - self.size)
        if low or high:
            outside = self.make.zeros(value.shape.element_type) if fill is None else fill
            value = self._padded(value, low, high, outside)
        return self.elements(value, [start + low for start in ranges.starts], ranges.length)

    def _filled(self, value: Instruction, ranges: Ranges, fill: Instruction) -> Instruction:
        """The value with ``fill`` in place of elements outside of the dimension."""
        where, make = self.positions(ranges.length, ranges.starts), self.make
        flags: list[Instruction] = []
        if min(ranges.starts) < 0:
            flags.append(make.compare(where, make.full(0, where.shape), "GE"))
        if max(ranges.starts) + ranges.length > self.size:
            flags.append(make.compare(where, make.full(self.size, where.shape), "LT"))
        inside = flags[0] if len(flags) == 1 else make.add(And(), *flags)
        outside = make.broadcast(fill, value.shape.dimensions)
        return make.add(Select(), self.along(inside, value), value, outside)
