"""cholesky: small matrices by loops, larger ones by LAPACK, and few large ones by blocks that threads share."""

from __future__ import annotations

import math
import struct

from xlakit import machine
from xlakit.cpu.kernels.shared import blas
from xlakit.cpu.llvm import I1, I32, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.cpu.loops.emit.kernel import Kernel, Phase, kernel_function
from xlakit.cpu.scalars import Scalar, constant, load, store
from xlakit.cpu.scalars.memory import as_real, from_parts, memory_type, parts, register_type
from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Instruction
from xlakit.ops.linear_algebra import Cholesky
from xlakit.options import knob
from xlakit.passes.analysis.cost_model import cost_model

_BLOCK = knob("cholesky_blocked.block", 192, 8, 16, tries=(96, 256))
_TILE = knob("cholesky_blocked.tile", 256, 8, 24)
# Matrices of fewer rows have too little work to share.
LEAST_BLOCKED = knob("cholesky_blocked.least_blocked", 768, 24)


class BlockedCholesky:
    """Factors matrices in place, block by block; the function that it writes starts tasks for each block.

    The table of a task has the matrix, and the number of the first row that is not factored.
    """

    def __init__(self, fn: Function, kind: PrimitiveType, size: int, *, lower: bool) -> None:
        self._fn = fn
        self._kind = kind
        self._size = size
        # LAPACK sees the transpose of a row-major matrix, so its triangle is the other one.
        self._upper = lower
        self._letter = blas.LETTERS[kind]
        self._adjoint = "C" if kind.is_complex else "T"
        fn.module.declare("xlakit_parallel", VOID, [PTR, PTR, I64, I64])
        self._strips = self._emit_strips(fn.module)
        self._tiles = self._emit_tiles(fn.module)
        self._table = fn.alloca(I64, 2)
        self._routine = blas.declare(fn.module, f"{self._letter}potrf", 5)
        self._arguments = blas.Arguments(fn)

    def factor(self, matrix: Value) -> Value:
        """Factor a matrix in place; gives whether it is positive definite."""
        fn, size = self._fn, self._size
        fn.store(matrix, self._table)
        start = [fn.i64(0), fn.constant(I1, 1)]
        with fn.while_(start, lambda loop: (loop.carried[0] < size) & loop.carried[1]) as loop:
            row = loop.carried[0]
            good = self._square(matrix, row)
            following = row + _BLOCK.value
            with fn.if_(good & (following < size)):
                fn.store(row, fn.at(self._table, I64, 1))
                left = fn.i64(size) - following
                count = (left + (_TILE.value - 1)).integer("udiv", _TILE.value)
                for task, tasks in ((self._strips, count), (self._tiles, count * count)):
                    fn.call("xlakit_parallel", VOID, fn.address(task.name), self._table, tasks, fn.i64(1))
            loop.next(following, good)
        return loop.results[1]

    def _square(self, matrix: Value, row: Value) -> Value:
        """Factor the block on the diagonal; gives whether it is positive definite."""
        fn, arguments = self._fn, self._arguments
        order = arguments.computed("order", self._rows(fn, row, _BLOCK.value))
        diagonal, info = self._at(fn, matrix, row, row), arguments.slot("info", fn.i32(0))
        triangle = arguments.letter("U" if self._upper else "L")
        fn.call(self._routine, VOID, triangle, order, diagonal, arguments.integer(self._size), info)
        return fn.load(I32, info).eq(0)

    # -- tasks -----------------------------------------------------------------------------------

    def _begin(self, module: Module, name: str) -> tuple[Function, Value, Value]:
        """Begin a task function; gives it, and from its table the matrix and the first row of the block."""
        fn, table, *_ = kernel_function(module, name)
        return fn, fn.load(PTR, table), fn.load(I64, fn.at(table, I64, 1))

    def _emit_strips(self, module: Module) -> Function:
        """The tasks that compute the rest of a block of rows: u' x = a with the diagonal block u, or x u = a."""
        fn, matrix, row = self._begin(module, "cholesky_strips")
        arguments = blas.Arguments(fn)
        routine = blas.declare(module, f"{self._letter}trsm", 11)
        with fn.loop(fn.parameters[1], fn.parameters[2], hints=NO_UNROLL) as task:
            first = row + (task.index * _TILE.value + _BLOCK.value)
            count = arguments.computed("count", self._rows(fn, first, _TILE.value))
            depth = arguments.integer(_BLOCK.value)
            fn.call(
                routine,
                VOID,
                arguments.letter("L" if self._upper else "R"),
                arguments.letter("U" if self._upper else "L"),
                arguments.letter(self._adjoint),
                arguments.letter("N"),
                depth if self._upper else count,
                count if self._upper else depth,
                self._factor(arguments, 1.0),
                self._at(fn, matrix, row, row),
                arguments.integer(self._size),
                self._panel(fn, matrix, row, first),
                arguments.integer(self._size),
            )
        return fn

    def _emit_tiles(self, module: Module) -> Function:
        """The tasks that subtract the products of the strips from the rest of the matrix, in the factor's triangle."""
        fn, matrix, row = self._begin(module, "cholesky_tiles")
        arguments = blas.Arguments(fn)
        routine = blas.declare(module, f"{self._letter}gemm", 13)
        size = arguments.integer(self._size)
        start = row + _BLOCK.value
        count = (fn.i64(self._size) - start + (_TILE.value - 1)).integer("udiv", _TILE.value)
        with fn.loop(fn.parameters[1], fn.parameters[2], hints=NO_UNROLL) as task:
            row_tile, column_tile = task.index.integer("udiv", count), task.index.integer("urem", count)
            with fn.if_(column_tile <= row_tile):
                # The tile's rows and columns in the triangle.
                low, high = start + column_tile * _TILE.value, start + row_tile * _TILE.value
                across, along = (low, high) if self._upper else (high, low)
                fn.call(
                    routine,
                    VOID,
                    arguments.letter(self._adjoint if self._upper else "N"),
                    arguments.letter("N" if self._upper else self._adjoint),
                    arguments.computed("rows", self._rows(fn, across, _TILE.value)),
                    arguments.computed("columns", self._rows(fn, along, _TILE.value)),
                    arguments.integer(_BLOCK.value),
                    self._factor(arguments, -1.0),
                    self._panel(fn, matrix, row, across),
                    size,
                    self._panel(fn, matrix, row, along),
                    size,
                    self._factor(arguments, 1.0),
                    self._at(fn, matrix, across, along),
                    size,
                )
        return fn

    # -- addresses ----------------------------------------------------------------------------------

    def _at(self, fn: Function, matrix: Value, row: Value, column: Value) -> Value:
        """The address of an element of the column-major matrix."""
        parts = 2 if self._kind.is_complex else 1
        return fn.at(matrix, memory_type(self._kind), (row + column * self._size) * parts)

    def _panel(self, fn: Function, matrix: Value, row: Value, column: Value) -> Value:
        """The address of the part of the block of rows (or columns) at ``row`` that belongs to ``column``."""
        return self._at(fn, matrix, row, column) if self._upper else self._at(fn, matrix, column, row)

    def _rows(self, fn: Function, first: Value, most: int) -> Value:
        return (fn.i64(self._size) - first).smin(most)

    def _factor(self, arguments: blas.Arguments, number: float) -> Value:
        parts = (number, 0.0)[: 2 if self._kind.is_complex else 1]
        return arguments.data(struct.pack(blas.FACTORS[self._letter], *parts))


