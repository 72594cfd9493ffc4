"""Converts the sums of a tile to the type of the result, and stores them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from xlakit.cpu.kernels.gemm.engine import Engine, acc_vector, to_result, vectors_of
from xlakit.cpu.kernels.gemm.micro_kernel import Sums, flatten
from xlakit.cpu.kernels.gemm.operands import Direction
from xlakit.cpu.kernels.shared.shuffles import interleaved
from xlakit.cpu.llvm import VOID, Function, Value
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.cpu.llvm.promises import NO_INLINE
from xlakit.cpu.scalars.memory import is_narrow, memory_type
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass


@dataclass(slots=True)
class Output:
    """The destination of results: their type, and the directions of rows and columns from ``base`` on.

    origin: the row and the column at ``base``, if they are not 0.
    """

    fn: Function
    engine: Engine
    kind: PrimitiveType
    rows: Direction
    columns: Direction
    base: Value
    origin: tuple[Value, Value] | None = None

    @property
    def is_contiguous(self) -> bool:
        """Whether the columns of a tile are contiguous in memory."""
        columns, width = self.columns, self.engine.nr
        return (columns.stride == 1 or columns.run == 1) and (len(columns.dims) <= 1 or columns.run % width == 0)

    def store_tile(self, sums: Sums, row: Value, column: Value, width: int) -> None:
        """Store a tile of ``width`` columns that starts at ``row`` and ``column``."""
        if is_narrow(self.kind) or not self.is_contiguous:
            # Row by row in a loop: unrolled it would be much code, and its time is small compared with the product's.
            self._store_some(sums, row, column, width)
            return
        for r, registers in enumerate(sums):
            self._store_row(registers, row + r, column, width)

    def _store_some(self, sums: Sums, row: Value, column: Value, width: int) -> None:
        fn, type = self.fn, acc_vector(self.engine)
        flat = flatten(sums)
        buffer = fn.alloca(type, len(flat), align=64)
        for number, value in enumerate(flat):
            fn.store(value, fn.at(buffer, type, number), align=16)
        self.store_rows((buffer, len(flat) // len(sums)), row, column, fn.i64(len(sums)), width)

    def store_rows(self, sums: tuple[Value, int], row: Value, column: Value, count: Value, width: int) -> None:
        """Store ``count`` rows of ``width`` columns, whose sums are in memory, a fixed number of registers per row."""
        fn, engine = self.fn, self.engine
        buffer, per_row = sums
        pieces = vectors_of(engine, width)
        types = [acc_vector(engine, lanes) for _, lanes in pieces for _ in range(engine.parts)]
        with fn.loop(0, count, hints=AS_WRITTEN) as r:
            loaded = [
                fn.load(type, fn.at(buffer, acc_vector(engine), r.index * per_row + n), align=engine.acc.bytes)
                for n, type in enumerate(types)
            ]
            registers = [tuple(loaded[i : i + engine.parts]) for i in range(0, len(loaded), engine.parts)]
            self._store_row(registers, row + r.index, column, width)

    def call_store_rows(self, sums: tuple[Value, int], row: Value, column: Value, count: Value, width: int) -> None:
        """As :meth:`store_rows`, in a separate function, since the code for narrow or scattered results is large."""

        def emit(function: Function, arguments: list[Value]) -> None:
            _, base, buffer, row, count, column, *origin = arguments
            output = replace(self, fn=function, base=base, origin=(origin[0], origin[1]) if origin else None)
            output.store_rows((buffer, sums[1]), row, column, count, width)

        arguments = [self.fn.parameters[0], self.base, sums[0], row, count, column, *(self.origin or ())]
        _outlined(self.fn, f"{self.fn.name}.store", arguments, emit)

    def _store_row(self, registers: Sequence[tuple[Value, ...]], row: Value, column: Value, width: int) -> None:
        fn = self.fn
        if self.origin is not None:
            row, column = row - self.origin[0], column - self.origin[1]
        start = self.rows.offset(fn, row)
        if self.is_contiguous:
            start = start + self.columns.offset(fn, column)
        for (first, lanes), register in zip(vectors_of(self.engine, width), registers, strict=False):
            values = to_result(fn, self.kind, tuple(first_lanes(fn, part, lanes) for part in register))
            if self.is_contiguous:
                self.store_elements(values, start + first)
            elif lanes == 1 or self._are_neighbors(lanes):
                self.store_elements(values, start + self.columns.offset(fn, column + first))
            else:
                self._scatter(values, start, column + first)

    def _are_neighbors(self, lanes: int) -> bool:
        """Whether ``lanes`` columns of a vector of a tile are contiguous in memory; tiles begin at multiples."""
        columns = self.columns
        return columns.stride == 1 and columns.run % lanes == 0 and self.engine.nr % lanes == 0

    def _scatter(self, values: Sequence[Value], start: Value, column: Value) -> None:
        """Store the lanes one by one."""
        fn = self.fn
        lanes, element = values[0].type.lanes, values[0].type.element
        buffers = [fn.alloca(value.type, align=64) for value in values]
        for value, buffer in zip(values, buffers, strict=True):
            fn.store(value, buffer)
        with fn.loop(0, lanes, hints=AS_WRITTEN) as lane:
            single = [fn.load(element, fn.at(memory, element, lane.index)) for memory in buffers]
            self.store_elements(single, start + self.columns.offset(fn, column + lane.index))

    def store_elements(self, values: Sequence[Value], offset: Value) -> None:
        """Store contiguous elements, given as vectors of their parts."""
        fn, type = self.fn, memory_type(self.kind)
        lanes = values[0].type.lanes
        if len(values) == 1:
            fn.store(values[0], fn.at(self.base, type, offset), align=type.bytes)
            return
        address = fn.at(self.base, type, offset * 2)
        if lanes == 1:
            for part, value in enumerate(values):
                fn.store(value, fn.at(address, type, part))
            return
        fn.store(interleaved(fn, values), address, align=type.bytes)


def is_stored_by_tiles(engine: Engine, kind: PrimitiveType, columns: Direction, *, local: bool) -> bool:
    """Whether sums need no conversion, and the sums of a row are contiguous in the result."""
    plain = engine.parts == 1 and kind is not PrimitiveType.PRED and not is_narrow(kind) and not kind.is_complex
    if not plain or memory_type(kind) is not engine.acc:
        return False
    return local or (len(columns.dims) <= 1 and (columns.stride == 1 or columns.size == 1))


def first_lanes(fn: Function, value: Value, lanes: int) -> Value:
    """The first ``lanes`` lanes of a register."""
    if value.type.lanes == lanes:
        return value
    return fn.lane(value, 0) if lanes == 1 else fn.shuffle(value, value, range(lanes))


def _outlined(
    fn: Function, name: str, arguments: Sequence[Value], emit: Callable[[Function, list[Value]], None]
) -> None:
    """Call a new function that ``emit`` writes; constant arguments are constants in it, the others parameters."""
    variables = [a for a in arguments if a.constant is None]
    function = fn.module.function(name, VOID, [a.type for a in variables], attributes=[NO_INLINE])
    parameters = iter(function.parameters)
    values = [next(parameters) if (n := a.constant) is None else function.constant(a.type, n) for a in arguments]
    emit(function, values)
    fn.call(function, VOID, *variables)
