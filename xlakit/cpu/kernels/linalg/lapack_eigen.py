"""Eigenvalues and vectors of few large matrices: threads share the transformation of the vectors.

    sytrd    the matrix is reduced to a tridiagonal one by reflections
    stedc    its eigenvalues and vectors
    then     the reflections applied to each strip of vectors (lapack_vectors.py)

That is what ``syevd`` does, on its workspace. The upper triangle is first copied to the lower one. ``syevd`` itself is
called for matrices that it scales, because their numbers are very large or small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlakit.cpu.kernels.linalg.lapack_blocked import Arrays
from xlakit.cpu.kernels.linalg.lapack_routines import Problem
from xlakit.cpu.kernels.linalg.lapack_vectors import Reflections, Vectors, real_limits
from xlakit.cpu.llvm import Function, Value
from xlakit.cpu.llvm.loop import NO_UNROLL


class BlockedEigh(Vectors):
    """``syevd`` or ``heevd`` with vectors: the results are the vectors in place, the values and info."""

    def __init__(self, fn: Function, problem: Problem) -> None:
        order = problem.sizes()[0]
        super().__init__(fn, problem, Reflections(False, order - 1, 1, order - 1, 1, order, order))
        self._uplo = problem.letter("uplo", "UL").text

    def condition(self, results: Sequence[Value]) -> Value:
        """Whether syevd would scale nothing."""
        tiny, epsilon = real_limits(self._problem)
        return self._is_between(results[0], self._uplo, math.sqrt(tiny / epsilon))

    def factor(self, arrays: Arrays) -> None:
        """Write the code for one matrix."""
        fn, arguments = self._fn, self._arguments
        matrix, values, info = arrays.results
        order, size = arguments.integer(self._rows), self._rows
        is_complex = self._problem.is_complex
        work, beside = arrays.works["work"], arrays.works["rwork" if is_complex else "work"]
        if self._uplo == "U":
            self._mirror(matrix)
        # The elements of the workspace: off-diagonal ones (if they are of its type), factors, vectors, the rest.
        start = 0 if is_complex else size
        tau, vectors, rest = (self._element(fn, work, start + n) for n in (0, size, size + size**2))
        left = arrays.counts["work"] - (start + size + size**2)
        tridiagonal = values, beside
        self._routine(
            fn, "hetrd" if is_complex else "sytrd",
            [arguments.letter("L"), order, matrix, order, *tridiagonal, tau, vectors, arguments.integer(left + size**2),
             info], 1,
        )  # fmt: skip
        more = [rest, arguments.integer(left)]
        if is_complex:
            more += [fn.at(beside, self._real, size), arguments.integer(arrays.counts["rwork"] - size)]
        more += [arrays.works["iwork"], arguments.integer(arrays.counts["iwork"])]
        self._routine(fn, "stedc", [arguments.letter("I"), order, *tridiagonal, vectors, order, *more, info], 1)
        self._apply(matrix, (tau, vectors))
        self._routine(fn, "lacpy", [arguments.letter("A"), order, order, vectors, order, matrix, order], 1)

    def _mirror(self, matrix: Value) -> None:
        """Make the lower triangle the adjoint of the upper one."""
        fn = self._fn
        with fn.loop(0, self._rows, hints=NO_UNROLL) as columns, fn.loop(0, columns.index, hints=NO_UNROLL) as rows:
            source = self._at(fn, matrix, rows.index, columns.index)
            target = self._at(fn, matrix, columns.index, rows.index)
            fn.store(fn.load(self._real, source), target)
            if self._problem.is_complex:
                fn.store(-fn.load(self._real, fn.at(source, self._real, 1)), fn.at(target, self._real, 1))
