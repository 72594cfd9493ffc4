"""cholesky: small matrices by loops, larger ones by LAPACK, and few large ones by blocks that threads share."""

from __future__ import annotations

import math
from functools import partial

from xlakit import machine
from xlakit.cpu.kernels.linalg.lapack_blocked import Blocked
from xlakit.cpu.kernels.linalg.lapack_routines import Problem
from xlakit.cpu.kernels.linalg.matrices import Matrices, factor_rows
from xlakit.cpu.kernels.shared import blas
from xlakit.cpu.llvm import I1, I32, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.cpu.loops.emit.accesses import Accesses
from xlakit.cpu.loops.emit.kernel import Kernel, Phase, kernel_function
from xlakit.cpu.scalars import constant, load, store
from xlakit.cpu.scalars.memory import memory_type, parts
from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Instruction
from xlakit.ops.linear_algebra import Cholesky
from xlakit.options import knob
from xlakit.passes.analysis.cost_model import cost_model

_BLOCK = knob("cholesky_blocked.block", 192, 8, 16, tries=(96, 256))
_TILE = knob("cholesky_blocked.tile", 256, 8, 24)
# Matrices of fewer rows have too little work to share.
LEAST_BLOCKED = knob("cholesky_blocked.least_blocked", 768, 24)


class BlockedCholesky(Blocked):
    """Factors matrices in place, block by block; the function that it writes starts tasks for each block.

    The table of a task has the matrix, and the number of the first row that is not factored.
    """

    def __init__(self, fn: Function, kind: PrimitiveType, size: int, *, lower: bool) -> None:
        super().__init__(fn, Problem(blas.LETTERS[kind], [(kind, (size, size))], [], {}), 2)
        # LAPACK sees the transpose of a row-major matrix, so its triangle is the other one.
        self._upper = lower
        self._adjoint = "C" if kind.is_complex else "T"
        self._strips = self._emit_strips(fn.module)
        self._tiles = self._emit_tiles(fn.module)

    def factorize(self, matrix: Value) -> Value:
        """Factor a matrix in place; gives whether it is positive definite."""
        fn, size = self._fn, self._rows
        start = [fn.i64(0), fn.constant(I1, 1)]
        with fn.while_(start, lambda loop: (loop.carried[0] < size) & loop.carried[1]) as loop:
            row = loop.carried[0]
            good = self._factor_diagonal(matrix, row)
            following = row + _BLOCK.value
            with fn.if_(good & (following < size)):
                self._set(matrix, row)
                left = fn.i64(size) - following
                count = (left + (_TILE.value - 1)).integer("udiv", _TILE.value)
                self._start(self._strips, count)
                self._start(self._tiles, count * count)
            loop.next(following, good)
        return loop.results[1]

    def _factor_diagonal(self, matrix: Value, row: Value) -> Value:
        """Factor the block on the diagonal; gives whether it is positive definite."""
        fn, arguments = self._fn, self._arguments
        order = arguments.computed("order", self._left(fn, row, _BLOCK.value))
        diagonal, info = self._at(fn, matrix, row, row), arguments.slot("info", fn.i32(0))
        triangle = arguments.letter("U" if self._upper else "L")
        self._routine(fn, "potrf", [triangle, order, diagonal, arguments.integer(self._rows), info])
        return fn.load(I32, info).eq(0)

    # -- tasks -----------------------------------------------------------------------------------

    def _begin(self, module: Module, name: str) -> tuple[Function, Value, Value, tuple[Value, Value]]:
        """Begin a task function; gives it, from its table the matrix and the first row of the block, and the tasks."""
        fn, table, *tasks = kernel_function(module, name)
        return fn, fn.load(PTR, table), fn.load(I64, fn.at(table, I64, 1)), (tasks[0], tasks[1])

    def _emit_strips(self, module: Module) -> Function:
        """The tasks that compute the rest of a block of rows: u' x = a with the diagonal block u, or x u = a."""
        fn, matrix, row, tasks = self._begin(module, "cholesky_strips")
        arguments = blas.Arguments(fn)
        letters = "LU" if self._upper else "RL"
        with fn.loop(*tasks, hints=NO_UNROLL) as task:
            first = row + (task.index * _TILE.value + _BLOCK.value)
            count = arguments.computed("count", self._left(fn, first, _TILE.value))
            depth, leading = arguments.integer(_BLOCK.value), arguments.integer(self._rows)
            options = [arguments.letter(letter) for letter in (*letters, self._adjoint, "N")]
            sizes = (depth, count) if self._upper else (count, depth)
            one, square = self._factor(arguments, 1.0), self._at(fn, matrix, row, row)
            strip = self._panel(fn, matrix, row, first)
            self._routine(fn, "trsm", [*options, *sizes, one, square, leading, strip, leading])
        return fn

    def _emit_tiles(self, module: Module) -> Function:
        """The tasks that subtract the products of the strips from the rest of the matrix, in the factor's triangle."""
        fn, matrix, row, tasks = self._begin(module, "cholesky_tiles")
        arguments = blas.Arguments(fn)
        leading = arguments.integer(self._rows)
        start = row + _BLOCK.value
        count = (fn.i64(self._rows) - start + (_TILE.value - 1)).integer("udiv", _TILE.value)
        with fn.loop(*tasks, hints=NO_UNROLL) as task:
            row_tile, column_tile = task.index.integer("udiv", count), task.index.integer("urem", count)
            with fn.if_(column_tile <= row_tile):
                # The tile's rows and columns in the triangle.
                low, high = start + column_tile * _TILE.value, start + row_tile * _TILE.value
                across, along = (low, high) if self._upper else (high, low)
                letters = (self._adjoint, "N") if self._upper else ("N", self._adjoint)
                options = [arguments.letter(letter) for letter in letters]
                sizes = [
                    arguments.computed(name, self._left(fn, first, _TILE.value))
                    for name, first in (("rows", across), ("columns", along))
                ]
                depth, minus = arguments.integer(_BLOCK.value), self._factor(arguments, -1.0)
                strips = [self._panel(fn, matrix, row, first) for first in (across, along)]
                one, tile = self._factor(arguments, 1.0), self._at(fn, matrix, across, along)
                operands = strips[0], leading, strips[1], leading, one, tile, leading
                self._routine(fn, "gemm", [*options, *sizes, depth, minus, *operands])
        return fn

    def _panel(self, fn: Function, matrix: Value, row: Value, column: Value) -> Value:
        """The address of the part of the block of rows (or columns) at ``row`` that belongs to ``column``."""
        return self._at(fn, matrix, row, column) if self._upper else self._at(fn, matrix, column, row)

    def _left(self, fn: Function, first: Value, most: int) -> Value:
        """The number of rows from one on, at most ``most``."""
        return (fn.i64(self._rows) - first).smin(most)


