"""The boundary of a program: arguments arrive with their shardings, results leave with theirs or with inferred ones.

The parts of an argument or result may be unequal: then all have the size of the largest, and the last are padded (the
padding of a result is unspecified). Inside of the program such an array is replicated, except for operations that
accept unequal parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xlakit.data.nesting import nested
from xlakit.data.shape import Shape
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.ir.attributes import Sharding, SliceDimension
from xlakit.ir.instruction import Instruction
from xlakit.passes.spmd.shardings.annotations import of_leaves, result_shardings
from xlakit.passes.spmd.shardings.tilings import Split, Tiling, coarser, divides, is_proper, parts, whole
from xlakit.passes.spmd.shardings.values import (
    Piece,
    Value,
    errors_located,
    leaf_shapes,
    leaves,
    whole_tilings,
)
from xlakit.passes.spmd.walk import Walk, local_shape


def argument(walk: Walk, parameter: Instruction) -> tuple[Value, list[Tiling]]:
    """The value of a parameter, and its sharding."""
    shapes, shardings = leaf_shapes(parameter.shape), of_leaves(parameter)
    with errors_located(walk.program.module, parameter):
        tilings = [_tiling(walk, sharding, shape) for sharding, shape in zip(shardings, shapes, strict=True)]
    found = [t or whole(shape.rank if shape.is_array else 0) for t, shape in zip(tilings, shapes, strict=True)]
    made = walk.pieces.make.like(parameter, parameter.op, (), local_shape(parameter.shape, found))
    value = walk.pieces.unbundle(made, parameter.shape, iter(found), walk.scope)
    for piece, sharding in zip(leaves(value), shardings, strict=True):
        piece.unreduced = walk.program.annotations.unreduced(sharding) if piece.shape.is_array else None
    return nested(parameter.shape, _without_padding(walk, leaves(value))), found


def _tiling(walk: Walk, sharding: Sharding | None, shape: Shape) -> Tiling | None:
    """The tiling of the sharding of an argument or result; None without a sharding."""
    splits = walk.program.annotations.splits(sharding, shape.rank) if shape.is_array else None
    if splits is None:
        return None
    if any(splits) and shape.is_dynamic:
        raise UnsupportedError(
            f"{shape.without_layout()} in parts", hint="let arrays with dynamic dimensions be whole on every device"
        )
    if not is_proper(splits):
        raise ShapeError(
            f"a sharding of {shape.without_layout()} of which some parts are nowhere",
            hint="split each dimension along other axes",
        )
    return splits


def _without_padding(walk: Walk, given: Iterable[Piece]) -> Iterator[Piece]:
    for piece in given:
        sizes = piece.shape.dimensions if piece.shape.is_array else ()
        if divides(piece.tiling, sizes):
            yield piece
            continue
        padded = walk.pieces.whole(piece)
        ranges = tuple(SliceDimension(0, size) for size in sizes)
        made = walk.pieces.make.slice(padded, ranges)
        unequal = (piece.tiling, piece.instruction) if piece.unreduced is None else None
        yield Piece(made, whole(len(sizes)), walk.scope, piece.shape, unequal=unequal)


def result(walk: Walk, value: Value) -> tuple[Value, list[Tiling]]:
    """The result in the tiling of its sharding; without a sharding in that of propagation, or its own."""
    root = walk.program.module.entry.root
    hints = (walk.frame and walk.frame.hints(root, walk.scope)) or whole_tilings(root.shape)
    with errors_located(walk.program.module, root):
        given = zip(leaves(value), result_shardings(walk.program.module), hints, strict=True)
        made = [_result(walk, p, sharding, hint) for p, sharding, hint in given]
    return nested(root.shape, iter(made)), [p.tiling for p in made]


def _even(walk: Walk, hint: Tiling, shape: Shape) -> Tiling:
    """The tiling with splits reduced to equal parts: along only the first axes if not all divide a dimension."""
    annotations = walk.program.annotations

    def fitting(split: Split | None, size: int) -> Split | None:
        forms = () if split is None else (split, *filter(annotations.is_along_axes, coarser(split)))
        return next((s for s in forms if size % parts(s) == 0), None)

    return tuple(map(fitting, hint, shape.dimensions))


def _result(walk: Walk, piece: Piece, sharding: Sharding | None, hint: Tiling) -> Piece:
    wanted = _tiling(walk, sharding, piece.shape)
    own = piece if piece.scope == walk.scope else walk.pieces.in_inner_scope(piece, walk.scope)
    if wanted is not None:
        own = walk.pieces.retiled(own, wanted, walk.scope)
    elif any(hint):
        own = walk.pieces.retiled(own, _even(walk, hint, piece.shape), walk.scope)
    numbers = walk.program.annotations.unreduced(sharding)
    if numbers is None or not own.shape.is_array:
        return own
    # The caller gets the unreduced parts, as an ordinary value.
    partial = walk.pieces.unreduced(own, own.tiling, numbers, walk.scope)
    return Piece(partial.instruction, partial.tiling, walk.scope, partial.shape)
