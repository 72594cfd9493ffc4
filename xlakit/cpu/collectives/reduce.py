"""Kernels that combine the arrays of a group's members: all-reduce, reduce-scatter, collective-reduce.

The members' elements are always combined in the order of the group, on any device and any number of threads, so results
are the same in every run. Each operand is read once, and each result is written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from xlakit.cpu.collectives.tiles import TILE_BYTES, Members, each_operand, tile_kernel
from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.llvm import I64, Function, Module, Value
from xlakit.cpu.loops.emit.emitter import Emitter
from xlakit.cpu.loops.emit.kernel import Phase
from xlakit.cpu.scalars import Scalar, load, store
from xlakit.cpu.scalars.convert import convert
from xlakit.cpu.scalars.memory import constant
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Computation
from xlakit.ops.communication.collective import combiner_of
from xlakit.passes.analysis.cost_model import cost_model

# Groups with at most this many members are combined in registers, larger ones in a buffer that stays in the cache.
_IN_REGISTERS = 8


@dataclass(frozen=True, slots=True)
class Combining:
    """How two elements of type ``kind`` are combined: by a computation, on values of type ``working``."""

    kind: PrimitiveType
    working: PrimitiveType
    computation: Computation

    @staticmethod
    def of(computation: Computation, kind: PrimitiveType) -> Combining:
        """The combination for arrays of an element type; raises DeclinedError or UnsupportedError."""
        combiner = combiner_of(computation, kind)
        working = combiner.root.shape.element_type
        if any(p.shape.element_type is not working for p in combiner.parameters):
            raise DeclinedError(f"{combiner.name} gives another type than it takes")
        return Combining(kind, working, combiner)

    @property
    def bytes(self) -> int:
        """The size of an element in memory."""
        return self.kind.byte_width

    def load(self, fn: Function, array: Value, index: Value) -> Scalar:
        """Load an element, and convert it to the working type."""
        return convert(fn, self.kind, self.working, load(fn, self.kind, array, index))

    def combined(self, emitter: Emitter, total: Scalar, value: Scalar) -> Scalar:
        """Combine a value with the total so far."""
        (result,) = emitter.called(self.computation, [total, value])
        return result

    def store(self, fn: Function, total: Scalar, array: Value, index: Value) -> None:
        """Convert a total to the element type, and store it."""
        store(fn, self.kind, convert(fn, self.working, self.kind, total), array, index)

    @property
    def tile(self) -> int:
        """The number of elements of a task."""
        return max(64, TILE_BYTES // max(1, self.bytes) // 64 * 64)


# Maps an index in the result to an offset in an array.
Offset = Callable[[Value], Value]


def _same(index: Value) -> Value:
    return index


@dataclass(frozen=True, slots=True)
class Tile:
    """Elements [begin, end) of a result, and the offsets of the operands' elements that are combined.

    operand: its number. result: the number of the result, which the first ``targets`` members get, or the address of
    the one array that gets the elements. origin, target: the offsets in operands and results.
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
    module: Module,
    name: str,
    computation: Computation,
    shapes: Sequence[Shape],
    count: int | None,
    *,
    only_first: bool = False,
) -> Phase:
    """The kernel that gives all members the result, or with ``only_first`` the first one, and the others zeros."""

    def reduced(name: str, shape: Shape, number: int, result: int) -> Phase:
        combining, elements = Combining.of(computation, shape.element_type), shape.num_elements
        tile_size = combining.tile

        def body(members: Members, task: Value) -> None:
            begin = task * tile_size
            end = (begin + tile_size).smin(elements)
            targets = 1 if only_first else members.count
            tile = Tile(combining, number, result, begin, end, targets)
            _combine(members, tile)
            if only_first:
                _clear(members, tile)

        cost = elements * combining.bytes * cost_model().moved_byte() * 2 * (count or 4)
        return tile_kernel(module, name, -(-elements // tile_size), cost, count, body)

    return each_operand(module, name, shapes, reduced)


def reduce_scatter(
    module: Module, name: str, computation: Computation, shapes: Sequence[Shape], dimension: int, count: int
) -> Phase:
    """The kernel that gives each member its block of the result along a dimension.

    The rows of an operand are ``count`` rows of results, one for each member.
    """

    def scattered(name: str, shape: Shape, number: int, result: int) -> Phase:
        combining, sizes = Combining.of(computation, shape.element_type), shape.dimensions
        rows, length = math.prod(sizes[:dimension]), math.prod(sizes[dimension:]) // count
        tile_size = combining.tile
        pieces = max(1, -(-length // tile_size))

        def body(members: Members, task: Value) -> None:
            piece, rest = task.integer("urem", pieces), task.integer("udiv", pieces)
            row, member = rest.integer("urem", max(1, rows)), rest.integer("udiv", max(1, rows))
            begin = piece * tile_size
            end = (begin + tile_size).smin(length)
            origin, target = (row * count + member) * length, row * length
            own = members.array(member, result)
            _combine(members, Tile(combining, number, own, begin, end, 1, lambda i: i + origin, lambda i: i + target))

        tasks = rows * pieces * count if rows * length else 0
        cost = rows * length * combining.bytes * count * cost_model().moved_byte() * 1.5
        return tile_kernel(module, name, tasks, cost, count, body)

    return each_operand(module, name, shapes, scattered)


def _combine(members: Members, tile: Tile) -> None:
    """Combine a tile of all members' operands, and store the result."""
    if isinstance(members.count, int) and members.count <= _IN_REGISTERS:
        _in_registers(members, members.count, tile)
    else:
        _in_buffer(members, tile)


def _in_registers(members: Members, count: int, tile: Tile) -> None:
    """Combine element by element in registers, for a small number of members."""
    fn, combining = members.fn, tile.combining
    operands = [members.array(m, tile.operand) for m in range(count)]
    if isinstance(tile.result, Value):
        results = [tile.result]
    else:
        # The results of all members, or only of the first.
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
    """Combine member by member into a buffer on the stack, and then store the buffer: for any number of members."""
    fn, combining = members.fn, tile.combining
    words = combining.tile * max(1, combining.working.byte_width) // 8 + 1
    buffer = fn.alloca(I64, words, align=64)
    raw = Combining(combining.working, combining.working, combining.computation)
    emitter = Emitter(fn, [])
    first = members.array(0, tile.operand)
    with fn.loop(tile.begin, tile.end, independent=True) as loop, emitter.scope():
        raw.store(fn, combining.load(fn, first, tile.origin(loop.index)), buffer, loop.index - tile.begin)
    with fn.loop(1, members.count) as member:
        array = members.array(member.index, tile.operand)
        with fn.loop(tile.begin, tile.end, independent=True) as loop, emitter.scope():
            total = raw.load(fn, buffer, loop.index - tile.begin)
            value = combining.load(fn, array, tile.origin(loop.index))
            raw.store(fn, combining.combined(emitter, total, value), buffer, loop.index - tile.begin)
    with fn.loop(0, 1 if isinstance(tile.result, Value) else tile.targets) as each:
        to = tile.result if isinstance(tile.result, Value) else members.array(each.index, tile.result)
        with fn.loop(tile.begin, tile.end, independent=True) as loop:
            combining.store(fn, raw.load(fn, buffer, loop.index - tile.begin), to, tile.target(loop.index))


def _clear(members: Members, tile: Tile) -> None:
    """Store zeros to the results of all members except the first."""
    if isinstance(tile.result, Value):
        return
    fn, kind = members.fn, tile.combining.kind
    zero = constant(fn, kind, 0)
    with fn.loop(1, members.count) as each:
        array = members.array(each.index, tile.result)
        with fn.loop(tile.begin, tile.end, independent=True) as loop:
            store(fn, kind, zero, array, loop.index)
