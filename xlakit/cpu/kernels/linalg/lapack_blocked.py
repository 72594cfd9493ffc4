"""LU and QR factorizations of few large matrices, block by block; threads share the updates that follow each block.

    LU      a block of columns by getrf; in each strip of later columns its row exchanges, trsm and gemm;
            at the end, in each earlier block, the exchanges of all later blocks
    QR      a block of columns by geqrf; its reflections applied to each strip of later columns by larfb
    Q       from the last block to the first: its reflections applied to the strips of later columns, then orgqr

Matrices are column-major. Strips are tasks; the division into strips depends only on the size. LAPACK's own blocks run
on one thread, because the results of its library's threads depend on their number.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from xlakit.cpu.kernels.linalg.lapack_routines import Problem
from xlakit.cpu.kernels.shared import blas
from xlakit.cpu.kernels.shared.scratch import acquire, release
from xlakit.cpu.llvm import I32, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.cpu.loops.emit.kernel import kernel_function
from xlakit.cpu.scalars.memory import memory_type
from xlakit.data.primitive import PrimitiveType
from xlakit.options import knob

BLOCK = knob("lapack_blocked.block", 64, 8, 16, tries=(48, 96))
STRIP = knob("lapack_blocked.strip", 128, 8, 24, tries=(64, 256))
# Matrices with fewer reflections or pivots have too little work to share.
LEAST_BLOCKED = knob("lapack_blocked.least_blocked", 512, 24)


class Arrays(NamedTuple):
    """The arrays of one matrix: operands, results and workspaces, and the numbers of elements of these."""

    operands: Sequence[Value]
    results: Sequence[Value]
    works: Mapping[str, Value]
    counts: Mapping[str, int]


class Method:
    """Code of our own that factors one matrix."""

    def factor(self, arrays: Arrays) -> None:
        """Write the code for one matrix."""
        raise NotImplementedError

    def condition(self, results: Sequence[Value]) -> Value | None:
        """Whether the routine itself is not to be called instead; None if it never is."""
        return None


class Blocked(Method):
    """A factorization in one function, which starts tasks; the table of a task has ``entries`` entries."""

    def __init__(self, fn: Function, problem: Problem, entries: int) -> None:
        self._fn = fn
        self._problem = problem
        self._rows, self._columns = problem.sizes()
        self._type = memory_type(problem.kind)
        self._parts = 2 if problem.is_complex else 1
        self._bytes = problem.kind.byte_width
        fn.module.declare("xlakit_parallel", VOID, [PTR, PTR, I64, I64])
        self._table = fn.alloca(I64, entries)
        self._arguments = blas.Arguments(fn)

    def _start(self, tasks: Function, count: Value | int) -> None:
        """Run tasks on the table."""
        fn = self._fn
        number = fn.i64(count) if isinstance(count, int) else count
        fn.call("xlakit_parallel", VOID, fn.address(tasks.name), self._table, number, fn.i64(1))

    def _set(self, *entries: Value) -> None:
        """Set the first entries of the table."""
        for number, entry in enumerate(entries):
            self._fn.store(entry, self._fn.at(self._table, I64, number))

    def _routine(
        self,
        fn: Function,
        name: str,
        arguments: Sequence[Value],
        letters: int = 0,
        kind: PrimitiveType | None = None,
    ) -> None:
        """Call a routine for the problem's type, or another one, with this number of character arguments."""
        symbol = blas.declare(fn.module, blas.LETTERS[kind or self._problem.kind] + name, len(arguments), letters)
        fn.call(symbol, VOID, *arguments, *[fn.i64(1)] * letters)

    def _element(self, fn: Function, array: Value, index: Value | int) -> Value:
        """The address of an element of an array."""
        return fn.at(array, self._type, index * self._parts)

    def _at(self, fn: Function, matrix: Value, row: Value | int, column: Value) -> Value:
        """The address of an element of the matrix."""
        return self._element(fn, matrix, column * self._rows + row)

    def _factor(self, arguments: blas.Arguments, number: float) -> Value:
        return arguments.data(struct.pack(blas.FACTORS[self._problem.prefix], *(number, 0.0)[: self._parts]))


class _Strip(NamedTuple):
    """A task: ``width`` later columns from ``first`` on; the block's first row and column is ``row``.

    second: the pivots, or the triangular factor of the block's reflections. work: the memory of the task.
    """

    matrix: Value
    second: Value
    work: Value
    row: Value
    first: Value
    width: Value