# Up to this size a call of LAPACK costs more than it saves.
SMALL = knob("cholesky.small", 16, 0, 4)


def emit_cholesky(module: Module, instruction: Instruction) -> Kernel:
    """The kernel; its table has the matrices and the factors, which start as copies of the matrices."""
    shape = instruction.shape
    *batch, size, _ = shape.dimensions
    kind, lower = shape.element_type, instruction.op_as(Cholesky).lower
    fn, table, begin, end = kernel_function(module, "cholesky")
    factors = fn.load(PTR, fn.at(table, PTR, 1))
    count = math.prod(batch)
    # A few large matrices are factored one after the other, each by all threads.
    is_shared = size >= LEAST_BLOCKED.value and count < machine.current().threads
    method = _Loops if size <= SMALL.value else BlockedCholesky if is_shared else _Lapack
    factor = method(fn, kind, size, lower=lower)
    width = 2 if kind.is_complex else 1
    with fn.loop(*((0, count) if is_shared else (begin, end)), hints=NO_UNROLL) as task:
        matrix = fn.at(factors, memory_type(kind), task.index * (size * size * width))
        # LAPACK may take a pivot of NaN for a positive one; then the last one is NaN, too.
        good = factor.factor(matrix) & (parts(load(fn, kind, matrix, fn.i64(size * size - 1)))[0] > 0.0)
        fn.if_else(good, lambda: _clear(fn, kind, matrix, size, lower=lower), lambda: _spoil(fn, kind, matrix, size))
    cost = cost_model().cycles(200.0 + 0.2 * size**3 * (4 if kind.is_complex else 1))
    return Kernel((Phase(fn.name, 1 if is_shared else count, count * cost),), {0: 0})


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

    def factor(self, matrix: Value) -> Value:
        """Factor a matrix in place; gives whether it is positive definite."""
        fn, arguments = self._fn, self._arguments
        size, info = arguments.integer(self._size), arguments.slot("info", fn.i32(0))
        fn.call(self._routine, VOID, arguments.letter(self._triangle), size, matrix, size, info)
        return fn.load(I32, info).eq(0)


