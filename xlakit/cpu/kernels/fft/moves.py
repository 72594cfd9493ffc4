"""Moves points between arrays of complex numbers and the memory of lane transforms, transposing rows.

The length and distance of rows are arguments of common functions, so that transforms of all lengths share them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from xlakit.cpu.kernels.fft.lanes import lane_count, store_point
from xlakit.cpu.kernels.fft.tables import load_point
from xlakit.cpu.kernels.shared import common
from xlakit.cpu.kernels.shared.shuffles import interleaved, transposed
from xlakit.cpu.llvm import F32, F64, I64, PTR, Effort, Function, Type, Value, vector
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Rows:
    """The row of each lane: rows from ``first`` on of ``count`` rows, ``distance`` real numbers apart from ``base`` on.

    Lanes beyond the last row use the last row.
    """

    base: Value
    first: Value
    distance: Value | int
    count: Value | int

    def pointers(self, fn: Function, part: Type) -> list[Value]:
        """The address of each lane's row."""
        last = self.count - 1
        return [
            fn.at(self.base, part, (self.first + lane).umin(last) * self.distance) for lane in range(lane_count(part))
        ]

    def arguments(self, fn: Function) -> list[Value]:
        """The fields as arguments of a common function."""
        distance, count = (n if isinstance(n, Value) else fn.i64(n) for n in (self.distance, self.count))
        return [self.base, self.first, distance, count]


class Moves:
    """Moves points in one function. ``swaps`` exchanges real and imaginary parts, ``scale`` multiplies them."""

    def __init__(self, fn: Function, part: Type) -> None:
        self.fn = fn
        self.part = part
        self.lanes = lane_count(part)
        self.type = vector(part, self.lanes)

    # -- columns: the lanes are neighbors -------------------------------------------------------

    def load_columns(self, source: Value, stride: int, count: Value, memory: Value, points: int, swaps: bool) -> None:
        """Load points that are ``stride`` complex numbers apart, of the first ``count`` lanes."""
        fn = self.fn
        common.call(fn, LoadColumns(self.part.name, swaps), source, fn.i64(stride), count, memory, fn.i64(points))

    def store_columns(
        self, memory: Value, target: Value, stride: int, count: Value, points: int, scale: float, swaps: bool
    ) -> None:
        """The inverse of :meth:`load_columns`; ``scale`` multiplies the points."""
        fn = self.fn
        store = StoreColumns(self.part.name, swaps, scale != 1.0)
        common.call(fn, store, memory, target, fn.i64(stride), count, fn.i64(points), fn.constant(F64, scale))

    # -- rows: the points of a lane are neighbors -------------------------------------------------

    def load_rows(self, rows: Rows, memory: Value, points: int, swaps: bool, width: int = 2) -> None:
        """Load complex numbers that are contiguous in the row of each lane; real ones if ``width`` is 1."""
        fn, load = self.fn, LoadRows(self.part.name, width, swaps)
        if points >= self.lanes // width:
            common.call(fn, load, *rows.arguments(fn), memory, fn.i64(points))
            return
        pointers = rows.pointers(fn, self.part)
        for index in range(points):
            numbers = [self._gathered(pointers, index * width + k) for k in range(width)]
            load.put(fn, memory, fn.i64(index), numbers)

    def store_rows(self, memory: Value, rows: Rows, points: int, scale: float, swaps: bool, width: int = 2) -> None:
        """The inverse of :meth:`load_rows`; ``scale`` multiplies the points."""
        fn, store = self.fn, StoreRows(self.part.name, width, swaps, width == 1 or scale != 1.0)
        if points >= self.lanes // width:
            common.call(fn, store, memory, *rows.arguments(fn), fn.i64(points), fn.constant(F64, scale))
            return
        pointers = rows.pointers(fn, self.part)
        for index in range(points):
            for k in range(width):
                value = store.number(fn, memory, fn.i64(index), k, fn.constant(self.type, scale))
                for lane, row in enumerate(pointers):
                    fn.store(fn.lane(value, lane), fn.at(row, self.part, index * width + k))

    def _gathered(self, rows: Sequence[Value], index: int) -> Value:
        fn = self.fn
        gathered = fn.undefined(self.type)
        for lane, row in enumerate(rows):
            gathered = fn.with_lane(gathered, lane, fn.load(self.part, fn.at(row, self.part, index)))
        return gathered


@dataclass(frozen=True, slots=True)
class LoadColumns:
    """Loads points that are ``stride`` complex numbers apart, of the first ``count`` lanes.

    ``(ptr source, i64 stride, i64 count, ptr memory, i64 points)``. swaps: whether real and imaginary parts are
    exchanged.
    """

    part: str
    swaps: bool

    family: ClassVar[str] = "fft_load_columns"
    parameters: ClassVar[Sequence[Type]] = (PTR, I64, I64, PTR, I64)

    def write(self, fn: Function) -> None:
        """Write its body."""
        fn.effort = Effort.CODE
        source, stride, count, memory, points = fn.parameters
        part = _type_of(self.part)
        lanes = lane_count(part)
        wide = vector(part, 2 * lanes)
        edge = fn.alloca(wide, align=64)

        def move(whole: bool) -> None:
            with fn.loop(0, points, hints=AS_WRITTEN) as loop:
                address = fn.at(source, part, loop.index * stride * 2)
                if not whole:
                    fn.copy(edge, address, count * (2 * part.bytes))
                    address = edge
                both = fn.load(wide, address, align=part.bytes)
                real, imag = (fn.shuffle(both, both, range(first, 2 * lanes, 2)) for first in (0, 1))
                store_point(fn, (imag, real) if self.swaps else (real, imag), memory, loop.index)

        fn.if_else(count.eq(lanes), lambda: move(True), lambda: move(False))


