"""Small matrices, one or one in each lane of a vector, and their Cholesky factors."""

from __future__ import annotations

from dataclasses import replace

from xlakit.cpu.llvm import I1, Function, Value, vector
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.cpu.scalars import Scalar, load, register_type, store
from xlakit.cpu.scalars.memory import as_real, from_parts, parts
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass

# The number of a row or a column: a constant or a loop index.
_Index = Value | int


@dataclass(frozen=True, slots=True)
class Matrices:
    """A matrix, or the matrices of the lanes that are computed together.

    Element (i, k) of the first lane's matrix is element ``first + i * steps[0] + k * steps[1]`` of the array, or its
    conjugate.
    """

    fn: Function
    kind: PrimitiveType
    array: Value
    first: Value
    steps: tuple[int, int]
    lanes: int
    is_conjugate: bool = False

    def _place(self, row: _Index, column: _Index) -> Value:
        offset = self.first
        for index, step in zip((row, column), self.steps, strict=True):
            offset = offset + index * step
        return offset

    def transposed(self) -> Matrices:
        """The transposed matrices, in the same memory."""
        return replace(self, steps=self.steps[::-1])

    def adjoint(self) -> Matrices:
        """The adjoint matrices, in the same memory."""
        return replace(self.transposed(), is_conjugate=not self.is_conjugate)

    def load(self, row: _Index, column: _Index) -> Scalar:
        """Load an element of each lane's matrix."""
        return self._conjugated(load(self.fn, self.kind, self.array, self._place(row, column), self.lanes))

    def store(self, value: Scalar, row: _Index, column: _Index) -> None:
        """Store an element of each lane's matrix."""
        store(self.fn, self.kind, self._conjugated(value), self.array, self._place(row, column))

    def _conjugated(self, value: Scalar) -> Scalar:
        return (value[0], -value[1]) if isinstance(value, tuple) and self.is_conjugate else value


def factor_rows(source: Matrices, factor: Matrices, size: int) -> Value:
    """Write the lower Cholesky factors, row by row; gives whether matrices are positive definite.

    The factors may be in the memory of the matrices, of which only the lower triangle is read.
    """
    fn = factor.fn
    type = register_type(factor.kind)
    truth, type = (I1, type) if factor.lanes == 1 else (vector(I1, factor.lanes), vector(type, factor.lanes))
    with fn.loop(0, size, carried=[fn.constant(truth, 1)], hints=NO_UNROLL) as rows:
        row = rows.index
        with fn.loop(0, row, hints=NO_UNROLL) as columns:
            column = columns.index
            numerator = parts(_minus_dot(source.load(row, column), factor, (row, column), column))
            pivot = parts(factor.load(column, column))[0]
            factor.store(from_parts(tuple(value / pivot for value in numerator)), row, column)
        square = parts(_minus_dot(source.load(row, row), factor, (row, row), row))[0]
        zero = fn.constant(type, 0.0)
        root = fn.intrinsic("llvm.sqrt", type, square)
        factor.store((root, zero) if factor.kind.is_complex else root, row, row)
        rows.next(rows.carried[0] & (square > 0.0))
    return rows.results[0]


def _minus_dot(start: Scalar, factor: Matrices, rows: tuple[Value, Value], count: Value) -> Scalar:
    """A value minus the product of the first ``count`` elements of a row and the conjugates of those of another."""
    fn = factor.fn
    with fn.loop(0, count, carried=parts(start), hints=NO_UNROLL) as known:
        left, right = (factor.load(row, known.index) for row in rows)
        value = from_parts(known.carried)
        if isinstance(left, tuple) and isinstance(right, tuple) and isinstance(value, tuple):
            real = value[0] - (left[0] * right[0] + left[1] * right[1])
            known.next(real, value[1] - (left[1] * right[0] - left[0] * right[1]))
        else:
            known.next(as_real(value) - as_real(left) * as_real(right))
    return from_parts(known.results)