class _Loops:
    """Factors row by row."""

    def __init__(self, fn: Function, kind: PrimitiveType, size: int, *, lower: bool) -> None:
        self._fn = fn
        self._kind = kind
        self._size = size
        self._lower = lower
        self._type = register_type(kind)

    def factor(self, matrix: Value) -> Value:
        """Factor a matrix in place; gives whether it is positive definite."""
        fn, size = self._fn, self._size
        with fn.loop(0, size, carried=[fn.constant(I1, 1)], hints=NO_UNROLL) as rows:
            row = rows.index
            with fn.loop(0, row, hints=NO_UNROLL) as columns:
                numerator = parts(self._rest(matrix, row, columns.index))
                pivot = parts(self._element(matrix, columns.index, columns.index))[0]
                self._put(from_parts(tuple(value / pivot for value in numerator)), matrix, row, columns.index)
            square = parts(self._rest(matrix, row, row))[0]
            zero = fn.constant(self._type, 0.0)
            root = fn.intrinsic("llvm.sqrt", self._type, square)
            self._put((root, zero) if self._kind.is_complex else root, matrix, row, row)
            rows.next(rows.carried[0] & (square > 0.0))
        return rows.results[0]

    def _rest(self, matrix: Value, row: Value, column: Value) -> Scalar:
        """An element minus the product of the rows of the factor up to the column."""
        fn = self._fn
        start = self._element(matrix, row, column)
        with fn.loop(0, column, carried=parts(start), hints=NO_UNROLL) as known:
            left, right = (self._element(matrix, r, known.index) for r in (row, column))
            value = from_parts(known.carried)
            if isinstance(left, tuple) and isinstance(right, tuple) and isinstance(value, tuple):
                # The second factor is conjugated.
                real = value[0] - (left[0] * right[0] + left[1] * right[1])
                known.next(real, value[1] - (left[1] * right[0] - left[0] * right[1]))
            else:
                known.next(as_real(value) - as_real(left) * as_real(right))
        return from_parts(known.results)

    def _offset(self, row: Value, column: Value) -> Value:
        return row * self._size + column if self._lower else column * self._size + row

    def _element(self, matrix: Value, row: Value, column: Value) -> Scalar:
        """An element of the lower factor, which is the adjoint of a stored upper factor."""
        element = load(self._fn, self._kind, matrix, self._offset(row, column))
        return (element[0], -element[1]) if isinstance(element, tuple) and not self._lower else element

    def _put(self, value: Scalar, matrix: Value, row: Value, column: Value) -> None:
        if isinstance(value, tuple) and not self._lower:
            value = value[0], -value[1]
        store(self._fn, self._kind, value, matrix, self._offset(row, column))
