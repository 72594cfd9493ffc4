"""The common part of eigenvalues and singular values: threads share what the reflections do to the vectors.

    a reduction       A = Q T P^H, with products Q and P of reflections, which are stored in A
    a LAPACK routine  the vectors of the small problem T
    blocks            the triangular factors of blocks of reflections
    strips            all blocks applied to each strip of vectors

Blocks and strips are tasks; the division into them depends only on the size.
"""

from __future__ import annotations

import ml_dtypes

from xlakit.cpu.kernels.linalg.lapack_blocked import BLOCK, Blocked
from xlakit.cpu.kernels.linalg.lapack_routines import Problem
from xlakit.cpu.kernels.shared import blas
from xlakit.cpu.kernels.shared.scratch import acquire, release
from xlakit.cpu.llvm import I64, PTR, Function, Module, Value, integer
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.cpu.loops.emit.kernel import kernel_function
from xlakit.cpu.scalars.memory import memory_type
from xlakit.dataclass import dataclass
from xlakit.options import knob

_STRIP = knob("lapack_vectors.strip", 128, 8, 24, tries=(64, 256))
# Smaller problems have too few vectors to share.
LEAST_VECTORS = knob("lapack_vectors.least_vectors", 192, 24)
# How far from the bounds of LAPACK's scaling its routine is called: parts of complex numbers are compared.
_MARGIN = 4.0
# The entries of the table: the matrix, then for each product the factors, the vectors, and the triangular factors.
_ENTRIES = 3


