"""Kernels that combine the arrays of a group's members: all-reduce, reduce-scatter, collective-reduce.

An element is combined in the order of the group, on whichever device and however many threads, so that results are
the same in every run. Each operand is read once, and each result is written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from xlakit.cpu.collectives.tiles import TILE_BYTES, Members, tile_kernel
from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.llvm import I64, Function, Module, Value
from xlakit.cpu.loops.emit.emitter import Emitter
from xlakit.cpu.loops.emit.kernel import Phase, joined
from xlakit.cpu.scalars import Scalar, load, store
from xlakit.cpu.scalars.convert import convert
from xlakit.cpu.scalars.memory import constant
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Computation
from xlakit.ops.communication.collective import combiner_of
from xlakit.passes.analysis.cost_model import cost_model

# Groups of at most so many members are combined in registers, larger ones in a buffer that stays in the cache.
_IN_REGISTERS = 8


@dataclass(frozen=True, slots=True)
class Combining:
    """How two elements of a type are combined: in which type, by which computation."""

    kind: PrimitiveType
    working: PrimitiveType
    computation: Computation

    @staticmethod
    def of(computation: Computation, kind: PrimitiveType) -> Combining:
        """The way for arrays of an element type; raises DeclinedError or UnsupportedError."""
        found = combiner_of(computation, kind)
        working = found.root.shape.element_type
        if any(p.shape.element_type is not working for p in found.parameters):
            raise DeclinedError(f"{found.name} gives another type than it takes")
        return Combining(kind, working, found)

    @property
    def bytes(self) -> int:
        """The size of an element in memory."""
        return self.kind.byte_width

    def load(self, fn: Function, array: Value, index: Value) -> Scalar:
        """An element, as it is computed with."""
        return convert(fn, self.kind, self.working, load(fn, self.kind, array, index))

    def combined(self, emitter: Emitter, total: Scalar, value: Scalar) -> Scalar:
        """One step."""
        (found,) = emitter.called(self.computation, [total, value])
        return found

    def store(self, fn: Function, total: Scalar, array: Value, index: Value) -> None:
        """Write what has been computed."""
        store(fn, self.kind, convert(fn, self.working, self.kind, total), array, index)

    @property
    def tile(self) -> int:
        """How many elements a task has."""
        return max(64, TILE_BYTES // max(1, self.bytes) // 64 * 64)


@dataclass(frozen=True, slots=True)
class _Operand:
    """An operand of the collective: how its elements are combined, its shape, and the arrays of operand and result."""

    combining: Combining
    shape: Shape
    number: int
    result: int


# Where elements are, for the index in the result, from its first row on.
Offset = Callable[[Value], Value]


def _same(index: Value) -> Value:
    return index


@dataclass(frozen=True, slots=True)
class Tile:
    """Elements [begin, end) of a result, and where each member's elements lie that they are made of.

    operand: its number. result: the number of the result of which the first ``targets`` members get these elements, or
    the one array that they go to. origin, target: the offsets in operands and results.
    """

    combining: Combining
    operand: int
    result: int | Value
    begin: Value
    end: Value
    targets: Value | int = 1
    origin: Offset = _same
    target: Offset = _same


def all_reduce(
    module: Module, name: str, computation: Computation, shapes: Sequence[Shape], count: int | None
) -> Phase:
    """Each member gets the whole result."""
    parts = [_flat(module, f"{name}.{o.number}", o, count) for o in _operands(computation, shapes)]
    return joined(module, name, parts)


def collective_reduce(
    module: Module, name: str, computation: Computation, shapes: Sequence[Shape], count: int | None
) -> Phase:
    """The first member gets the result, the others zeros."""
    parts = [_flat(module, f"{name}.{o.number}", o, count, only_first=True) for o in _operands(computation, shapes)]
    return joined(module, name, parts)


def reduce_scatter(
    module: Module, name: str, computation: Computation, shapes: Sequence[Shape], dimension: int, count: int
) -> Phase:
    """Each member gets its block of the result along a dimension."""
    parts = [_blocks(module, f"{name}.{o.number}", o, dimension, count) for o in _operands(computation, shapes)]
    return joined(module, name, parts)


def _operands(computation: Computation, shapes: Sequence[Shape]) -> Iterator[_Operand]:
    for number, shape in enumerate(shapes):
        yield _Operand(Combining.of(computation, shape.element_type), shape, number, len(shapes) + number)


def _flat(module: Module, name: str, operand: _Operand, count: int | None, *, only_first: bool = False) -> Phase:
    """The kernel that combines an operand of all members, for all of them or the first one only, in tiles."""
    combining, elements = operand.combining, operand.shape.num_elements
    tile = combining.tile

    def body(members: Members, task: Value) -> None:
        begin = task * tile
        end = (begin + tile).smin(elements)
        targets = 1 if only_first else members.count
        made = Tile(combining, operand.number, operand.result, begin, end, targets)
        _combine(members, made)
        if only_first:
            _clear(members, made)

    cost = elements * combining.bytes * cost_model().moved_byte() * 2 * (count or 4)
    return tile_kernel(module, name, -(-elements // tile), cost, count, body)


def _blocks(module: Module, name: str, operand: _Operand, dimension: int, count: int) -> Phase:
    """Rows of the result; those of the operand are ``count`` times as long, a part for each member."""
    combining, sizes = operand.combining, operand.shape.dimensions
    rows, length = math.prod(sizes[:dimension]), math.prod(sizes[dimension:]) // count
    tile = combining.tile
    pieces = max(1, -(-length // tile))

    def body(members: Members, task: Value) -> None:
        piece, rest = task.integer("urem", pieces), task.integer("udiv", pieces)
        row, member = rest.integer("urem", max(1, rows)), rest.integer("udiv", max(1, rows))
        begin = piece * tile
        end = (begin + tile).smin(length)
        origin, target = (row * count + member) * length, row * length
        made = Tile(
            combining,
            operand.number,
            members.array(member, operand.result),
            begin,
            end,
            origin=lambda i: i + origin,
            target=lambda i: i + target,
        )
        _combine(members, made)

    tasks = rows * pieces * count if rows * length else 0
    cost = rows * length * combining.bytes * count * cost_model().moved_byte() * 1.5
    return tile_kernel(module, name, tasks, cost, count, body)


def _combine(members: Members, tile: Tile) -> None:
    """Combine a tile of all members."""
    if isinstance(members.count, int) and members.count <= _IN_REGISTERS:
        _in_registers(members, members.count, tile)
    else:
        _in_buffer(members, tile)


def _in_registers(members: Members, count: int, tile: Tile) -> None:
    """Combine element by element over all members, of which there are few."""
    fn, combining = members.fn, tile.combining
    operands = [members.array(m, tile.operand) for m in range(count)]
    if isinstance(tile.result, Value):
        results = [tile.result]
    else:
        # All of them, or the first.
        last = tile.targets if isinstance(tile.targets, int) else count
        results = [members.array(m, tile.result) for m in range(last)]
    emitter = Emitter(fn, [])
    with fn.loop(tile.begin, tile.end, independent=True) as loop, emitter.scope():
        offset = tile.origin(loop.index)
        total = combining.load(fn, operands[0], offset)
        for array in operands[1:]:
            total = combining.combined(emitter, total, combining.load(fn, array, offset))
        for array in results:
            combining.store(fn, total, array, tile.target(loop.index))


def _in_buffer(members: Members, tile: Tile) -> None:
    """Combine into a buffer on the stack, member by member, and then store it: for groups of any size."""
    fn, combining = members.fn, tile.combining
    words = combining.tile * max(1, combining.working.byte_width) // 8 + 1
    buffer = fn.alloca(I64, words, align=64)
    raw = Combining(combining.working, combining.working, combining.computation)
    emitter = Emitter(fn, [])
    first = members.array(0, tile.operand)
    with fn.loop(tile.begin, tile.end, independent=True) as loop, emitter.scope():
        raw.store(fn, combining.load(fn, first, tile.origin(loop.index)), buffer, loop.index - tile.begin)
    with fn.loop(1, members.count) as others:
        array = members.array(others.index, tile.operand)
        with fn.loop(tile.begin, tile.end, independent=True) as loop, emitter.scope():
            total = raw.load(fn, buffer, loop.index - tile.begin)
            value = combining.load(fn, array, tile.origin(loop.index))
            raw.store(fn, combining.combined(emitter, total, value), buffer, loop.index - tile.begin)
    with fn.loop(0, 1 if isinstance(tile.result, Value) else tile.targets) as each:
        to = tile.result if isinstance(tile.result, Value) else members.array(each.index, tile.result)
        with fn.loop(tile.begin, tile.end, independent=True) as loop:
            combining.store(fn, raw.load(fn, buffer, loop.index - tile.begin), to, tile.target(loop.index))


def _clear(members: Members, tile: Tile) -> None:
    """Zeros for all members but the first."""
    if isinstance(tile.result, Value):
        return
    fn, kind = members.fn, tile.combining.kind
    zero = constant(fn, kind, 0)
    with fn.loop(1, members.count) as each:
        array = members.array(each.index, tile.result)
        with fn.loop(tile.begin, tile.end, independent=True) as loop:
            store(fn, kind, zero, array, loop.index)
