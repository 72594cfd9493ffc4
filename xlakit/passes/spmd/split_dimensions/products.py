"""Products and convolutions that sum over dimensions in unequal parts: the padding of the parts is set to zero."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlakit.passes.spmd.pieces.choice import Choice
from xlakit.passes.spmd.pieces.local import tiling_of
from xlakit.passes.spmd.shardings.factors import Factors, factors_of
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Split, Tiling, local_sizes, parts, unequal_dims
from xlakit.passes.spmd.shardings.values import Piece, Value
from xlakit.passes.spmd.split_dimensions.splitter import Splitter, parts_known


def product(s: Splitter) -> Value | None:
    """A product or convolution with one or both operands in unequal parts along a summed dimension.

    None if gathering is cheaper, or two summed dimensions are in unequal parts.
    """
    old, given, rule = s.old, s.given, factors_of(s.old)
    found = None if rule is None else _summed(rule, given, s.scope)
    if rule is None or found is None:
        return None
    factor, split = found
    choice = Choice(old, rule, {factor: split}, unequal=True)
    for dims, piece in sorted(zip(rule.operands, given, strict=True), key=lambda pair: -pair[1].shape.num_elements):
        choice.offer(dims, parts_known(piece, s.scope))
    tilings = [tiling_of(dims, choice.splits) for dims in rule.operands]
    if not all(_is_there(piece, tiling, s.scope) for piece, tiling in zip(given, tilings, strict=True)):
        return None
    of_result = tiling_of(rule.results[0], choice.splits)
    # A sum over n members sends 2 (n - 1) / n of the result, a gather n - 1 parts.
    gathered = [
        math.prod(local_sizes(tiling, piece.shape.dimensions))
        * math.prod(parts(tiling[d]) for d in unequal_dims(tiling, piece.shape.dimensions))
        for tiling, piece in zip(tilings, given, strict=True)
        if piece.unequal is not None
    ]
    if 2 * math.prod(local_sizes(of_result, old.shape.dimensions)) >= sum(gathered):
        return None
    zero = [s.make.zeros(piece.shape.element_type) for piece in given]
    filled: list[Piece] = []
    for dims, piece, tiling, fill in zip(rule.operands, given, tilings, zero, strict=True):
        d, made = dims.index(factor), s.at(piece, tiling)
        made = s.halo(tiling, d, split, piece.shape.dimensions[d]).padding_filled(made, fill)
        filled.append(Piece(made, tiling, s.scope, piece.shape))
    value = s.pieces.in_parts(old, filled, s.scope, rule, choice.splits)
    if not isinstance(value, Piece) or not unequal_dims(of_result, old.shape.dimensions):
        return value
    # Unequal parts are values, not partial sums.
    return s.pieces.evened(s.pieces.summed(value).instruction, of_result, old.shape, s.scope)


def _is_there(piece: Piece, tiling: Tiling, scope: Scope) -> bool:
    """Whether members have their parts of an operand, or it is in unequal parts, whose resharding is worth it."""
    own = parts_known(piece, scope)
    return piece.unequal is not None or all(a in (None, b) for a, b in zip(own, tiling, strict=True))


def _summed(rule: Factors, given: Sequence[Piece], scope: Scope) -> tuple[int, Split] | None:
    """The summed factor in unequal parts, and its split; None if there is none, or there are two."""
    found: set[tuple[int, Split]] = set()
    for dims, piece in zip(rule.operands, given, strict=True):
        if piece.scope == scope and piece.unequal is not None:
            tiling = piece.unequal[0]
            for d in unequal_dims(tiling, piece.shape.dimensions):
                factor, split = dims[d], tiling[d]
                if factor is not None and factor in rule.summed and split is not None:
                    found.add((factor, split))
    return found.pop() if len(found) == 1 else None
