"""Between arrays of complex numbers and the memory of lane transforms: rows are transposed, columns taken apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xlakit.cpu.kernels.fft.butterfly import Point
from xlakit.cpu.kernels.fft.lanes import lane_count, store_point, transpose
from xlakit.cpu.kernels.fft.tables import load_point
from xlakit.cpu.llvm import Function, Type, Value, vector
from xlakit.cpu.llvm.loop import AS_WRITTEN


class Moves:
    """Moves points in one function. ``swaps`` exchanges real and imaginary parts, ``scale`` multiplies them."""

    def __init__(self, fn: Function, part: Type) -> None:
        self.fn = fn
        self.part = part
        self.lanes = lane_count(part)
        self.type = vector(part, self.lanes)
        self._wide = vector(part, 2 * self.lanes)
        self._edge = fn.alloca(self._wide, align=64)

    def _finished(self, point: Point, scale: float, swaps: bool) -> Point:
        real, imag = (point[1], point[0]) if swaps else point
        return (real, imag) if scale == 1.0 else (real * scale, imag * scale)

    # -- columns: the lanes are neighbors -------------------------------------------------------

    def load_columns(self, source: Value, stride: int, count: Value, memory: Value, points: int, swaps: bool) -> None:
        """Points ``stride`` complex numbers apart, of the first ``count`` lanes."""

        def move(whole: bool) -> Sequence[Value]:
            fn = self.fn
            with fn.loop(0, points, hints=AS_WRITTEN) as loop:
                address = fn.at(source, self.part, loop.index * (2 * stride))
                if not whole:
                    fn.copy(self._edge, address, count * (2 * self.part.bytes))
                    address = self._edge
                both = fn.load(self._wide, address, align=self.part.bytes)
                parts = [fn.shuffle(both, both, range(first, 2 * self.lanes, 2)) for first in (0, 1)]
                store_point(fn, self._finished((parts[0], parts[1]), 1.0, swaps), memory, loop.index)
            return ()

        self._by_count(count, move)

    def store_columns(
        self, memory: Value, target: Value, stride: int, count: Value, points: int, scale: float, swaps: bool
    ) -> None:
        """The other way."""

        def move(whole: bool) -> Sequence[Value]:
            fn = self.fn
            with fn.loop(0, points, hints=AS_WRITTEN) as loop:
                address = fn.at(target, self.part, loop.index * (2 * stride))
                real, imag = self._finished(load_point(fn, self.type, memory, loop.index), scale, swaps)
                both = fn.shuffle(real, imag, [n + side * self.lanes for n in range(self.lanes) for side in (0, 1)])
                if whole:
                    fn.store(both, address, align=self.part.bytes)
                else:
                    fn.store(both, self._edge)
                    fn.copy(address, self._edge, count * (2 * self.part.bytes))
            return ()

        self._by_count(count, move)

    def _by_count(self, count: Value, move: Callable[[bool], Sequence[Value]]) -> None:
        if count.constant is not None:
            move(count.constant == self.lanes)
        else:
            self.fn.if_else(count.eq(self.lanes), lambda: move(True), lambda: move(False))

    # -- rows: the points of a lane are neighbors -------------------------------------------------

    def rows(self, base: Value, first: Value, distance: int, rows: int) -> list[Value]:
        """Where the row of each lane starts, from row ``first`` on; lanes beyond the last row have that row, too."""
        fn = self.fn
        found: list[Value] = []
        for lane in range(self.lanes):
            row = (first + lane).umin(rows - 1)
            found.append(fn.at(base, self.part, row * distance))
        return found

    def load_rows(self, rows: Sequence[Value], memory: Value, points: int, swaps: bool) -> None:
        """Complex numbers that lie one after the other in the row of each lane."""
        fn = self.fn

        def move(index: Value, numbers: Sequence[Value]) -> None:
            for lane, number in enumerate(numbers):
                fn.store(number, fn.at(memory, self.type, index * 2 + (lane ^ 1 if swaps else lane)))

        self._load_tiles(rows, points, 2, move)

    def load_real_rows(self, rows: Sequence[Value], memory: Value, points: int) -> None:
        """Real numbers that lie one after the other in the row of each lane."""
        fn = self.fn
        zero = fn.constant(self.type, 0.0)

        def move(index: Value, numbers: Sequence[Value]) -> None:
            for lane, number in enumerate(numbers):
                store_point(fn, (number, zero), memory, index + lane)

        self._load_tiles(rows, points, 1, move)

    def store_rows(self, memory: Value, rows: Sequence[Value], points: int, scale: float, swaps: bool) -> None:
        """The other way."""
        fn = self.fn

        def number(index: Value, side: int) -> Value:
            found = fn.load(self.type, fn.at(memory, self.type, index * 2 + (side ^ 1 if swaps else side)))
            return found if scale == 1.0 else found * scale

        self._store_tiles(rows, points, 2, number)

    def store_real_rows(self, memory: Value, rows: Sequence[Value], points: int, scale: float) -> None:
        """The real numbers of rows whose complex numbers have their parts exchanged: the imaginary parts alone."""
        fn = self.fn
        self._store_tiles(
            rows, points, 1, lambda index, point: load_point(fn, self.type, memory, index + point)[1] * scale
        )

    def _load_tiles(
        self, rows: Sequence[Value], points: int, width: int, move: Callable[[Value, Sequence[Value]], None]
    ) -> None:
        """Transpose squares of the rows; a point is ``width`` numbers."""
        fn, tile = self.fn, self.lanes // width
        if points < tile:
            for index in range(points):
                numbers = [self._gathered(rows, index * width + k) for k in range(width)]
                move(fn.i64(index), numbers)
            return
        with fn.loop(0, points, tile, hints=AS_WRITTEN) as loop:
            index = self._tile_start(loop.index, points, tile)
            addresses = (fn.at(row, self.part, index * width) for row in rows)
            move(index, transpose(fn, [fn.load(self.type, address, align=self.part.bytes) for address in addresses]))

    def _store_tiles(
        self, rows: Sequence[Value], points: int, width: int, number: Callable[[Value, int], Value]
    ) -> None:
        fn, tile = self.fn, self.lanes // width
        if points < tile:
            for index in range(points):
                for k in range(width):
                    value = number(fn.i64(index), k)
                    for lane, row in enumerate(rows):
                        fn.store(fn.lane(value, lane), fn.at(row, self.part, index * width + k))
            return
        with fn.loop(0, points, tile, hints=AS_WRITTEN) as loop:
            index = self._tile_start(loop.index, points, tile)
            found = transpose(fn, [number(index, j) for j in range(self.lanes)])
            for row, value in zip(rows, found, strict=True):
                fn.store(value, fn.at(row, self.part, index * width), align=self.part.bytes)

    def _tile_start(self, index: Value, points: int, tile: int) -> Value:
        # The last square reaches back to points that were moved before.
        return index if points % tile == 0 else index.umin(points - tile)

    def _gathered(self, rows: Sequence[Value], index: int) -> Value:
        fn = self.fn
        found = fn.undefined(self.type)
        for lane, row in enumerate(rows):
            found = fn.with_lane(found, lane, fn.load(self.part, fn.at(row, self.part, index)))
        return found
