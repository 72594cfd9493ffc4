"""Kernels that combine the arrays of a group's members: all-reduce, reduce-scatter, collective-reduce.

An element is combined in the order of the group, whoever computes it and on however many threads, so that results are
the same in every run. Each operand is read once, and each result is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xlakit.cpu.collectives.tiles import BYTE_NANOSECONDS, TILE_BYTES, Members, tile_kernel
from xlakit.cpu.llvm import I64, Function, Module, Value
from xlakit.cpu.loops.emitter import Emitter
from xlakit.cpu.loops.kernel import Phase, joined
from xlakit.cpu.scalars import Scalar, load, store
from xlakit.cpu.scalars.convert import convert
from xlakit.cpu.scalars.memory import constant
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import UnsupportedError
from xlakit.ir.instruction import Computation
from xlakit.ops.shared.collective import combiner_of

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
        """The way for arrays of an element type; raises UnsupportedError."""
        found = combiner_of(computation, kind)
        working = found.root.shape.element_type
        if any(p.shape.element_type is not working for p in found.parameters):
            raise UnsupportedError(f"{found.name} gives another type than it takes")
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


# Where the elements that a tile is made of are, and where they go: for the index in the result, from its first row.
Place = Callable[[Value], Value]


def all_reduce(
    module: Module, name: str, computation: Computation, shapes: Sequence[Shape], count: int | None
) -> Phase:
    """Everybody gets the whole result."""
    parts = [
        _flat(module, f"{name}.{n}", Combining.of(computation, s.element_type), s.num_elements, n, len(shapes), count)
        for n, s in enumerate(shapes)
    ]
    return joined(module, name, parts)


def collective_reduce(
    module: Module, name: str, computation: Computation, shapes: Sequence[Shape], count: int | None
) -> Phase:
    """The first member gets the result, the others zeros."""
    parts = [
        _flat(
            module, f"{name}.{n}", Combining.of(computation, s.element_type), s.num_elements, n, len(shapes), count,
            only_first=True,
        )
        for n, s in enumerate(shapes)
    ]  # fmt: skip
    return joined(module, name, parts)


def reduce_scatter(
    module: Module, name: str, computation: Computation, shapes: Sequence[Shape], dimension: int, count: int
) -> Phase:
    """Each member gets its block of the result along a dimension."""
    parts = [
        _blocks(module, f"{name}.{n}", Combining.of(computation, s.element_type), s, dimension, n, len(shapes), count)
        for n, s in enumerate(shapes)
    ]
    return joined(module, name, parts)


def _flat(
    module: Module,
    name: str,
    combining: Combining,
    elements: int,
    number: int,
    arrays: int,
    count: int | None,
    *,
    only_first: bool = False,
) -> Phase:
    tile = combining.tile

    def body(members: Members, task: Value) -> None:
        fn = members.fn
        begin = task * tile
        end = fn.intrinsic("llvm.smin", I64, begin + tile, fn.i64(elements))
        targets = 1 if only_first else members.count
        _combine(members, combining, (number, arrays + number), begin, end, lambda i: i, lambda i: i, targets)
        if only_first:
            _clear(members, combining, arrays + number, begin, end)

    cost = elements * combining.bytes * BYTE_NANOSECONDS * 2 * (count or 4)
    return tile_kernel(module, name, -(-elements // tile), cost, count, body)


def _blocks(
    module: Module,
    name: str,
    combining: Combining,
    shape: Shape,
    dimension: int,
    number: int,
    arrays: int,
    count: int,
) -> Phase:
    """Rows of the result; those of the operand are ``count`` times as long, a part for each member."""
    rows, length = 1, 1
    for place, size in enumerate(shape.dimensions):
        if place < dimension:
            rows *= size
        else:
            length *= size
    length //= count
    tile = combining.tile
    pieces = max(1, -(-length // tile))

    def body(members: Members, task: Value) -> None:
        fn = members.fn
        piece, rest = task.integer("urem", pieces), task.integer("udiv", pieces)
        row, member = rest.integer("urem", max(1, rows)), rest.integer("udiv", max(1, rows))
        begin = piece * tile
        end = fn.intrinsic("llvm.smin", I64, begin + tile, fn.i64(length))
        origin = (row * count + member) * length
        target = row * length
        one = members.array(member, arrays + number)
        _combine(members, combining, (number, one), begin, end, lambda i: i + origin, lambda i: i + target, 1)

    tasks = rows * pieces * count if rows * length else 0
    cost = rows * length * combining.bytes * count * BYTE_NANOSECONDS * 1.5
    return tile_kernel(module, name, tasks, cost, count, body)


def _combine(
    members: Members,
    combining: Combining,
    arrays: tuple[int, int | Value],
    begin: Value,
    end: Value,
    origin: Place,
    target: Place,
    targets: Value | int,
) -> None:
    """Combine elements [begin, end) of everybody; write them to the first ``targets`` members, or to one array.

    arrays: the number of the operand, and that of the result or the array that the result goes to.
    """
    if isinstance(members.count, int) and members.count <= _IN_REGISTERS:
        _in_registers(members, combining, arrays, begin, end, origin, target, targets)
    else:
        _in_buffer(members, combining, arrays, begin, end, origin, target, targets)


def _in_registers(
    members: Members,
    combining: Combining,
    arrays: tuple[int, int | Value],
    begin: Value,
    end: Value,
    origin: Place,
    target: Place,
    targets: Value | int,
) -> None:
    fn = members.fn
    operand, result = arrays
    operands = [members.array(m, operand) for m in range(int(members.count))]  # pyright: ignore[reportArgumentType]
    if isinstance(result, Value):
        results = [result]
    else:
        results = [members.array(m, result) for m in range(int(targets))]  # pyright: ignore[reportArgumentType]
    emitter = Emitter(fn, [])
    with fn.loop(begin, end, independent=True) as loop, emitter.scope():
        place = origin(loop.index)
        total = combining.load(fn, operands[0], place)
        for array in operands[1:]:
            total = combining.combined(emitter, total, combining.load(fn, array, place))
        for array in results:
            combining.store(fn, total, array, target(loop.index))


def _in_buffer(
    members: Members,
    combining: Combining,
    arrays: tuple[int, int | Value],
    begin: Value,
    end: Value,
    origin: Place,
    target: Place,
    targets: Value | int,
) -> None:
    fn = members.fn
    operand, result = arrays
    words = combining.tile * max(1, combining.working.byte_width) // 8 + 1
    buffer = fn.alloca(I64, words, align=64)
    raw = Combining(combining.working, combining.working, combining.computation)
    emitter = Emitter(fn, [])
    first = members.array(0, operand)
    with fn.loop(begin, end, independent=True) as loop, emitter.scope():
        raw.store(fn, combining.load(fn, first, origin(loop.index)), buffer, loop.index - begin)
    with fn.loop(1, members.count) as others:
        array = members.array(others.index, operand)
        with fn.loop(begin, end, independent=True) as loop, emitter.scope():
            total = raw.load(fn, buffer, loop.index - begin)
            value = combining.load(fn, array, origin(loop.index))
            raw.store(fn, combining.combined(emitter, total, value), buffer, loop.index - begin)
    with fn.loop(0, 1 if isinstance(result, Value) else targets) as each:
        to = result if isinstance(result, Value) else members.array(each.index, result)
        with fn.loop(begin, end, independent=True) as loop:
            combining.store(fn, raw.load(fn, buffer, loop.index - begin), to, target(loop.index))


def _clear(members: Members, combining: Combining, result: int, begin: Value, end: Value) -> None:
    fn = members.fn
    zero = constant(fn, combining.kind, 0)
    with fn.loop(1, members.count) as each:
        array = members.array(each.index, result)
        with fn.loop(begin, end, independent=True) as loop:
            store(fn, combining.kind, zero, array, loop.index)
