"""Eigenvalues and vectors of few large matrices: threads share the transformation of the vectors.

    sytrd    the matrix is reduced to a tridiagonal one by reflections
    stedc    its eigenvalues and vectors
    ormtr    the reflections applied to each strip of vectors

That is what ``syevd`` does, on its workspace. Strips are tasks; the division into strips depends only on the size.
``syevd`` itself is called for matrices that it scales, because their numbers are very large or small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import ml_dtypes

from xlakit.cpu.kernels.linalg.lapack_routines import Problem
from xlakit.cpu.kernels.shared import blas
from xlakit.cpu.kernels.shared.scratch import acquire, release
from xlakit.cpu.llvm import I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.cpu.loops.emit.kernel import kernel_function
from xlakit.cpu.scalars.memory import memory_type
from xlakit.options import knob

# Each strip computes the triangular factors of the reflections anew, so that narrow ones cost more.
_STRIP = knob("lapack_eigen.strip", 256, 8, 24, tries=(128, 512))
# What ormtr uses at most for a column, and for its triangular factors.
_WORK_OF_COLUMN, _WORK_OF_FACTORS = 64, 65 * 64
# How far from the bounds of syevd's scaling its workspace is divided here: parts of complex numbers are compared.
_MARGIN = 4.0


class BlockedEigh:
    """``syevd`` or ``heevd`` with vectors: the results are the vectors in place, the values and info."""

    def __init__(self, fn: Function, problem: Problem) -> None:
        self._fn = fn
        self._problem = problem
        self._order = problem.sizes()[0]
        self._uplo = problem.letter("uplo", "UL").text
        self._type, self._real = memory_type(problem.kind), memory_type(problem.real)
        self._parts = 2 if problem.is_complex else 1
        fn.module.declare("xlakit_parallel", VOID, [PTR, PTR, I64, I64])
        self._strips = self._emit_strips(fn.module)
        self._table = fn.alloca(I64, 3)
        self._arguments = blas.Arguments(fn)

    def condition(self, results: Sequence[Value]) -> Value:
        """Whether the largest number of the triangle that is read is in the range in which syevd scales nothing."""
        fn, order, matrix = self._fn, self._order, results[0]
        zero = fn.constant(self._real, 0.0)
        with fn.loop(0, order, carried=[zero], hints=NO_UNROLL) as columns:
            column = columns.index
            begin, end = (column, fn.i64(order)) if self._uplo == "L" else (fn.i64(0), column + 1)
            first = column * order
            bounds = (first + begin) * self._parts, (first + end) * self._parts
            with fn.loop(*bounds, carried=[columns.carried[0]], hints=NO_UNROLL) as elements:
                element = fn.load(self._real, fn.at(matrix, self._real, elements.index))
                magnitude = fn.select(element < 0.0, -element, element)
                largest = elements.carried[0]
                elements.next(fn.select(magnitude > largest, magnitude, largest))
            columns.next(elements.results[0])
        info = ml_dtypes.finfo(self._problem.real.dtype)
        least = math.sqrt(float(info.tiny) / float(info.eps))
        return (columns.results[0] > least * _MARGIN) & (columns.results[0] < 1 / (least * _MARGIN))

    def factor(
        self,
        operands: Sequence[Value],
        results: Sequence[Value],
        works: Mapping[str, Value],
        counts: Mapping[str, int],
    ) -> None:
        """Write the code for one matrix."""
        fn, arguments = self._fn, self._arguments
        matrix, values, info = results
        order, size = arguments.integer(self._order), self._order
        is_complex = self._problem.is_complex
        work, beside = works["work"], works["rwork" if is_complex else "work"]
        # The elements of the workspace: off-diagonal ones (if they are of its type), factors, vectors, the rest.
        start = 0 if is_complex else size
        tau, vectors, rest = (self._at(work, start + n) for n in (0, size, size + size**2))
        left = counts["work"] - (start + size + size**2)
        uplo, tridiagonal = arguments.letter(self._uplo), (values, beside)
        self._routine(
            fn, "hetrd" if is_complex else "sytrd",
            [uplo, order, matrix, order, *tridiagonal, tau, vectors, arguments.integer(left + size**2), info], 1,
        )  # fmt: skip
        more = [rest, arguments.integer(left)]
        if is_complex:
            more += [fn.at(beside, self._real, size), arguments.integer(counts["rwork"] - size)]
        more += [works["iwork"], arguments.integer(counts["iwork"])]
        self._routine(fn, "stedc", [arguments.letter("I"), order, *tridiagonal, vectors, order, *more, info], 1)
        for number, array in enumerate((matrix, tau, vectors)):
            fn.store(array, fn.at(self._table, I64, number))
        tasks = -(-size // _STRIP.value)
        fn.call("xlakit_parallel", VOID, fn.address(self._strips.name), self._table, fn.i64(tasks), fn.i64(1))
        self._routine(fn, "lacpy", [arguments.letter("A"), order, order, vectors, order, matrix, order], 1)

    def _emit_strips(self, module: Module) -> Function:
        """The task function: a task is a strip of vectors."""
        fn = kernel_function(module, "eigh_strips")
        table, begin, end = fn.parameters
        matrix, tau, vectors = (fn.load(PTR, fn.at(table, I64, number)) for number in range(3))
        size = _STRIP.value * _WORK_OF_COLUMN + _WORK_OF_FACTORS
        memory = acquire(fn, size * self._problem.kind.byte_width)
        arguments = blas.Arguments(fn)
        order = arguments.integer(self._order)
        letters = [arguments.letter(letter) for letter in ("L", self._uplo, "N")]
        with fn.loop(begin, end, hints=NO_UNROLL) as task:
            first = task.index * _STRIP.value
            width = arguments.computed("width", (fn.i64(self._order) - first).smin(_STRIP.value))
            strip = fn.at(vectors, self._type, first * (self._order * self._parts))
            info = arguments.slot("info", fn.i32(0))
            work = memory, arguments.integer(size), info
            name = "unmtr" if self._problem.is_complex else "ormtr"
            self._routine(fn, name, [*letters, order, width, matrix, order, tau, strip, order, *work], 3)
        release(fn, memory)
        fn.ret()
        return fn

    def _at(self, array: Value, element: int) -> Value:
        return self._fn.at(array, self._type, element * self._parts)

    def _routine(self, fn: Function, name: str, arguments: Sequence[Value], letters: int) -> None:
        symbol = blas.declare(fn.module, self._problem.prefix + name, len(arguments), letters)
        fn.call(symbol, VOID, *arguments, *[fn.i64(1)] * letters)
