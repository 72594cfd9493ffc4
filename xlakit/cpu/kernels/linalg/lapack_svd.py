"""Singular values and vectors of few large matrices: threads share the transformation of the vectors.

    gebrd    the matrix is reduced to a bidiagonal one by reflections from the left and from the right
    bdsdc    its singular values and vectors
    then     the reflections applied to each strip of vectors (lapack_vectors.py)

That is what ``gesdd`` does with a matrix that is not much longer than wide. ``gesdd`` itself is called for matrices
that it scales or refuses, because their numbers are very large or small or none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlakit.cpu.kernels.linalg.lapack_blocked import Arrays
from xlakit.cpu.kernels.linalg.lapack_routines import Problem
from xlakit.cpu.kernels.linalg.lapack_vectors import Reflections, Vectors, real_limits
from xlakit.cpu.llvm import Function, Value
from xlakit.cpu.llvm.loop import NO_UNROLL

# gesdd begins with a QR factorization if one side is longer than the other by this factor.
_LONG = 11 / 6


def is_nearly_square(problem: Problem) -> bool:
    """Whether gesdd reduces the matrix itself."""
    rows, columns = problem.sizes()
    return max(rows, columns) < math.floor(min(rows, columns) * _LONG)


class BlockedSvd(Vectors):
    """``gesdd`` with vectors: the results are the matrix, the values, the left and the right vectors, and info."""

    def __init__(self, fn: Function, problem: Problem) -> None:
        rows, columns = problem.sizes()
        is_all = problem.letter("mode", "AS").text == "A"
        least = min(rows, columns)
        self._left_columns, self._right_rows = (rows, columns) if is_all else (least, least)
        # An upper bidiagonal matrix if there are as many rows as columns or more, else a lower one.
        self._is_upper = rows >= columns
        shifts = (0, 1) if self._is_upper else (1, 0)
        counts = [least - shift for shift in shifts]
        super().__init__(
            fn,
            problem,
            Reflections(False, counts[0], shifts[0], rows - shifts[0], shifts[0], rows, self._left_columns),
            Reflections(
                True, counts[1], shifts[1] * rows, columns - shifts[1], shifts[1], self._right_rows, self._right_rows
            ),
        )

    def condition(self, results: Sequence[Value]) -> Value:
        """Whether gesdd would scale nothing."""
        tiny, epsilon = real_limits(self._problem)
        return self._is_between(results[0], "", math.sqrt(tiny) / epsilon)

    def factor(self, arrays: Arrays) -> None:
        """Write the code for one matrix."""
        fn, arguments = self._fn, self._arguments
        matrix, values, left, right, info = arrays.results
        rows, columns, least = self._rows, self._columns, min(self._rows, self._columns)
        # The workspace: off-diagonal elements, real vectors of a complex problem, scalar factors, the rest.
        is_complex = self._problem.is_complex
        beside, work, used = (
            arrays.works["rwork" if is_complex else "work"],
            arrays.works["work"],
            0 if is_complex else least,
        )
        tau_left, tau_right, rest = (self._element(fn, work, used + n * least) for n in range(3))
        sizes = arguments.integer(rows), arguments.integer(columns)
        more = rest, arguments.integer(arrays.counts["work"] - used - 2 * least)
        self._routine(fn, "gebrd", [*sizes, matrix, sizes[0], values, beside, tau_left, tau_right, *more, info])
        real_left, real_right, leading = left, right, (rows, self._right_rows)
        if is_complex:
            real_left, real_right, rest = (fn.at(beside, self._real, least + n * least**2) for n in range(3))
            leading = least, least
        order = arguments.integer(least)
        vectors = [real_left, arguments.integer(leading[0]), real_right, arguments.integer(leading[1])]
        letters = arguments.letter("U" if self._is_upper else "L"), arguments.letter("I")
        unused = fn.null(), fn.null()
        bidiagonal = order, values, beside, *vectors, *unused, rest, arrays.works["iwork"], info
        self._routine(fn, "bdsdc", [*letters, *bidiagonal], 2, self._problem.real)
        if is_complex:
            for real, target, length in ((real_left, left, rows), (real_right, right, self._right_rows)):
                copied = order, order, real, order, target, arguments.integer(length)
                self._routine(fn, "lacp2", [arguments.letter("A"), *copied], 1)
        self._complete(left, self._left_columns)
        self._complete(right, self._right_rows)
        self._apply(matrix, (tau_left, left), (tau_right, right))

    def _complete(self, vectors: Value, order: int) -> None:
        """Set the diagonal that belongs to no singular value to 1, in a square matrix that is 0 there."""
        fn, one = self._fn, self._fn.constant(self._real, 1.0)
        with fn.loop(min(self._rows, self._columns), order, hints=NO_UNROLL) as loop:
            fn.store(one, self._element(fn, vectors, loop.index * (order + 1)))
