"""Triangular systems by strips: packed right-hand sides as wide as a micro-tile, from which all rows are subtracted.

The unknowns are solved a block of ``mr`` rows at a time. The rows of a block are packed as one panel of the left
operand of products, which serves all strips of a task, and the block's triangle beside it. In each strip a micro-tile
multiplies the panel with the unknowns that are known, and solves the triangle in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from xlakit import machine
from xlakit.cpu.kernels.gemm.engine import Engine, acc_vector, choose_engine
from xlakit.cpu.kernels.gemm.micro_kernel import Columns, Rows, multiply, zeros
from xlakit.cpu.kernels.gemm.operands import ACROSS, ALONG, SINGLE, rounded_up
from xlakit.cpu.kernels.gemm.panels import PackPanels
from xlakit.cpu.kernels.shared import common, scratch
from xlakit.cpu.llvm import I8, I64, PTR, Effort, Function, Type, Value
from xlakit.cpu.llvm.bounds import within
from xlakit.cpu.llvm.loop import AS_WRITTEN, NO_UNROLL
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.options import knob
from xlakit.target import processor

# The bytes of the strips of a task. Each panel passes over all of them, so they should be in the second-level cache.
_TASK_BYTES = knob("strips.task_bytes", lambda: machine.current().l2, 0, 1 << 14)
# Each task packs the matrix. For fewer right-hand sides than this that takes too large a part of its time.
_LEAST_SIDES = knob("strips.least_sides", 128, 1)
_LINE = 64
# Areas of scratch are two cache lines apart; the sanitizer checks that nothing is written between them.
_GAP = 2 * _LINE


def engine_of(kind: PrimitiveType, size: int, sides: int) -> Engine | None:
    """The micro-tile for systems of ``size`` unknowns; None where BLAS solves them faster.

    Two registers of columns divide more numbers of right-hand sides evenly than three do, and higher tiles load less.
    """
    if kind not in (PrimitiveType.F32, PrimitiveType.F64):
        return None
    engine = choose_engine(kind, kind, kind)
    registers = 32 if processor().vector_bytes == 64 else 16
    engine = replace(engine, mr=(registers - 4) // 2, vectors=1 if sides == engine.lanes else 2)
    is_fast = sides >= engine.lanes and most_sides(engine, size) >= min(sides, _LEAST_SIDES.value)
    return engine if is_fast else None


def most_sides(engine: Engine, size: int) -> int:
    """The most right-hand sides of a task, whose strips fit the cache."""
    return _TASK_BYTES.value // (size * engine.packed.bytes) // engine.nr * engine.nr


@dataclass(frozen=True, slots=True)
class SolveBlock:
    """Solves a block of rows of a lower or an upper system in some strips.

    ``(ptr panel, ptr triangle, ptr known, ptr block, i64 strips, i64 distance, i64 kc)``: ``panel`` has for each of
    ``kc`` unknowns that are ``known`` its factors in the rows; ``triangle`` has for each unknown of the block its
    factors in the rows, negated, and on the diagonal their reciprocals. Strips are ``distance`` elements apart.
    """

    engine: Engine
    lower: bool

    family: ClassVar[str] = "triangular_solve_block"
    parameters: ClassVar[Sequence[Type]] = (*[PTR] * 4, *[I64] * 3)

    def write(self, fn: Function) -> None:
        """Write its body."""
        fn.effort = Effort.TIDY
        panel, triangle, known, block, strips, distance, kc = fn.parameters
        engine, type = self.engine, self.engine.packed
        height, each = engine.mr, acc_vector(self.engine)
        order = range(height) if self.lower else range(height - 1, -1, -1)
        with fn.loop(0, strips, hints=AS_WRITTEN) as strip:
            start, target = (fn.at(p, type, strip.index * distance) for p in (known, block))
            rows = Rows([fn.at(panel, type, r) for r in range(height)], height)
            columns = Columns(start, engine.nr)
            sums = multiply(fn, engine, rows, columns, zeros(fn, engine, height, engine.nr), fn.i64(1), kc)
            places = [
                [fn.at(target, each, r * engine.vectors + v) for v in range(engine.vectors)] for r in range(height)
            ]
            rest = [
                [fn.load(each, place, align=type.bytes) - register[0] for place, register in zip(*row, strict=True)]
                for row in zip(places, sums, strict=True)
            ]
            for solved, c in enumerate(order):
                factor = self._factor(fn, triangle, c, c)
                rest[c] = [value * factor for value in rest[c]]
                for value, place in zip(rest[c], places[c], strict=True):
                    fn.store(value, place, align=type.bytes)
                for r in list(order)[solved + 1 :]:
                    factor = self._factor(fn, triangle, r, c)
                    pairs = zip(rest[c], rest[r], strict=True)
                    rest[r] = [fn.intrinsic("llvm.fmuladd", each, factor, x, value) for x, value in pairs]

    def _factor(self, fn: Function, triangle: Value, row: int, column: int) -> Value:
        engine = self.engine
        return fn.splat(fn.load(engine.packed, fn.at(triangle, engine.packed, column * engine.mr + row)), engine.lanes)


@dataclass(frozen=True, slots=True)
class Strips:
    """Solves t x = b, where element (i, k) of t is ``a[i * a_steps[0] + k * a_steps[1]]``, and x has such steps, too.

    block: the most right-hand sides of a task.
    """

    fn: Function
    kind: PrimitiveType
    engine: Engine
    size: int
    block: int
    lower: bool
    unit: bool
    a_steps: tuple[int, int]
    x_steps: tuple[int, int]

    @property
    def _rows(self) -> int:
        return rounded_up(self.size, self.engine.mr)

    @property
    def _strip(self) -> int:
        """The elements of a packed strip."""
        return self._rows * self.engine.nr

    def solve(self, a: Value, x: Value, count: Value) -> None:
        """Solve for ``count`` right-hand sides from ``x`` on."""
        fn, engine, type = self.fn, self.engine, self.engine.packed
        height = engine.mr
        numbers = (-(-self.block // engine.nr) * self._strip, height * self.size, height * height)
        sizes = [*(rounded_up(n * type.bytes, _LINE) for n in numbers), height * PTR.bytes]
        memory = scratch.acquire(fn, sum(sizes) + _GAP * len(sizes))
        offsets = [sum(sizes[:n]) + _GAP * n for n in range(len(sizes))]
        areas = [within(fn, fn.at(memory, I8, o), s) for o, s in zip(offsets, sizes, strict=True)]
        packed, panel, triangle, sources = areas
        strips = (count + (engine.nr - 1)).integer("udiv", engine.nr)
        self._move(x, packed, count, strips, packs=True)
        with fn.loop(0, self._rows // height, hints=NO_UNROLL) as blocks:
            number = blocks.index if self.lower else fn.i64(self._rows // height - 1) - blocks.index
            row = number * height
            first = fn.i64(0) if self.lower else (row + height).smin(self.size)
            kc = row if self.lower else fn.i64(self.size) - first
            self._pack_panel(a, row, first, kc, (sources, panel))
            self._pack_triangle(a, row, triangle)
            places = (fn.at(packed, type, k * engine.nr) for k in (first, row))
            operands = (panel, triangle, *places, strips, fn.i64(self._strip), kc)
            common.call(fn, SolveBlock(engine, self.lower), *operands)
        self._move(x, packed, count, strips, packs=False)
        scratch.release(fn, memory)

    def _move(self, x: Value, packed: Value, count: Value, strips: Value, *, packs: bool) -> None:
        """Pack right-hand sides, with zeros where there are none, or write back what was solved."""
        fn, engine, type = self.fn, self.engine, self.engine.packed
        row_step, side_step = self.x_steps
        if packs:
            last = (strips - 1) * self._strip
            with fn.if_((strips * engine.nr).ne(count)):
                fn.fill(fn.at(packed, type, last), 0, self._strip * type.bytes)
            with fn.loop(0, strips, hints=NO_UNROLL) as strip:
                end = fn.at(packed, type, strip.index * self._strip + self.size * engine.nr)
                fn.fill(end, 0, (self._rows - self.size) * engine.nr * type.bytes)
        with fn.loop(0, strips, hints=NO_UNROLL) as strip:
            first = strip.index * engine.nr
            sides = (count - first).smin(engine.nr)
            start, into = fn.at(x, type, first * side_step), fn.at(packed, type, strip.index * self._strip)

            def move(row: Value, side: Value, start: Value = start, into: Value = into) -> None:
                outer = fn.at(start, type, row * row_step + side * side_step)
                inner = fn.at(into, type, row * engine.nr + side)
                source, target = (outer, inner) if packs else (inner, outer)
                fn.store(fn.load(type, source), target)

            if side_step == 1:
                with fn.loop(0, self.size, hints=NO_UNROLL) as row, fn.loop(0, sides, independent=True) as side:
                    move(row.index, side.index)
            else:
                with fn.loop(0, sides, hints=NO_UNROLL) as side, fn.loop(0, self.size, independent=True) as row:
                    move(row.index, side.index)

    def _pack_panel(self, a: Value, row: Value, first: Value, kc: Value, areas: tuple[Value, Value]) -> None:
        """Pack the factors of ``kc`` unknowns from ``first`` on in the rows of a block; the last one may repeat."""
        fn, (row_step, step), height = self.fn, self.a_steps, self.engine.mr
        sources, panel = areas
        for r in range(height):
            place = (row + r).smin(self.size - 1) * row_step + first * step
            fn.store(fn.at(a, self.engine.packed, place), fn.at(sources, PTR, r))
        form = ALONG if step == 1 else ACROSS if row_step == 1 else SINGLE
        rows = (fn.i64(self.size) - row).smin(height)
        runs = fn.address(fn.module.shared_data("no_distance", bytes(16), align=8))
        sizes = (fn.i64(1), kc, fn.i64(step), rows, panel, kc)
        common.call(fn, PackPanels(replace(self.engine, vectors=1), self.kind, self.kind, form), sources, runs, *sizes)

    def _pack_triangle(self, a: Value, row: Value, triangle: Value) -> None:
        """Pack the triangle of a block; rows that only fill it have zeros, and 1 on the diagonal."""
        fn, (row_step, step), height, type = self.fn, self.a_steps, self.engine.mr, self.engine.packed
        zero, one, last = fn.constant(type, 0.0), fn.constant(type, 1.0), fn.i64(self.size - 1)
        with fn.loop(0, height, hints=NO_UNROLL) as column:
            c = row + column.index
            with fn.loop(0, height, hints=NO_UNROLL) as rows:
                r = row + rows.index
                element = fn.load(type, fn.at(a, type, r.smin(last) * row_step + c.smin(last) * step))
                is_inner = (r > c if self.lower else r < c) & (r.smax(c) <= last)
                place = column.index * height + rows.index
                fn.store(fn.select(is_inner, -element, zero), fn.at(triangle, type, place))
            diagonal = fn.load(type, fn.at(a, type, c.smin(last) * (row_step + step)))
            value = one if self.unit else fn.select(c <= last, one / diagonal, one)
            fn.store(value, fn.at(triangle, type, column.index * (height + 1)))
