"""Stable merge sort by calling a comparator: runs by insertion, then merges from buffer to buffer.

A comparator may contradict itself; then the order is any, but it stays a permutation and nothing is read or written
outside of the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, Union

from xlakit.cpu.kernels.sort.keys import load_raw, narrowed, raw_type, store_raw
from xlakit.cpu.kernels.sort.plan import SortPlan
from xlakit.cpu.kernels.sort.radix import for_elements, for_tiles
from xlakit.cpu.kernels.sort.records import Rows
from xlakit.cpu.llvm import F16, F32, F64, I8, I64, PTR, VOID, Function, Loop, Module, Type, Value, integer
from xlakit.cpu.llvm.promises import NO_INLINE
from xlakit.cpu.loops.emit.kernel import Phase, kernel_function
from xlakit.data.primitive import PrimitiveType
from xlakit.options import knob
from xlakit.passes.analysis.cost_model import cost_model

# An element as it stands in memory; a complex one as its two parts.
Stored: TypeAlias = Union[Value, "tuple[Value, Value]"]
# Writes the comparator's result (an I1): whether the elements ``first`` (one of each operand) go before ``second``.
Less: TypeAlias = Callable[[Function, Sequence[Stored], Sequence[Stored]], Value]

# Runs of so many elements are sorted by insertion.
RUN = knob("sort_merge.run", 16, 2, 4)

_FLOATS = {PrimitiveType.F16: F16, PrimitiveType.F32: F32, PrimitiveType.F64: F64}


def emit_rows(module: Module, plan: SortPlan, less: Less) -> list[Phase]:
    """Sort each row in one task."""
    sorter = _MergeSorter(module, plan, less)
    fn = kernel_function(module, "sort_rows_by_comparing")
    table, begin, _ = fn.parameters
    rows = Rows(fn, plan, table)
    slot = fn.at(rows.scratch, I8, begin * plan.slot_bytes)
    length = fn.i64(plan.length)

    def contiguous(base: Value, _: Value) -> None:
        source, target = sorter.elements_at(fn, rows.inputs, base), sorter.elements_at(fn, rows.outputs, base)
        sorter.sort(fn, source, target, sorter.block(fn, slot), fn.i64(0), length, plan.length)

    def strided(base: Value, columns: Value) -> None:
        first = fn.at(slot, I8, plan.buffer_bytes)

        def block(column: Value) -> list[Value]:
            return sorter.block(fn, fn.at(first, I8, column * plan.buffer_bytes))

        def gather(column: Value, index: Value) -> None:
            for operand, buffer in enumerate(block(column)):
                store_raw(fn, rows.load(operand, base + column, index), buffer, index)

        def scatter(column: Value, index: Value) -> None:
            for operand, (kind, buffer) in enumerate(zip(plan.kinds, block(column), strict=True)):
                rows.store(operand, load_raw(fn, kind, buffer, index), base + column, index)

        for_elements(fn, plan, columns, gather)
        with fn.loop(0, columns) as loop:
            mine = block(loop.index)
            sorter.sort(fn, mine, mine, sorter.block(fn, slot), fn.i64(0), length, plan.length)
        for_elements(fn, plan, columns, scatter)

    for_tiles(fn, plan, contiguous if plan.inner == 1 else strided)
    fn.ret()
    return [Phase(fn.name, plan.tasks, plan.cost)]


def emit_parallel(module: Module, plan: SortPlan, less: Less) -> list[Phase]:
    """Sort long rows: first each chunk, then pairs of sorted runs are merged in as many parts as there are chunks.

    A million elements by their magnitude take 0.6 of the time on two threads; and between tasks the sort can be
    interrupted.
    """
    sorter = _MergeSorter(module, plan, less)
    parallel = _Parallel(module, sorter)
    levels = plan.chunks.bit_length() - 1
    phases = [parallel.sort_chunks(lands_in_second=levels % 2 == 1)]
    for level in range(levels):
        phases.append(parallel.merge(level, to_second=(levels - level) % 2 == 0))
    return phases if plan.inner == 1 else [parallel.gather(), *phases, parallel.scatter()]


class _MergeSorter:
    """Functions that sort and merge runs of elements; every operand's elements stand in an array of their own."""

    def __init__(self, module: Module, plan: SortPlan, less: Less) -> None:
        self.module = module
        self.plan = plan
        self.less = less
        self.kinds = plan.kinds
        self.runs = self._write_runs()
        self.merge = self._write_merge()
        self.merge_pairs = self._write_merge_pairs()

    # -- elements --------------------------------------------------------------------------------

    def elements_at(self, fn: Function, arrays: Sequence[Value], base: Value) -> list[Value]:
        """The arrays from element ``base`` on."""
        return [fn.at(a, raw_type(k), base) for a, k in zip(arrays, self.kinds, strict=True)]

    def block(self, fn: Function, start: Value) -> list[Value]:
        """The arrays of one row, one after the other in a piece of memory."""
        offset, found = 0, list[Value]()
        for operand in range(len(self.kinds)):
            found.append(fn.at(start, I8, offset))
            offset += self.plan.column_bytes(operand)
        return found

    def load(self, fn: Function, arrays: Sequence[Value], index: Value) -> list[Value]:
        """The bits of an element of each operand."""
        return [load_raw(fn, k, a, index) for a, k in zip(arrays, self.kinds, strict=True)]

    def store(self, fn: Function, elements: Sequence[Value], arrays: Sequence[Value], index: Value) -> None:
        """Write the bits of an element of each operand."""
        for bits, array in zip(elements, arrays, strict=True):
            store_raw(fn, bits, array, index)

    def before(self, fn: Function, first: Sequence[Value], second: Sequence[Value]) -> Value:
        """Whether one element goes before another."""
        return self.less(fn, self._stored(fn, first), self._stored(fn, second))

    def _stored(self, fn: Function, elements: Sequence[Value]) -> list[Stored]:
        return [_as_stored(kind, bits) for kind, bits in zip(self.kinds, elements, strict=True)]

    # -- functions -------------------------------------------------------------------------------

    def sort(
        self,
        fn: Function,
        source: list[Value],
        target: list[Value],
        other: list[Value],
        begin: Value,
        end: Value,
        longest: int,
    ) -> None:
        """Sort elements begin to end (at most ``longest``) of ``source`` into the same positions of ``target``.

        ``other`` is memory of the same size; ``source`` and ``target`` may be the same.
        """
        widths: list[int] = []
        while RUN.value << len(widths) < longest:
            widths.append(RUN.value << len(widths))
        now, following = (target, other) if len(widths) % 2 == 0 else (other, target)
        fn.call(self.runs, VOID, *source, *now, begin, end)
        for width in widths:
            fn.call(self.merge_pairs, VOID, *now, *following, begin, end, fn.i64(width))
            now, following = following, now

    def _write_runs(self) -> Function:
        """``void(source.., target.., begin, end)``: sort runs of RUN elements by insertion."""
        fn = self._function("sort_runs", 2, 2)
        source, target, (begin, end) = self._parameters(fn)
        with fn.loop(begin, end, carried=[begin]) as loop:
            start = fn.select((loop.index - loop.carried[0]).eq(RUN.value), loop.index, loop.carried[0])
            loop.next(start)
            mine = self.load(fn, source, loop.index)

            def goes_down(step: Loop, start: Value = start, mine: list[Value] = mine) -> Value:
                (position,) = step.carried
                below = fn.select(position > start, position - 1, start)
                return (position > start) & self.before(fn, mine, self.load(fn, target, below))

            with fn.while_([loop.index], goes_down) as step:
                (target_position,) = step.carried
                self.store(fn, self.load(fn, target, target_position - 1), target, target_position)
                step.next(target_position - 1)
            self.store(fn, mine, target, step.results[0])
        fn.ret()
        return fn

    def _write_merge(self) -> Function:
        """``void(source.., target.., i, i_end, j, j_end, position)``: merge two runs; of equals, i's goes first."""
        fn = self._function("sort_merge", 2, 5)
        source, target, (left, left_end, right, right_end, position) = self._parameters(fn)

        def both(step: Loop) -> Value:
            return (step.carried[0] < left_end) & (step.carried[1] < right_end)

        with fn.while_([left, right, position], both) as step:
            i, j, k = step.carried
            first, second = self.load(fn, source, i), self.load(fn, source, j)
            takes_second = self.before(fn, second, first)
            self.store(fn, [fn.select(takes_second, b, a) for a, b in zip(first, second, strict=True)], target, k)
            advance = takes_second.cast("zext", I64)
            step.next(i + 1 - advance, j + advance, k + 1)
        i, j, k = step.results
        for begin, end in ((i, left_end), (j, right_end)):
            froms, tos = self.elements_at(fn, source, begin), self.elements_at(fn, target, k)
            for kind, a, b in zip(self.kinds, froms, tos, strict=True):
                fn.copy(b, a, (end - begin) * raw_type(kind).bytes)
            k = k + (end - begin)
        fn.ret()
        return fn

    def _write_merge_pairs(self) -> Function:
        """``void(source.., target.., begin, end, width)``: merge each two neighboring runs of ``width``."""
        fn = self._function("sort_merge_pairs", 2, 3)
        source, target, (begin, end, width) = self._parameters(fn)
        with fn.while_([begin], lambda step: step.carried[0] < end) as step:
            (low,) = step.carried
            middle, high = (low + width).smin(end), (low + width * 2).smin(end)
            fn.call(self.merge, VOID, *source, *target, low, middle, middle, high, low)
            step.next(high)
        fn.ret()
        return fn

    def write_cut(self) -> Function:
        """``i64(source.., begin, middle, end, count)``: the elements of the left run among the first ``count`` merged.

        A binary search along a diagonal of the merge path.
        """
        fn = self._function("sort_cut", 1, 4, I64)
        source, _, (begin, middle, end, count) = self._parameters(fn)
        rights = end - middle
        low = fn.select(count > rights, count - rights, fn.i64(0))
        high = count.smin(middle - begin)
        with fn.while_([low, high], lambda step: step.carried[0] < step.carried[1]) as step:
            low, high = step.carried
            probe = (low + high) >> 1
            left = self.load(fn, source, begin + probe)
            right = self.load(fn, source, middle + (count - probe - 1))
            fewer = self.before(fn, right, left)
            step.next(fn.select(fewer, low, probe + 1), fn.select(fewer, probe, high))
        fn.ret(step.results[0])
        return fn

    def _function(self, name: str, sets: int, numbers: int, result: Type = VOID) -> Function:
        parameters = [PTR] * (sets * len(self.kinds)) + [I64] * numbers
        return self.module.function(name, result, parameters, attributes=[NO_INLINE])

    def _parameters(self, fn: Function) -> tuple[list[Value], list[Value], list[Value]]:
        """The two sets of arrays (the second may be empty) and the numbers that a function gets."""
        arrays = [p for p in fn.parameters if p.type is PTR]
        count = len(self.kinds)
        return arrays[:count], arrays[count:], list(fn.parameters[len(arrays) :])


