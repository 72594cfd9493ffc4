"""Operations that need a split dimension whole, if the split can move to another dimension.

The split moves by an all-to-all: each member sends its part once, instead of to all others::

    member 0 | a b |         member 0 | a b c d |
             | e f |   -->
    member 1 | c d |         member 1 | e f g h |
             | g h |
"""

from __future__ import annotations

from xlakit.passes.spmd.pieces.local import splits_of
from xlakit.passes.spmd.shardings.factors import Factors, factors_of
from xlakit.passes.spmd.shardings.tilings import Split, is_proper, parts
from xlakit.passes.spmd.shardings.values import Piece, Value
from xlakit.passes.spmd.split_dimensions.splitter import Splitter


def resplit(s: Splitter) -> Value | None:
    """An operation whose largest split operand is resplit along other dimensions; None if no dimension is free."""
    rule, given = factors_of(s.old), s.given
    if rule is None or s.old.op.has_side_effect:
        return None
    split = [n for n, piece in enumerate(given) if piece.scope == s.scope and any(piece.tiling)]
    largest = max(split, key=lambda n: given[n].shape.byte_size, default=None)
    if largest is None or given[largest].unreduced is not None:
        return None
    first = _moved(rule, largest, given[largest])
    if not first:
        return None
    tilings, _ = s.tilings(rule, first)
    return s.pieces.in_parts(s.old, given, s.scope, rule, splits_of(rule, tilings))


def _moved(rule: Factors, operand: int, piece: Piece) -> dict[int, Split]:
    """The factors that take over the splits of dimensions that the operation needs whole."""
    found: dict[int, Split] = {}
    for split, own in zip(piece.tiling, rule.operands[operand], strict=True):
        if split is not None and own is None:
            taken = next((c for c in _candidates(rule, operand, piece, split) if c[0] not in found), None)
            if taken is not None:
                found[taken[0]] = taken[1]
    return found


def _candidates(rule: Factors, operand: int, piece: Piece, split: Split) -> list[tuple[int, Split]]:
    """The factors that can take over a split, in equal parts, with their new splits; unsplit dimensions first."""
    found: list[tuple[bool, int, Split]] = []
    for own, factor, size in zip(piece.tiling, rule.operands[operand], piece.shape.dimensions, strict=True):
        if factor is None or factor in rule.summed:
            continue
        finer = split if own is None else tuple(o * parts(split) + s for o, s in zip(own, split, strict=True))
        if size % parts(finer) == 0 and is_proper([finer]):
            found.append((own is not None, factor, finer))
    return [(factor, finer) for _, factor, finer in sorted(found)]
