"""Packing of the right operand in slivers of nr columns, with columns innermost.

Elements are converted to the engine's packed type. All programs share the emitted functions, which get the addresses of
columns and of runs of k in tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from xlakit.cpu.kernels.gemm.engine import Engine, takes_pairs_of_bf16
from xlakit.cpu.kernels.gemm.micro_kernel import with_fours
from xlakit.cpu.kernels.gemm.operands import (
    ACROSS,
    ALONG,
    SINGLE,
    ElementReader,
    Matrix,
    element_bytes,
    in_groups,
    pieces_of,
)
from xlakit.cpu.kernels.gemm.rows import LINE_BYTES
from xlakit.cpu.kernels.shared.shuffles import grouped, transposed, widened
from xlakit.cpu.llvm import I8, I32, I64, PTR, Effort, Function, Type, Value, vector
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass

# Processors do not foresee the next row where a run of elements ends: rows are prefetched so many before they are read.
_ROWS_AHEAD = 2
# The form of columns with runs of k shorter than the squares that are transposed otherwise, which take long to compile.
SHORT = "short"
# 128 in each of four bytes, the bias of left elements.
_BIAS = 0x80808080
# The steps whose columns are summed at once: independent sums hide the latency of the instruction.
_SUMS_AT_ONCE = 4


def packing_of(matrix: Matrix, engine: Engine, width: int, kc: int | None, result: PrimitiveType) -> PackSlivers:
    """What packs slivers of ``width`` columns of the right operand, whose runs of k have ``kc`` elements, if known."""
    form, piece = pieces_of(matrix, engine.nr)
    if form == ALONG and engine.parts == 2:
        form = SINGLE
    if form == ALONG and kc is not None and kc < engine.lanes * engine.group:
        form = SHORT
    columns = (width, piece) if form == ACROSS else (None, None)
    return PackSlivers(replace(engine, mr=1), matrix.kind, result, form, *columns)


@dataclass(frozen=True, slots=True)
class PackSlivers:
    """Packs slivers of the right operand, of type ``kind``, for a result of type ``result``.

    In the form ACROSS, a sliver has ``width`` columns, ``piece`` of which at a time are adjacent. ``(ptr sources, ptr
    runs, i64 count, i64 kc, i64 stride, i64 slivers, ptr target, i64 distance, i64 width)``: ``sources`` has a pointer
    to each column, the other arguments are those of PackRows. Packed slivers are ``distance`` elements apart.
    """

    engine: Engine
    kind: PrimitiveType
    result: PrimitiveType
    form: str
    width: int | None
    piece: int | None

    family: ClassVar[str] = "gemm_pack_slivers"
    parameters: ClassVar[Sequence[Type]] = (PTR, PTR, I64, I64, I64, I64, PTR, I64, I64)

    def write(self, fn: Function) -> None:
        """Write its body."""
        engine = self.engine
        if self.form != SINGLE:
            fn.effort = Effort.TIDY
        if self.width is not None and self.piece is not None:
            self._across(fn, self.width, self.piece)
            _interleave(fn, engine)
            _sum_columns(fn, engine)
            return
        sources, _, count, kc, _, slivers, target, distance, width = fn.parameters
        with fn.loop(0, slivers, hints=AS_WRITTEN) as sliver:
            sliver_start = fn.at(target, engine.packed, sliver.index * distance)
            columns = fn.at(sources, PTR, sliver.index * engine.nr)
            if takes_pairs_of_bf16(engine):
                # The old contents of the other columns may be subnormal, and the check of the exponents reads them.
                with fn.if_(width < engine.nr):
                    fn.fill(sliver_start, 0, distance * engine.packed.bytes)
            if self.form == ALONG:
                self._along(fn, columns, sliver_start)
            else:
                self._singly(fn, columns, sliver_start)
            if engine.group > 1:
                total = count * kc
                with fn.loop(total, total + (-total & (engine.group - 1)), hints=AS_WRITTEN) as step:
                    with fn.loop(0, engine.nr, hints=AS_WRITTEN) as column:
                        address = _packed_address(fn, engine, sliver_start, step.index, column.index)
                        fn.store(fn.constant(engine.packed, 0), address)
                if engine.amx:
                    self._pad(fn, sliver_start)
        _interleave(fn, engine)
        _sum_columns(fn, engine)

    def _pad(self, fn: Function, sliver_start: Value) -> None:
        """Add groups of zeros up to a multiple of the steps of k of a tile register."""
        engine = self.engine
        _, _, count, kc, *_ = fn.parameters
        lanes = vector(I32, engine.lanes)
        groups = in_groups(count * kc + (engine.group - 1), engine.group)
        whole = in_groups(count * kc + (engine.steps - 1), engine.steps) * (engine.steps // engine.group)
        with fn.loop(groups * engine.vectors, whole * engine.vectors, hints=AS_WRITTEN) as more:
            fn.store(fn.constant(lanes, 0), fn.at(sliver_start, lanes, more.index), align=engine.packed.bytes)

    def _across(self, fn: Function, width: int, adjacent: int) -> None:
        """Pack rows of k, each for all slivers, in memory order."""
        engine = self.engine
        reader = ElementReader(fn, engine, self.kind, self.result)
        sources, runs, count, kc, stride, slivers, target, distance, _ = fn.parameters
        columns, group, parts = engine.nr, engine.group, engine.parts

        def rows(run: Value, begin: Value | int, end: Value, *, is_whole: bool = True) -> None:
            shift = fn.load(I64, fn.at(runs, I64, run * 2))
            with fn.loop(begin, end, hints=AS_WRITTEN) as step, fn.loop(0, slivers, hints=AS_WRITTEN) as sliver:
                sliver_start = fn.at(target, engine.packed, sliver.index * distance + run * kc * (columns * parts))
                for column in range(0, width, adjacent):
                    piece(sliver.index, column, sliver_start, shift, step.index, is_whole)

        def piece(sliver: Value, column: int, sliver_start: Value, shift: Value, step: Value, is_whole: bool) -> None:
            source = fn.load(PTR, fn.at(sources, PTR, sliver * columns + column))
            count = min(adjacent, width - column)
            # The last piece is filled with zeros up to the end of the sliver.
            lanes = columns - column if column + count == width else count

            def row(number: Value) -> list[Value]:
                element = reader.at(source, shift + number * stride)
                following = reader.at(source, shift + (number + _ROWS_AHEAD * group) * stride)
                for line in range(0, count * element_bytes(self.kind), LINE_BYTES):
                    fn.prefetch(fn.at(following, I8, line))
                return [widened(fn, v, lanes) for v in reader.elements(element, count)]

            if group > 1:
                first = step * group
                steps = [row(first)[0]]
                for number in (first + more for more in range(1, group)):
                    # A partial group is filled with zeros; the last row is read again in place of the missing ones.
                    loaded = row(number if is_whole else number.smin(kc - 1))[0]
                    zero = fn.constant(loaded.type, 0)
                    steps.append(loaded if is_whole else fn.select(number.compare("slt", kc), loaded, zero))
                address = fn.at(sliver_start, engine.packed, first * columns + column * group)
                fn.store(grouped(fn, steps), address, align=engine.packed.bytes)
                return
            for part, value in enumerate(row(step)):
                address = (step * parts + part) * columns + column
                fn.store(value, fn.at(sliver_start, engine.packed, address), align=engine.packed.bytes)

        with fn.loop(0, count, hints=AS_WRITTEN) as run:
            if group == 1:
                rows(run.index, 0, kc)
                return
            whole = in_groups(kc, group)
            rows(run.index, 0, whole)
            rows(run.index, whole, in_groups(kc + (group - 1), group), is_whole=False)
        if engine.amx:
            with fn.loop(0, slivers, hints=AS_WRITTEN) as sliver:
                self._pad(fn, fn.at(target, engine.packed, sliver.index * distance))

    def _along(self, fn: Function, columns: Value, sliver_start: Value) -> None:
        """Pack columns that are contiguous along k: square blocks are transposed in registers."""
        engine = self.engine
        reader = ElementReader(fn, engine, self.kind, self.result)
        _, runs, count, kc, _, _, _, _, width = fn.parameters
        group, lanes = engine.group, engine.lanes
        # The loops count groups of steps of k; the elements of a group move as one 32-bit number.
        element = I32 if group > 1 else engine.packed
        whole = in_groups(kc, group) & -lanes
        with fn.loop(0, count, hints=AS_WRITTEN) as run:
            shift = fn.load(I64, fn.at(runs, I64, run.index * 2))
            into = fn.at(sliver_start, engine.packed, run.index * kc * engine.nr)
            with fn.loop(0, (width + (lanes - 1)) & -lanes, lanes, hints=AS_WRITTEN) as column:
                # The table repeats the last column beyond the end, so that reads stay inside.
                starts = [reader.at(fn.load(PTR, fn.at(columns, PTR, column.index + c)), shift) for c in range(lanes)]
                with fn.loop(0, whole, lanes, hints=AS_WRITTEN) as step:
                    square = [reader.elements(reader.at(s, step.index * group), lanes * group)[0] for s in starts]
                    if group > 1:
                        square = [v.bits_as(vector(I32, lanes)) for v in square]
                    for k, value in enumerate(transposed(fn, square)):
                        address = fn.at(into, element, (step.index + k) * engine.nr + column.index)
                        fn.store(value, address, align=engine.packed.bytes)
            with fn.loop(whole * group, kc, hints=AS_WRITTEN) as step, fn.loop(0, width, hints=AS_WRITTEN) as column:
                start = fn.load(PTR, fn.at(columns, PTR, column.index))
                value = reader.elements(reader.at(start, shift + step.index), 1)[0]
                fn.store(value, _packed_address(fn, engine, into, step.index, column.index))

    def _singly(self, fn: Function, columns: Value, sliver_start: Value) -> None:
        engine = self.engine
        reader = ElementReader(fn, engine, self.kind, self.result)
        _, runs, count, kc, stride, _, _, _, width = fn.parameters
        with fn.loop(0, count, hints=AS_WRITTEN) as run:
            shift = fn.load(I64, fn.at(runs, I64, run.index * 2))
            into = fn.at(sliver_start, engine.packed, run.index * kc * (engine.nr * engine.parts))
            with fn.loop(0, width, hints=AS_WRITTEN) as column:
                start = reader.at(fn.load(PTR, fn.at(columns, PTR, column.index)), shift)
                loop = fn.loop(0, kc, hints=AS_WRITTEN) if self.form == SHORT else fn.loop(0, kc, independent=True)
                with loop as step:
                    for part, value in enumerate(reader.elements(reader.at(start, step.index * stride), 1)):
                        fn.store(value, _packed_address(fn, engine, into, step.index, column.index, part))


def _packed_address(
    fn: Function, engine: Engine, sliver_start: Value, step: Value, column: Value, part: int = 0
) -> Value:
    """The address of an element in a packed sliver."""
    if engine.group > 1:
        whole, rest = in_groups(step, engine.group), step & (engine.group - 1)
        return fn.at(sliver_start, engine.packed, (whole * engine.nr + column) * engine.group + rest)
    return fn.at(sliver_start, engine.packed, (step * engine.parts + part) * engine.nr + column)


def _interleave(fn: Function, engine: Engine) -> None:
    """Bring the columns of packed slivers, one product after the other, into the order of the lanes."""
    if engine.interleaved == 1:
        return
    _, _, count, kc, _, slivers, target, distance, _ = fn.parameters
    columns, type = engine.nr, engine.packed
    lanes = [
        lane % engine.interleaved * (columns // engine.interleaved) + lane // engine.interleaved
        for lane in range(columns)
    ]
    with fn.loop(0, slivers, hints=AS_WRITTEN) as sliver, fn.loop(0, count * kc, hints=AS_WRITTEN) as step:
        address = fn.at(target, type, sliver.index * distance + step.index * columns)
        value = fn.load(vector(type, columns), address, align=type.bytes)
        fn.store(fn.shuffle(value, value, lanes), address, align=type.bytes)


def bias_terms(fn: Function, engine: Engine, end: Value) -> Value:
    """The address of what the bias of left elements adds to the sums of each column of a packed sliver."""
    return fn.at(end, engine.packed, -engine.bias_elements)


def _sum_columns(fn: Function, engine: Engine) -> None:
    """Sum the columns of packed slivers, times the bias of left elements."""
    if not engine.is_biased:
        return
    _, _, count, kc, _, slivers, target, distance, _ = fn.parameters
    type, sums = vector(I32, engine.lanes), engine.vectors * _SUMS_AT_ONCE
    bias = fn.constant(type, _BIAS)
    registers = in_groups(count * kc + (engine.group - 1), engine.group) * engine.vectors
    whole = registers.integer("udiv", sums) * sums
    with fn.loop(0, slivers, hints=AS_WRITTEN) as sliver:
        start = fn.at(target, engine.packed, sliver.index * distance)

        def added(number: Value, totals: Sequence[Value], start: Value = start) -> list[Value]:
            return [
                with_fours(fn, bias, fn.load(type, fn.at(start, type, number + n), align=engine.packed.bytes), total)
                for n, total in enumerate(totals)
            ]

        with fn.loop(0, whole, sums, carried=[fn.constant(type, 0)] * sums, hints=AS_WRITTEN) as step:
            step.next(*added(step.index, step.carried))
        totals = list(step.results[: engine.vectors])
        for n in range(engine.vectors, sums):
            totals[n % engine.vectors] += step.results[n]
        with fn.loop(whole, registers, engine.vectors, carried=totals, hints=AS_WRITTEN) as step:
            step.next(*added(step.index, step.carried))
        terms = bias_terms(fn, engine, fn.at(start, engine.packed, distance))
        for n, total in enumerate(step.results):
            fn.store(total, fn.at(terms, type, n), align=engine.packed.bytes)


def apart(fn: Function, engine: Engine, register: Value) -> Value:
    """The lanes of a register of interleaved products, one product after the other."""
    each = engine.nr // engine.interleaved
    order = [lane % each * engine.interleaved + lane // each for lane in range(engine.nr)]
    return fn.shuffle(register, register, order)
