"""The reduction of a real matrix to an upper bidiagonal one, which reads the rest of the matrix once for each column.

``gebrd`` multiplies the rest of the matrix A with a left reflection's u and then with a right one's v. But v depends on
A' u column by column, up to its length, so that both products are sums over columns that are read once (G. Howell et
al., Cache efficient bidiagonalization using BLAS 2.5 operators)::

    rows       tasks are rows: finish the last column of X, update column i of A, and its products with A and X
    left       u, its length and factor from that column
    columns    tasks are columns j of the rest: y(j) = A(:, j)' u,  r(j) = row i of A - y(j),  w += A(:, j) r(j)
    right      v = (r - beta e1) / (r(1) - beta), and its factor; A v follows from w

A block of columns has X and Y for which the rest of the matrix is A - U Y' - X V'. Columns of U and X take turns in one
array, and so do rows of Y' and V' in another. The rest is updated at the end of a block, in strips. Tasks depend only
on the size; their sums are added in their order.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from xlakit.cpu.kernels.linalg.lapack_blocked import STRIP
from xlakit.cpu.kernels.linalg.lapack_routines import Problem
from xlakit.cpu.kernels.linalg.lapack_vectors import real_limits
from xlakit.cpu.kernels.shared import blas
from xlakit.cpu.kernels.shared.scratch import acquire, release
from xlakit.cpu.llvm import I64, PTR, VOID, Function, Value, vector
from xlakit.cpu.llvm.loop import AS_WRITTEN, NO_UNROLL
from xlakit.cpu.loops.emit.kernel import kernel_function
from xlakit.cpu.scalars.memory import memory_type
from xlakit.options import knob
from xlakit.target import vector_bytes

_BLOCK = knob("lapack_bidiagonal.block", 32, 4, 8, tries=(16, 64))
# The rows of a task, the most tasks of columns, and the least columns of one.
_ROWS = knob("lapack_bidiagonal.rows", 256, 8, 16)
_TASKS = knob("lapack_bidiagonal.tasks", 8, 2, 4, tries=(4, 16))
_LEAST_COLUMNS = knob("lapack_bidiagonal.least_columns", 32, 4, 8)
# The number of columns that are multiplied together.
_TOGETHER = 4
# The words of the table: step i, the block's first step, whether column i is updated, the number of sums w, arrays.
_STEP, _FIRST, _UPDATES, _SUMS = range(4)
_ARRAYS = (
    "matrix",
    "d",
    "e",
    "left",
    "right",
    "ux",
    "yv",
    "w",
    "r",
    "c",
    "rho",
    "p",
    "q",
    "z",
    "rows",
    "columns",
    "last",
)
# The scalars of the right reflection: what the last column of X is multiplied with, and beta.
_X_FACTOR, _BETA = 0, 1


class _Part:
    """A function that reads the table: its step, and addresses in the arrays."""

    def __init__(self, fn: Function, owner: Bidiagonal) -> None:
        self.fn, self.owner = fn, owner
        self.table = fn.parameters[0]
        self.step, self.first = self.word(_STEP), self.word(_FIRST)
        self.done = self.step - self.first
        self.arrays = {name: fn.load(PTR, fn.at(self.table, I64, n)) for n, name in enumerate(_ARRAYS, start=_SUMS + 1)}
        self.arguments = blas.Arguments(fn)

    def word(self, number: int) -> Value:
        """A word of the table."""
        return self.fn.load(I64, self.fn.at(self.table, I64, number))

    def at(self, name: str, index: Value | int) -> Value:
        """The address of an element of an array."""
        return self.fn.at(self.arrays[name], self.owner.type, index)

    def a(self, row: Value | int, column: Value) -> Value:
        """The address of an element of the matrix."""
        return self.at("matrix", column * self.owner.rows + row)

    def ux(self, row: Value, number: Value | int) -> Value:
        """The address of an element of U and X."""
        return self.at("ux", self.fn.i64(self.owner.rows) * number + row)

    def yv(self, number: Value | int, column: Value) -> Value:
        """The address of an element of Y' and V', whose columns are contiguous."""
        return self.at("yv", column * (2 * _BLOCK.value) + number)

    def load(self, address: Value) -> Value:
        """The number at an address."""
        return self.fn.load(self.owner.type, address)

    def sums(self, name: str, task: Value) -> Value:
        """The sums of a task: products with UX or YV, and the square of the length."""
        return self.at(name, task * (2 * _BLOCK.value + 1))

    def gemv(
        self, letter: str, sizes: tuple[Value, Value], matrix: Value, leading: int, x: Value, y: Value,
        factor: float, keep: float = 1.0,
    ) -> None:  # fmt: skip
        """Set y to factor * op(matrix) x + keep * y."""
        arguments = self.arguments
        numbers = [arguments.data(struct.pack(blas.FACTORS[self.owner.prefix], n)) for n in (factor, keep)]
        rows, columns = (arguments.computed(f"size {n}", size) for n, size in enumerate(sizes))
        symbol = blas.declare(self.fn.module, self.owner.prefix + "gemv", 11)
        one = arguments.integer(1)
        operands = numbers[0], matrix, arguments.integer(leading), x, one, numbers[1], y, one
        self.fn.call(symbol, VOID, arguments.letter(letter), rows, columns, *operands)


class Bidiagonal:
    """Writes the reduction of matrices with as many rows as columns or more, in the form in which ``gebrd`` leaves it.

    Elements of the matrix that the results take there, on and beside the diagonal, are 1 here.
    """

    def __init__(self, fn: Function, problem: Problem) -> None:
        self._fn = fn
        self.prefix = problem.prefix
        self.rows, self.columns = problem.sizes()
        self.type = memory_type(problem.kind)
        self._tiny, self._epsilon = real_limits(problem)
        self._table = fn.alloca(I64, _SUMS + 1 + len(_ARRAYS))
        module = fn.module
        self._row_tasks = self._emit_rows(kernel_function(module, "bidiagonal_rows")[0])
        self._column_tasks = self._emit_columns(kernel_function(module, "bidiagonal_columns")[0])
        self._strips = self._emit_strips(kernel_function(module, "bidiagonal_strips")[0])
        self._left = self._emit_left(module.function("bidiagonal_left", VOID, [PTR]))
        self._right = self._emit_right(module.function("bidiagonal_right", VOID, [PTR]))
        self._flush = self._emit_flush(module.function("bidiagonal_flush", VOID, [PTR]))

    def reduce(self, matrix: Value, values: Value, beside: Value, left: Value, right: Value) -> None:
        """Write the reduction; the diagonals and the factors of the reflections are results."""
        fn, block = self._fn, _BLOCK.value
        row_tasks = -(-self.rows // _ROWS.value)
        sums = 2 * block + 1
        sizes = {
            **{name: 2 * block * length for name, length in (("ux", self.rows), ("yv", self.columns))},
            **dict.fromkeys(("r", "c", "rho"), self.columns),
            **dict.fromkeys(("p", "q", "z"), sums),
            "w": self.rows * _TASKS.value,
            "rows": row_tasks * sums,
            "columns": _TASKS.value * sums,
            "last": 2,
        }
        memory = acquire(fn, sum(sizes.values()) * self.type.bytes)
        arrays = {"matrix": matrix, "d": values, "e": beside, "left": left, "right": right}
        offset = 0
        for name, size in sizes.items():
            arrays[name] = fn.at(memory, self.type, offset)
            offset += size
        for number, name in enumerate(_ARRAYS, start=_SUMS + 1):
            fn.store(arrays[name], fn.at(self._table, I64, number))
        with fn.loop(0, -(-self.columns // block), hints=NO_UNROLL) as blocks:
            first = blocks.index * block
            end = (first + block).smin(self.columns)
            self._set(_FIRST, first)
            with fn.loop(first, end, hints=NO_UNROLL) as steps:
                self._step(steps.index)
            self._set(_STEP, end)
            fn.call(self._flush, VOID, self._table)
            with fn.if_(end < self.columns):
                self._set(_UPDATES, fn.i64(0))
                self._start(self._row_tasks, self._tasks(fn.i64(self.rows) - end, _ROWS.value))
                self._start(self._strips, self._tasks(fn.i64(self.columns) - end, STRIP.value))
        release(fn, memory)

    def _step(self, step: Value) -> None:
        fn = self._fn
        self._set(_STEP, step)
        self._set(_UPDATES, fn.i64(1))
        self._start(self._row_tasks, self._tasks(fn.i64(self.rows) - step, _ROWS.value))
        fn.call(self._left, VOID, self._table)
        left = fn.i64(self.columns - 1) - step
        with fn.if_(left > 0):
            tasks = self._tasks(left, self._width(left))
            self._set(_SUMS, tasks)
            self._start(self._column_tasks, tasks)
            fn.call(self._right, VOID, self._table)

    def _set(self, word: int, value: Value) -> None:
        self._fn.store(value, self._fn.at(self._table, I64, word))

    def _start(self, tasks: Function, count: Value) -> None:
        self._fn.call("xlakit_parallel", VOID, self._fn.address(tasks.name), self._table, count, self._fn.i64(1))

    @staticmethod
    def _tasks(count: Value, size: Value | int) -> Value:
        return (count + size - 1).integer("udiv", size)

    def _width(self, columns: Value) -> Value:
        """The number of columns of a task."""
        each = self._tasks(columns, _TASKS.value)
        return self._tasks(each, _TOGETHER).smax(_LEAST_COLUMNS.value // _TOGETHER) * _TOGETHER

    # -- rows --------------------------------------------------------------------------------------

    def _emit_rows(self, fn: Function) -> Function:
        part = _Part(fn, self)
        step, done = part.step, part.done
        updates = part.word(_UPDATES).ne(0)
        _, start, end = fn.parameters
        with fn.loop(start, end, hints=NO_UNROLL) as task:
            low = step + task.index * _ROWS.value
            count = (fn.i64(self.rows) - low).smin(_ROWS.value)
            with fn.if_(done > 0):
                self._finish_x(part, low, count)
            with fn.if_(updates):
                column, sums = part.a(low, step), part.sums("rows", task.index)
                with fn.if_(done > 0):
                    panel, size = part.ux(low, 0), (count, done * 2)
                    part.gemv("N", size, panel, self.rows, part.yv(0, step), column, -1.0)
                    part.gemv("T", size, panel, self.rows, column, sums, 1.0, 0.0)
                fn.store(self._square(part, column, count), fn.at(sums, self.type, 2 * _BLOCK.value))
        return fn

    def _finish_x(self, part: _Part, low: Value, count: Value) -> None:
        """Compute rows of the last column of X."""
        fn, type = part.fn, self.type
        known = part.done * 2 - 1
        x, column = part.ux(low, known), part.a(low, part.step)
        beta = part.load(part.at("last", _BETA))
        with fn.loop(0, count, independent=True) as row:
            element = part.load(fn.at(column, type, row.index))
            fn.store(part.load(part.at("w", low + row.index)) - beta * element, fn.at(x, type, row.index))
        with fn.loop(1, part.word(_SUMS), hints=NO_UNROLL) as sums:
            w = part.at("w", sums.index * self.rows + low)
            with fn.loop(0, count, independent=True) as row:
                target = fn.at(x, type, row.index)
                fn.store(part.load(target) + part.load(fn.at(w, type, row.index)), target)
        part.gemv("N", (count, known), part.ux(low, 0), self.rows, part.at("z", 0), x, -1.0)
        factor = part.load(part.at("last", _X_FACTOR))
        self._scale(part, x, count, factor)

    def _scale(self, part: _Part, start: Value, count: Value, factor: Value) -> None:
        fn = part.fn
        with fn.loop(0, count, independent=True) as element:
            address = fn.at(start, self.type, element.index)
            fn.store(part.load(address) * factor, address)

    # -- reflections -------------------------------------------------------------------------------

    def _emit_left(self, fn: Function) -> Function:
        """The function that makes the left reflection of column i, and what its products with rows need."""
        part = _Part(fn, self)
        step, block, known = part.step, _BLOCK.value, part.done * 2
        tasks = self._tasks(fn.i64(self.rows) - step, _ROWS.value)
        self._add_up(part, "rows", tasks, "p")
        diagonal = part.a(step, step)
        square = part.load(part.at("p", 2 * block))
        count = fn.i64(self.rows) - step
        alpha = part.load(diagonal)
        value, beta, tau, factor = self._reflection(part, alpha, square, (diagonal, count))
        fn.store(value, part.at("d", step))
        fn.store(tau, part.at("left", step))
        fn.store(fn.constant(self.type, 1.0), diagonal)
        self._scale(part, part.a(step + 1, step), count - 1, factor)
        fn.copy(part.ux(step, known), diagonal, count * self.type.bytes)
        with fn.loop(0, known, hints=AS_WRITTEN) as loop:
            element, address = part.load(part.ux(step, loop.index)), part.at("p", loop.index)
            fn.store((part.load(address) - beta * element) * factor, address)
            fn.store(element, part.at("q", loop.index))
        return fn

    def _emit_right(self, fn: Function) -> Function:
        """The function that makes the right reflection of row i, and what its product with the matrix needs."""
        part = _Part(fn, self)
        step, known = part.step, part.done * 2 + 1
        self._add_up(part, "columns", part.word(_SUMS), "z")
        start, count = part.at("r", step + 1), fn.i64(self.columns - 1) - step
        alpha, square = part.load(start), part.load(part.at("z", 2 * _BLOCK.value))
        value, beta, tau, factor = self._reflection(part, alpha, square, (start, count))
        one = fn.constant(self.type, 1.0)
        fn.store(value, part.at("e", step))
        fn.store(tau, part.at("right", step))
        self._scale(part, start, count, factor)
        fn.store(one, start)
        fn.store(one, part.yv(known, step + 1))
        fn.store(tau * factor, part.at("last", _X_FACTOR))
        fn.store(beta, part.at("last", _BETA))
        with fn.loop(0, known, hints=AS_WRITTEN) as loop:
            target = part.at("z", loop.index)
            fn.store(part.load(target) - beta * part.load(part.yv(loop.index, step + 1)), target)
        return fn

    def _add_up(self, part: _Part, source: str, tasks: Value, target: str) -> None:
        """Add the sums of all tasks, in their order."""
        fn = part.fn
        with fn.loop(0, 2 * _BLOCK.value + 1, hints=AS_WRITTEN) as number:
            zero = fn.constant(self.type, 0.0)
            with fn.loop(0, tasks, carried=[zero], hints=AS_WRITTEN) as task:
                address = fn.at(part.sums(source, task.index), self.type, number.index)
                task.next(task.carried[0] + part.load(address))
            fn.store(task.results[0], part.at(target, number.index))

    def _reflection(
        self, part: _Part, alpha: Value, square: Value, array: tuple[Value, Value]
    ) -> tuple[Value, Value, Value, Value]:
        """The reflection of a vector to beta e1: its result, beta, tau, and the factor of the elements but the first.

        square: the sum of the squares; where that is too small to be exact, the length is computed anew. A vector that
        is nearly 0, compared with a matrix that LAPACK does not scale, counts as alpha e1.
        """
        fn, type = part.fn, self.type
        start, count = array
        largest = fn.constant(type, 0.0)

        def scaled() -> tuple[Value]:
            # The squares of multiples by a power of two do not underflow.
            power = fn.constant(type, 2.0 ** (80 if type.bits == 32 else 700))
            with fn.loop(0, count, carried=[largest], hints=AS_WRITTEN) as loop:
                element = part.load(fn.at(start, type, loop.index)) * power
                loop.next(loop.carried[0] + element * element)
            return (fn.intrinsic("llvm.sqrt", type, loop.results[0]) / power,)

        (length,) = fn.if_else(
            square > self._tiny / self._epsilon**2, lambda: (fn.intrinsic("llvm.sqrt", type, square),), scaled
        )
        is_zero = length < self._tiny / self._epsilon
        beta = fn.select(alpha < 0.0, length, -length)
        zero = fn.constant(type, 0.0)
        tau = fn.select(is_zero, zero, (beta - alpha) / beta)
        factor = fn.select(is_zero, zero, fn.constant(type, 1.0) / (alpha - beta))
        return fn.select(is_zero, alpha, beta), beta, tau, factor

    # -- columns -----------------------------------------------------------------------------------

    def _emit_columns(self, fn: Function) -> Function:
        part = _Part(fn, self)
        step, known, type = part.step, part.done * 2, self.type
        tau = part.load(part.at("left", step))
        width = self._width(fn.i64(self.columns - 1) - step)
        height = fn.i64(self.rows) - step
        _, begin, end = fn.parameters
        with fn.loop(begin, end, hints=NO_UNROLL) as task:
            low = step + 1 + task.index * width
            high = (low + width).smin(self.columns)
            count = high - low
            c, rho, r = (part.at(name, low) for name in ("c", "rho", "r"))
            fn.fill(c, 0, count * type.bytes)
            with fn.loop(low, high, hints=AS_WRITTEN) as loop:
                fn.store(part.load(part.a(step, loop.index)), part.at("rho", loop.index))
            panel, leading = part.yv(0, low), 2 * _BLOCK.value
            with fn.if_(known > 0):
                self._store_v(part, low, high)
                part.gemv("T", (known, count), panel, leading, part.at("p", 0), c, 1.0)
                part.gemv("T", (known, count), panel, leading, part.at("q", 0), rho, -1.0)
            w = part.at("w", task.index * self.rows + step)
            fn.fill(w, 0, height * type.bytes)
            whole = low + count.integer("udiv", _TOGETHER) * _TOGETHER
            with fn.loop(low, whole, _TOGETHER, hints=AS_WRITTEN) as loop:
                self._columns(part, loop.index, _TOGETHER, w, tau)
            with fn.loop(whole, high, hints=AS_WRITTEN) as loop:
                self._columns(part, loop.index, 1, w, tau)
            sums = part.sums("columns", task.index)
            part.gemv("N", (known + 1, count), panel, leading, r, sums, 1.0, 0.0)
            fn.store(self._square(part, r, count), fn.at(sums, type, leading))
        return fn

    def _store_v(self, part: _Part, low: Value, high: Value) -> None:
        """Store columns of the last right reflection."""
        with part.fn.loop(low, high, hints=AS_WRITTEN) as loop:
            value = part.load(part.at("r", loop.index))
            part.fn.store(value, part.yv(part.done * 2 - 1, loop.index))

    def _columns(self, part: _Part, column: Value, count: int, w: Value, tau: Value) -> None:
        """Compute y and r of some columns, and add the columns' multiples to w."""
        fn, step = part.fn, part.step
        u = part.a(step, step)
        starts = [part.a(step, column + n) for n in range(count)]
        height = fn.i64(self.rows) - step
        products = self._dots(part, u, starts, height)
        factors: list[Value] = []
        for n, product in enumerate(products):
            y = tau * (product - part.load(part.at("c", column + n)))
            fn.store(y, part.yv(part.done * 2, column + n))
            factors.append(part.load(part.at("rho", column + n)) - y)
            fn.store(factors[-1], part.at("r", column + n))
        lanes = vector_bytes() // self.type.bytes
        whole = height.integer("udiv", lanes) * lanes
        for low, high, width in ((fn.i64(0), whole, lanes), (whole, height, 1)):
            type = vector(self.type, width)
            spread = [fn.splat(factor, width) if width > 1 else factor for factor in factors]
            with fn.loop(low, high, width, hints=AS_WRITTEN) as loop:
                target = fn.at(w, self.type, loop.index)
                total = fn.load(type, target, align=self.type.bytes)
                for start, factor in zip(starts, spread, strict=True):
                    element = fn.load(type, fn.at(start, self.type, loop.index), align=self.type.bytes)
                    total = fn.intrinsic("llvm.fmuladd", type, element, factor, total)
                fn.store(total, target, align=self.type.bytes)

    def _square(self, part: _Part, start: Value, count: Value) -> Value:
        return self._dots(part, start, [start], count)[0]

    def _dots(self, part: _Part, vector_start: Value, starts: Sequence[Value], count: Value) -> list[Value]:
        """The products of a vector with several others."""
        fn, lanes = part.fn, vector_bytes() // self.type.bytes
        repeat = 2
        whole = count.integer("udiv", lanes * repeat) * (lanes * repeat)
        type = vector(self.type, lanes)
        zeros = [fn.constant(type, 0.0)] * (len(starts) * repeat)
        with fn.loop(0, whole, lanes * repeat, carried=zeros, hints=AS_WRITTEN) as loop:
            sums = list(loop.carried)
            for part_number in range(repeat):
                index = loop.index + part_number * lanes
                factor = fn.load(type, fn.at(vector_start, self.type, index), align=self.type.bytes)
                for n, start in enumerate(starts):
                    element = fn.load(type, fn.at(start, self.type, index), align=self.type.bytes)
                    slot = n * repeat + part_number
                    sums[slot] = fn.intrinsic("llvm.fmuladd", type, element, factor, sums[slot])
            loop.next(*sums)
        totals = [self._across(fn, loop.results[n * repeat] + loop.results[n * repeat + 1]) for n in range(len(starts))]
        with fn.loop(whole, count, carried=totals, hints=AS_WRITTEN) as loop:
            factor = part.load(fn.at(vector_start, self.type, loop.index))
            elements = [part.load(fn.at(start, self.type, loop.index)) for start in starts]
            loop.next(*[t + e * factor for t, e in zip(loop.carried, elements, strict=True)])
        return list(loop.results)

    @staticmethod
    def _across(fn: Function, register: Value) -> Value:
        """The sum of the lanes."""
        while register.type.lanes > 2:
            half = register.type.lanes // 2
            register = fn.shuffle(register, register, range(half)) + fn.shuffle(
                register, register, range(half, 2 * half)
            )
        return fn.lane(register, 0) + fn.lane(register, 1) if register.type.lanes == 2 else register

    # -- the end of a block --------------------------------------------------------------------------

    def _emit_flush(self, fn: Function) -> Function:
        """The function that writes the rows of a block into the matrix."""
        part = _Part(fn, self)
        with fn.if_(part.step < self.columns):
            self._store_v(part, part.step + 1, fn.i64(self.columns))
        with fn.loop(part.first + 1, self.columns, hints=AS_WRITTEN) as columns:
            column = columns.index
            with fn.loop(0, part.done.smin(column - part.first), hints=AS_WRITTEN) as k:
                value = part.load(part.yv(k.index * 2 + 1, column))
                fn.store(value, part.a(part.first + k.index, column))
        return fn

    def _emit_strips(self, fn: Function) -> Function:
        """The tasks that update the rest of the matrix."""
        part = _Part(fn, self)
        arguments, block = part.arguments, _BLOCK.value
        symbol = blas.declare(fn.module, self.prefix + "gemm", 13)
        minus, one = (arguments.data(struct.pack(blas.FACTORS[self.prefix], n)) for n in (-1.0, 1.0))
        no, leading = arguments.letter("N"), arguments.integer(self.rows)
        height = arguments.computed("rows", fn.i64(self.rows) - part.step)
        _, begin, end = fn.parameters
        with fn.loop(begin, end, hints=NO_UNROLL) as task:
            low = part.step + task.index * STRIP.value
            width = arguments.computed("columns", (fn.i64(self.columns) - low).smin(STRIP.value))
            depth = arguments.integer(2 * block)
            operands = part.ux(part.step, 0), leading, part.yv(0, low), depth
            sizes = no, no, height, width, depth, minus
            fn.call(symbol, VOID, *sizes, *operands, one, part.a(part.step, low), leading)
        return fn
