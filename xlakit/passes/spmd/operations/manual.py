"""The boundaries of manual computations: parts of arrays become arrays, and the reverse.

Shardy's form names the mesh and the manual axes; the older form has an HLO sharding that is manual completely or
partly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from xlakit.data.nesting import nested
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError
from xlakit.ir.attributes import Sharding
from xlakit.ir.instruction import Instruction
from xlakit.passes.spmd.shardings.annotations import END_OF_MANUAL, IN_SHARDINGS, OUT_SHARDINGS, with_axes
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Split, Tiling, is_proper, parts, refines, subparts_of, whole
from xlakit.passes.spmd.shardings.values import Piece, Value, leaf_shapes, leaves
from xlakit.passes.spmd.walk import Walk


def scope_of(walk: Walk, boundary: Instruction) -> Scope:
    """The scope of the manual computation that begins or ends with an instruction."""
    annotations = walk.program.annotations
    found = annotations.manual_axes(boundary)
    return walk.scope if found is None else walk.scope.inside(annotations.along(*found))


@dataclass(frozen=True)
class _Border:
    """The boundary that an array crosses: its manual splits over all partitions, which give the parts of the teams
    inside.

    If ``unreduced`` numbers the members of the outer team, the values inside are partial sums.
    """

    inner: Scope
    manual_splits: tuple[Split | None, ...]
    unreduced: Split | None = None


# -- Shardy's form -----------------------------------------------------------------------------------


def _begin(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    return _across(walk, old, operands, IN_SHARDINGS, _to_parts)


def _end(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    return _across(walk, old, operands, OUT_SHARDINGS, _from_parts)


def _across(walk: Walk, old: Instruction, operands: tuple[Value, ...], key: str, crossed: _Crossed) -> Value:
    """The values of the operands on the other side of a boundary instruction."""
    given, shapes = _arrays(old, operands)
    annotations = walk.program.annotations
    shardings = annotations.in_attribute(old, key, len(shapes)) or [Sharding("REPLICATED")] * len(shapes)
    _, axes = annotations.manual_axes(old) or (None, ())
    inner = scope_of(walk, old)
    made: list[Piece] = []
    for piece, shape, sharding in zip(given, shapes, shardings, strict=True):
        manual = with_axes(sharding, axes)
        manual_splits = annotations.splits(manual, shape.rank if shape.is_array else 0) or ()
        unreduced = walk.scope.agreed(annotations.unreduced(manual))
        made.append(crossed(walk, piece, shape, _Border(inner, manual_splits, unreduced)))
    return nested(old.shape, iter(made))


def _arrays(old: Instruction, operands: tuple[Value, ...]) -> tuple[list[Piece], list[Shape]]:
    """The arrays that cross a boundary, and their shapes on the other side."""
    given, shapes = [p for operand in operands for p in leaves(operand)], leaf_shapes(old.shape)
    kinds = [(s.element_type, s.rank if s.is_array else 0) for s in shapes]
    if [(p.shape.element_type, len(p.tiling)) for p in given] != kinds:
        before = ", ".join(str(p.shape.without_layout()) for p in given)
        raise ShapeError(
            f"({before}) cannot become {old.shape.without_layout()}",
            hint="let each operand have a result of its type and rank",
        )
    return given, shapes


def _to_parts(walk: Walk, piece: Piece, shape: Shape, border: _Border) -> Piece:
    """The part of an array that a team has; splits beyond the manual ones are kept."""
    inner, outer = border.inner, walk.scope
    if not shape.is_array:
        return Piece(piece.instruction, piece.tiling, inner, shape)
    manual_splits = [outer.agreed(split) for split in border.manual_splits]
    _check(piece.shape, shape, manual_splits)
    kept: list[Split | None] = list(piece.tiling) if piece.scope == outer else list(whole(shape.rank))
    kept = [own if refines(own, split) else split for own, split in zip(kept, manual_splits, strict=True)]
    inside = [_inside(own, split, outer, inner) for own, split in zip(kept, manual_splits, strict=True)]
    counts = [parts(h) * parts(i) for h, i in zip(manual_splits, inside, strict=True)]
    if not is_proper(kept) or not is_proper(inside) or counts != [parts(k) for k in kept]:
        kept, inside = manual_splits, list(whole(shape.rank))
    made = walk.pieces.unreduced(piece, tuple(kept), border.unreduced, outer)
    given = made.instruction if border.unreduced is not None else walk.pieces.at(made, tuple(kept), outer)
    return Piece(given, tuple(inside), inner, shape)


def _inside(own: Split | None, manual_split: Split | None, outer: Scope, inner: Scope) -> Split | None:
    """The subpart of the team's part that each member of the inner scope has."""
    subparts = subparts_of(own, manual_split)
    return None if subparts is None else inner.agreed(tuple(outer.of_partitions(list(subparts))))