def _as_stored(kind: PrimitiveType, bits: Value) -> Stored:
    """An element's bits as its type in memory."""
    if kind.is_complex:
        type, half = _FLOATS[kind.real_part], bits.type.bits // 2
        low, high = (narrowed(part, integer(half)).bits_as(type) for part in (bits, bits >> half))
        return low, high
    return bits.bits_as(_FLOATS.get(kind, bits.type))


# -- long rows ---------------------------------------------------------------------------------------


class _Parallel:
    """The phases of a parallel merge sort.

    Two buffers take turns: the second, and the first, in which the result lands: the results themselves where rows
    are contiguous, else memory from which they are scattered.
    """

    def __init__(self, module: Module, sorter: _MergeSorter) -> None:
        self.module = module
        self.sorter = sorter
        self.plan = sorter.plan
        self.chunk = -(-self.plan.length // self.plan.chunks)
        self.cut = sorter.write_cut()

    def _tasks(self, name: str, cycles: float, body: Callable[[_Task], None]) -> Phase:
        fn = kernel_function(self.module, name)
        table, begin, end = fn.parameters
        rows = Rows(fn, self.plan, table)
        with fn.loop(begin, end) as loop:
            body(_Task(self.sorter, rows, loop.index))
        fn.ret()
        return Phase(fn.name, self.plan.tasks, cost_model().cycles(cycles) * self.plan.rows * self.plan.length)

    def sort_chunks(self, *, lands_in_second: bool) -> Phase:
        """Sort each chunk."""

        def body(task: _Task) -> None:
            first, second = task.first(), task.second()
            source = first if self.plan.inner > 1 else task.contiguous(task.rows.inputs)
            target, other = (second, first) if lands_in_second else (first, second)
            begin, end = task.range(task.chunk * self.chunk, self.chunk)
            self.sorter.sort(task.fn, source, target, other, begin, end, self.chunk)

        return self._tasks("sort_chunks", 200.0, body)

    def merge(self, level: int, *, to_second: bool) -> Phase:
        """Merge pairs of runs of ``2**level`` chunks, each pair in as many parts as it has chunks."""
        parts, run = 2 << level, self.chunk << level

        def body(task: _Task) -> None:
            fn = task.fn
            source, target = (task.first(), task.second()) if to_second else (task.second(), task.first())
            begin = task.chunk // parts * (2 * run)
            begin, end = task.range(begin, 2 * run)
            _, middle = task.range(begin, run)
            size, part = end - begin, task.chunk % parts
            # The cuts before this one are made too: if the comparator contradicts itself, the parts must still fit.
            start = fn.i64(0)
            with fn.loop(0, part + 1, carried=[start, start, start]) as loop:
                _, left, cut = loop.carried
                next_cut = size * (loop.index + 1) // parts
                wanted = fn.call(self.cut, I64, *source, begin, middle, end, next_cut)
                wanted = fn.select(wanted < left, left, wanted)
                loop.next(left, wanted.smin(left + (next_cut - cut)), next_cut)
            left, left_end, cut_end = loop.results
            cut = size * part // parts
            rights = (middle + (cut - left), middle + (cut_end - left_end))
            lefts = (begin + left, begin + left_end)
            fn.call(self.sorter.merge, VOID, *source, *target, *lefts, *rights, begin + cut)

        return self._tasks("sort_merge_runs", 20.0, body)

    def gather(self) -> Phase:
        """Bring strided rows into contiguous memory."""

        def body(task: _Task) -> None:
            fn, (begin, end) = task.fn, task.range(task.chunk * self.chunk, self.chunk)
            first = task.first()
            with fn.loop(begin, end, independent=True) as loop:
                for operand, buffer in enumerate(first):
                    store_raw(fn, task.rows.load(operand, task.base, loop.index), buffer, loop.index)

        return self._tasks("sort_gather", 8.0, body)

    def scatter(self) -> Phase:
        """Bring sorted rows to their strided positions."""

        def body(task: _Task) -> None:
            fn, (begin, end) = task.fn, task.range(task.chunk * self.chunk, self.chunk)
            first = task.first()
            with fn.loop(begin, end, independent=True) as loop:
                for operand, bits in enumerate(self.sorter.load(fn, first, loop.index)):
                    task.rows.store(operand, bits, task.base, loop.index)

        return self._tasks("sort_scatter", 8.0, body)


class _Task:
    """A task: a chunk of a row, or a part of a merge."""

    def __init__(self, sorter: _MergeSorter, rows: Rows, task: Value) -> None:
        self.sorter, self.rows, self.fn = sorter, rows, rows.fn
        plan = rows.plan
        self.row, self.chunk = task // plan.chunks, task % plan.chunks
        self.base = (self.row // plan.inner) * (plan.length * plan.inner) + self.row % plan.inner

    def contiguous(self, arrays: Sequence[Value]) -> list[Value]:
        """The row in arrays where rows are contiguous."""
        return self.sorter.elements_at(self.fn, arrays, self.base)

    def first(self) -> list[Value]:
        """The buffer in which the result lands."""
        return self.contiguous(self.rows.outputs) if self.rows.plan.inner == 1 else self._block(1)

    def second(self) -> list[Value]:
        """The other buffer."""
        return self._block(0)

    def _block(self, number: int) -> list[Value]:
        plan = self.rows.plan
        offset = (self.row + number * plan.rows) * plan.buffer_bytes
        return self.sorter.block(self.fn, self.fn.at(self.rows.scratch, I8, offset))

    def range(self, begin: Value, size: int) -> tuple[Value, Value]:
        """Elements from ``begin`` on, as many as there are."""
        length = self.fn.i64(self.rows.plan.length)
        return begin.smin(length), (begin + size).smin(length)
