"""Stable merge sort by calling a comparator: runs by insertion, then merges from buffer to buffer.

A comparator may contradict itself; then the order is any, but it stays a permutation and nothing is read or written
outside of the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, Union

from xlakit.cpu.kernels.sort.keys import load_raw, raw_type, store_raw
from xlakit.cpu.kernels.sort.plan import SortPlan
from xlakit.cpu.kernels.sort.rows import Rows, for_elements, for_tiles
from xlakit.cpu.llvm import F16, F32, F64, I8, I64, PTR, VOID, Function, Loop, Module, Value, integer
from xlakit.cpu.llvm.promises import NO_INLINE
from xlakit.cpu.loops.emit.kernel import Phase, kernel_function
from xlakit.data.primitive import PrimitiveType
from xlakit.options import knob

# An element as it is in memory; a complex one as its two parts.
Stored: TypeAlias = Union[Value, "tuple[Value, Value]"]
# Writes the comparator's result (an I1): whether the elements ``first`` (one of each operand) go before ``second``.
Less: TypeAlias = Callable[[Function, Sequence[Stored], Sequence[Stored]], Value]

# Runs of this many elements are sorted by insertion.
RUN = knob("sort_merge.run", 16, 2, 4)

_FLOATS = {PrimitiveType.F16: F16, PrimitiveType.F32: F32, PrimitiveType.F64: F64}


def emit_rows(module: Module, plan: SortPlan, less: Less) -> list[Phase]:
    """Sort each row in one task."""
    sorter = _MergeSorter(module, plan, less)
    fn, table, begin, _ = kernel_function(module, "sort_rows_by_comparing")
    rows = Rows(fn, plan, table)
    slot = fn.at(rows.scratch, I8, begin * plan.slot_bytes)

    def contiguous(base: Value, _: Value) -> None:
        source, target = sorter.elements_at(fn, rows.inputs, base), sorter.elements_at(fn, rows.outputs, base)
        sorter.sort(fn, source, target, sorter.block(fn, slot))

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
            row_arrays = block(loop.index)
            sorter.sort(fn, row_arrays, row_arrays, sorter.block(fn, slot))
        for_elements(fn, plan, columns, scatter)

    for_tiles(fn, plan, contiguous if plan.inner == 1 else strided)
    return [Phase(fn.name, plan.tasks, plan.cost)]


class _MergeSorter:
    """Functions that sort and merge runs of elements; each operand has an array of its own."""

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
        offset, arrays = 0, list[Value]()
        for operand in range(len(self.kinds)):
            arrays.append(fn.at(start, I8, offset))
            offset += self.plan.column_bytes(operand)
        return arrays

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

    def sort(self, fn: Function, source: list[Value], target: list[Value], other: list[Value]) -> None:
        """Sort a row of ``source`` into ``target``, which may be the same; ``other`` is memory of the same size."""
        length = self.plan.length
        widths: list[int] = []
        while RUN.value << len(widths) < length:
            widths.append(RUN.value << len(widths))
        current, following = (target, other) if len(widths) % 2 == 0 else (other, target)
        fn.call(self.runs, VOID, *source, *current, fn.i64(length))
        for width in widths:
            fn.call(self.merge_pairs, VOID, *current, *following, fn.i64(length), fn.i64(width))
            current, following = following, current

    def _write_runs(self) -> Function:
        """``void(source.., target.., length)``: sort runs of RUN elements by insertion."""
        fn = self._function("sort_runs", 1)
        source, target, (length,) = self._parameters(fn)
        with fn.loop(0, length) as loop:
            start = loop.index - loop.index % RUN.value
            inserted = self.load(fn, source, loop.index)

            def goes_down(step: Loop, start: Value = start, inserted: list[Value] = inserted) -> Value:
                (position,) = step.carried
                below = fn.select(position > start, position - 1, start)
                return (position > start) & self.before(fn, inserted, self.load(fn, target, below))

            with fn.while_([loop.index], goes_down) as step:
                (target_position,) = step.carried
                self.store(fn, self.load(fn, target, target_position - 1), target, target_position)
                step.next(target_position - 1)
            self.store(fn, inserted, target, step.results[0])
        return fn

    def _write_merge(self) -> Function:
        """``void(source.., target.., i, i_end, j, j_end, position)``: merge two runs; the first's equals go first."""
        fn = self._function("sort_merge", 5)
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
        return fn

    def _write_merge_pairs(self) -> Function:
        """``void(source.., target.., length, width)``: merge each pair of neighboring runs of ``width``."""
        fn = self._function("sort_merge_pairs", 2)
        source, target, (length, width) = self._parameters(fn)
        with fn.while_([fn.i64(0)], lambda step: step.carried[0] < length) as step:
            (low,) = step.carried
            middle, high = (low + width).smin(length), (low + width * 2).smin(length)
            fn.call(self.merge, VOID, *source, *target, low, middle, middle, high, low)
            step.next(high)
        return fn

    def _function(self, name: str, numbers: int) -> Function:
        parameters = [PTR] * (2 * len(self.kinds)) + [I64] * numbers
        return self.module.function(name, VOID, parameters, attributes=[NO_INLINE])

    def _parameters(self, fn: Function) -> tuple[Sequence[Value], Sequence[Value], Sequence[Value]]:
        """The arrays of the source and of the target, and the numbers, from a function's parameters."""
        count = len(self.kinds)
        return fn.parameters[:count], fn.parameters[count : 2 * count], fn.parameters[2 * count :]


def _as_stored(kind: PrimitiveType, bits: Value) -> Stored:
    """An element's bits as its type in memory."""
    if kind.is_complex:
        type, half = _FLOATS[kind.real_part], bits.type.bits // 2
        low, high = (part.resized(integer(half)).bits_as(type) for part in (bits, bits >> half))
        return low, high
    return bits.bits_as(_FLOATS.get(kind, bits.type))
