"""Packing of the left operand in rows, with k innermost: each row is one stream of the micro-kernel.

Elements are converted to the engine's packed type. All programs share the emitted functions, which get the addresses of
rows and of runs of k in tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xlakit.cpu.kernels.gemm.engine import AMX_ROWS, Engine, stored_as_packed
from xlakit.cpu.kernels.gemm.operands import ACROSS, ALONG, ElementReader, element_bytes
from xlakit.cpu.kernels.shared.shuffles import grouped, transposed
from xlakit.cpu.llvm import I8, I32, I64, PTR, Effort, Function, Type, Value, vector
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.target import vector_bytes

# The bytes of a cache line; if lines are longer, some are prefetched twice.
LINE_BYTES = 64
# Rows that are copied as they are take less time than a line needs to arrive.
SHORT_ROWS_AHEAD = 8


@dataclass(frozen=True, slots=True)
class PackRows:
    """Packs rows of the left operand, of type ``kind``, for a result of type ``result``.

    ``(ptr sources, ptr runs, i64 count, i64 kc, i64 stride, i64 rows, ptr target, i64 length)``: ``sources`` has a
    pointer to each row; ``runs`` (every other word) has the distance of each of ``count`` runs of ``kc`` steps from
    there, in elements; steps of k are ``stride`` elements apart. Packed rows are ``length`` elements apart.
    """

    engine: Engine
    kind: PrimitiveType
    result: PrimitiveType
    form: str

    family: ClassVar[str] = "gemm_pack_rows"
    parameters: ClassVar[Sequence[Type]] = (PTR, PTR, I64, I64, I64, I64, PTR, I64)

    def write(self, fn: Function) -> None:
        """Write its body."""
        engine = self.engine
        if engine.amx:
            _clear_ends(fn, engine)
        is_copy = self.form == ALONG and stored_as_packed(engine, self.kind) and not engine.is_biased
        if self.form == ACROSS:
            self._across(fn)
        else:
            self._rows(fn, is_copy=is_copy)
        if is_copy or self.form == ACROSS:
            fn.effort = Effort.TIDY
        if engine.group > 1 and not engine.amx:
            _pad_rows(fn, engine)

    def _rows(self, fn: Function, *, is_copy: bool) -> None:
        engine = self.engine
        reader = ElementReader(fn, engine, self.kind, self.result, is_left=True)
        sources, runs, count, kc, _, rows, target, length = fn.parameters
        with fn.loop(0, rows, hints=AS_WRITTEN) as row:
            packed_row = fn.at(target, engine.packed, row.index * length * engine.parts)
            source = fn.load(PTR, fn.at(sources, PTR, row.index))
            with fn.loop(0, count, hints=AS_WRITTEN) as run:
                start = reader.at(source, fn.load(I64, fn.at(runs, I64, run.index * 2)))
                into = fn.at(packed_row, engine.packed, run.index * kc * engine.parts)
                if self.form == ALONG:
                    later = _distance(fn, sources, row.index, (row.index + SHORT_ROWS_AHEAD).smin(rows - 1))
                    with fn.loop(0, kc * element_bytes(self.kind), LINE_BYTES, hints=AS_WRITTEN) as line:
                        fn.prefetch(fn.at(start, I8, later + line.index), level=2)
                if is_copy:
                    _copy(fn, engine.packed, start, into, kc * engine.parts)
                else:
                    self._run(fn, reader, start, into)

    def _run(self, fn: Function, reader: ElementReader, start: Value, into: Value) -> None:
        engine, (_, _, _, kc, stride, *_) = self.engine, fn.parameters
        with fn.loop(0, kc, independent=True) as step:
            element = reader.at(start, step.index if self.form == ALONG else step.index * stride)
            for part, value in enumerate(reader.elements(element, 1)):
                fn.store(value, fn.at(into, engine.packed, step.index * engine.parts + part))

    def _across(self, fn: Function) -> None:
        """Pack rows that are adjacent in memory: square blocks are transposed in registers."""
        engine = self.engine
        reader = ElementReader(fn, engine, self.kind, self.result, is_left=True)
        sources, runs, count, kc, stride, rows, target, length = fn.parameters
        lanes, group = engine.lanes, engine.group
        whole_rows, whole_steps = rows & -lanes, kc & -(lanes * group)
        with fn.loop(0, count, hints=AS_WRITTEN) as run:
            shift = fn.load(I64, fn.at(runs, I64, run.index * 2))
            into = run.index * kc

            def address(row: Value, step: Value) -> Value:
                return fn.at(target, engine.packed, row * length + into + step)

            with fn.loop(0, whole_rows, lanes, hints=AS_WRITTEN) as row:
                start = reader.at(fn.load(PTR, fn.at(sources, PTR, row.index)), shift)

                def column(step: Value, start: Value = start) -> Value:
                    return reader.elements(reader.at(start, step * stride), lanes)[0]

                with fn.loop(0, whole_steps, lanes * group, hints=AS_WRITTEN) as step:
                    square = [column(step.index + k) for k in range(lanes * group)]
                    if group > 1:
                        square = [grouped(fn, square[k : k + group]) for k in range(0, lanes * group, group)]
                    for k, value in enumerate(transposed(fn, square)):
                        fn.store(value, address(row.index + k, step.index), align=engine.packed.bytes)
                with fn.loop(whole_steps, kc, hints=AS_WRITTEN) as step:
                    value = column(step.index)
                    for k in range(lanes):
                        fn.store(fn.lane(value, k), address(row.index + k, step.index))
            with fn.loop(whole_rows, rows, hints=AS_WRITTEN) as row:
                start = reader.at(fn.load(PTR, fn.at(sources, PTR, row.index)), shift)
                with fn.loop(0, kc, hints=AS_WRITTEN) as step:
                    value = reader.elements(reader.at(start, step.index * stride), 1)[0]
                    fn.store(value, address(row.index, step.index))


def _distance(fn: Function, sources: Value, row: Value, other: Value) -> Value:
    """The bytes from a row of a table to another one."""
    first, second = (fn.load(I64, fn.at(sources, PTR, number)) for number in (row, other))
    return second - first


def _copy(fn: Function, type: Type, source: Value, target: Value, count: Value) -> None:
    """Copy contiguous elements in vectors; a call of memcpy would take as long as a short row."""
    wide = vector(type, vector_bytes() // type.bytes)
    whole = count & -wide.lanes

    def each(type: Type, begin: Value | int, end: Value, step: int) -> None:
        with fn.loop(begin, end, step, hints=AS_WRITTEN) as loop:
            value = fn.load(type, fn.at(source, type.element, loop.index), align=type.element.bytes)
            fn.store(value, fn.at(target, type.element, loop.index), align=type.element.bytes)

    each(wide, 0, whole, wide.lanes)
    each(type, whole, count, 1)


def _clear_ends(fn: Function, engine: Engine) -> None:
    """Zero one row of the last tile register of each row, before rows are packed, if the steps of k do not fill it."""
    _, _, count, kc, _, rows, target, length = fn.parameters
    zeros = vector(I32, AMX_ROWS)
    total = count * kc
    with fn.if_((total & (engine.steps - 1)).ne(0)), fn.loop(0, rows, hints=AS_WRITTEN) as row:
        end = fn.at(target, engine.packed, row.index * length + (total & -engine.steps))
        fn.store(fn.constant(zeros, 0), end, align=engine.packed.bytes)


def _pad_rows(fn: Function, engine: Engine) -> None:
    """Fill the last group of steps with zeros."""
    _, _, count, kc, _, rows, target, length = fn.parameters
    total = count * kc
    with fn.loop(total, total + (-total & (engine.group - 1)), hints=AS_WRITTEN) as step:
        with fn.loop(0, rows, hints=AS_WRITTEN) as row:
            fn.store(fn.constant(engine.packed, 0), fn.at(target, engine.packed, row.index * length + step.index))
