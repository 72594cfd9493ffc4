"""Kernels of collectives that move data: all-gather, all-to-all with arrays or tuples, permutations and broadcasts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlakit.cpu.collectives.tiles import Members, RowsInArray, Tiles, each_operand, move_rows, tile_kernel
from xlakit.cpu.llvm import I8, I64, Module, Value
from xlakit.cpu.loops.emit.kernel import Phase
from xlakit.cpu.scalars import load
from xlakit.cpu.scalars.memory import as_real
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.passes.analysis.cost_model import cost_model


def all_gather(module: Module, name: str, shapes: Sequence[Shape], dimension: int, count: int) -> Phase:
    """Concatenate the operands of all members along a dimension, for all members; each tile is read once."""

    def gathered(name: str, shape: Shape, number: int, result: int) -> Phase:
        rows, length = _split(shape, dimension)
        tiles = Tiles(rows, length)

        def body(members: Members, task: Value) -> None:
            tile, sender = task.integer("udiv", count), task.integer("urem", count)
            source = RowsInArray(members.array(sender, number), 0, length)
            with members.fn.loop(0, count) as each:
                target = RowsInArray(members.array(each.index, result), sender * length, count * length)
                move_rows(members.fn, tiles, tile, target, source)

        cost = rows * length * count * (count + 1) * cost_model().moved_byte()
        return tile_kernel(module, name, tiles.count * count, cost, count, body)

    return each_operand(module, name, shapes, gathered)


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
    """Member i gets operand number i of each member."""
    tiles = Tiles(1, shape.byte_size)

    def body(members: Members, task: Value) -> None:
        sender, rest = task.integer("urem", count), task.integer("udiv", count)
        tile, receiver = rest.integer("udiv", count), rest.integer("urem", count)
        target, origin = members.array(receiver, sender + count), members.array(sender, receiver)
        move_rows(members.fn, tiles, tile, RowsInArray(target, 0, tiles.bytes), RowsInArray(origin, 0, tiles.bytes))

    cost = 2 * tiles.bytes * count * count * cost_model().moved_byte()
    return tile_kernel(module, name, tiles.count * count * count, cost, count, body)


def fetch(module: Module, name: str, shapes: Sequence[Shape], count: int | None) -> Phase:
    """Each member gets the arrays of its source, which its arrival names; zeros if it has none."""

    def fetched(name: str, shape: Shape, number: int, result: int) -> Phase:
        tiles = Tiles(1, shape.byte_size)

        def body(members: Members, tile: Value) -> None:
            fn = members.fn
            bounds = tiles.bounds(fn, tile)
            with fn.loop(0, members.count) as each:
                target = fn.at(members.array(each.index, result), I8, bounds.start)
                source = members.source(each.index)
                has_source = source >= 0
                with fn.if_(has_source):
                    fn.copy(target, fn.at(members.array(source, number), I8, bounds.start), bounds.size)
                with fn.if_(~has_source):
                    fn.fill(target, 0, bounds.size)

        cost = 2 * tiles.bytes * (count or 4) * cost_model().moved_byte()
        return tile_kernel(module, name, tiles.count, cost, count, body)

    return each_operand(module, name, shapes, fetched)


def _split(shape: Shape, dimension: int) -> tuple[int, int]:
    """The number of rows of an array whose rows contain ``dimension`` and all later ones, and the bytes of a row."""
    sizes = shape.dimensions
    return math.prod(sizes[:dimension]), math.prod(sizes[dimension:]) * shape.element_type.byte_width


# The numbers of the arrays in a member's table: operands, then the result.
_INPUT, _OUTPUT, _STARTS, _SIZES, _TARGETS, _RECEIVED, _RESULT = range(7)


def ragged_all_to_all(module: Module, name: str, shapes: Sequence[Shape], count: int) -> Phase:
    """Each task computes the result of one member: a copy of its output operand with the rows of each sender.

    If offsets or sizes are invalid, these rows are not copied, and the rendezvous is marked as faulty.
    """
    source, target, table = shapes[_INPUT], shapes[_OUTPUT], shapes[_STARTS]
    row = math.prod(source.dimensions[1:]) * source.element_type.byte_width
    pieces = table.num_elements // count
    kinds = [shape.element_type for shape in shapes]

    def body(members: Members, receiver: Value) -> None:
        fn = members.fn
        result = members.array(receiver, _RESULT)
        whole = target.num_elements * target.element_type.byte_width
        fn.copy(result, members.array(receiver, _OUTPUT), whole)
        with fn.loop(0, count) as senders:
            sender = senders.index
            origin = members.array(sender, _INPUT)
            with fn.loop(0, pieces) as each:

                def number(member: Value, table: int, other: Value, piece: Value = each.index) -> Value:
                    return _integer(members, kinds[table], members.array(member, table), other * pieces + piece)

                start, size, offset = (number(sender, t, receiver) for t in (_STARTS, _SIZES, _TARGETS))
                expected = number(receiver, _RECEIVED, sender)
                is_inside = _within(start, size, source.dimensions[0]) & _within(offset, size, target.dimensions[0])
                fits = is_inside & size.eq(expected)
                with fn.if_(fits):
                    fn.copy(fn.at(result, I8, offset * row), fn.at(origin, I8, start * row), size * row)
                with fn.if_(~fits):
                    members.fail()

    cost = 3.0 * count * (source.num_elements + target.num_elements) * source.element_type.byte_width
    return tile_kernel(module, name, count, cost * cost_model().moved_byte(), count, body)


def _integer(members: Members, kind: PrimitiveType, array: Value, index: Value) -> Value:
    return as_real(load(members.fn, kind, array, index)).resized(I64, signed=kind.is_signed)


def _within(begin: Value, size: Value, limit: int) -> Value:
    """Whether 0 <= begin <= begin + size <= limit; unsigned 64-bit numbers that are negative here are too large."""
    return (begin >= 0) & (size >= 0) & (begin <= limit) & (size <= limit) & ((begin + size) <= limit)