@dataclass(frozen=True, slots=True)
class StoreColumns:
    """The inverse of LoadColumns.

    ``(ptr memory, ptr target, i64 stride, i64 count, i64 points, double scale)``. scaled: whether ``scale`` is used.
    """

    part: str
    swaps: bool
    scaled: bool

    family: ClassVar[str] = "fft_store_columns"
    parameters: ClassVar[Sequence[Type]] = (PTR, PTR, I64, I64, I64, F64)

    def write(self, fn: Function) -> None:
        """Write its body."""
        fn.effort = Effort.CODE
        memory, target, stride, count, points, scale = fn.parameters
        part = _type_of(self.part)
        lanes = lane_count(part)
        edge = fn.alloca(vector(part, 2 * lanes), align=64)
        factor = _spread(fn, part, scale)

        def move(whole: bool) -> None:
            with fn.loop(0, points, hints=AS_WRITTEN) as loop:
                address = fn.at(target, part, loop.index * stride * 2)
                point = load_point(fn, vector(part, lanes), memory, loop.index)
                real, imag = (point[1], point[0]) if self.swaps else point
                if self.scaled:
                    real, imag = real * factor, imag * factor
                both = interleaved(fn, (real, imag))
                if whole:
                    fn.store(both, address, align=part.bytes)
                else:
                    fn.store(both, edge)
                    fn.copy(address, edge, count * (2 * part.bytes))

        fn.if_else(count.eq(lanes), lambda: move(True), lambda: move(False))


@dataclass(frozen=True, slots=True)
class LoadRows:
    """Loads the points of rows, of which there are at least as many as fill a square of vectors.

    ``(ptr base, i64 first, i64 distance, i64 count, ptr memory, i64 points)``. width: the real numbers of a point in
    the rows, 1 or 2. swaps: whether real and imaginary parts are exchanged.
    """

    part: str
    width: int
    swaps: bool

    family: ClassVar[str] = "fft_load_rows"
    parameters: ClassVar[Sequence[Type]] = (PTR, I64, I64, I64, PTR, I64)

    def write(self, fn: Function) -> None:
        """Write its body."""
        fn.effort = Effort.CODE
        *rows, memory, points = fn.parameters
        part = _type_of(self.part)
        type = vector(part, lane_count(part))
        pointers = Rows(*rows).pointers(fn, part)

        def move(index: Value) -> None:
            addresses = [fn.at(row, part, index * self.width) for row in pointers]
            square = transposed(fn, [fn.load(type, address, align=part.bytes) for address in addresses])
            self.put(fn, memory, index, square)

        _squares(fn, points, type.lanes // self.width, move)

    def put(self, fn: Function, memory: Value, index: Value, numbers: Sequence[Value]) -> None:
        """Write the values of the lanes from point ``index`` on."""
        if self.width == 1:
            zero = fn.constant(numbers[0].type, 0.0)
            for more, number in enumerate(numbers):
                store_point(fn, (number, zero), memory, index + more)
            return
        for more, number in enumerate(numbers):
            position = index * 2 + (more ^ 1 if self.swaps else more)
            fn.store(number, fn.at(memory, number.type, position))


@dataclass(frozen=True, slots=True)
class StoreRows:
    """The inverse of LoadRows; rows of real numbers get the real parts, or the imaginary parts if it ``swaps``.

    ``(ptr memory, ptr base, i64 first, i64 distance, i64 count, i64 points, double scale)``. scaled: whether ``scale``
    is used.
    """

    part: str
    width: int
    swaps: bool
    scaled: bool

    family: ClassVar[str] = "fft_store_rows"
    parameters: ClassVar[Sequence[Type]] = (PTR, PTR, I64, I64, I64, I64, F64)

    def write(self, fn: Function) -> None:
        """Write its body."""
        fn.effort = Effort.CODE
        memory, *rows, points, scale = fn.parameters
        part = _type_of(self.part)
        pointers, factor = Rows(*rows).pointers(fn, part), _spread(fn, part, scale)
        lanes = lane_count(part)

        def move(index: Value) -> None:
            square = transposed(fn, [self.number(fn, memory, index, k, factor) for k in range(lanes)])
            for row, value in zip(pointers, square, strict=True):
                fn.store(value, fn.at(row, part, index * self.width), align=part.bytes)

        _squares(fn, points, lanes // self.width, move)

    def number(self, fn: Function, memory: Value, index: Value, more: int, factor: Value) -> Value:
        """The value that the lanes store as number ``more`` from point ``index`` on."""
        side = 1 if self.swaps else 0
        position = index * 2 + (more * 2 + side if self.width == 1 else more ^ side)
        loaded = fn.load(factor.type, fn.at(memory, factor.type, position))
        return loaded * factor if self.scaled else loaded


def _squares(fn: Function, points: Value, size: int, move: Callable[[Value], None]) -> None:
    """Move ``size`` points at a time; the last square overlaps points that were moved before."""
    with fn.loop(0, points, size, hints=AS_WRITTEN) as loop:
        move(loop.index.umin(points - size))


def _type_of(part: str) -> Type:
    return F32 if part == F32.name else F64


def _spread(fn: Function, part: Type, scale: Value) -> Value:
    """A scale in all lanes, rounded to the type as a constant would be."""
    return fn.splat(scale if part is F64 else scale.cast("fptrunc", part), lane_count(part))