def _from_parts(walk: Walk, piece: Piece, shape: Shape, border: _Border) -> Piece:
    """The array whose parts the teams have."""
    inner, outer = border.inner, walk.scope
    if not shape.is_array:
        return Piece(piece.instruction, piece.tiling, outer, shape)
    manual_splits = [outer.agreed(split) for split in border.manual_splits]
    _check(shape, piece.shape, manual_splits)
    piece = walk.pieces.summed(piece if piece.scope == inner else walk.pieces.in_inner_scope(piece, inner))
    tiling = tuple(_together(by, own, outer, inner) for by, own in zip(border.manual_splits, piece.tiling, strict=True))
    counts = [parts(by) * parts(own) for by, own in zip(manual_splits, piece.tiling, strict=True)]
    if not is_proper(tiling) or counts != [parts(t) for t in tiling]:
        return _from_parts(walk, walk.pieces.retiled(piece, whole(shape.rank), inner), shape, border)
    return Piece(piece.instruction, tiling, outer, shape, unreduced=border.unreduced)


def _together(manual_split: Split | None, own: Split | None, outer: Scope, inner: Scope) -> Split | None:
    """The split of the whole array by the team's part and the member's piece of that part."""
    if own is None:
        return outer.agreed(manual_split)
    subparts = inner.of_partitions(list(own))
    return outer.agreed(
        tuple(h * parts(own) + p for h, p in zip(manual_split or (0,) * len(subparts), subparts, strict=True))
    )


def _check(whole_shape: Shape, part: Shape, manual_splits: Sequence[Split | None]) -> None:
    sizes = zip(whole_shape.dimensions, part.dimensions, manual_splits, strict=True)
    if any(size != own * parts(split) for size, own, split in sizes):
        raise ShapeError(
            f"{whole_shape.without_layout()} in {[parts(s) for s in manual_splits]} parts is not "
            f"{part.without_layout()}",
            hint="the sizes must be those of the parts, times how many there are",
        )


# -- the form of older programs ------------------------------------------------------------------------


def _full_to_shard(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    sharding = old.annotations.sharding
    numbers = None if sharding is None else walk.program.annotations.manual_numbers(sharding)
    inner = walk.scope if numbers is None else walk.scope.inside(numbers)
    made: list[Piece] = []
    for piece, shape in zip(*_arrays(old, operands), strict=True):
        manual_splits = _by_ratio(walk, (piece.shape, shape), old.operands[0], piece.tiling, inner)
        made.append(_to_parts(walk, piece, shape, _Border(inner, manual_splits)))
    return nested(old.shape, iter(made))


def _shard_to_full(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    made: list[Piece] = []
    for piece, shape in zip(*_arrays(old, operands), strict=True):
        manual_splits = _by_ratio(walk, (shape, piece.shape), old, whole(len(piece.tiling)), piece.scope)
        made.append(_from_parts(walk, piece, shape, _Border(piece.scope, manual_splits)))
    return nested(old.shape, iter(made))


def _by_ratio(
    walk: Walk, shapes: tuple[Shape, Shape], annotated: Instruction, tiling: Tiling, inner: Scope
) -> tuple[Split | None, ...]:
    """For each dimension a split into (size of the whole / size of the part) parts; None for one part.

    The split comes from the sharding of ``annotated``, or from ``tiling``; that may be finer by a factor, if the teams
    split their parts further. Raises ShapeError if the sizes do not match any such split.
    """
    (whole_shape, part), sharding = shapes, annotated.annotations.sharding
    said = walk.program.annotations.splits(sharding, whole_shape.rank)
    is_exact = said is not None and inner.size == 1
    why = "as its sharding says" if said is not None else "without a sharding"
    found: list[Split | None] = []
    for size, own, split in zip(whole_shape.dimensions, part.dimensions, said or tiling, strict=True):
        if not size and not own:
            found.append(None)
            continue
        count = size // own if own else 1
        if size != own * count or parts(split) % count or (is_exact and parts(split) != count):
            raise ShapeError(
                f"'{annotated.name}', {whole_shape.without_layout()}, is in {_parts_of(said or tiling)} parts, {why}; "
                f"these are not {part.without_layout()}",
                hint="each size of the whole must be that of a part, times the number of parts of that dimension",
            )
        factor = parts(split) // count
        found.append(None if split is None or count == 1 else tuple(number // factor for number in split))
    return tuple(found)


def _parts_of(splits: Sequence[Split | None]) -> str:
    return " x ".join(str(parts(s)) for s in splits)


_Boundary = Callable[[Walk, Instruction, tuple[Value, ...]], Value]
_Crossed = Callable[[Walk, Piece, Shape, _Border], Piece]

BOUNDARIES: Final[dict[str, _Boundary]] = {
    "SPMDFullToShardShape": _full_to_shard,
    "SPMDShardToFullShape": _shard_to_full,
    "xla.sdy.GlobalToLocalShape": _begin,
    END_OF_MANUAL: _end,
}
