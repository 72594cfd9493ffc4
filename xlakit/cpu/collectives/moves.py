"""Kernels of collectives that move data: all-gather, all-to-all in its forms, permutations and broadcasts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlakit.cpu.collectives.tiles import Members, RowsInArray, Tiles, move_rows, tile_kernel
from xlakit.cpu.llvm import I8, Module, Value
from xlakit.cpu.loops.emit.kernel import Phase, joined
from xlakit.data.shape import Shape
from xlakit.passes.analysis.cost_model import cost_model


def all_gather(module: Module, name: str, shapes: Sequence[Shape], dimension: int, count: int) -> Phase:
    """All members get all operands, one after the other along a dimension: a tile is read once."""
    return joined(
        module,
        name,
        [_gathered(module, f"{name}.{n}", s, dimension, n, len(shapes), count) for n, s in enumerate(shapes)],
    )


def _gathered(module: Module, name: str, shape: Shape, dimension: int, number: int, arrays: int, count: int) -> Phase:
    rows, length = _split(shape, dimension)
    tiles = Tiles(rows, length)

    def body(members: Members, task: Value) -> None:
        fn = members.fn
        tile, sender = task.integer("udiv", count), task.integer("urem", count)
        origin = members.array(sender, number)
        with fn.loop(0, count) as each:
            target = members.array(each.index, arrays + number)
            move_rows(
                fn, tiles, tile, RowsInArray(target, sender * length, count * length), RowsInArray(origin, 0, length)
            )

    cost = rows * length * count * (count + 1) * cost_model().moved_byte()
    return tile_kernel(module, name, tiles.count * count, cost, count, body)


def all_to_all(module: Module, name: str, shape: Shape, dimension: int, count: int) -> Phase:
    """Member i gets block i of each member's operand along a dimension."""
    rows, whole = _split(shape, dimension)
    length = whole // count
    tiles = Tiles(rows, length)

    def body(members: Members, task: Value) -> None:
        sender, rest = task.integer("urem", count), task.integer("udiv", count)
        tile, receiver = rest.integer("udiv", count), rest.integer("urem", count)
        target, origin = members.array(receiver, 1), members.array(sender, 0)
        move_rows(
            members.fn,
            tiles,
            tile,
            RowsInArray(target, sender * length, whole),
            RowsInArray(origin, receiver * length, whole),
        )

    cost = 2 * rows * whole * count * cost_model().moved_byte()
    return tile_kernel(module, name, tiles.count * count * count, cost, count, body)


def all_to_all_of_tuples(module: Module, name: str, shape: Shape, count: int) -> Phase:
    """Member i gets operand i of each member."""
    tiles = Tiles(1, shape.byte_size)

    def body(members: Members, task: Value) -> None:
        sender, rest = task.integer("urem", count), task.integer("udiv", count)
        tile, receiver = rest.integer("udiv", count), rest.integer("urem", count)
        target, origin = members.array(receiver, sender + count), members.array(sender, receiver)
        move_rows(members.fn, tiles, tile, RowsInArray(target, 0, tiles.bytes), RowsInArray(origin, 0, tiles.bytes))

    cost = 2 * tiles.bytes * count * count * cost_model().moved_byte()
    return tile_kernel(module, name, tiles.count * count * count, cost, count, body)


def fetch(module: Module, name: str, shapes: Sequence[Shape], count: int | None) -> Phase:
    """Each member gets the arrays of the member that its arrival names as source; zeros where it names none."""
    return joined(
        module, name, [_fetched(module, f"{name}.{n}", s, n, len(shapes), count) for n, s in enumerate(shapes)]
    )


def _fetched(module: Module, name: str, shape: Shape, number: int, arrays: int, count: int | None) -> Phase:
    tiles = Tiles(1, shape.byte_size)

    def body(members: Members, tile: Value) -> None:
        fn = members.fn
        bounds = tiles.bounds(fn, tile)
        with fn.loop(0, members.count) as each:
            target = fn.at(members.array(each.index, arrays + number), I8, bounds.start)
            source = members.source(each.index)
            has_source = source >= 0
            with fn.if_(has_source):
                fn.copy(target, fn.at(members.array(source, number), I8, bounds.start), bounds.size)
            with fn.if_(~has_source):
                fn.fill(target, 0, bounds.size)

    cost = 2 * tiles.bytes * (count or 4) * cost_model().moved_byte()
    return tile_kernel(module, name, tiles.count, cost, count, body)


def _split(shape: Shape, dimension: int) -> tuple[int, int]:
    """An array as rows that end before a dimension: how many there are, and their bytes."""
    sizes = shape.dimensions
    return math.prod(sizes[:dimension]), math.prod(sizes[dimension:]) * shape.element_type.byte_width