@dataclass(frozen=True, slots=True)
class Reflections:
    """A product Q of reflections, and the vectors that it is applied to: Q X, or X Q^H if it is stored in rows.

    start: the element of the matrix that stands for the first reflection's 1. length: the length of the first one.
    offset: the number of rows (or columns) of X before those that it changes. leading: the leading dimension of X.
    width: the number of vectors, which are the columns (or rows) of X.
    """

    in_rows: bool
    count: int
    start: int
    length: int
    offset: int
    leading: int
    width: int

    @property
    def factors_size(self) -> int:
        """The number of elements of the triangular factors of all blocks."""
        return -(-self.count // BLOCK.value) * BLOCK.value**2


class Vectors(Blocked):
    """A factorization whose vectors are those of a small problem, multiplied with products of reflections."""

    def __init__(self, fn: Function, problem: Problem, *products: Reflections) -> None:
        super().__init__(fn, problem, 1 + _ENTRIES * len(products))
        self._real = memory_type(problem.real)
        self._products = products
        self._blocks = [self._emit_blocks(fn.module, n) for n in range(len(products))]
        self._strips = [self._emit_strips(fn.module, n) for n in range(len(products))]

    def _apply(self, matrix: Value, *pairs: tuple[Value, Value]) -> None:
        """Apply the products, given the scalar factors and the vectors of each."""
        fn = self._fn
        triangles = [acquire(fn, product.factors_size * self._bytes) for product in self._products]
        entries = [entry for pair, triangle in zip(pairs, triangles, strict=True) for entry in (*pair, triangle)]
        self._set(matrix, *entries)
        for n, product in enumerate(self._products):
            self._start(self._blocks[n], -(-product.count // BLOCK.value))
            self._start(self._strips[n], -(-product.width // _STRIP.value))
        for triangle in triangles:
            release(fn, triangle)

    # -- tasks -----------------------------------------------------------------------------------

    def _begin(self, module: Module, name: str, product: int) -> tuple[Function, list[Value], tuple[Value, Value]]:
        """Begin a task function; gives it, its entries of the table, and the range of tasks."""
        fn, table, begin, end = kernel_function(module, name)
        entries = [0, *range(1 + _ENTRIES * product, 1 + _ENTRIES * (product + 1))]
        return fn, [fn.load(PTR, fn.at(table, I64, n)) for n in entries], (begin, end)

    def _block(
        self, fn: Function, arguments: blas.Arguments, product: Reflections, first: Value
    ) -> tuple[Value, Value]:
        """The length and the number of the reflections of the block that begins with ``first``."""
        count = (fn.i64(product.count) - first).smin(BLOCK.value)
        return arguments.computed("length", fn.i64(product.length) - first), arguments.computed("count", count)

    def _emit_blocks(self, module: Module, number: int) -> Function:
        """The task function that computes the triangular factor of a block."""
        product = self._products[number]
        fn, (matrix, factors, _, triangles), tasks = self._begin(module, "vectors_blocks", number)
        arguments = blas.Arguments(fn)
        letters = arguments.letter("F"), arguments.letter("R" if product.in_rows else "C")
        leading, side = arguments.integer(self._rows), arguments.integer(BLOCK.value)
        with fn.loop(*tasks, hints=NO_UNROLL) as task:
            first = task.index * BLOCK.value
            block = self._at(fn, self._element(fn, matrix, product.start), first, first), leading
            triangle = self._element(fn, triangles, first * BLOCK.value), side
            sizes = self._block(fn, arguments, product, first)
            self._routine(fn, "larft", [*letters, *sizes, *block, self._element(fn, factors, first), *triangle], 2)
        return fn

    def _emit_strips(self, module: Module, number: int) -> Function:
        """The task function that multiplies a strip of vectors with all blocks, from the last to the first."""
        product = self._products[number]
        fn, (matrix, _, vectors, triangles), tasks = self._begin(module, "vectors_strips", number)
        memory = acquire(fn, _STRIP.value * BLOCK.value * self._bytes)
        arguments = blas.Arguments(fn)
        adjoint = "C" if self._problem.is_complex else "T"
        forms = ("R", adjoint, "F", "R") if product.in_rows else ("L", "N", "F", "C")
        letters = [arguments.letter(letter) for letter in forms]
        leading, side = arguments.integer(self._rows), arguments.integer(BLOCK.value)
        work = memory, arguments.integer(_STRIP.value)
        blocks = -(-product.count // BLOCK.value)
        across, along = (1, product.leading) if product.in_rows else (product.leading, 1)
        with fn.loop(*tasks, hints=NO_UNROLL) as task:
            begin = task.index * _STRIP.value
            width = arguments.computed("width", (fn.i64(product.width) - begin).smin(_STRIP.value))
            with fn.loop(0, blocks, hints=NO_UNROLL) as loop:
                first = (fn.i64(blocks - 1) - loop.index) * BLOCK.value
                block = self._at(fn, self._element(fn, matrix, product.start), first, first), leading
                triangle = self._element(fn, triangles, first * BLOCK.value), side
                target = self._element(fn, vectors, begin * across + (first + product.offset) * along)
                length, count = self._block(fn, arguments, product, first)
                sizes = (width, length, count) if product.in_rows else (length, width, count)
                strip = target, arguments.integer(product.leading)
                self._routine(fn, "larfb", [*letters, *sizes, *block, *triangle, *strip, *work], 4)
        release(fn, memory)
        return fn

    # -- ranges ----------------------------------------------------------------------------------

    def _is_between(self, matrix: Value, uplo: str, least: float) -> Value:
        """Whether the largest number of a triangle (or of all) is in the range in which LAPACK scales nothing.

        least: the least number of that range; its inverse is the greatest. The matrix has no NaN if it is.
        """
        fn, bits = self._fn, integer(self._real.bits)
        with fn.loop(0, self._columns, carried=[fn.constant(bits, 0)], hints=NO_UNROLL) as loop:
            (largest,) = loop.carried
            found = fn.call(self._emit_largest(fn.module, uplo), bits, matrix, loop.index)
            loop.next(found.umax(largest))
        magnitude = loop.results[0].bits_as(self._real)
        return (magnitude > least * _MARGIN) & (magnitude < 1 / (least * _MARGIN))

    def _emit_largest(self, module: Module, uplo: str) -> Function:
        """A function of a column: the bits of its largest magnitude, which are ordered as magnitudes, then NaN."""
        bits = integer(self._real.bits)
        fn = module.function("largest", bits, [PTR, I64])
        matrix, column = fn.parameters
        begin = column if uplo == "L" else fn.i64(0)
        end = column + 1 if uplo == "U" else fn.i64(self._rows)
        start = self._at(fn, matrix, 0, column)
        with fn.loop(begin * self._parts, end * self._parts, carried=[fn.constant(bits, 0)]) as loop:
            element = fn.load(bits, fn.at(start, bits, loop.index)) & ((1 << (bits.bits - 1)) - 1)
            loop.next(element.umax(loop.carried[0]))
        fn.ret(loop.results[0])
        return fn


def real_limits(problem: Problem) -> tuple[float, float]:
    """The least normal number and epsilon of the real type."""
    info = ml_dtypes.finfo(problem.real.dtype)
    return float(info.tiny), float(info.eps)
