"""Sorts long rows by digits, with the chunks of a row as tasks: a phase counts a digit, another one moves records."""

from __future__ import annotations

from collections.abc import Callable

from xlakit.cpu.kernels.shared import common
from xlakit.cpu.kernels.sort.digits import ChunkPositions, CountDigits, MoveByDigit, counter_type, digits_of
from xlakit.cpu.kernels.sort.keys import load_bits, store_raw
from xlakit.cpu.kernels.sort.plan import Form, SortPlan, parallel_radix_layout
from xlakit.cpu.kernels.sort.record import COUNTS_BYTES, RADIX, Record, index_of
from xlakit.cpu.kernels.sort.rows import Rows
from xlakit.cpu.llvm import I1, I8, I64, Effort, Module, Value
from xlakit.cpu.loops.emit.kernel import Phase, kernel_function
from xlakit.passes.analysis.cost_model import cost_model


def emit_parallel(module: Module, plan: SortPlan) -> list[Phase]:
    """Sort long rows with their chunks as tasks.

    Each digit has two phases: the first counts the digits in each chunk, and the second moves each chunk's records to
    the positions that follow from the counts of all chunks.
    """
    parallel = _Parallel(module, plan)
    phases = [parallel.begin()]
    for number, record in enumerate(plan.records):
        if plan.form is not Form.ELEMENTS:
            phases.append(parallel.make_records(number))
        # All digits run the same functions, which read the number of the pass from memory.
        phases.extend([parallel.count(record), parallel.scatter(record)] * len(record.digits))
        parallel.passes += len(record.digits)
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
        self.counter = counter_type(plan.length)
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
        if plan.form is Form.PACKED:
            return self._tasks("sort_make_records", _Chunk.pack)

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

    def count(self, record: Record) -> Phase:
        """The phase that counts a digit in each chunk."""
        first, function = self.passes, CountDigits(record.bits, self.counter.bits)

        def body(task: _Chunk) -> None:
            fn, number = task.fn, task.pass_number(_COUNTING)
            counts, current = task.counts(task.chunk), task.buffer(task.moved(number))
            fn.fill(counts, 0, RADIX * self.counter.bytes)
            digit = function.digit(fn, task.digits(record), number - first)
            common.call(fn, function, current, task.begin, task.end, digit, counts)
            task.set_pass_number(_MOVING, number)

        return self._tasks("sort_count_digits", body)

    def scatter(self, record: Record) -> Phase:
        """The phase that moves the records of each chunk to their positions by a digit."""
        first, function = self.passes, MoveByDigit(record.bits, self.counter.bits)

        def body(task: _Chunk) -> None:
            """Move a chunk's records to the positions of their digits; nothing if the whole row has one digit."""
            fn, number = task.fn, task.pass_number(_MOVING)
            positions = fn.alloca(self.counter, RADIX, align=64)
            alike = task.positions(positions)
            moved = task.moved(number)
            current, following = task.buffer(moved), task.buffer(moved + 1)
            with fn.if_(~alike):
                digit = function.digit(fn, task.digits(record), number - first)
                common.call(fn, function, current, following, task.begin, task.end, digit, positions)
            with fn.if_(task.chunk.eq(0)):
                fn.store(fn.select(alike, moved, moved + 1), task.moved_address(number + 1))
            task.set_pass_number(_COUNTING, number + 1)

        return self._tasks("sort_move_by_digits", body)

    def finish(self) -> Phase:
        """The phase that writes the results."""
        plan, record = self.plan, self.plan.records[-1]

        def body(task: _Chunk) -> None:
            fn, rows = task.fn, task.rows
            current = task.buffer(task.moved(fn.i64(self.passes)))
            if plan.form is Form.ELEMENTS:
                target = fn.at(rows.outputs[0], record.type, task.base)
                with fn.if_(current.ne(target)):
                    begin, size = task.begin * record.bytes, (task.end - task.begin) * record.bytes
                    fn.copy(fn.at(target, I8, begin), fn.at(current, I8, begin), size)
                return
            if plan.form is Form.PACKED:
                rows.unpack_packed(task.base, task.begin, task.end, current)
                return
            with fn.loop(task.begin, task.end, independent=True) as loop:
                rows.unpack(record, load_bits(fn, record.type, current, loop.index), task.base, loop.index)

        return self._tasks("sort_finish", body, Effort.ALL if plan.form is Form.GATHERED else Effort.LITTLE)


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

    def pack(self) -> None:
        """Make the chunk's records, which have not moved yet."""
        self.rows.pack(self.base, self.begin, self.end, self.buffer(self.fn.i64(0)), self.exception(self.chunk))

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
        if plan.form is Form.ELEMENTS:
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

    def digits(self, record: Record) -> Value:
        """The table of a record's digits, for this row."""
        fn = self.fn
        if not record.has_exceptions:
            return digits_of(fn, record, None)
        with fn.loop(0, self.rows.plan.chunks, carried=[fn.constant(I8, 0)]) as loop:
            loop.next(loop.carried[0] | fn.load(I8, self.exception(loop.index)))
        return digits_of(fn, record, loop.results[0].ne(0))

    def positions(self, target: Value) -> Value:
        """Compute the positions of this chunk's records by digit; gives whether the whole row has one digit."""
        fn, plan = self.fn, self.rows.plan
        counter = self.parallel.counter
        largest = fn.alloca(counter)
        chunks = self.counts(fn.i64(0)), self.chunk, fn.i64(plan.chunks)
        common.call(fn, ChunkPositions(counter.bits), *chunks, target, largest)
        return fn.load(counter, largest).eq(plan.length)
