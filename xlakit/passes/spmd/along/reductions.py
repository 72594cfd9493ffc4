"""Reductions along dimensions in unequal parts: what is behind the end of a dimension becomes the identity."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from xlakit.ir.instruction import Instruction
from xlakit.ops.reduction import Reduce
from xlakit.passes.dynamic.padded_reductions import identity_of
from xlakit.passes.spmd.along.halo import Halo, Ranges
from xlakit.passes.spmd.pieces.pieces import Hint, Pieces, splits_of
from xlakit.passes.spmd.shardings.factors import can_be_in_parts, factors_of
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import local_sizes, parts, unequal_dims
from xlakit.passes.spmd.shardings.values import Piece


def reduce(pieces: Pieces, old: Instruction, given: Sequence[Piece], scope: Scope, hint: Hint | None) -> Piece | None:
    """A reduction over all dimensions of an array whose parts are not equal; None where gathering is cheaper."""
    op, rule, kind, array = old.op_as(Reduce), factors_of(old), old.shape.element_type, given[0]
    if rule is None or len(given) != 2 or array.unequal is None or array.scope != scope:
        return None
    tiling, made = array.unequal
    sizes = array.shape.dimensions
    odd = unequal_dims(tiling, sizes)
    if array.shape.element_type is not kind or not can_be_in_parts(op.to_apply, kind) or set(odd) - set(op.dimensions):
        return None
    part = math.prod(local_sizes(tiling, sizes))
    result = math.prod(n for d, n in enumerate(local_sizes(tiling, sizes)) if d not in op.dimensions)
    # A sum over n members sends 2 (n - 1) / n of the result, a gather n - 1 parts.
    if 2 * result >= part * math.prod(parts(tiling[d]) for d in odd):
        return None
    identity = pieces.make.constant(np.asarray(identity_of(op.to_apply, kind)))
    for d in odd:
        split = tiling[d]
        assert split is not None
        length = made.shape.dimensions[d]
        ranges = Ranges(tuple(p * length for p in range(parts(split))), length, (length,) * parts(split))
        made = Halo(pieces.make, scope, tiling, d, split, sizes[d]).fetched(made, ranges, identity)
    filled = Piece(made, tiling, scope, array.shape)
    value = pieces.in_parts(old, [filled, given[1]], scope, rule, splits_of(rule, [tiling, ()]))
    return value if isinstance(value, Piece) else None
