"""Chooses the factors along which an operation is split: those for which operands and result send the least."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from xlakit.ir.instruction import Instruction
from xlakit.passes.spmd.pieces.local import tiling_of
from xlakit.passes.spmd.shardings.factors import Dims, Factors
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import (
    Split,
    Tiling,
    are_as_many,
    cut_alike,
    divides,
    is_proper,
    parts,
    refines,
)
from xlakit.passes.spmd.shardings.values import Piece, leaf_shapes

NO_SPLITS: Final[Mapping[int, Split]] = {}


class Choice:
    """The splits of the factors of an operation."""

    def __init__(
        self, old: Instruction, factors: Factors, first: Mapping[int, Split] = NO_SPLITS, *, unequal: bool = False
    ) -> None:
        """``first``: splits that are fixed already; ``unequal``: whether parts may be unequal."""
        self.splits: dict[int, Split] = dict(first)
        self._unequal = unequal
        # Unspecified elements after the end must not enter sums, and groups must not be cut, so these need equal parts.
        self._equal = factors.summed | {factor for factor, _ in factors.groups}
        self._sizes: dict[int, set[int]] = {factor: {count} for factor, count in factors.groups}
        shapes = [*(o.shape for o in old.operands), *leaf_shapes(old.shape)]
        for shape, dims in zip(shapes, (*factors.operands, *factors.results), strict=True):
            for size, factor in zip(shape.dimensions, dims, strict=True):
                if factor is not None:
                    self._sizes.setdefault(factor, set()).add(size)

    def offer(self, dims: Dims, splits: Sequence[Split | None]) -> None:
        """Accept the splits of some dimensions for factors without a split, if they are possible."""
        for factor, split in zip(dims, splits, strict=True):
            if factor is None or split is None or factor in self.splits:
                continue
            sizes = tuple(self._sizes[factor])
            # Unequal parts correspond if all dimensions of the factor have one size.
            is_free = self._unequal and factor not in self._equal
            fits = divides((split,) * len(sizes), sizes) or (is_free and len(sizes) == 1)
            if fits and is_proper([*self.splits.values(), split]):
                self.splits[factor] = split


def chosen(
    old: Instruction,
    factors: Factors,
    given: Sequence[Piece],
    scope: Scope,
    wanted: Sequence[Split | None] | None,
    hint: Tiling | None,
    first: Mapping[int, Split] = NO_SPLITS,
    *,
    later: bool = False,
) -> dict[int, Split]:
    """The splits of factors, from the tilings of operands and the requested tiling of the result.

    hint: the tiling that the users of the result prefer. later: whether the result rather than an operand is moved to
    it, where that sends as much.
    """
    choices: list[dict[int, Split]] = []
    # If no operand is split, the hint is ignored: a whole value is recomputed in parts if these are requested.
    hint = hint if any(p.scope == scope and not p.is_whole for p in given) else None
    ways = [(True, True), (False, True), (False, False)] if hint else [(False, False)]
    for with_sums, hint_first in reversed(ways) if later else ways:
        choice = Choice(old, factors, first)
        if with_sums:
            _offer_sums(choice, factors, given, scope)
        if hint and hint_first:
            choice.offer(factors.results[0], hint)
        _offer_tilings(choice, factors, given, scope)
        if wanted is not None:
            choice.offer(factors.results[0], wanted)
        if hint:
            choice.offer(factors.results[0], hint)
        if choice.splits not in choices:
            choices.append(choice.splits)
    if hint is None or len(choices) == 1:
        return choices[0]
    preferred = hint
    return min(choices, key=lambda splits: _cost(old, factors, given, scope, splits, preferred))


def _offer_sums(choice: Choice, factors: Factors, given: Sequence[Piece], scope: Scope) -> None:
    """Offer the splits of summed dimensions for which all operands have the same split."""
    for factor in sorted(factors.summed):
        own = [
            piece.tiling[d] if piece.scope == scope else None
            for dims, piece in zip(factors.operands, given, strict=True)
            for d, f in enumerate(dims)
            if f == factor
        ]
        if own[0] is not None and len(set(own)) == 1:
            choice.offer((factor,), (own[0],))


def _offer_tilings(choice: Choice, factors: Factors, given: Sequence[Piece], scope: Scope) -> None:
    """Offer the tilings of operands, the largest first; those that need sums last."""
    order = sorted(range(len(given)), key=lambda n: -given[n].shape.num_elements)
    for with_sums in (False, True):
        for n in order:
            if given[n].scope == scope:
                dims = tuple(f if with_sums or f not in factors.summed else None for f in factors.operands[n])
                choice.offer(dims, given[n].tiling)


def _cost(
    old: Instruction,
    factors: Factors,
    given: Sequence[Piece],
    scope: Scope,
    splits: Mapping[int, Split],
    hint: Tiling,
) -> float:
    """An estimate of the bytes that a member sends to reshard the operands, and the result to the hint's tiling."""
    cost = 0.0
    for piece, dims in zip(given, factors.operands, strict=True):
        needed = tiling_of(dims, splits)
        # Parts that were made for this tiling before are reused.
        if piece.scope == scope and needed not in piece.parts:
            cost += sent(piece.shape.byte_size, piece.tiling, needed)
    shape = leaf_shapes(old.shape)[0]
    own = tiling_of(factors.results[0], splits)
    wanted = hint if divides(hint, shape.dimensions) else own
    for factor in sorted(factors.summed & splits.keys()):
        split = splits[factor]
        part = shape.byte_size / math.prod(map(parts, own)) * (1 - 1 / parts(split))
        # A sum that is wanted in parts is a reduce-scatter.
        scattered = [d for d, s in enumerate(wanted) if s == split and own[d] is None]
        cost += part if scattered else 2 * part
        own = tuple(split if d in scattered[:1] else s for d, s in enumerate(own))
    return cost + sent(shape.byte_size, own, wanted)


def sent(size: int, own: Tiling, new: Tiling) -> float:
    """An estimate of the bytes that a member sends to reshard an array of ``size`` bytes."""
    part = size / math.prod(map(parts, own))
    kept, cost = 1, 0.0
    for d, (before, after) in enumerate(zip(own, new, strict=True)):
        if refines(after, before):
            kept *= parts(before)
        elif any(e != d and own[e] is None and new[e] == before for e in range(len(own))):
            # An all-to-all.
            kept *= parts(before)
            cost += part * (1 - 1 / parts(before))
        elif refines(before, after):
            kept *= parts(after)
    cost += size / kept - part
    if cost and (cut_alike(own, new) is not None or cut_alike(new, own) is not None):
        cost = min(cost, size / math.prod(map(parts, new)))
    # An all-to-all and a permute of the parts, at most.
    return min(cost, 2 * part) if are_as_many(own, new) else cost
