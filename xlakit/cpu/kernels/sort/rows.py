"""Sorts whole rows, each in one task, and what all methods share: rows as code accesses them, and loops over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xlakit.cpu.kernels.shared import common
from xlakit.cpu.kernels.sort.common import PackRecords, RecordSorter, UnpackRecords
from xlakit.cpu.kernels.sort.keys import load_bits, load_raw, raw_type, store_raw
from xlakit.cpu.kernels.sort.plan import Form, Method, SortPlan
from xlakit.cpu.kernels.sort.record import Record, index_of, make_record, unpack
from xlakit.cpu.llvm import I1, I8, Effort, Function, Module, Value
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.cpu.loops.emit.kernel import Phase, kernel_function


class Rows:
    """The arrays of a sort as the code accesses them: element ``index`` of the row that begins at ``base``."""

    def __init__(self, fn: Function, plan: SortPlan, table: Value) -> None:
        self.fn = fn
        self.plan = plan
        count = len(plan.kinds)
        pointers = [fn.pointer(table, k) for k in range(2 * count + 1)]
        self.inputs, self.outputs, self.scratch = pointers[:count], pointers[count:-1], pointers[-1]

    def load(self, operand: int, base: Value, index: Value) -> Value:
        """The bits of an element of an operand."""
        return load_raw(self.fn, self.plan.kinds[operand], self.inputs[operand], base + index * self.plan.inner)

    def store(self, operand: int, bits: Value, base: Value, index: Value) -> None:
        """Write an element of a result."""
        store_raw(self.fn, bits, self.outputs[operand], base + index * self.plan.inner)

    def record(self, record: Record, base: Value, index: Value) -> tuple[Value, Value]:
        """The record of an element, and whether one of its keys is an exception."""
        return make_record(self.fn, record, lambda k: self.load(k, base, index), index)

    def unpack(self, record: Record, value: Value, base: Value, index: Value) -> None:
        """Write the element of a record as element ``index`` of the results."""
        plan = self.plan
        elements = unpack(self.fn, record, plan.kinds, value, lambda k, i: self.load(k, base, i))
        for operand, bits in enumerate(elements):
            self.store(operand, bits, base, index)

    def pack(self, base: Value, begin: Value, end: Value, records: Value, exception: Value) -> None:
        """Make the records of elements of a contiguous row, in the form PACKED; ``exception`` is a byte to be set."""
        arrays = self._packed(self.inputs, base)
        common.call(self.fn, self._of(PackRecords), *arrays, begin, end, records, exception)

    def unpack_packed(self, base: Value, begin: Value, end: Value, records: Value) -> None:
        """Write the elements of records that :meth:`pack` has made, and that were sorted since."""
        common.call(self.fn, self._of(UnpackRecords), records, begin, end, *self._packed(self.outputs, base))

    def _of(self, function: type[PackRecords] | type[UnpackRecords]) -> PackRecords | UnpackRecords:
        record = self.plan.records[0]
        along = sum(field.bits for field in record.fields[1:])
        return function.of(record, record.keys[0], along, exceptions=False)

    def _packed(self, arrays: Sequence[Value], base: Value) -> list[Value]:
        """The rows of the key's operand and of the other one, which is the same if there is no other."""
        operands = [field.operand for field in self.plan.records[0].fields]
        starts = [self.fn.at(arrays[k], raw_type(self.plan.kinds[k]), base) for k in operands]
        return [starts[0], starts[-1]]


