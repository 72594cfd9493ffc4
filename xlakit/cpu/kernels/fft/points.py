"""The pointwise steps before and after the transform of a long row: each result depends on one or two points."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from xlakit.cpu.kernels.fft.butterfly import Point, swapped, tangle_ends, tangle_point, untangle_ends, untangle_point
from xlakit.cpu.kernels.fft.lanes import store_point
from xlakit.cpu.kernels.fft.plan import Axis
from xlakit.cpu.kernels.fft.tables import LongRoots, Tables, chirp, chirp_spectrum, load_point
from xlakit.cpu.llvm import Function, Value
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.cpu.scalars.complex_arithmetic import plain_product
from xlakit.options import knob

# The number of points of a chunk.
CHUNK = 1 << LongRoots.BITS
# Tables of longer chirps would make programs too large.
LONGEST_CHIRP = knob("fft_points.longest_chirp", 1 << 17, 64)


class Points:
    """Writes one step into a function ``void(ptr source, ptr target, i64 begin, i64 end)`` over chunks of points."""

    def __init__(self, fn: Function, axis: Axis, length: int, swaps: bool, scale: float) -> None:
        self._fn = fn
        self._axis = axis
        self._part = axis.part
        # The length of the transforms that compute Bluestein's convolution.
        self._length = length
        self._swaps = swaps
        self._scale = scale
        self._source, self._target = fn.parameters[:2]
        self._tables = Tables(fn, axis.part)

    @contextmanager
    def _chunks(self, count: int) -> Generator[tuple[Value, Value, Value]]:
        """The chunks: the number, the first point, and the end of each."""
        fn = self._fn
        begin, end = fn.parameters[2:]
        with fn.loop(begin, end, hints=AS_WRITTEN) as chunks:
            first = chunks.index * CHUNK
            yield chunks.index, first, (first + CHUNK).smin(count)

    def _load(self, index: Value | int) -> Point:
        return self._entry(self._source, index)

    def _entry(self, table: Value, index: Value | int) -> Point:
        return load_point(self._fn, self._part, table, index)

    def _store(self, point: Point, index: Value | int) -> None:
        store_point(self._fn, point, self._target, index)

    def _each(self, count: int, point: Callable[[Value], Point]) -> int:
        """Store one point for each number below ``count``."""
        fn = self._fn
        with self._chunks(count) as (_, first, stop), fn.loop(first, stop, independent=True) as loop:
            self._store(point(loop.index), loop.index)
        return count

    # -- real rows -------------------------------------------------------------------------------

    def widen(self) -> int:
        """Write a real row as a complex one."""
        fn, part = self._fn, self._part
        zero = fn.constant(part, 0.0)
        return self._each(self._axis.length, lambda n: (fn.load(part, fn.at(self._source, part, n)), zero))

    def narrow(self) -> int:
        """Keep the half of a real row's spectrum that determines the other half."""
        return self._each(self._axis.spectrum, self._load)

    def mirror(self) -> int:
        """Write the complete spectrum with exchanged parts from its half; the first point is real."""
        fn, count, half = self._fn, self._axis.length, self._axis.spectrum
        with self._chunks(count) as (_, first, stop):
            middle = stop.smin(half)
            with fn.loop(first, middle, independent=True) as loop:
                real, imag = self._load(loop.index)
                imag = fn.select(loop.index.eq(0), fn.constant(self._part, 0.0), imag)
                self._store((imag, real), loop.index)
            with fn.loop(first.smax(half), stop, independent=True) as loop:
                real, imag = self._load(fn.i64(count) - loop.index)
                self._store((-imag, real), loop.index)
        return count

    def imaginary(self) -> int:
        """Write the imaginary parts, which are the real parts of points with exchanged parts."""
        fn, count = self._fn, self._axis.length
        with self._chunks(count) as (_, first, stop), fn.loop(first, stop, independent=True) as loop:
            number = self._load(loop.index)[1] * self._axis.scale
            fn.store(number, fn.at(self._target, self._part, loop.index))
        return count

    def untangle(self) -> int:
        """Write the spectrum of a real row, from the spectrum of its pairs."""
        fn, half = self._fn, self._axis.points
        count = half + 1
        with self._chunks(count) as (chunk, first, stop):
            start, last = untangle_ends(self._load(0))
            with fn.if_(first.eq(0)):
                self._store(start, 0)
            with fn.if_(stop.eq(count)):
                self._store(last, half)
            self._each_root(chunk, first, stop.smin(half), untangle=True)
        return count

    def tangle(self) -> int:
        """The inverse of :meth:`untangle`, with exchanged parts."""
        fn, half = self._fn, self._axis.points
        with self._chunks(half) as (chunk, first, stop):
            with fn.if_(first.eq(0)):
                self._store(swapped(tangle_ends(self._load(0), self._load(half))), 0)
            self._each_root(chunk, first, stop, untangle=False)
        return half

    def _each_root(self, chunk: Value, first: Value, stop: Value, *, untangle: bool) -> None:
        fn, half = self._fn, self._axis.points
        table = LongRoots(self._tables, fn, self._part, 2 * half, 1, half)
        turn = None if table.is_short else table.high(chunk)
        with fn.loop(first.smax(1), stop, independent=True) as loop:
            point, mirrored = self._load(loop.index), self._load(fn.i64(half) - loop.index)
            root = table.low(loop.index if turn is None else loop.index - first)
            root = root if turn is None else plain_product(root, turn)
            found = untangle_point(point, mirrored, root) if untangle else swapped(tangle_point(point, mirrored, root))
            self._store(found, loop.index)

    # -- other lengths ---------------------------------------------------------------------------

    def _chirp(self) -> Callable[[Value], Point]:
        """The chirp; a long one is computed from roots, because a table would make the program too large."""
        count = self._axis.points
        if count <= LONGEST_CHIRP.value:
            table = self._tables.pairs(f"chirp.{count}", chirp(count))
            return lambda index: self._entry(table, index)
        roots = LongRoots(self._tables, self._fn, self._part, 2 * count, 1, 2 * count)
        return lambda index: roots.at((index * index).integer("urem", 2 * count))

    def back_chirp(self) -> int:
        """Write the conjugate chirp around 0, divided by the length: its spectrum is a factor of the convolution."""
        fn, count, length = self._fn, self._axis.points, self._length
        entry, scale = self._chirp(), 1.0 / length
        with self._chunks(length) as (_, first, stop):
            spans = (first, stop.smin(count), False), (first.smax(length - count + 1), stop, True)
            fn.fill(fn.at(self._target, self._part, first * 2), 0, (stop - first) * (2 * self._part.bytes))
            for begin, end, is_mirrored in spans:
                with fn.loop(begin, end, independent=True) as loop:
                    real, imag = entry(fn.i64(length) - loop.index if is_mirrored else loop.index)
                    self._store((real * scale, imag * -scale), loop.index)
        return length

    def chirped(self) -> int:
        """Write the row times the chirp, followed by zeros."""
        fn, count = self._fn, self._axis.points
        entry = self._chirp()
        with self._chunks(self._length) as (_, first, stop):
            middle = stop.smin(count)
            with fn.loop(first, middle, independent=True) as loop:
                point = self._exchanged(self._load(loop.index * self._axis.inner))
                self._store(plain_product(point, entry(loop.index)), loop.index)
            zero = fn.constant(self._part, 0.0)
            with fn.loop(first.smax(count), stop, independent=True) as loop:
                self._store((zero, zero), loop.index)
        return self._length

    def spectrum(self) -> int:
        """Multiply the spectrum by that of the conjugate chirp, and exchange parts."""
        count, length = self._axis.points, self._length
        table = self._tables.pairs(f"spectrum.{count}.{length}", chirp_spectrum(count, length))
        return self._each(length, lambda n: swapped(plain_product(self._load(n), self._entry(table, n))))

    def kept_spectrum(self) -> int:
        """Multiply the spectrum by that of the conjugate chirp, which is the source, and exchange parts."""
        return self._each(self._length, lambda n: swapped(plain_product(self._entry(self._target, n), self._load(n))))

    def unchirped(self) -> int:
        """Write the row times the chirp."""
        fn, count = self._fn, self._axis.points
        entry = self._chirp()
        with self._chunks(count) as (_, first, stop), fn.loop(first, stop, independent=True) as loop:
            real, imag = self._exchanged(plain_product(self._load(loop.index), entry(loop.index)))
            self._store((real * self._scale, imag * self._scale), loop.index * self._axis.inner)
        return count

    def _exchanged(self, point: Point) -> Point:
        return swapped(point) if self._swaps else point
