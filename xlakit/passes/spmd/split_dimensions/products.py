"""Products and convolutions that sum over dimensions in unequal parts: the padding of the parts is set to zero."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlakit.passes.spmd.pieces.choice import Choice
from xlakit.passes.spmd.pieces.local import tiling_of
from xlakit.passes.spmd.shardings.factors import Factors, factors_of
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Split, local_sizes, parts, unequal_dims
from xlakit.passes.spmd.shardings.values import Piece, Value
from xlakit.passes.spmd.split_dimensions.splitter import Splitter, parts_known


def product(s: Splitter) -> Value | None:
    """A product or convolution with one or both operands in unequal parts along a summed dimension.

    None if gathering is cheaper, or other dimensions are in unequal parts, too.
    """
    old, given, rule = s.old, s.given, factors_of(s.old)
    found = None if rule is None else _summed(rule, given, s.scope)
    if rule is None or found is None:
        return None
    factor, split = found
    choice = Choice(old, rule, {factor: split})
    for dims, piece in sorted(zip(rule.operands, given, strict=True), key=lambda pair: -pair[1].shape.num_elements):
        choice.offer(dims, parts_known(piece, s.scope))
    tilings = [tiling_of(dims, choice.splits) for dims in rule.operands]
    result = math.prod(local_sizes(tiling_of(rule.results[0], choice.splits), old.shape.dimensions))
    # A sum over n members sends 2 (n - 1) / n of the result, a gather n - 1 parts.
    gathered = [
        math.prod(local_sizes(tiling, piece.shape.dimensions)) * parts(split)
        for tiling, piece in zip(tilings, given, strict=True)
        if piece.unequal is not None
    ]
    if 2 * result >= sum(gathered):
        return None
    zero = [s.make.zeros(piece.shape.element_type) for piece in given]
    filled: list[Piece] = []
    for dims, piece, tiling, fill in zip(rule.operands, given, tilings, zero, strict=True):
        d, made = dims.index(factor), s.at(piece, tiling)
        made = s.halo(tiling, d, split, piece.shape.dimensions[d]).padding_filled(made, fill)
        filled.append(Piece(made, tiling, s.scope, piece.shape))
    return s.pieces.in_parts(old, filled, s.scope, rule, choice.splits)


def _summed(rule: Factors, given: Sequence[Piece], scope: Scope) -> tuple[int, Split] | None:
    """The summed factor in unequal parts, and its split; None if there is none, or another factor is unequal."""
    found: set[tuple[int | None, Split | None]] = set()
    for dims, piece in zip(rule.operands, given, strict=True):
        if piece.scope == scope and piece.unequal is not None:
            tiling = piece.unequal[0]
            found.update((dims[d], tiling[d]) for d in unequal_dims(tiling, piece.shape.dimensions))
        elif not piece.is_whole:
            # The operand would have to be resharded.
            return None
    if len(found) != 1:
        return None
    factor, split = found.pop()
    return None if factor is None or split is None or factor not in rule.summed else (factor, split)
