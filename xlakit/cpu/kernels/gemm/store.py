"""From the sums of a tile to the result: rounding, storing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xlakit.cpu.kernels.gemm.micro_kernel import NO_UNROLL, Sums, flatten
from xlakit.cpu.kernels.gemm.operands import Direction
from xlakit.cpu.kernels.shared.engine import Engine, acc_vector, to_result, vectors_of
from xlakit.cpu.llvm import Function, Value
from xlakit.cpu.scalars.memory import is_narrow, memory_type
from xlakit.data.primitive import PrimitiveType


@dataclass(slots=True)
class Output:
    """The destination of results: their type, and the directions of rows and columns from ``base``."""

    kind: PrimitiveType
    rows: Direction
    columns: Direction
    base: Value
    origin: tuple[Value, Value] | None = None

    def is_contiguous(self, width: int) -> bool:
        """Whether ``width`` columns, from a multiple of it on, are neighbors in memory."""
        columns = self.columns
        return (columns.stride == 1 or columns.run == 1) and (len(columns.dims) <= 1 or columns.run % width == 0)


def store_tile(fn: Function, engine: Engine, output: Output, sums: Sums, row: Value, column: Value, width: int) -> None:
    """Store a tile that starts at ``row`` and ``column``, of so many columns."""
    if is_narrow(output.kind) or not output.is_contiguous(engine.nr):
        # Row by row in a loop: it takes little time besides the product, and much code otherwise.
        _store_some(fn, engine, output, sums, row, column, width)
        return
    for r, registers in enumerate(sums):
        _store_row(fn, engine, output, registers, row + r, column, width)


def _store_some(
    fn: Function, engine: Engine, output: Output, sums: Sums, row: Value, column: Value, width: int
) -> None:
    flat = flatten(sums)
    buffer = fn.alloca(acc_vector(engine), len(flat), align=64)
    for number, value in enumerate(flat):
        fn.store(value, fn.at(buffer, acc_vector(engine), number), align=16)
    store_rows(fn, engine, output, (buffer, len(flat) // len(sums)), row, column, fn.i64(len(sums)), width)


def store_rows(
    fn: Function,
    engine: Engine,
    output: Output,
    sums: tuple[Value, int],
    row: Value,
    column: Value,
    count: Value,
    width: int,
) -> None:
    """Store ``count`` rows, ``width`` columns of a tile whose sums are in memory, so many registers for each row."""
    buffer, per_row = sums
    pieces = vectors_of(engine, width)
    types = [acc_vector(engine, lanes) for _, lanes in pieces for _ in range(engine.parts)]
    with fn.loop(0, count, hints=NO_UNROLL) as r:
        found = [
            fn.load(type, fn.at(buffer, acc_vector(engine), r.index * per_row + n), align=engine.acc.bytes)
            for n, type in enumerate(types)
        ]
        registers = [tuple(found[i : i + engine.parts]) for i in range(0, len(found), engine.parts)]
        _store_row(fn, engine, output, registers, row + r.index, column, width)


def _store_row(
    fn: Function,
    engine: Engine,
    output: Output,
    registers: Sequence[tuple[Value, ...]],
    row: Value,
    column: Value,
    width: int,
) -> None:
    start_row, start_column = (
        (row, column) if output.origin is None else (row - output.origin[0], column - output.origin[1])
    )
    start = output.rows.offset(fn, start_row)
    contiguous = output.is_contiguous(engine.nr)
    if contiguous:
        start = start + output.columns.offset(fn, start_column)
    for (first, lanes), register in zip(vectors_of(engine, width), registers, strict=False):
        sums = tuple(first_lanes(fn, part, lanes) for part in register)
        values = to_result(fn, output.kind, sums)
        if contiguous:
            store_elements(fn, output, values, start + first)
        elif lanes == 1:
            store_elements(fn, output, values, start + output.columns.offset(fn, start_column + first))
        else:
            _scatter(fn, output, values, start, start_column + first)


def _scatter(fn: Function, output: Output, values: Sequence[Value], start: Value, column: Value) -> None:
    """Store lanes one by one."""
    lanes, element = values[0].type.lanes, values[0].type.element
    buffers = [fn.alloca(value.type, align=64) for value in values]
    for value, buffer in zip(values, buffers, strict=True):
        fn.store(value, buffer)
    with fn.loop(0, lanes, hints=NO_UNROLL) as lane:
        single = [fn.load(element, fn.at(memory, element, lane.index)) for memory in buffers]
        store_elements(fn, output, single, start + output.columns.offset(fn, column + lane.index))


def store_elements(fn: Function, output: Output, values: Sequence[Value], offset: Value) -> None:
    """Store elements that are neighbors, given as vectors of their parts."""
    type = memory_type(output.kind)
    lanes = values[0].type.lanes
    if len(values) == 1:
        fn.store(values[0], fn.at(output.base, type, offset), align=type.bytes)
        return
    address = fn.at(output.base, type, offset * 2)
    if lanes == 1:
        for part, value in enumerate(values):
            fn.store(value, fn.at(address, type, part))
        return
    mixed = fn.shuffle(values[0], values[1], [n for lane in range(lanes) for n in (lane, lane + lanes)])
    fn.store(mixed, address, align=type.bytes)


def first_lanes(fn: Function, value: Value, lanes: int) -> Value:
    """The first lanes of a register."""
    if value.type.lanes == lanes:
        return value
    return fn.lane(value, 0) if lanes == 1 else fn.shuffle(value, value, range(lanes))
