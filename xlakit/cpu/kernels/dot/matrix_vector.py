"""A matrix with contiguous rows times a few vectors: each result is one sum along a row.

The matrix is read once, in memory order, so a large one is read at memory bandwidth. A register of sums belongs to one
row. It has a part for each vector, of as many lanes as fit: that number of elements of the row are replicated in each
part, and multiplied by the same number of elements of each vector, which are packed in this order.

    elements of a row   a0 a1   a0 a1   a0 a1   a0 a1
    four vectors        b0 b1   c0 c1   d0 d1   e0 e1

A complex matrix has rows of real numbers, twice as long, times two real vectors for each complex one: (re, -im, re,
-im, ..) gives the real parts of the results, (im, re, im, re, ..) the imaginary parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xlakit import machine
from xlakit.cpu.kernels.gemm.engine import Engine, acc_vector, stored_as_packed, vectors_of
from xlakit.cpu.kernels.gemm.operands import OperandReader, smaller
from xlakit.cpu.kernels.gemm.store import Output
from xlakit.cpu.kernels.shared.preconditions import require
from xlakit.cpu.kernels.shared.scratch import acquire, release
from xlakit.cpu.llvm import I64, PTR, VOID, Function, Module, Value, vector
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.options import knob

if TYPE_CHECKING:
    from xlakit.cpu.kernels.gemm.product import Product

# The number of independent sums that hides the latency of an addition.
_SUMS = 8
# The number of rows whose sums with one vector are computed concurrently.
_ROWS_WITH_ONE = 4
# The most bytes of several packed vectors, and the fewest steps along a row: adding up lanes takes time, too.
_VECTORS_BYTES = knob("matrix_vector.vectors_bytes", lambda: machine.current().l2 // 2, 1)
_LEAST_STEPS = knob("matrix_vector.least_steps", 32, 1, tries=(8, 128))


def rows_at_once(engine: Engine, vectors: int) -> int:
    """The number of rows summed concurrently, so that elements of the vectors are loaded once for all of them."""
    return min(_ROWS_WITH_ONE, engine.lanes) if vectors == 1 else _SUMS


def fits_vectors(engine: Engine, vectors: int, depth: int, *, is_complex: bool) -> bool:
    """Whether this number of vectors of this length is small enough: each needs at least two lanes.

    For complex vectors the least length is smaller, because a blocked product could not fill the lanes of their parts.
    """
    if vectors == 1:
        return True
    least = engine.lanes if is_complex else _LEAST_STEPS.value * engine.lanes
    most = _VECTORS_BYTES.value // (_parts(vectors) * engine.packed.bytes)
    return engine.group == 1 and 2 * vectors <= engine.lanes and least <= depth <= most


def _parts(vectors: int) -> int:
    """The number of parts of a register, a power of two."""
    return 1 << (vectors - 1).bit_length()


def emit_matrix_vector(
    module: Module, engine: Engine, product: Product, arrays: tuple[int, int], task_rows: int
) -> Function:
    """A task function: result[b, i, j] = sum over k of matrix[b, i, k] * vectors[b, k, j]; k is one run of stride 1.

    product: the matrix is on the left, and the vectors on the right. arrays: the indices of matrix and vectors in the
    table; the result's is 2. A task is ``task_rows`` rows of one batch.
    """
    matrix, vectors, batches = product.lhs, product.rhs, product.batches
    rows, depth = matrix.across.size, matrix.along.size
    at_once = rows_at_once(engine, product.columns.size)
    require(
        f"a matrix of {rows} x {depth} times {vectors.across.size} vectors, {task_rows} rows a task",
        [
            (
                "a task has rows, and others begin where tiles do",
                task_rows >= rows or task_rows % at_once == 0 < task_rows,
            ),
            ("there are vectors", vectors.across.size > 0),
            ("rows of the matrix are contiguous", depth < 2 or matrix.along.dims == ((depth, 1),)),
            (
                "vectors are as long as a row",
                vectors.along.size * (2 if vectors.kind.is_complex else 1) == depth and len(vectors.along.dims) <= 1,
            ),
            ("elements are computed one by one", engine.group == engine.parts == 1),
            ("batches are those of the result", len({direction.size for direction in batches}) == 1),
        ],
    )
    fn = module.function("dot", VOID, [PTR, I64, I64])
    _Emitter(fn, engine, product, arrays, task_rows).emit()
    return fn


class _Emitter:
    """Writes one task function."""

    def __init__(self, fn: Function, engine: Engine, product: Product, arrays: tuple[int, int], task_rows: int) -> None:
        self.fn, self.engine, self.product, self.task_rows = fn, engine, product, task_rows
        self.rows, self.vectors, self.depth = product.sizes
        self.tables = [fn.pointer(fn.parameters[0], n) for n in (*arrays, 2)]
        along = product.rhs.along
        contiguous = along.stride == 1 or self.depth == 1
        self.in_place = self.vectors == 1 and contiguous and stored_as_packed(engine, product.rhs.kind)
        # The lanes of a part are consecutive steps along a row. Several such steps are unrolled, each with other sums.
        self.parts = _parts(self.vectors)
        self.lanes = engine.lanes // self.parts
        if self.vectors == 1 < self.depth:
            # Adding up lanes that a short row leaves empty would take longer than its sums.
            self.lanes = min(self.lanes, _power_of_two(self.depth))
        self.at_once = min(rows_at_once(engine, self.vectors), self.rows)
        self.repeat = max(1, _SUMS // self.at_once)
        self.steps = max(self.parts, self.repeat)
        while self.steps > 1 and self.depth < self.steps * self.lanes:
            self.steps //= 2
        self.repeat = min(self.repeat, self.steps)
        self.whole = self.depth // (self.steps * self.lanes) * (self.steps * self.lanes)

    def emit(self) -> None:
        """The loop over batches, each with the tasks that are in it."""
        fn, engine, product = self.fn, self.engine, self.product
        _, begin, end = fn.parameters
        row_tasks = -(-self.rows // self.task_rows)
        scratch = fn.null() if self.in_place else acquire(fn, max(1, self.parts * self.depth * engine.packed.bytes))
        with fn.while_([begin], lambda loop: loop.carried[0] < end) as loop:
            task = loop.carried[0]
            batch, row_task = task.integer("udiv", row_tasks), task.integer("urem", row_tasks)
            count = smaller(end - task, fn.i64(row_tasks) - row_task)
            first = row_task * self.task_rows
            bases = product.bases(fn, self.tables, batch)
            self.values = bases[1] if self.in_place else scratch
            if not self.in_place:
                self._pack(OperandReader(fn, engine, product.rhs, bases[1], product.result))
            self.matrix = OperandReader(fn, engine, product.lhs, bases[0], product.result)
            # Values that are stored together are contiguous in the result: the sums with one vector, or those of a row.
            self.by_vectors = self.vectors == 1 or product.rows.stride == 1
            directions = (product.columns, product.rows) if self.by_vectors else (product.rows, product.columns)
            self.output = Output(fn, engine, product.result, *directions, bases[2])
            self._rows(first, smaller(first + count * self.task_rows, fn.i64(self.rows)))
            loop.next(task + count)
        if not self.in_place:
            release(fn, scratch)

    def _pack(self, vectors: OperandReader) -> None:
        """Pack the vectors: ``lanes`` steps at a time, then the remaining steps one by one."""
        fn, matrix = self.fn, self.product.rhs
        if matrix.kind.is_complex:
            self._pack_complex(vectors)
            return
        for first, last, lanes in ((0, self.whole, self.lanes), (self.whole, self.depth, 1)):
            with fn.loop(first, last, lanes, hints=AS_WRITTEN) as k:
                start = k.index * matrix.along.stride
                into = self._address(k.index)
                if self.vectors > 1 and matrix.across.stride == 1 and len(matrix.across.dims) == 1:
                    rows = [vectors.elements(start + n * matrix.along.stride, self.vectors)[0] for n in range(lanes)]
                    fn.store(self._interleaved(rows), into, align=self.engine.packed.bytes)
                    continue
                with fn.loop(0, self.vectors, hints=AS_WRITTEN) as v, fn.loop(0, lanes, independent=True) as lane:
                    element = start + vectors.across(v.index) + lane.index * matrix.along.stride
                    address = fn.at(into, self.engine.packed, v.index * lanes + lane.index)
                    fn.store(vectors.elements(element, 1)[0], address)

    def _pack_complex(self, vectors: OperandReader) -> None:
        """Pack complex vectors as two real ones each: an element is two steps."""
        fn, along, packed = self.fn, self.product.rhs.along, self.engine.packed
        for first, last, lanes in ((0, self.whole, self.lanes), (self.whole, self.depth, 1)):
            with (
                fn.loop(0, self.vectors // 2, hints=AS_WRITTEN) as vector,
                fn.loop(first // 2, last // 2, hints=AS_WRITTEN) as k,
            ):
                element = vectors.elements(vectors.across(vector.index) + k.index * along.stride, 1)
                real, imaginary = element
                for part, values in enumerate(((real, -imaginary), (imaginary, real))):
                    for n, value in enumerate(values):
                        step = k.index * 2 + n
                        among = (vector.index * 2 + part) * lanes + (step & (lanes - 1))
                        fn.store(value, fn.at(self._address(step & -lanes), packed, among))

    def _interleaved(self, rows: Sequence[Value]) -> Value:
        """An element of each row, then the next element of each, up to the number of parts."""
        joined, count = self._side_by_side(rows), len(rows)
        lanes = [min(v, self.vectors - 1) + n * self.vectors for v in range(self.parts) for n in range(count)]
        return self.fn.shuffle(joined, joined, lanes)

    def _side_by_side(self, rows: Sequence[Value]) -> Value:
        """The concatenation of vectors, whose number is a power of two."""
        if len(rows) == 1:
            return rows[0]
        half = len(rows) // 2
        low, high = self._side_by_side(rows[:half]), self._side_by_side(rows[half:])
        return self.fn.shuffle(low, high, range(2 * low.type.lanes))

    def _address(self, k: Value) -> Value:
        """The address of the elements of all vectors for a step."""
        return self.fn.at(self.values, self.engine.packed, k * self.parts)

    def _rows(self, first: Value, last: Value) -> None:
        fn, at_once = self.fn, self.at_once
        whole = first + (last - first).integer("udiv", at_once) * at_once
        with fn.loop(first, whole, at_once, hints=AS_WRITTEN) as row:
            self._tile(row.index, at_once)
        if self.rows % at_once or self.task_rows % at_once:
            with fn.loop(whole, last, hints=AS_WRITTEN) as row:
                self._tile(row.index, 1)

    def _tile(self, row: Value, count: int) -> None:
        """The results of ``count`` rows."""
        fn = self.fn
        sums = self._sums(row, count)
        if not self.by_vectors:
            self.output.store_tile([[(of_row,)] for of_row in sums], row, fn.i64(0), self.vectors)
            return
        for v in range(self.vectors):
            sums_of_vector = [fn.lane(of_row, v) if self.parts > 1 else of_row for of_row in sums]
            pieces = [(self._joined(sums_of_vector[at : at + lanes]),) for at, lanes in vectors_of(self.engine, count)]
            self.output.store_tile([pieces], fn.i64(v), row, count)

    def _joined(self, sums: Sequence[Value]) -> Value:
        """Scalars, as the lanes of a register."""
        fn = self.fn
        if len(sums) == 1:
            return sums[0]
        joined = fn.undefined(acc_vector(self.engine, len(sums)))
        for lane, value in enumerate(sums):
            joined = fn.with_lane(joined, lane, value)
        return joined

    def _sums(self, row: Value, count: int) -> list[Value]:
        """The sums along ``count`` rows: for each row those with all vectors."""
        fn, engine = self.fn, self.engine
        starts = [self.matrix.across(row + r) for r in range(count)]

        def add(sums: Sequence[Value], k: Value, lanes: int, steps: int, width: int = 0) -> list[Value]:
            new_sums = list(sums)
            type = vector(engine.packed, lanes * self.parts)
            for step in range(steps):
                position = k + step * lanes
                factor = _widened(fn, fn.load(type, self._address(position), align=engine.packed.bytes), width)
                for r, start in enumerate(starts):
                    slot = step % self.repeat * count + r
                    elements = _widened(fn, self._spread(start + position, lanes), width)
                    new_sums[slot] = _sum_of_product(fn, elements, factor, new_sums[slot])
            return new_sums

        totals = [fn.constant(vector(engine.acc, self.parts), 0)] * count
        # The sums with one vector end with registers of which a part is used, those with several one step at a time.
        done = self.depth if self.vectors == 1 < self.depth else self.whole
        if done:
            zero = fn.constant(vector(engine.acc, self.lanes * self.parts), 0)
            sums: Sequence[Value] = [zero] * (count * self.repeat)
            if self.whole:
                with fn.loop(0, self.whole, self.lanes * self.steps, carried=sums, hints=AS_WRITTEN) as loop:
                    loop.next(*add(loop.carried, loop.index, self.lanes, self.steps))
                sums = loop.results
            position = self.whole
            while position < done:
                lanes = min(self.lanes, _power_of_two(done - position))
                steps = min(self.repeat, (done - position) // lanes)
                sums = add(sums, fn.i64(position), lanes, steps, self.lanes)
                position += lanes * steps
            while len(sums) > count:
                half = len(sums) // 2
                sums = [a + b for a, b in zip(sums[:half], sums[half:], strict=True)]
            totals = _across(fn, sums, self.parts)
        if self.depth > done:
            with fn.loop(done, self.depth, carried=totals, hints=AS_WRITTEN) as loop:
                loop.next(*add(loop.carried, loop.index, 1, 1))
            totals = list(loop.results)
        return totals

    def _spread(self, offset: Value, lanes: int) -> Value:
        """Elements of the matrix, replicated for each part."""
        elements = self.matrix.elements(offset, lanes)[0]
        if self.parts == 1:
            return elements
        if lanes == 1:
            return self.fn.splat(elements, self.parts)
        return self.fn.shuffle(elements, elements, [*range(lanes)] * self.parts)


def _power_of_two(most: int) -> int:
    """The largest power of two that is not above ``most``."""
    return 1 << (most.bit_length() - 1)


def _widened(fn: Function, value: Value, lanes: int) -> Value:
    """A vector or a number with zeros behind it, up to ``lanes`` lanes; what has as many is as it was."""
    if value.type.lanes >= lanes:
        return value
    if value.type.lanes == 1:
        return fn.with_lane(fn.constant(vector(value.type.element, lanes), 0), 0, value)
    zeros = fn.constant(value.type, 0)
    return fn.shuffle(value, zeros, [min(lane, value.type.lanes) for lane in range(lanes)])


def _sum_of_product(fn: Function, a: Value, b: Value, c: Value) -> Value:
    return c + a * b if a.type.is_int else fn.intrinsic("llvm.fmuladd", c.type, a, b, c)


def _across(fn: Function, registers: Sequence[Value], parts: int) -> list[Value]:
    """For each register the sums of the lanes of its parts.

    The upper lanes of each part are added to the lower ones, two registers at a time, so that registers stay full.
    """
    width, together = registers[0].type.lanes // parts, 1
    sums = list(registers)
    while width > 1:
        width //= 2
        pairs = [(sums[n], sums[min(n + 1, len(sums) - 1)]) for n in range(0, len(sums), 2)]
        together *= 1 if len(sums) == 1 else 2
        low = [2 * width * part + lane for part in range(together * parts) for lane in range(width)]
        if len(low) == 1:
            return [fn.lane(sums[0], 0) + fn.lane(sums[0], 1)]
        sums = [fn.shuffle(a, b, low) + fn.shuffle(a, b, [lane + width for lane in low]) for a, b in pairs]
    return [_part(fn, sums[n // together], n % together, parts) for n in range(len(registers))]


def _part(fn: Function, register: Value, number: int, lanes: int) -> Value:
    """Group ``number`` of ``lanes`` lanes of a register."""
    if lanes == register.type.lanes:
        return register
    first = number * lanes
    return fn.lane(register, first) if lanes == 1 else fn.shuffle(register, register, range(first, first + lanes))
