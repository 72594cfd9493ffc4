"""Concatenations along a split dimension: each part of the result fetches its range of each operand."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Instruction
from xlakit.ops.elementwise.select import Select
from xlakit.ops.movement import Concatenate
from xlakit.passes.spmd.shardings.factors import Factors, factors_of
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Split, Tiling, parts, unequal_dims
from xlakit.passes.spmd.shardings.values import Piece
from xlakit.passes.spmd.split_dimensions.halo import Block, Halo, Ranges, traffic
from xlakit.passes.spmd.split_dimensions.splitter import Splitter, parts_known
from xlakit.passes.spmd.split_dimensions.windows import RANGES, lengths, with_factors


def concatenate(s: Splitter) -> Piece | None:
    """A concatenation, with the split of its largest split operand; None if gathering is cheaper."""
    old, along, rule = s.old, s.old.op_as(Concatenate).dimension, factors_of(s.old)
    sources = [_source(piece, along, s.scope) for piece in s.given]
    split, factors, first = _splits(old, [piece for piece, _ in sources], s.scope, along, rule)
    if split is None or factors is None:
        return None
    operands, (tiling,) = s.tilings(factors, first)
    joined = _joined(old, sources, operands, along, parts(split))
    if not _is_cheaper(joined, along):
        return None
    make = s.make
    halos = [s.halo(one.tiling, along, split, one.size) for one in joined]
    values = [s.at(one.piece, one.tiling) for one in joined]
    received = _exchanged(joined, halos, values)
    made: list[Instruction] = []
    end = old.shape.dimensions[along]
    for one, halo, value, got in reversed(list(zip(joined, halos, values, received, strict=True))):
        new = halo.fetched(value, one.ranges, None, got)
        if made:
            where = halo.positions(one.ranges.length, [p * one.ranges.length for p in range(parts(split))])
            is_before = make.compare(where, make.full(end, where.shape), "LT")
            new = make.add(Select(), halo.along(is_before, new), new, made[-1])
        made.append(new)
        end -= one.taken
    return s.finished(tiling, made[-1])


def _splits(
    old: Instruction, given: Sequence[Piece], scope: Scope, along: int, rule: Factors | None
) -> tuple[Split | None, Factors | None, dict[int, Split]]:
    """The split of the result along the dimension, the rule with additional factors for it, and their splits."""
    known = [parts_known(piece, scope) for piece in given]
    largest = max(range(len(given)), key=lambda n: (known[n][along] is not None, given[n].shape.num_elements))
    split = known[largest][along]
    if rule is None or split is None or old.shape.num_elements == 0:
        return None, None, {}
    odd = [d for d in unequal_dims(known[largest], given[largest].shape.dimensions) if d != along]
    first = {RANGES + d: own for d in (along, *odd) if (own := known[largest][d]) is not None}

    alone, both = {d: d for d in odd}, {d: d for d in (along, *odd)}
    # Operands that are split otherwise along the dimension are gathered.
    operands = [
        with_factors(own, both if tiling[along] == split else alone)
        for own, tiling in zip(rule.operands, known, strict=True)
    ]
    return split, Factors(tuple(operands), (with_factors(rule.results[0], both),)), first


@dataclass(frozen=True)
class _Joined:
    """An operand of a concatenation, as a range of ``piece`` (see :func:`_source`).

    ``ranges``: the range of the piece that each part of the result needs. ``size``: the size of the piece along the
    dimension; ``taken``: that of the operand.
    """

    piece: Piece
    tiling: Tiling
    ranges: Ranges
    size: int
    taken: int


@dataclass
class _SharedPermute:
    """Blocks that one permute sends, by operand and number in the operand's plan, and the array that members send."""

    given: Instruction
    blocks: dict[tuple[int, int], Block]


def _source(piece: Piece, along: int, scope: Scope) -> tuple[Piece, tuple[int, int]]:
    """The piece that a piece is a range of, if that is split, with the range; else the piece itself.

    So a slice is not split into parts first: the parts of the slices of a roll would all come from one member.
    """
    if piece.range_of is not None and piece.range_of[1] == along:
        source, _, start = piece.range_of
        if source.scope == piece.scope and parts_known(source, scope)[along] is not None:
            return source, (start, start + piece.shape.dimensions[along])
    return piece, (0, piece.shape.dimensions[along])


def _joined(
    old: Instruction,
    sources: Sequence[tuple[Piece, tuple[int, int]]],
    tilings: Sequence[Tiling],
    along: int,
    count: int,
) -> list[_Joined]:
    """The operands that are not empty, with the ranges that the parts of the result need of them."""
    needed = lengths(old.shape.dimensions[along], count)
    found: list[_Joined] = []
    offset = 0
    for (piece, (begin, end)), tiling in zip(sources, tilings, strict=True):
        if end > begin:
            starts = tuple(p * needed[0] - offset + begin for p in range(count))
            ranges = Ranges(starts, needed[0], needed, among=(begin, end))
            found.append(_Joined(piece, tiling, ranges, piece.shape.dimensions[along], end - begin))
        offset += end - begin
    return found


def _exchanged(
    joined: Sequence[_Joined], halos: Sequence[Halo], values: Sequence[Instruction]
) -> list[list[Instruction]]:
    """For each operand the received blocks.

    Blocks of several operands go in one permute if no member sends or receives two of them: a roll is one permute.
    """
    permutes: list[_SharedPermute] = []
    for number, (one, halo, value) in enumerate(zip(joined, halos, values, strict=True)):
        blocks = () if one.tiling[halo.dimension] is None else halo.plan(value, one.ranges).blocks
        for index, block in enumerate(blocks):
            given = halo.segment_to_send(block, value)
            fitting = next((p for p in permutes if all(block.goes_with(other) for other in p.blocks.values())), None)
            if fitting is None:
                permutes.append(_SharedPermute(given, {(number, index): block}))
            else:
                fitting.given = halo.chosen(block.firsts, given, fitting.given)
                fitting.blocks[number, index] = block
    found: dict[tuple[int, int], Instruction] = {}
    for one in permutes:
        pairs = [pair for block in one.blocks.values() for pair in block.pairs]
        got = halos[0].permuted(one.given, pairs)
        found.update(dict.fromkeys(one.blocks, got))
    return [[found[key] for key in sorted(found) if key[0] == number] for number in range(len(joined))]


def _is_cheaper(joined: Sequence[_Joined], along: int) -> bool:
    """Whether the exchanges send less than gathering the operands that are split."""
    sent = gathered = 0.0
    seen: set[Piece] = set()
    for one in joined:
        moved = traffic(one.piece.shape.dimensions, one.tiling, [(along, one.ranges)])
        if moved is None:
            return False
        sent += moved[0]
        gathered += moved[1] if one.piece not in seen else 0
        seen.add(one.piece)
    return sent < gathered
