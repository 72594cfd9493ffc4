"""Factorizations of small real matrices, by loops: a call of LAPACK takes longer than the factorization itself.

As LAPACK's ``getrf``: the pivot of a column is the first of its elements from the diagonal on with the largest absolute
value, and a column whose pivot is 0 is left as it is; ``info`` is the number of the first such column. As its
``potrf``: one triangle is read and written; the first column whose pivot is not positive is the last one that is
changed, and ``info`` is its number. NaN is no such pivot, and spreads, as in OpenBLAS.
"""

from __future__ import annotations

from xlakit.cpu.kernels.linalg.lapack_blocked import Arrays, Method
from xlakit.cpu.kernels.linalg.lapack_routines import Problem
from xlakit.cpu.llvm import I32, Function, Value
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.cpu.scalars.memory import memory_type
from xlakit.options import knob

# Matrices with more rows or columns than these are LAPACK's.
_LARGEST_SMALL = knob("lapack_small.largest", 32, 0, 6)
# The sums of a Cholesky decomposition are in the order of their terms, one at a time, which LAPACK overtakes sooner.
_LARGEST_CHOLESKY = knob("lapack_small.largest_cholesky", 16, 0, 5)


def small_method(fn: Function, routine: str, problem: Problem) -> Method | None:
    """What factors the matrix of a problem by loops; None if LAPACK does."""
    if problem.is_complex or routine not in ("getrf", "potrf"):
        return None
    size = max(problem.sizes())
    if routine == "getrf" and size <= _LARGEST_SMALL.value:
        return SmallLu(fn, problem)
    return SmallCholesky(fn, problem) if routine == "potrf" and size <= _LARGEST_CHOLESKY.value else None


class SmallLu(Method):
    """Writes the factorization of one column-major matrix in place."""

    def __init__(self, fn: Function, problem: Problem) -> None:
        self._fn = fn
        self._rows, self._columns = problem.sizes()
        self._type = memory_type(problem.kind)

    def factor(self, arrays: Arrays) -> None:
        """Write the code for one matrix: its factors, the rows that are exchanged with each, and ``info``."""
        fn = self._fn
        matrix, pivots, info = arrays.results
        with fn.loop(0, min(self._rows, self._columns), carried=[fn.i32(0)], hints=NO_UNROLL) as steps:
            step, first_zero = steps.index, steps.carried[0]
            pivot = self._pivot(matrix, step)
            number = (step + 1).cast("trunc", I32)
            fn.store((pivot + 1).cast("trunc", I32), fn.at(pivots, I32, step))
            divisor = self._load(matrix, pivot, step)
            # NaN is no zero, and spreads.
            is_zero = divisor.eq(fn.constant(self._type, 0.0))
            fn.if_else(is_zero, lambda: None, lambda: self._eliminate(matrix, step, pivot, divisor))
            steps.next(fn.select(is_zero & first_zero.eq(0), number, first_zero))
        fn.store(steps.results[0], info)

    def _pivot(self, matrix: Value, step: Value) -> Value:
        """The row of a column's pivot."""
        fn = self._fn
        start = [step, self._size_of(self._load(matrix, step, step))]
        with fn.loop(step + 1, self._rows, carried=start, hints=NO_UNROLL) as rows:
            row, largest = rows.carried
            size = self._size_of(self._load(matrix, rows.index, step))
            is_larger = size > largest
            rows.next(fn.select(is_larger, rows.index, row), fn.select(is_larger, size, largest))
        return rows.results[0]

    def _eliminate(self, matrix: Value, step: Value, pivot: Value, divisor: Value) -> None:
        """Exchange rows, divide the column by its pivot, and subtract its products from the columns after it."""
        fn = self._fn
        with fn.loop(0, self._columns, hints=NO_UNROLL) as columns:
            upper, lower = (self._load(matrix, row, columns.index) for row in (step, pivot))
            self._store(lower, matrix, step, columns.index)
            self._store(upper, matrix, pivot, columns.index)
        with fn.loop(step + 1, self._rows, independent=True) as rows:
            self._store(self._load(matrix, rows.index, step) / divisor, matrix, rows.index, step)
        with fn.loop(step + 1, self._columns, hints=NO_UNROLL) as columns:
            factor = self._load(matrix, step, columns.index)
            with fn.loop(step + 1, self._rows, independent=True) as rows:
                product = factor * self._load(matrix, rows.index, step)
                difference = self._load(matrix, rows.index, columns.index) - product
                self._store(difference, matrix, rows.index, columns.index)

    def _size_of(self, value: Value) -> Value:
        return self._fn.intrinsic("llvm.fabs", self._type, value)

    def _load(self, matrix: Value, row: Value, column: Value) -> Value:
        return self._fn.load(self._type, self._fn.at(matrix, self._type, column * self._rows + row))

    def _store(self, value: Value, matrix: Value, row: Value, column: Value) -> None:
        self._fn.store(value, self._fn.at(matrix, self._type, column * self._rows + row))


class SmallCholesky(Method):
    """Writes the factorization of one column-major matrix in place, column by column."""

    def __init__(self, fn: Function, problem: Problem) -> None:
        self._fn = fn
        self._order, _ = problem.square()
        self._type = memory_type(problem.kind)
        # Of the upper triangle, the transpose is factored.
        self._is_lower = problem.letter("uplo", "UL").text == "L"

    def factor(self, arrays: Arrays) -> None:
        """Write the code for one matrix: its factor, and ``info``."""
        fn = self._fn
        matrix, info = arrays.results
        with fn.loop(0, self._order, carried=[fn.i32(0)], hints=NO_UNROLL) as steps:
            step, failed = steps.index, steps.carried[0]

            def column() -> list[Value]:
                pivot = self._rest(matrix, step, step)
                self._store(pivot, matrix, step, step)

                def is_positive() -> list[Value]:
                    root = fn.intrinsic("llvm.sqrt", self._type, pivot)
                    self._store(root, matrix, step, step)
                    with fn.loop(step + 1, self._order, hints=NO_UNROLL) as rows:
                        self._store(self._rest(matrix, rows.index, step) / root, matrix, rows.index, step)
                    return [fn.i32(0)]

                number = (step + 1).cast("trunc", I32)
                return list(fn.if_else(pivot <= 0.0, lambda: [number], is_positive, likely=False))

            steps.next(*fn.if_else(failed.eq(0), column, lambda: [failed], likely=True))
        fn.store(steps.results[0], info)

    def _rest(self, matrix: Value, row: Value, column: Value) -> Value:
        """An element less its products in the columns before."""
        fn = self._fn
        start = fn.load(self._type, self._at(matrix, row, column))
        with fn.loop(0, column, carried=[start], hints=NO_UNROLL) as columns:
            factors = [fn.load(self._type, self._at(matrix, r, columns.index)) for r in (row, column)]
            columns.next(columns.carried[0] - factors[0] * factors[1])
        return columns.results[0]

    def _store(self, value: Value, matrix: Value, row: Value, column: Value) -> None:
        self._fn.store(value, self._at(matrix, row, column))

    def _at(self, matrix: Value, row: Value, column: Value) -> Value:
        major, minor = (column, row) if self._is_lower else (row, column)
        return self._fn.at(matrix, self._type, major * self._order + minor)
