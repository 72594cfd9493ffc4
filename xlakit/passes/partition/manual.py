"""Where manual computations begin and end: parts of arrays become arrays of their own, and the other way round.

Shardy's form names the mesh and the axes that are manual; the older form says a sharding of HLO, which is manual in all
or in part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from xlakit.data.shape import Shape
from xlakit.errors import ShapeError
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.control import Call
from xlakit.ops.custom_call import CustomCall
from xlakit.passes.partition.annotations import IN_SHARDINGS, OUT_SHARDINGS, Stated
from xlakit.passes.partition.scopes import Scope
from xlakit.passes.partition.tilings import Split, Tiling, is_proper, parts, places_in, refines, whole
from xlakit.passes.partition.values import Piece, Value, leaf_shapes, leaves, rebuilt

if TYPE_CHECKING:
    from xlakit.passes.partition.walk import Walk

_ENDS: Final = "xla.sdy.LocalToGlobalShape"


def ends_of_calls(computation: Computation) -> dict[Instruction, Instruction]:
    """For each call of a manual computation where that ends."""
    found: dict[Instruction, Instruction] = {}
    for end in computation.instructions:
        if not isinstance(end.op, CustomCall) or end.op.custom_call_target != _ENDS:
            continue
        for operand in end.operands:
            source = operand.operands[0] if operand.opcode == "get-tuple-element" else operand
            if isinstance(source.op, Call):
                found[source] = end
    return found


def scope_of(walk: Walk, boundary: Instruction) -> Scope:
    """The scope of the manual computation that begins or ends with an instruction."""
    numbers = walk.program.annotations.manual_axes(boundary)
    return walk.scope if numbers is None else walk.scope.inside(numbers)


# -- Shardy's form -----------------------------------------------------------------------------------


def _begin(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """The parts of the operands that a team has by the manual axes; these may be split further."""
    stated = walk.program.annotations.stated(old, IN_SHARDINGS)
    inner = scope_of(walk, old)
    given = [p for operand in operands for p in leaves(operand)]
    made: list[Piece] = []
    for number, (piece, shape) in enumerate(zip(given, leaf_shapes(old.shape), strict=True)):
        by_hand = _manual(walk, old, stated, number, piece.shape)
        made.append(_local(walk, piece, by_hand, shape, inner, _unreduced(walk, old, stated, number)))
    return rebuilt(old.shape, iter(made))


def _end(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """The arrays of which the operands are parts."""
    stated = walk.program.annotations.stated(old, OUT_SHARDINGS)
    inner = scope_of(walk, old)
    given = [p for operand in operands for p in leaves(operand)]
    made: list[Piece] = []
    for number, (piece, shape) in enumerate(zip(given, leaf_shapes(old.shape), strict=True)):
        by_hand = _manual(walk, old, stated, number, shape)
        own = piece if piece.scope == inner else walk.pieces.within(piece, inner)
        found = _global(walk, own, by_hand, shape, inner, walk.scope)
        found.unreduced = _unreduced(walk, old, stated, number)
        made.append(found)
    return rebuilt(old.shape, iter(made))


def _manual(
    walk: Walk, old: Instruction, stated: Sequence[Stated | None] | None, number: int, shape: Shape
) -> list[Split]:
    """For each dimension the split, over all partitions, by the manual axes."""
    own = stated[number] if stated is not None and number < len(stated) else None
    if own is None or not shape.is_array:
        return [(0,) * walk.program.channels.partitions for _ in shape.dimensions]
    axes = walk.program.annotations.manual_axes_of(old, own.mesh)
    return [own.manual(d, axes) for d in range(shape.rank)]


def _unreduced(walk: Walk, old: Instruction, stated: Sequence[Stated | None] | None, number: int) -> Split | None:
    """Which of the values that are still to be added each member of the outer team has."""
    own = stated[number] if stated is not None and number < len(stated) else None
    if own is None or not own.unreduced:
        return None
    axes = walk.program.annotations.manual_axes_of(old, own.mesh)
    return walk.scope.agreed(own.unreduced_among(axes))


def _local(
    walk: Walk, piece: Piece, by_hand: Sequence[Split], shape: Shape, inner: Scope, unreduced: Split | None = None
) -> Piece:
    if not shape.is_array:
        return Piece(piece.instruction, piece.tiling, inner, shape)
    outer = walk.scope
    hand: list[Split | None] = [outer.agreed(s) for s in by_hand]
    _check(piece.shape, shape, hand)
    kept: list[Split | None] = list(piece.tiling) if piece.scope == outer else list(whole(shape.rank))
    kept = [own if refines(own, split) else split for own, split in zip(kept, hand, strict=True)]
    inside = [_inside(own, split, outer, inner) for own, split in zip(kept, hand, strict=True)]
    if not is_proper(kept) or not is_proper(inside) or not _same_parts(kept, hand, inside):
        kept, inside = hand, list(whole(shape.rank))
    made = walk.pieces.unreduced(piece, tuple(kept), unreduced, outer)
    given = made.instruction if unreduced is not None else walk.pieces.at(made, tuple(kept), outer)
    return Piece(given, tuple(inside), inner, shape)


def _same_parts(kept: Sequence[Split | None], hand: Sequence[Split | None], inside: Sequence[Split | None]) -> bool:
    return all(parts(k) == parts(h) * parts(i) for k, h, i in zip(kept, hand, inside, strict=True))


def _inside(own: Split | None, hand: Split | None, outer: Scope, inner: Scope) -> Split | None:
    """Within a team of the inner scope, which piece of the team's part each member has."""
    places = places_in(own, hand)
    return None if places is None else inner.agreed(tuple(outer.of_partitions(list(places))))