# Up to this size a call of LAPACK costs more than it saves.
SMALL = knob("cholesky.small", 16, 0, 4)


def emit_cholesky(module: Module, instruction: Instruction) -> Kernel:
    """The kernel; its table has the matrices and the factors, which start as copies of the matrices."""
    shape = instruction.shape
    *batch, size, _ = shape.dimensions
    kind, lower = shape.element_type, instruction.op_as(Cholesky).lower
    fn, table, begin, end = kernel_function(module, "cholesky")
    factors = fn.pointer(table, 1)
    count = math.prod(batch)
    # A few large matrices are factored one after the other, each by all threads.
    is_shared = size >= LEAST_BLOCKED.value and count < machine.current().threads
    methods = _Loops if size <= SMALL.value else BlockedCholesky if is_shared else _Lapack
    method = methods(fn, kind, size, lower=lower)
    width = 2 if kind.is_complex else 1
    with fn.loop(*((0, count) if is_shared else (begin, end)), hints=NO_UNROLL) as task:
        matrix = fn.at(factors, memory_type(kind), task.index * (size * size * width))
        # LAPACK may take a pivot of NaN for a positive one; then the last one is NaN, too.
        good = method.factorize(matrix) & (parts(load(fn, kind, matrix, fn.i64(size * size - 1)))[0] > 0.0)
        fn.if_else(good, lambda: _clear(fn, kind, matrix, size, lower=lower), lambda: _spoil(fn, kind, matrix, size))
    cost = cost_model().cycles(200.0 + 0.2 * size**3 * (4 if kind.is_complex else 1))
    nests = ((Accesses.in_place([], [1]),),)
    return Kernel((Phase(fn.name, 1 if is_shared else count, count * cost, nests=nests),), {0: 0})


def _clear(fn: Function, kind: PrimitiveType, matrix: Value, size: int, *, lower: bool) -> None:
    """Set the other triangle to 0."""
    bytes = kind.byte_width
    type = memory_type(kind)
    width = 2 if kind.is_complex else 1
    with fn.loop(0, size, hints=NO_UNROLL) as rows:
        row = rows.index
        first = row * size + (row + 1 if lower else fn.i64(0))
        count = fn.i64(size - 1) - row if lower else row
        fn.fill(fn.at(matrix, type, first * width), 0, count * bytes)


def _spoil(fn: Function, kind: PrimitiveType, matrix: Value, size: int) -> None:
    """Set all elements to NaN: a matrix that is not positive definite has no factor."""
    nan = constant(fn, kind, kind.dtype.type(math.nan))
    with fn.loop(0, size * size, independent=True) as loop:
        store(fn, kind, nan, matrix, loop.index)


class _Lapack:
    """Factors by ``potrf``, which sees the transpose of a row-major matrix."""

    def __init__(self, fn: Function, kind: PrimitiveType, size: int, *, lower: bool) -> None:
        self._fn = fn
        self._routine = blas.declare(fn.module, f"{blas.LETTERS[kind]}potrf", 5)
        self._arguments = blas.Arguments(fn)
        self._size = size
        self._triangle = "U" if lower else "L"

    def factorize(self, matrix: Value) -> Value:
        """Factor a matrix in place; gives whether it is positive definite."""
        fn, arguments = self._fn, self._arguments
        size, info = arguments.integer(self._size), arguments.slot("info", fn.i32(0))
        fn.call(self._routine, VOID, arguments.letter(self._triangle), size, matrix, size, info)
        return fn.load(I32, info).eq(0)


class _Loops:
    """Factors row by row."""

    def __init__(self, fn: Function, kind: PrimitiveType, size: int, *, lower: bool) -> None:
        self._matrices = partial(Matrices, fn, kind, first=fn.i64(0), steps=(size, 1), lanes=1)
        self._size, self._lower = size, lower

    def factorize(self, matrix: Value) -> Value:
        """Factor a matrix in place; gives whether it is positive definite."""
        factor = self._matrices(array=matrix)
        # The lower factor is the adjoint of a stored upper one.
        factor = factor if self._lower else factor.adjoint()
        return factor_rows(factor, factor, self._size)
