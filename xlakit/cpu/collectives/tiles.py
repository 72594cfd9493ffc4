"""How the kernels of collectives read the arrivals of a rendezvous, and split arrays into tasks."""

from __future__ import annotations

from collections.abc import Callable

from xlakit.cpu.llvm import I8, PTR, Function, Module, Value
from xlakit.cpu.loops.emit.kernel import Phase, kernel_function
from xlakit.cpu.runtime.devices.rendezvous import ARRIVAL, SLOT, arrival_at
from xlakit.dataclass import dataclass

# A task moves about so many bytes: they stay in the first cache while several members get them.
TILE_BYTES = 16 << 10


class Members:
    """The members of a rendezvous in a kernel: ``count`` is a number where all groups have one size."""

    def __init__(self, fn: Function, slot: Value, count: int | None) -> None:
        self.fn = fn
        self._slot = slot
        self.count: Value | int = SLOT.load(fn, slot, "count") if count is None else count

    def array(self, member: Value | int, number: Value | int) -> Value:
        """An array of a member, by its number in the table."""
        fn = self.fn
        table = fn.load(PTR, ARRIVAL.at(fn, arrival_at(fn, self._slot, member), "table"))
        return fn.load(PTR, fn.at(table, PTR, number))

    def fail(self) -> None:
        """Mark the slot as faulty: the values are invalid, and results must not be used."""
        self.fn.atomic_store(self.fn.i64(1), SLOT.at(self.fn, self._slot, "faulty"), "monotonic")

    def source(self, member: Value | int) -> Value:
        """The index of the member that this one gets its data from, -1 for none."""
        return ARRIVAL.load(self.fn, arrival_at(self.fn, self._slot, member), "source")


@dataclass(frozen=True, slots=True)
class TileBounds:
    """A tile: rows from ``begin`` below ``end``; of each ``size`` bytes from byte ``start`` on."""

    begin: Value
    end: Value
    start: Value
    size: Value | int


@dataclass(frozen=True, slots=True)
class RowsInArray:
    """Where rows lie in an array: the offset of the first one, and the distance between two, in bytes."""

    array: Value
    offset: Value | int
    stride: int

    def at(self, fn: Function, row: Value, start: Value) -> Value:
        """The address of byte ``start`` of a row."""
        return fn.at(self.array, I8, row * self.stride + self.offset + start)


@dataclass(frozen=True, slots=True)
class Tiles:
    """An array as rows of so many bytes, cut into tiles: parts of a row, or several rows."""

    rows: int
    bytes: int

    @property
    def _parts(self) -> int:
        """How many tiles a row has."""
        return max(1, -(-self.bytes // TILE_BYTES))

    @property
    def _height(self) -> int:
        """How many rows a tile has."""
        return max(1, TILE_BYTES // max(1, self.bytes))

    @property
    def count(self) -> int:
        """How many tiles there are."""
        if not self.rows or not self.bytes:
            return 0
        return self.rows * self._parts if self._parts > 1 else -(-self.rows // self._height)

    def bounds(self, fn: Function, tile: Value) -> TileBounds:
        """Where a tile lies."""
        if self._parts > 1:
            row = tile.integer("udiv", self._parts)
            begin = tile.integer("urem", self._parts) * TILE_BYTES
            rest = fn.i64(self.bytes) - begin
            return TileBounds(row, row + 1, begin, fn.select(rest < TILE_BYTES, rest, fn.i64(TILE_BYTES)))
        first = tile * self._height
        last = first + self._height
        return TileBounds(first, fn.select(last < self.rows, last, fn.i64(self.rows)), fn.i64(0), self.bytes)


def move_rows(fn: Function, tiles: Tiles, tile: Value, target: RowsInArray, source: RowsInArray) -> None:
    """Copy a tile."""
    bounds = tiles.bounds(fn, tile)
    if tiles.bytes == target.stride == source.stride and isinstance(bounds.size, int):
        # Whole rows without gaps.
        count = (bounds.end - bounds.begin) * source.stride
        fn.copy(target.at(fn, bounds.begin, bounds.start), source.at(fn, bounds.begin, bounds.start), count)
        return
    with fn.loop(bounds.begin, bounds.end) as rows:
        row = rows.index
        fn.copy(target.at(fn, row, bounds.start), source.at(fn, row, bounds.start), bounds.size)


def tile_kernel(
    module: Module, name: str, tasks: int, cost: float, count: int | None, body: Callable[[Members, Value], None]
) -> Phase:
    """A kernel whose tasks are computed one by one by ``body``."""
    fn = kernel_function(module, name)
    slot, begin, end = fn.parameters
    members = Members(fn, slot, count)
    with fn.loop(begin, end) as loop:
        body(members, loop.index)
    fn.ret()
    return Phase(fn.name, tasks, cost)
