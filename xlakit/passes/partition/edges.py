"""The edges of a program: arguments come in the parts that are said, results go in those that are said or found.

Parts of an argument or result need not be equal: then all have the size of the largest, and the last are padded. Inside
the program such an array is whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from xlakit.data.literal import Literal
from xlakit.data.shape import Shape
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.ir.attributes import PaddingDimension, Sharding, SliceDimension
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ops.data import Constant
from xlakit.ops.movement import Pad, Slice
from xlakit.passes.partition.tilings import Tiling, divides, is_proper, local_sizes, parts, whole
from xlakit.passes.partition.values import Piece, Value, leaf_shapes, leaves, rebuilt
from xlakit.passes.partition.walk import Walk, is_result_sharding, local_shape


def said_of(sharding: Sharding | None, shape: Shape) -> list[Sharding | None]:
    """What a sharding says of each array and token of a shape."""
    count = len(leaf_shapes(shape))
    if sharding is None or not count:
        return [None] * count
    found: list[Sharding | None] = list(sharding.elements) if sharding.kind == "TUPLE" else [sharding] * count
    if len(found) != count:
        raise ShapeError(
            f"a sharding of {len(found)} elements for {shape.without_layout()}", hint="give one for each array in it"
        )
    return found


def said_of_result(module: HloModule) -> list[Sharding | None]:
    """What is said of each array and token of the result.

    Shardy's programs say of all as soon as they mean one: what they mean has a custom call of its own.
    """
    root = module.entry.root
    said = said_of(root.annotations.sharding, root.shape)
    has_meshes = any(name == "xla.sdy.meshes" for name, _ in module.frontend_attributes)
    if not has_meshes or root.opcode != "tuple" or len(said) != len(root.operands):
        return said
    return [s if is_result_sharding(o) else None for s, o in zip(said, root.operands, strict=True)]


def _tiling(walk: Walk, sharding: Sharding | None, shape: Shape) -> Tiling | None:
    splits = walk.program.annotations.splits(sharding, shape.rank) if shape.is_array else None
    if splits is None:
        return None
    if any(splits) and shape.is_dynamic:
        raise UnsupportedError(
            f"{shape.without_layout()} in parts", hint="let arrays with dynamic dimensions be whole on every device"
        )
    return tuple(splits)


def argument(walk: Walk, parameter: Instruction, said: Sequence[Sharding | None]) -> tuple[Value, list[Tiling]]:
    """A parameter as its value, and how it is split."""
    shapes = leaf_shapes(parameter.shape)
    found = [_tiling(walk, sharding, shape) for sharding, shape in zip(said, shapes, strict=True)]
    tilings = [t if t is not None else whole(s.rank if s.is_array else 0) for t, s in zip(found, shapes, strict=True)]
    for shape, tiling in zip(shapes, tilings, strict=True):
        if not is_proper(tiling):
            raise ShapeError(f"a sharding of {shape.without_layout()} that does not name each tile as often as others")
    made = walk.pieces.make.like(parameter, parameter.op, (), local_shape(parameter.shape, tilings))
    value = walk.pieces.unbundle(made, parameter.shape, iter(tilings), walk.scope)
    for piece, sharding in zip(leaves(value), said, strict=True):
        piece.unreduced = walk.program.annotations.unreduced(sharding) if piece.shape.is_array else None
    return rebuilt(parameter.shape, _without_padding(walk, leaves(value))), tilings


def _without_padding(walk: Walk, given: Iterable[Piece]) -> Iterator[Piece]:
    for piece in given:
        sizes = piece.shape.dimensions if piece.shape.is_array else ()
        if divides(piece.tiling, sizes):
            yield piece
            continue
        padded = walk.pieces.at(piece, whole(len(sizes)), walk.scope)
        ranges = tuple(SliceDimension(0, size) for size in sizes)
        made = walk.pieces.make.add(Slice(slice=ranges), padded)
        yield Piece(made, whole(len(sizes)), walk.scope, piece.shape)


def result(walk: Walk, value: Value, said: Sequence[Sharding | None]) -> tuple[Value, list[Tiling]]:
    """The result as it is said to be split, or as it is."""
    made: list[Piece] = []
    for piece, sharding in zip(leaves(value), said, strict=True):
        wanted = _tiling(walk, sharding, piece.shape)
        own = piece if piece.scope == walk.scope else walk.pieces.within(piece, walk.scope)
        if wanted is not None and is_proper(wanted):
            own = _padded(walk, own, wanted)
        numbers = walk.program.annotations.unreduced(sharding)
        if numbers is not None and own.shape.is_array:
            partial = walk.pieces.unreduced(own, own.tiling, numbers, walk.scope)
            own = Piece(partial.instruction, partial.tiling, walk.scope, partial.shape)
        made.append(own)
    shape = _shape_of(value)
    return rebuilt(shape, iter(made)), [p.tiling for p in made]


def _shape_of(value: Value) -> Shape:
    from xlakit.data.shape import make_tuple_shape

    return value.shape if isinstance(value, Piece) else make_tuple_shape([_shape_of(v) for v in value])


def _padded(walk: Walk, piece: Piece, wanted: Tiling) -> Piece:
    sizes = piece.shape.dimensions
    if divides(wanted, sizes):
        return walk.pieces.retiled(piece, wanted, walk.scope)
    make = walk.pieces.make
    zero = make.add(Constant(literal=Literal.from_numpy(np.zeros((), piece.shape.element_type.dtype))))
    padding = tuple(
        PaddingDimension(0, local * parts(split) - size)
        for local, split, size in zip(local_sizes(wanted, sizes), wanted, sizes, strict=True)
    )
    padded = make.add(Pad(padding=padding), walk.pieces.at(piece, whole(len(sizes)), walk.scope), zero)
    everything = Piece(padded, whole(len(sizes)), walk.scope, padded.shape)
    return Piece(walk.pieces.at(everything, wanted, walk.scope), wanted, walk.scope, piece.shape)
