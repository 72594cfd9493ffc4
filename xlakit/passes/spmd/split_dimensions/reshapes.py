"""Reshapes of dimensions that are split along several axes, of which each becomes the split of another dimension."""

from __future__ import annotations

from xlakit.data.shape import Shape
from xlakit.ops.movement import Reshape
from xlakit.passes.spmd.shardings.reshapes import through_reshape
from xlakit.passes.spmd.shardings.tilings import local_sizes
from xlakit.passes.spmd.shardings.values import Piece
from xlakit.passes.spmd.split_dimensions.splitter import Splitter


def reshape(s: Splitter) -> Piece | None:
    """The part of the operand reshaped; None if that is not the part of the result in the tiling of its hint."""
    (piece,), shape = s.given, s.old.shape
    if s.hint is None or piece.scope != s.scope or not any(piece.tiling):
        return None
    if piece.unreduced is not None or piece.unequal is not None:
        # The rule of the operation keeps partial sums and unequal parts.
        return None
    if through_reshape(piece.tiling, piece.shape.dimensions, shape.dimensions) != s.hint:
        return None
    part = Shape(shape.element_type, local_sizes(s.hint, shape.dimensions))
    made = s.make.like(s.old, Reshape(), [s.at(piece, piece.tiling)], part)
    return Piece(made, s.hint, s.scope, shape)
