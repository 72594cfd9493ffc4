"""Concatenations along a split dimension: each part of the result fetches what it has of each operand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from xlakit.ir.instruction import Instruction
from xlakit.ops.elementwise.select import Select
from xlakit.ops.movement import Concatenate
from xlakit.passes.spmd.along.halo import Halo, Ranges, exchange
from xlakit.passes.spmd.along.windows import MOST_PERMUTES, RANGES, finished, lengths, parts_known
from xlakit.passes.spmd.pieces.pieces import Hint, Pieces
from xlakit.passes.spmd.shardings.factors import Dims, Factors, factors_of
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Split, Tiling, local_sizes, parts, unequal_dims
from xlakit.passes.spmd.shardings.values import Piece


def concatenate(
    pieces: Pieces, old: Instruction, given: Sequence[Piece], scope: Scope, hint: Hint | None
) -> Piece | None:
    """A concatenation whose largest split operand says how the result is split; None where gathering is cheaper."""
    along, rule = old.op_as(Concatenate).dimension, factors_of(old)
    split, factors, first = _splits(old, given, scope, along, rule)
    if split is None or factors is None:
        return None
    operands, (tiling,) = pieces.tilings_for(old, factors, given, scope, hint=hint, first=first)
    joined = _joined(old, given, operands, along, parts(split))
    if not _is_cheaper(joined, along, split):
        return None
    found: Instruction | None = None
    end, make = old.shape.dimensions[along], pieces.make
    for one in reversed(joined):
        halo = Halo(make, scope, one.tiling, along, split, one.size)
        new = halo.fetched(pieces.at(one.piece, one.tiling, scope), one.ranges, None)
        if found is not None:
            where = halo.positions(one.ranges.length, [p * one.ranges.length for p in range(parts(split))])
            is_before = make.compare(where, make.full(end, where.shape), "LT")
            new = make.add(Select(), halo.along(is_before, new), new, found)
        found, end = new, end - one.size
    assert found is not None
    return finished(pieces, old, given, scope, hint, (tiling, found))


def _splits(
    old: Instruction, given: Sequence[Piece], scope: Scope, along: int, rule: Factors | None
) -> tuple[Split | None, Factors | None, dict[int, Split]]:
    """The split of the result along the dimension, the rule with factors for it, and the splits of these."""
    known = [parts_known(piece, scope) for piece in given]
    largest = max(range(len(given)), key=lambda n: (known[n][along] is not None, given[n].shape.num_elements))
    split = known[largest][along]
    if rule is None or split is None or old.shape.num_elements == 0:
        return None, None, {}
    odd = [d for d in unequal_dims(known[largest], given[largest].shape.dimensions) if d != along]
    first = {RANGES + d: own for d in (along, *odd) if (own := known[largest][d]) is not None}

    def dims(own: Dims, *, has: bool) -> Dims:
        return tuple(RANGES + d if d in odd or (d == along and has) else factor for d, factor in enumerate(own))

    # Operands that are split otherwise along the dimension are gathered.
    operands = [dims(own, has=tiling[along] == split) for own, tiling in zip(rule.operands, known, strict=True)]
    return split, Factors(tuple(operands), (dims(rule.results[0], has=True),)), first


@dataclass(frozen=True)
class _Joined:
    """An operand of a concatenation, the ranges of it that parts of the result have, and its size along it."""

    piece: Piece
    tiling: Tiling
    ranges: Ranges
    size: int


def _joined(
    old: Instruction, given: Sequence[Piece], tilings: Sequence[Tiling], along: int, count: int
) -> list[_Joined]:
    """The operands that have elements."""
    needed = lengths(old.shape.dimensions[along], count)
    found: list[_Joined] = []
    offset = 0
    for piece, tiling in zip(given, tilings, strict=True):
        size = piece.shape.dimensions[along]
        if size:
            starts = tuple(p * needed[0] - offset for p in range(count))
            found.append(_Joined(piece, tiling, Ranges(starts, needed[0], needed), size))
        offset += size
    return found


def _is_cheaper(joined: Sequence[_Joined], along: int, split: Split) -> bool:
    """Whether the exchanges send less than gathering the operands that are split."""
    sent = gathered = 0.0
    for one in joined:
        if one.tiling[along] is None:
            continue
        sizes = local_sizes(one.tiling, one.piece.shape.dimensions)
        plan = exchange(one.size, sizes[along], one.ranges)
        if len(plan.blocks) > MOST_PERMUTES:
            return False
        sent += plan.sent * math.prod(sizes) / sizes[along]
        gathered += math.prod(sizes) * (parts(split) - 1)
    return sent < gathered
