"""Packing of the left operand in panels: the rows of a micro-tile together, one step of k after the other.

A micro-kernel then reads one stream with one pointer. Rows that are packed each for itself are as many streams, whose
pointers leave no register to prefetch with, and all of which enter a new cache line in the same step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from xlakit.cpu.kernels.gemm.engine import Engine
from xlakit.cpu.kernels.gemm.operands import ACROSS, ALONG, SINGLE, ElementReader, Matrix, form_of
from xlakit.cpu.kernels.gemm.rows import SHORT_ROWS_AHEAD
from xlakit.cpu.kernels.gemm.store import first_lanes
from xlakit.cpu.kernels.shared.masked import first_lanes_mask, has_masks, masked_store
from xlakit.cpu.kernels.shared.shuffles import transposed
from xlakit.cpu.llvm import I64, PTR, Effort, Function, Type, Value
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass

# Writes a run of a panel, given the addresses of the run in each row, and in the panel.
_WriteRun = Callable[[Function, Sequence[Value], Value], None]


def form_of_panels(matrix: Matrix, engine: Engine, *, begins_with_panels: bool) -> str:
    """The contiguous direction of an operand; rows are read at once only where whole panels of them are adjacent."""
    form = form_of(matrix, engine.mr)
    return form if form != ACROSS or begins_with_panels else SINGLE


@dataclass(frozen=True, slots=True)
class PackPanels:
    """Packs rows of the left operand, of type ``kind``, in panels of ``engine.mr``, for a result of type ``result``.

    ``(ptr sources, ptr runs, i64 count, i64 kc, i64 stride, i64 rows, ptr target, i64 length)``: as for PackRows, but
    ``sources`` has a pointer for each row of the last panel, too, and panels are ``length`` steps of k apart.
    """

    engine: Engine
    kind: PrimitiveType
    result: PrimitiveType
    form: str

    family: ClassVar[str] = "gemm_pack_panels"
    parameters: ClassVar[Sequence[Type]] = (PTR, PTR, I64, I64, I64, I64, PTR, I64)

    def write(self, fn: Function) -> None:
        """Write its body."""
        _, _, _, _, _, rows, *_ = fn.parameters
        height = self.engine.mr
        panels = (rows + (height - 1)).integer("udiv", height)
        if self.form == ALONG:
            fn.effort = Effort.TIDY
            self._panels(fn, fn.i64(0), panels, self._along)
        elif self.form == ACROSS:
            # The last panel may repeat a row.
            whole = rows.integer("udiv", height)
            self._across(fn, whole)
            self._panels(fn, whole, panels, self._singly)
        else:
            self._panels(fn, fn.i64(0), panels, self._singly)

    def _reader(self, fn: Function) -> ElementReader:
        return ElementReader(fn, self.engine, self.kind, self.result, is_left=True)

    def _panel(self, fn: Function, panel: Value) -> Value:
        """The address of a packed panel."""
        *_, target, length = fn.parameters
        return fn.at(target, self.engine.packed, panel * length * self.engine.mr)

    def _panels(self, fn: Function, first: Value, last: Value, write: _WriteRun) -> None:
        """Write the runs of some panels: each from the addresses of its rows."""
        sources, runs, count, kc, *_ = fn.parameters
        height, reader = self.engine.mr, self._reader(fn)
        with fn.loop(first, last, hints=AS_WRITTEN) as panel, fn.loop(0, count, hints=AS_WRITTEN) as run:
            shift = fn.load(I64, fn.at(runs, I64, run.index * 2))
            into = fn.at(self._panel(fn, panel.index), self.engine.packed, run.index * kc * height)
            rows = fn.at(sources, PTR, panel.index * height)
            write(fn, [reader.at(fn.load(PTR, fn.at(rows, PTR, r)), shift) for r in range(height)], into)

    def _along(self, fn: Function, starts: Sequence[Value], into: Value) -> None:
        """Pack rows that are contiguous along k: blocks are transposed in registers."""
        engine, reader, kc = self.engine, self._reader(fn), fn.parameters[3]
        height, lanes, type = engine.mr, engine.lanes, engine.packed
        whole = kc & -lanes
        with fn.loop(0, whole, lanes, hints=AS_WRITTEN) as step:
            for first in range(0, height, lanes):
                count = min(lanes, height - first)
                block = [reader.elements(reader.at(s, step.index), lanes)[0] for s in starts[first : first + count]]
                block += [fn.constant(block[0].type, 0)] * (lanes - count)
                mask = first_lanes_mask(fn, lanes, fn.i64(count)) if count < lanes and has_masks() else None
                for k, value in enumerate(transposed(fn, block)):
                    address = fn.at(into, type, (step.index + k) * height + first)
                    if mask is not None:
                        masked_store(fn, value, address, mask)
                    else:
                        fn.store(first_lanes(fn, value, count), address, align=type.bytes)
        with fn.loop(whole, kc, hints=AS_WRITTEN) as step:
            for r, start in enumerate(starts):
                value = reader.elements(reader.at(start, step.index), 1)[0]
                fn.store(value, fn.at(into, type, step.index * height + r))

    def _singly(self, fn: Function, starts: Sequence[Value], into: Value) -> None:
        engine, reader, (_, _, _, kc, stride, *_) = self.engine, self._reader(fn), fn.parameters
        with fn.loop(0, kc, hints=AS_WRITTEN) as step:
            for r, start in enumerate(starts):
                value = reader.elements(reader.at(start, step.index * stride), 1)[0]
                fn.store(value, fn.at(into, engine.packed, step.index * engine.mr + r))

    def _across(self, fn: Function, panels: Value) -> None:
        """Pack steps of k, each for all panels, in memory order."""
        engine, reader = self.engine, self._reader(fn)
        sources, runs, count, kc, stride, *_ = fn.parameters
        height = engine.mr
        with fn.loop(0, count, hints=AS_WRITTEN) as run:
            shift = fn.load(I64, fn.at(runs, I64, run.index * 2))
            with fn.loop(0, kc, hints=AS_WRITTEN) as step, fn.loop(0, panels, hints=AS_WRITTEN) as panel:
                start = fn.load(PTR, fn.at(sources, PTR, panel.index * height))
                value = reader.elements(reader.at(start, shift + step.index * stride), height)[0]
                # The next step is far away, often in another page, which processors do not foresee.
                fn.prefetch(reader.at(start, shift + (step.index + SHORT_ROWS_AHEAD) * stride), level=2)
                into = (run.index * kc + step.index) * height
                address = fn.at(self._panel(fn, panel.index), engine.packed, into)
                fn.store(value, address, align=engine.packed.bytes)
