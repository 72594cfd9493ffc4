"""Radix sort: whole rows in one task each, or the chunks of long rows in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from xlakit.cpu.kernels.shared import common
from xlakit.cpu.kernels.sort.common import ChunkPositions, PackRecords, UnpackRecords
from xlakit.cpu.kernels.sort.keys import has_exceptions, load_bits, raw_type, store_raw
from xlakit.cpu.kernels.sort.plan import (
    COUNTS_BYTES,
    INDEX,
    RADIX,
    RADIX_BITS,
    Record,
    SortPlan,
    digits_of,
    parallel_radix_layout,
)
from xlakit.cpu.kernels.sort.records import RecordSorter, Rows, field_of
from xlakit.cpu.llvm import I1, I8, I32, I64, Effort, Function, Module, Value
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.cpu.loops.emit.kernel import Phase, kernel_function
from xlakit.passes.analysis.cost_model import cost_model
from xlakit.passes.analysis.sort_order import Part, SortKey


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


class _Plain(NamedTuple):
    """Contiguous rows whose records have the only key, and the element of at most one other operand.

    operands: the number of the key's operand, and that of the other one. along: the bits of the other's elements.
    """

    record: Record
    operands: tuple[int, ...]
    along: int

    def make(self, rows: Rows, base: Value, begin: Value, end: Value, records: Value, exception: Value) -> None:
        """Make the records of some elements of the row that begins at ``base``."""
        common.call(
            rows.fn, self._of(PackRecords), *self._arrays(rows, rows.inputs, base), begin, end, records, exception
        )

    def unpack(self, rows: Rows, base: Value, begin: Value, end: Value, records: Value) -> None:
        """Write the elements of some records of a row."""
        common.call(rows.fn, self._of(UnpackRecords), records, begin, end, *self._arrays(rows, rows.outputs, base))

    def _of(self, function: type[PackRecords] | type[UnpackRecords]) -> PackRecords | UnpackRecords:
        (key,) = self.record.keys
        return function.of(self.record, key, self.along, exceptions=False, counter=I32)

    def _arrays(self, rows: Rows, arrays: Sequence[Value], base: Value) -> list[Value]:
        starts = [rows.fn.at(arrays[k], raw_type(rows.plan.kinds[k]), base) for k in self.operands]
        return [starts[0], starts[-1]]


def _plain(plan: SortPlan) -> _Plain | None:
    """The plain rows of a plan; None if its rows are not plain."""
    record = plan.records[0]
    key, later = record.keys[0], record.keys[1:]
    if len(plan.records) > 1 or later or plan.inner > 1 or len(plan.kinds) > 2:
        return None
    payload = [field for field in record.fields if field.operand != key.operand]
    if key.part is not Part.WHOLE or len(record.fields) != len(plan.kinds) or any(f.operand == INDEX for f in payload):
        return None
    return _Plain(record, (key.operand, *(f.operand for f in payload)), payload[0].bits if payload else 0)


def emit_rows(module: Module, plan: SortPlan) -> list[Phase]:
    """Sort each row in one task."""
    sorters = [RecordSorter(module, record, plan.length) for record in plan.records]
    fn, table, begin, _ = kernel_function(module, "sort_rows")
    rows = Rows(fn, plan, table)
    slot = fn.at(rows.scratch, I8, begin * plan.slot_bytes)
    plain = _plain(plan)
    if plan.is_direct or plain:
        fn.effort = Effort.CODE
    if plan.is_direct:
        for_tiles(fn, plan, lambda base, _: _sort_in_outputs(rows, sorters[0], slot, base))
    elif plain is not None:
        for_tiles(fn, plan, lambda base, _: _sort_plain(rows, plain, sorters[0], slot, base))
    else:
        for_tiles(fn, plan, lambda base, columns: _sort_tile(rows, sorters, slot, base, columns))
    return [Phase(fn.name, plan.tasks, plan.cost)]


def _sort_in_outputs(rows: Rows, sorter: RecordSorter, scratch: Value, base: Value) -> None:
    """Sort a row whose elements are the records."""
    fn, plan, type = rows.fn, rows.plan, sorter.record.type
    source, target = fn.at(rows.inputs[0], type, base), fn.at(rows.outputs[0], type, base)
    sorted_records = sorter.sort(fn, source, scratch, target, fn.i64(plan.length), fn.constant(I1, 0))
    with fn.if_(sorted_records.ne(target), likely=False):
        fn.copy(target, sorted_records, plan.length * type.bytes)


def _sort_plain(rows: Rows, plain: _Plain, sorter: RecordSorter, slot: Value, base: Value) -> None:
    """Make the records of a plain row, sort them, and unpack them."""
    fn, plan = rows.fn, rows.plan
    begin, end = fn.i64(0), fn.i64(plan.length)
    spare, first, exception = slot, fn.at(slot, I8, plan.length * plain.record.bytes), fn.alloca(I8)
    plain.make(rows, base, begin, end, first, exception)
    kept = fn.at(first, I8, plan.length * plain.record.bytes) if plan.keeps_records else None
    sorted_records = sorter.sort(fn, first, spare, first, end, fn.load(I8, exception).ne(0), kept)
    plain.unpack(rows, base, begin, end, sorted_records)


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


def index_of(fn: Function, record: Record, value: Value) -> Value:
    """The position in its row of a record's element."""
    return field_of(record.field(INDEX), value).resized(I64)