def _global(walk: Walk, piece: Piece, by_hand: Sequence[Split], shape: Shape, inner: Scope, outer: Scope) -> Piece:
    if not shape.is_array:
        return Piece(piece.instruction, piece.tiling, outer, shape)
    piece = walk.pieces.summed(piece)
    hand = [outer.agreed(s) for s in by_hand]
    _check(shape, piece.shape, hand)
    tiling = tuple(_together(by, own, outer, inner) for by, own in zip(by_hand, piece.tiling, strict=True))
    counts = [parts(h) * parts(own) for h, own in zip(hand, piece.tiling, strict=True)]
    if not is_proper(tiling) or counts != [parts(t) for t in tiling]:
        return _global(walk, walk.pieces.retiled(piece, whole(shape.rank), inner), by_hand, shape, inner, outer)
    return Piece(piece.instruction, tiling, outer, shape)


def _together(by_hand: Split, own: Split | None, outer: Scope, inner: Scope) -> Split | None:
    """The team's part, and the member's piece of it, as a part of the whole."""
    if own is None:
        return outer.agreed(by_hand)
    places = inner.of_partitions(list(own))
    return outer.agreed(tuple(h * parts(own) + p for h, p in zip(by_hand, places, strict=True)))


def _check(whole_shape: Shape, part: Shape, hand: Sequence[Split | None]) -> None:
    sizes = zip(whole_shape.dimensions, part.dimensions, hand, strict=True)
    if any(size != own * parts(split) for size, own, split in sizes):
        raise ShapeError(
            f"{whole_shape.without_layout()} in {[parts(h) for h in hand]} parts is not {part.without_layout()}",
            hint="the sizes must be those of the parts, times how many there are",
        )


# -- the form of older programs ------------------------------------------------------------------------


def _full_to_shard(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    (piece,) = leaves(operands[0])
    sharding = old.annotations.sharding
    numbers = None if sharding is None else walk.program.annotations.manual_numbers(sharding)
    inner = walk.scope if numbers is None else walk.scope.inside(numbers)
    by_hand = _by_ratio(walk, piece.shape, old.shape, old.operands[0], piece.tiling)
    return _local(walk, piece, by_hand, old.shape, inner)


def _shard_to_full(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    (piece,) = leaves(operands[0])
    by_hand = _by_ratio(walk, old.shape, piece.shape, old, whole(old.shape.rank))
    return _global(walk, piece, by_hand, old.shape, piece.scope, walk.scope)


def _by_ratio(walk: Walk, whole_shape: Shape, part: Shape, said: Instruction, tiling: Tiling) -> list[Split]:
    """The split of each dimension into as many parts as sizes say, where an instruction says which."""
    splits = walk.program.annotations.splits(said.annotations.sharding, whole_shape.rank) or tiling
    found: list[Split] = []
    for size, own, split in zip(whole_shape.dimensions, part.dimensions, splits, strict=True):
        count = size // own if own else 1
        if split is None or count == 1 or parts(split) % count:
            found.append((0,) * walk.program.channels.partitions)
        else:
            factor = parts(split) // count
            found.append(tuple(place // factor for place in split))
    return found


_Boundary = Callable[["Walk", Instruction, tuple[Value, ...]], Value]

BOUNDARIES: Final[dict[str, _Boundary]] = {
    "SPMDFullToShardShape": _full_to_shard,
    "SPMDShardToFullShape": _shard_to_full,
    "xla.sdy.GlobalToLocalShape": _begin,
    _ENDS: _end,
}