class _ByColumns(Blocked):
    """A factorization in place that goes through blocks of columns.

    The table of a task has the matrix, a second array (the pivots, or the triangular factor of a block's reflections),
    and the number of the block's first row and column.
    """

    name = ""

    def __init__(self, fn: Function, problem: Problem, steps: int) -> None:
        super().__init__(fn, problem, 3)
        self._steps = steps
        self._strips = self._emit_strips(fn.module)

    # -- parts of a block ---------------------------------------------------------------------------

    def _blocks(self) -> int:
        return -(-self._steps // BLOCK.value)

    def _count(self, fn: Function, row: Value) -> Value:
        """The number of columns of the block that begins at a row."""
        return (fn.i64(self._steps) - row).smin(BLOCK.value)

    def _share(self, matrix: Value, second: Value, row: Value) -> None:
        """Run the tasks of a block's strips."""
        self._set(matrix, second, row)
        trailing = self._fn.i64(self._columns) - (row + self._count(self._fn, row))
        self._start(self._strips, (trailing + (STRIP.value - 1)).integer("udiv", STRIP.value))

    def _emit_strips(self, module: Module) -> Function:
        """The task function of a block: a task is a strip of later columns."""
        fn, table, begin, end = kernel_function(module, f"{self.name}_strips")
        matrix, second = fn.load(PTR, table), fn.load(PTR, fn.at(table, I64, 1))
        row = fn.load(I64, fn.at(table, I64, 2))
        memory = acquire(fn, STRIP.value * BLOCK.value * self._bytes)
        arguments = blas.Arguments(fn)
        with fn.loop(begin, end, hints=NO_UNROLL) as task:
            first = row + self._count(fn, row) + task.index * STRIP.value
            width = (fn.i64(self._columns) - first).smin(STRIP.value)
            self._strip(fn, arguments, _Strip(matrix, second, memory, row, first, width))
        release(fn, memory)
        return fn

    def _strip(self, fn: Function, arguments: blas.Arguments, strip: _Strip) -> None:
        """Write the work of one task."""
        raise NotImplementedError

    def _block(self, matrix: Value, row: Value, count: Value) -> list[Value]:
        """The arguments for a block from the diagonal down: rows, columns, address, leading dimension."""
        fn, arguments = self._fn, self._arguments
        return [
            arguments.computed("rows", fn.i64(self._rows) - row),
            arguments.computed("count", count),
            self._at(fn, matrix, row, row),
            arguments.integer(self._rows),
        ]


class BlockedLu(_ByColumns):
    """``getrf``: the results are the factors, the pivots and info."""

    name = "lu"

    def __init__(self, fn: Function, problem: Problem) -> None:
        super().__init__(fn, problem, min(problem.sizes()))
        self._exchanges = self._emit_exchanges(fn.module)

    def factor(self, arrays: Arrays) -> None:
        """Factor the blocks one after the other; info is the number of the first zero pivot."""
        fn, arguments = self._fn, self._arguments
        matrix, pivots, info = arrays.results
        fn.store(fn.i32(0), info)
        with fn.loop(0, self._blocks(), hints=NO_UNROLL) as loop:
            row = loop.index * BLOCK.value
            count = self._count(fn, row)
            block_pivots, block_info = fn.at(pivots, I32, row), arguments.slot("found", fn.i32(0))
            self._routine(fn, "getrf", [*self._block(matrix, row, count), block_pivots, block_info])
            start = row.cast("trunc", I32)
            before, zero_pivot = fn.load(I32, info), fn.load(I32, block_info)
            fn.store(fn.select(before.eq(0) & (zero_pivot > 0), zero_pivot + start, before), info)
            with fn.loop(0, count, hints=NO_UNROLL) as pivot:
                address = fn.at(block_pivots, I32, pivot.index)
                fn.store(fn.load(I32, address) + start, address)
            self._share(matrix, pivots, row)
        self._start(self._exchanges, self._blocks() - 1)

    def _strip(self, fn: Function, arguments: blas.Arguments, strip: _Strip) -> None:
        matrix, pivots, _, row, first, width = strip
        count, leading = self._count(fn, row), arguments.integer(self._rows)
        after = row + count
        columns, depth = arguments.computed("columns", width), arguments.computed("depth", count)
        square, target = self._at(fn, matrix, row, row), self._at(fn, matrix, row, first)
        exchanged = arguments.computed("from", row + 1), arguments.computed("to", after)
        top = [columns, self._at(fn, matrix, 0, first), leading, *exchanged, pivots, arguments.integer(1)]
        self._routine(fn, "laswp", top)
        one = self._factor(arguments, 1.0)
        letters = [arguments.letter(letter) for letter in ("L", "L", "N", "U")]
        self._routine(fn, "trsm", [*letters, depth, columns, one, square, leading, target, leading])
        below = fn.i64(self._rows) - after
        with fn.if_(below > 0):
            no = arguments.letter("N")
            lower = self._at(fn, matrix, after, row)
            minus, trailing = self._factor(arguments, -1.0), self._at(fn, matrix, after, first)
            sizes = [arguments.computed("below", below), columns, depth]
            self._routine(fn, "gemm", [no, no, *sizes, minus, lower, leading, target, leading, one, trailing, leading])

    def _emit_exchanges(self, module: Module) -> Function:
        """The tasks that apply the row exchanges of later blocks to each block but the last."""
        fn, table, begin, end = kernel_function(module, "lu_exchanges")
        matrix, pivots = fn.load(PTR, table), fn.load(PTR, fn.at(table, I64, 1))
        arguments = blas.Arguments(fn)
        with fn.loop(begin, end, hints=NO_UNROLL) as task:
            first = task.index * BLOCK.value
            operands = [
                arguments.integer(BLOCK.value),
                self._at(fn, matrix, 0, first),
                arguments.integer(self._rows),
                arguments.computed("from", first + (BLOCK.value + 1)),
                arguments.integer(self._steps),
                pivots,
                arguments.integer(1),
            ]
            self._routine(fn, "laswp", operands)
        return fn


class _Reflections(_ByColumns):
    """The common part of QR and Q: applies the reflections of a block to strips of columns."""

    letter = ""

    def _strip(self, fn: Function, arguments: blas.Arguments, strip: _Strip) -> None:
        """Apply the block of reflections that begins at a row to the rows from there on of some columns."""
        matrix, triangle, work, row, first, width = strip
        leading, columns = arguments.integer(self._rows), arguments.computed("columns", width)
        letters = [arguments.letter(letter) for letter in ("L", self.letter, "F", "C")]
        sizes = [
            arguments.computed("rows", fn.i64(self._rows) - row),
            columns,
            arguments.computed("count", self._count(fn, row)),
        ]
        vectors = self._at(fn, matrix, row, row), leading, triangle, arguments.integer(BLOCK.value)
        target = self._at(fn, matrix, row, first), leading, work, arguments.integer(STRIP.value)
        self._routine(fn, "larfb", [*letters, *sizes, *vectors, *target], 4)

    def _apply(self, matrix: Value, factors: Value, triangle: Value, row: Value) -> None:
        """Apply the reflections of a block to all later columns."""
        fn, arguments = self._fn, self._arguments
        count = self._count(fn, row)
        with fn.if_(row + count < self._columns):
            letters = arguments.letter("F"), arguments.letter("C")
            block, factor = self._block(matrix, row, count), self._element(fn, factors, row)
            self._routine(fn, "larft", [*letters, *block, factor, triangle, arguments.integer(BLOCK.value)], 2)
            self._share(matrix, triangle, row)

    def _triangle(self) -> Value:
        return acquire(self._fn, BLOCK.value**2 * self._bytes)


class BlockedQr(_Reflections):
    """``geqrf``: the results are the matrix and the scalar factors of the reflections."""

    name = "qr"

    def __init__(self, fn: Function, problem: Problem) -> None:
        self.letter = "C" if problem.is_complex else "T"
        super().__init__(fn, problem, min(problem.sizes()))

    def factor(self, arrays: Arrays) -> None:
        """Factor the blocks one after the other."""
        fn, arguments = self._fn, self._arguments
        matrix, factors = arrays.results
        triangle = self._triangle()
        with fn.loop(0, self._blocks(), hints=NO_UNROLL) as loop:
            row = loop.index * BLOCK.value
            block, factor = self._block(matrix, row, self._count(fn, row)), self._element(fn, factors, row)
            work = arrays.works["work"], arguments.integer(arrays.counts["work"]), arrays.works["info"]
            self._routine(fn, "geqrf", [*block, factor, *work])
            self._apply(matrix, factors, triangle, row)
        release(fn, triangle)


class BlockedQ(_Reflections):
    """``orgqr`` or ``ungqr``: the matrix has the reflections, and operand 1 their scalar factors."""

    name = "q"
    letter = "N"

    def __init__(self, fn: Function, problem: Problem) -> None:
        super().__init__(fn, problem, problem.length(1))

    def factor(self, arrays: Arrays) -> None:
        """Compute the blocks from the last to the first; columns without reflections begin as unit vectors."""
        fn, arguments = self._fn, self._arguments
        matrix, factors, works = arrays.results[0], arrays.operands[1], arrays.works
        with fn.loop(self._steps, self._columns, hints=NO_UNROLL) as loop:
            fn.fill(self._at(fn, matrix, 0, loop.index), 0, fn.i64(self._rows * self._bytes))
            fn.store(fn.constant(self._type, 1.0), self._at(fn, matrix, loop.index, loop.index))
        triangle = self._triangle()
        with fn.loop(0, self._blocks(), hints=NO_UNROLL) as loop:
            row = (fn.i64(self._blocks() - 1) - loop.index) * BLOCK.value
            self._apply(matrix, factors, triangle, row)
            count = self._count(fn, row)
            rows, columns, *array = self._block(matrix, row, count)
            factor = self._element(fn, factors, row)
            work = works["work"], arguments.integer(arrays.counts["work"]), works["info"]
            name = "ungqr" if self._problem.is_complex else "orgqr"
            self._routine(fn, name, [rows, columns, columns, *array, factor, *work])
            with fn.loop(0, count, hints=NO_UNROLL) as column:
                fn.fill(self._at(fn, matrix, 0, row + column.index), 0, row * self._bytes)
        release(fn, triangle)