def for_tiles(fn: Function, plan: SortPlan, body: Callable[[Value, Value], None]) -> None:
    """Write a loop over the tiles of a function's tasks, with ``body(base, columns)`` inside.

    A tile is a group of rows whose first elements are adjacent: base, base + 1, .., base + columns - 1.
    """
    _, begin, end = fn.parameters
    across = plan.tiles_across
    first, last = (bound * (plan.outer * across) // plan.tasks for bound in (begin, end))
    with fn.loop(first, last) as loop:
        if plan.inner == 1:
            body(loop.index * plan.length, fn.i64(1))
        else:
            column = (loop.index % across) * plan.columns
            remaining = fn.i64(plan.inner) - column
            columns = fn.select(remaining < plan.columns, remaining, fn.i64(plan.columns))
            body((loop.index // across) * (plan.length * plan.inner) + column, columns)


def for_elements(fn: Function, plan: SortPlan, columns: Value, body: Callable[[Value, Value], Value | None]) -> Value:
    """Write a loop over the elements of a tile, with ``body(column, index)`` inside, which may run in any order.

    Gives whether the body gave true for some element.
    """
    never = fn.constant(I1, 0)
    with fn.loop(0, plan.length, independent=True, carried=[never], hints=NO_UNROLL) as elements:
        (flag,) = elements.carried
        if plan.columns == 1:
            elements.next(flag | (body(fn.i64(0), elements.index) or never))
        else:
            with fn.loop(0, columns, independent=True, carried=[flag]) as across:
                across.next(across.carried[0] | (body(across.index, elements.index) or never))
            elements.next(across.results[0])
    return elements.results[0]


def emit_rows(module: Module, plan: SortPlan) -> list[Phase]:
    """Sort each row in one task, by quicksort or by digits."""
    quick = plan.method is Method.QUICK
    sorters = [RecordSorter(module, record, plan.length, quick=quick) for record in plan.records]
    fn, table, begin, _ = kernel_function(module, "sort_rows")
    rows = Rows(fn, plan, table)
    slot = fn.at(rows.scratch, I8, begin * plan.slot_bytes)
    # Loops that make records of several arrays gain a tenth of a sort from vectors, and take most of its compilation.
    fn.effort = Effort.TIDY if plan.form is Form.GATHERED else Effort.CODE
    match plan.form:
        case Form.ELEMENTS:
            for_tiles(fn, plan, lambda base, _: _sort_elements(rows, sorters[0], slot, base))
        case Form.PACKED:
            for_tiles(fn, plan, lambda base, _: _sort_packed(rows, sorters[0], slot, base))
        case Form.GATHERED:
            for_tiles(fn, plan, lambda base, columns: _sort_tile(rows, sorters, slot, base, columns))
    return [Phase(fn.name, plan.tasks, plan.cost)]


def _sort_elements(rows: Rows, sorter: RecordSorter, scratch: Value, base: Value) -> None:
    """Sort a row whose elements are the records."""
    fn, plan, type = rows.fn, rows.plan, sorter.record.type
    source, target = fn.at(rows.inputs[0], type, base), fn.at(rows.outputs[0], type, base)
    sorted_records = sorter.sort(fn, source, scratch, target, fn.i64(plan.length), fn.constant(I1, 0))
    with fn.if_(sorted_records.ne(target), likely=False):
        fn.copy(target, sorted_records, plan.length * type.bytes)


def _sort_packed(rows: Rows, sorter: RecordSorter, slot: Value, base: Value) -> None:
    """Pack the records of a contiguous row, sort them, and unpack them."""
    fn, plan, row_bytes = rows.fn, rows.plan, rows.plan.length * sorter.record.bytes
    begin, end = fn.i64(0), fn.i64(plan.length)
    spare, first, exception = slot, fn.at(slot, I8, row_bytes), fn.alloca(I8)
    rows.pack(base, begin, end, first, exception)
    kept = fn.at(first, I8, row_bytes) if plan.keeps_records else None
    sorted_records = sorter.sort(fn, first, spare, first, end, fn.load(I8, exception).ne(0), kept)
    rows.unpack_packed(base, begin, end, sorted_records)


def _sort_tile(rows: Rows, sorters: list[RecordSorter], slot: Value, base: Value, columns: Value) -> None:
    """Make the records of a tile's rows, sort each row, and unpack them."""
    fn, plan = rows.fn, rows.plan
    row_bytes = plan.length * plan.records[0].bytes
    spare, first = slot, fn.at(slot, I8, row_bytes)
    kept = fn.at(first, I8, plan.columns * row_bytes) if plan.keeps_records else None
    for number, sorter in enumerate(sorters):
        record, before = sorter.record, plan.records[number - 1] if number else None

        def make(column: Value, index: Value, record: Record = record, before: Record | None = before) -> Value:
            position = column * plan.length + index
            source = index if before is None else index_of(fn, before, load_bits(fn, before.type, first, position))
            record_value, exception = rows.record(record, base + column, source)
            store_raw(fn, record_value, first, position)
            return exception

        exception = for_elements(fn, plan, columns, make)
        with fn.loop(0, columns) as loop:
            row_records = fn.at(first, I8, loop.index * row_bytes)
            count = fn.i64(plan.length)
            sorted_records = sorter.sort(fn, row_records, spare, row_records, count, exception, kept)
            with fn.if_(sorted_records.ne(row_records), likely=False):
                fn.copy(row_records, sorted_records, row_bytes)
    last = plan.records[-1]

    def unpack(column: Value, index: Value) -> None:
        value = load_bits(fn, last.type, first, column * plan.length + index)
        rows.unpack(last, value, base + column, index)

    for_elements(fn, plan, columns, unpack)
