"""The kernels' access to the arrivals of a rendezvous, and the division of arrays into tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xlakit.cpu.llvm import I8, Function, Module, Value
from xlakit.cpu.loops.emit.kernel import Phase, joined, kernel_function
from xlakit.cpu.runtime.devices.rendezvous import ARRIVAL, SLOT, arrival_at
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass

# A task moves about this many bytes, which stay in the first-level cache while several members get them.
TILE_BYTES = 16 << 10


class Members:
    """The members of a rendezvous in a kernel. ``count`` is an int if all groups have the same size."""

    def __init__(self, fn: Function, slot: Value, count: int | None) -> None:
        self.fn = fn
        self._slot = slot
        self.count: Value | int = SLOT.load(fn, slot, "count") if count is None else count

    def array(self, member: Value | int, number: Value | int) -> Value:
        """An array of a member, by its number in the table."""
        fn = self.fn
        table = ARRIVAL.pointer(fn, arrival_at(fn, self._slot, member), "table")
        return fn.pointer(table, number)

    def fail(self) -> None:
        """Mark the slot as faulty: the values are invalid, and results must not be used."""
        self.fn.atomic_store(self.fn.i64(1), SLOT.at(self.fn, self._slot, "faulty"), "monotonic")

    def source(self, member: Value | int) -> Value:
        """The index of the member whose data this one receives, -1 for none."""
        return ARRIVAL.load(self.fn, arrival_at(self.fn, self._slot, member), "source")


@dataclass(frozen=True, slots=True)
class TileBounds:
    """A tile: the rows from ``begin`` below ``end``, and of each row ``size`` bytes from byte ``start`` on."""

    begin: Value
    end: Value
    start: Value
    size: Value | int


@dataclass(frozen=True, slots=True)
class RowsInArray:
    """The position of rows in an array: the offset of the first row, and the stride between rows, in bytes."""

    array: Value
    offset: Value | int
    stride: int

    def at(self, fn: Function, row: Value, start: Value) -> Value:
        """The address of byte ``start`` of a row."""
        return fn.at(self.array, I8, row * self.stride + self.offset + start)


@dataclass(frozen=True, slots=True)
class Tiles:
    """An array of rows of ``bytes`` bytes, divided into tiles: parts of a row, or several rows."""

    rows: int
    bytes: int

    @property
    def _parts(self) -> int:
        """The number of tiles of a row."""
        return max(1, -(-self.bytes // TILE_BYTES))

    @property
    def _height(self) -> int:
        """The number of rows of a tile."""
        return max(1, TILE_BYTES // max(1, self.bytes))

    @property
    def count(self) -> int:
        """The number of tiles."""
        if not self.rows or not self.bytes:
            return 0
        return self.rows * self._parts if self._parts > 1 else -(-self.rows // self._height)

    def bounds(self, fn: Function, tile: Value) -> TileBounds:
        """The rows and bytes of a tile."""
        if self._parts > 1:
            row = tile.integer("udiv", self._parts)
            begin = tile.integer("urem", self._parts) * TILE_BYTES
            remaining = fn.i64(self.bytes) - begin
            return TileBounds(row, row + 1, begin, fn.select(remaining < TILE_BYTES, remaining, fn.i64(TILE_BYTES)))
        first = tile * self._height
        last = first + self._height
        return TileBounds(first, fn.select(last < self.rows, last, fn.i64(self.rows)), fn.i64(0), self.bytes)


def move_rows(fn: Function, tiles: Tiles, tile: Value, target: RowsInArray, source: RowsInArray) -> None:
    """Copy a tile from ``source`` to ``target``."""
    bounds = tiles.bounds(fn, tile)
    if tiles.bytes == target.stride == source.stride and isinstance(bounds.size, int):
        # The tile is contiguous in both arrays.
        count = (bounds.end - bounds.begin) * source.stride
        fn.copy(target.at(fn, bounds.begin, bounds.start), source.at(fn, bounds.begin, bounds.start), count)
        return
    with fn.loop(bounds.begin, bounds.end) as rows:
        row = rows.index
        fn.copy(target.at(fn, row, bounds.start), source.at(fn, row, bounds.start), bounds.size)


def each_operand(
    module: Module, name: str, shapes: Sequence[Shape], kernel: Callable[[str, Shape, int, int], Phase]
) -> Phase:
    """One kernel for all operands; ``kernel`` gets a name, a shape and the numbers of an operand and of its result."""
    phases = [kernel(f"{name}.{n}", shape, n, len(shapes) + n) for n, shape in enumerate(shapes)]
    return joined(module, name, phases)


def tile_kernel(
    module: Module, name: str, tasks: int, cost: float, count: int | None, body: Callable[[Members, Value], None]
) -> Phase:
    """A kernel in which ``body`` writes the code of one task."""
    fn, slot, begin, end = kernel_function(module, name)
    members = Members(fn, slot, count)
    with fn.loop(begin, end) as loop:
        body(members, loop.index)
    return Phase(fn.name, tasks, cost)