# -- long rows ---------------------------------------------------------------------------------------


def emit_parallel(module: Module, plan: SortPlan) -> list[Phase]:
    """Sort long rows with their chunks as tasks.

    Each digit has two phases: the first counts the digits in each chunk, and the second moves each chunk's records to
    the positions that follow from the counts of all chunks.
    """
    parallel = _Parallel(module, plan)
    phases = [parallel.begin()]
    for number, record in enumerate(plan.records):
        sorter = RecordSorter(module, record, plan.length)
        if not plan.is_direct:
            phases.append(parallel.make_records(number))
        for key in reversed(record.keys):
            # All digits of a key run the same functions, which read the number of the pass from memory.
            phases.extend([parallel.count(sorter, key), parallel.scatter(sorter, key)] * digits_of(key))
            parallel.passes += digits_of(key)
    return [*phases, parallel.finish()]


# The words of the memory of passes: the number of the pass for counting phases, that for moving phases, and then for
# each number of passes and each row how many of these passes have moved the row's records.
_COUNTING, _MOVING, _MOVED = 0, 1, 2


class _Parallel:
    """The phases of a parallel radix sort; ``passes`` is the number of digits whose phases have been written so far.

    A pass over a digit that is the same in a whole row moves nothing, which is known only at run time. So for each
    digit and row, memory has the number of earlier passes that have moved the row's records. Moves go from the source
    to the first buffer, to the second, to the first, ..

    The number of the pass is in memory twice, for its counting and for its moving phase. Each phase sets the one that
    the next phase reads, so that no task reads a number that another is writing.
    """

    def __init__(self, module: Module, plan: SortPlan) -> None:
        self.module = module
        self.plan = plan
        self.layout = parallel_radix_layout(plan)
        self.passes = 0
        self.chunk = -(-plan.length // plan.chunks)

    def _tasks(self, name: str, body: Callable[[_Chunk], None], effort: Effort = Effort.LITTLE) -> Phase:
        fn, table, begin, end = kernel_function(self.module, name)
        fn.effort = effort
        rows = Rows(fn, self.plan, table)
        with fn.loop(begin, end) as loop:
            body(_Chunk(self, rows, loop.index))
        return Phase(fn.name, self.plan.tasks, cost_model().cycles(6.0) * self.plan.rows * self.plan.length)

    def make_records(self, number: int) -> Phase:
        """The phase that makes the records of layout ``number``, in the memory of the previous layout's records."""
        plan, record, passes = self.plan, self.plan.records[number], self.passes
        plain = _plain(plan)
        if plain is not None:
            return self._tasks("sort_make_records", lambda task: task.make(plain))

        def body(task: _Chunk) -> None:
            fn, current = task.fn, task.buffer(task.moved(task.fn.i64(passes)))
            with fn.loop(task.begin, task.end, independent=True, carried=[fn.constant(I1, 0)]) as loop:
                source = loop.index
                if number:
                    before = plan.records[number - 1]
                    source = index_of(fn, before, load_bits(fn, before.type, current, source))
                value, exception = task.rows.record(record, task.base, source)
                store_raw(fn, value, current, loop.index)
                loop.next(loop.carried[0] | exception)
            fn.store(loop.results[0].cast("zext", I8), task.exception(task.chunk))

        return self._tasks("sort_make_records", body, Effort.ALL)

    def begin(self) -> Phase:
        """The phase that sets the numbers of the passes, and the moves of each row before the first pass, to 0."""
        fn, table, *_ = kernel_function(self.module, "sort_begin")
        rows = Rows(fn, self.plan, table)
        first = fn.at(rows.scratch, I8, self.layout.passes)
        for counter in range(_COUNTING, _MOVED + self.plan.rows):
            fn.store(fn.i64(0), fn.at(first, I64, counter))
        return Phase(fn.name, 1, cost_model().cycles(40.0))

    def count(self, sorter: RecordSorter, key: SortKey) -> Phase:
        """The phase that counts a digit in each chunk."""
        first = self.passes

        def body(task: _Chunk) -> None:
            fn, number = task.fn, task.pass_number(_COUNTING)
            shift = (number - first) * RADIX_BITS
            counts, current = task.counts(task.chunk), task.buffer(task.moved(number))
            fn.fill(counts, 0, RADIX * sorter.counter.bytes)

            def call(exceptions: bool) -> None:
                sorter.count(fn, key, current, task.begin, task.end, shift, counts, exceptions=exceptions)

            task.by_exceptions(key, call)
            task.set_pass_number(_MOVING, number)

        return self._tasks("sort_count_digits", body)

    def scatter(self, sorter: RecordSorter, key: SortKey) -> Phase:
        """The phase that moves the records of each chunk to their positions by a digit."""
        first = self.passes

        def body(task: _Chunk) -> None:
            """Move a chunk's records to the positions of their digits; nothing if the whole row has one digit."""
            fn, number = task.fn, task.pass_number(_MOVING)
            shift = (number - first) * RADIX_BITS
            positions = fn.alloca(sorter.counter, RADIX, align=64)
            alike = task.positions(sorter, positions)
            moved = task.moved(number)
            current, following = task.buffer(moved), task.buffer(moved + 1)

            def call(exceptions: bool) -> None:
                sorter.move(fn, key, current, following, task.begin, task.end, shift, positions, exceptions=exceptions)

            with fn.if_(~alike):
                task.by_exceptions(key, call)
            with fn.if_(task.chunk.eq(0)):
                fn.store(fn.select(alike, moved, moved + 1), task.moved_address(number + 1))
            task.set_pass_number(_COUNTING, number + 1)

        return self._tasks("sort_move_by_digits", body)

    def finish(self) -> Phase:
        """The phase that writes the results."""
        plan, record = self.plan, self.plan.records[-1]
        plain = _plain(plan)

        def body(task: _Chunk) -> None:
            fn, rows = task.fn, task.rows
            current = task.buffer(task.moved(fn.i64(self.passes)))
            if plan.is_direct:
                target = fn.at(rows.outputs[0], record.type, task.base)
                with fn.if_(current.ne(target)):
                    begin, size = task.begin * record.bytes, (task.end - task.begin) * record.bytes
                    fn.copy(fn.at(target, I8, begin), fn.at(current, I8, begin), size)
                return
            if plain is not None:
                plain.unpack(rows, task.base, task.begin, task.end, current)
                return
            with fn.loop(task.begin, task.end, independent=True) as loop:
                rows.unpack(record, load_bits(fn, record.type, current, loop.index), task.base, loop.index)

        return self._tasks("sort_finish", body, Effort.LITTLE if plan.is_direct or plain else Effort.ALL)


class _Chunk:
    """A task: one chunk of a row."""

    def __init__(self, parallel: _Parallel, rows: Rows, task: Value) -> None:
        self.parallel, self.rows, self.fn = parallel, rows, rows.fn
        plan = rows.plan
        self.task = task
        self.row, self.chunk = task // plan.chunks, task % plan.chunks
        self.begin = self.chunk * parallel.chunk
        end = self.begin + parallel.chunk
        self.end = self.fn.select(end < plan.length, end, self.fn.i64(plan.length))
        # The offset of the row's first element in the arrays.
        self.base = (self.row // plan.inner) * (plan.length * plan.inner) + self.row % plan.inner

    def make(self, plain: _Plain) -> None:
        """Make the chunk's records, which have not moved yet."""
        current = self.buffer(self.fn.i64(0))
        plain.make(self.rows, self.base, self.begin, self.end, current, self.exception(self.chunk))

    def moved_address(self, passes: Value) -> Value:
        """The address of the number of those among the first ``passes`` passes that have moved the row's records."""
        passes_of_rows = self.fn.at(self.rows.scratch, I8, self.parallel.layout.passes)
        return self.fn.at(passes_of_rows, I64, self.row + passes * self.rows.plan.rows + _MOVED)

    def moved(self, passes: Value) -> Value:
        """The number of those among the first ``passes`` passes that have moved the row's records."""
        return self.fn.load(I64, self.moved_address(passes))

    def pass_number(self, counter: int) -> Value:
        """The number of this pass, from the counter that the phase reads."""
        first = self.fn.at(self.rows.scratch, I8, self.parallel.layout.passes)
        return self.fn.load(I64, self.fn.at(first, I64, counter))

    def set_pass_number(self, counter: int, number: Value) -> None:
        """Tell the next phase the number of its pass."""
        with self.fn.if_(self.task.eq(0)):
            first = self.fn.at(self.rows.scratch, I8, self.parallel.layout.passes)
            self.fn.store(number, self.fn.at(first, I64, counter))

    def counts(self, chunk: Value) -> Value:
        """The counts of a chunk of this row."""
        counts = self.fn.at(self.rows.scratch, I8, self.parallel.layout.counts)
        return self.fn.at(counts, I8, (self.row * self.rows.plan.chunks + chunk) * COUNTS_BYTES)

    def buffer(self, moved: Value) -> Value:
        """The address of the row's records after ``moved`` moves: the source, then the two buffers in turn."""
        fn, plan, layout = self.fn, self.rows.plan, self.parallel.layout
        type = plan.records[0].type
        start = self.row * plan.length
        first = fn.at(fn.at(self.rows.scratch, I8, layout.first), type, start)
        if plan.is_direct:
            source = fn.at(self.rows.inputs[0], type, self.base)
            second = fn.at(self.rows.outputs[0], type, self.base)
        else:
            source = second = fn.at(fn.at(self.rows.scratch, I8, layout.second), type, start)
        odd = (moved & 1).eq(1)
        return fn.select(odd, first, fn.select(moved.eq(0), source, second))

    def exception(self, chunk: Value) -> Value:
        """The address of the byte that says whether a chunk of this row has an exception among its keys."""
        exceptions = self.fn.at(self.rows.scratch, I8, self.parallel.layout.exceptions)
        return self.fn.at(exceptions, I8, self.row * self.rows.plan.chunks + chunk)

    def by_exceptions(self, key: SortKey, write: Callable[[bool], None]) -> None:
        """Write code for rows with exceptions and code for rows without, if the key can have exceptions."""
        fn = self.fn
        if not has_exceptions(key):
            write(False)
            return
        with fn.loop(0, self.rows.plan.chunks, carried=[fn.constant(I8, 0)]) as loop:
            loop.next(loop.carried[0] | fn.load(I8, self.exception(loop.index)))

        fn.if_else(loop.results[0].ne(0), lambda: write(True), lambda: write(False))

    def positions(self, sorter: RecordSorter, target: Value) -> Value:
        """Compute the positions of this chunk's records by digit; gives whether the whole row has one digit."""
        fn, plan = self.fn, self.rows.plan
        largest = fn.alloca(sorter.counter)
        chunks = self.counts(fn.i64(0)), self.chunk, fn.i64(plan.chunks)
        common.call(fn, ChunkPositions(sorter.counter.bits), *chunks, target, largest)
        return fn.load(sorter.counter, largest).eq(plan.length)
