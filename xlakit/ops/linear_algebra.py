"""Cholesky decomposition and triangular systems.

Source: XLA's document "Operation semantics", sections Cholesky and TriangularSolve.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.data.shape import UNBOUNDED, Shape
from xlakit.errors import ShapeError
from xlakit.ir.enums import Transpose
from xlakit.ir.operation import Array, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ops.handle import OperandLike, XlaOp, as_op, as_ops, building, common_builder, emit
from xlakit.ops.shared.hints import converted
from xlakit.ops.shared.numerics import from_double, to_widest


def _check_square(matrix: Shape) -> None:
    """Raise ShapeError unless the shape is of square matrices of a floating-point or complex type."""
    if not matrix.is_array or not (matrix.element_type.is_floating or matrix.element_type.is_complex):
        raise ShapeError(
            f"a must be an array of a floating-point or complex type, got {matrix}",
            hint="convert it with convert_element_type to f32 or f64",
        )
    if matrix.rank < 2:
        raise ShapeError(f"a must have rank 2 or more, got {matrix}", hint="reshape it to a matrix")
    rows, columns = matrix.dimensions[-2:]
    if UNBOUNDED not in (rows, columns) and rows != columns:
        raise ShapeError(
            f"the last two dimensions of a must be equal, got {rows} and {columns}",
            hint="slice or pad it to a square matrix",
        )


def _narrow(array: Array, dtype: np.dtype[np.generic]) -> Array:
    """Values in double precision rounded to a type, real or complex."""
    if array.dtype.kind != "c":
        return from_double(array, dtype)
    with np.errstate(all="ignore"):
        return array.astype(dtype)


@operation("cholesky", arity=1, documents=("Cholesky",))
class Cholesky(Op):
    """The triangular factor of positive definite matrices: a = l l^H if ``lower``, else a = u^H u."""

    lower: bool = attribute(Kind.BOOL, default=False, proto="cholesky_options.lower")

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        _check_square(operands[0])
        return operands[0].without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        operand: Array = operands[0]
        matrices = to_widest(operand)
        if not self.lower:
            # NumPy reads the lower triangle; that of the adjoint is the upper one of the matrix.
            matrices = matrices.swapaxes(-1, -2).conj()
        factors = _cholesky(matrices)
        if not self.lower:
            factors = factors.swapaxes(-1, -2).conj()
        return _narrow(factors, operand.dtype)


def _cholesky(matrices: Array) -> Array:
    """The lower factors, from the lower triangles; all NaN where a matrix is not positive definite."""
    factors = _factors(matrices)
    if matrices.size:
        # LAPACK may take a pivot of NaN for a positive one; then the last one is NaN, too.
        factors[~(np.real(factors[..., -1, -1]) > 0)] = np.nan
    return factors


def _factors(matrices: Array) -> Array:
    try:
        return np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        pass  # NumPy raises for the whole batch if one matrix fails, so each is tried separately below
    factors = np.full_like(matrices, np.nan)
    for index in np.ndindex(*matrices.shape[:-2]):
        try:
            factors[index] = np.linalg.cholesky(matrices[index])
        except np.linalg.LinAlgError:
            continue  # it stays NaN
    return factors


@building
def cholesky(a: OperandLike, lower: bool = True) -> XlaOp:
    """Cholesky decompositions of symmetric (Hermitian) positive definite matrices.

    a: an array [.., M, M] of a floating-point or complex type; only its lower (or upper) triangle is read.
    lower: whether to give l with ``a = l l^H``, or u with ``a = u^H u``.

    Gives an array like ``a`` whose other triangle is zero; a matrix that is not positive definite gives NaN.
    Raises ShapeError. Source: Operation semantics, Cholesky.
    """
    return emit(Cholesky(lower=lower), as_op(common_builder([a]), a))


@operation("triangular-solve", arity=2, documents=("TriangularSolve",))
class TriangularSolve(Op):
    """x of op(a) x = b, or of x op(a) = b, for triangular matrices a."""

    left_side: bool = attribute(Kind.BOOL, default=False, proto="triangular_solve_options.left_side")
    lower: bool = attribute(Kind.BOOL, default=False, proto="triangular_solve_options.lower")
    unit_diagonal: bool = attribute(Kind.BOOL, default=False, proto="triangular_solve_options.unit_diagonal")
    transpose_a: Transpose = attribute(
        Kind.ENUM,
        enum=Transpose,
        default=Transpose.TRANSPOSE_INVALID,
        proto="triangular_solve_options.transpose_a",
    )

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        a, b = operands
        _check_square(a)
        if not b.is_array or b.element_type is not a.element_type:
            raise ShapeError(
                f"a and b must have the same element type, got {a} and {b}", hint=converted(a.element_type)
            )
        if b.rank != a.rank:
            raise ShapeError(
                f"a and b must have the same rank, got {a.rank} and {b.rank}", hint=f"reshape b to rank {a.rank}"
            )
        size, shared = a.dimensions[-1], b.dimensions[-2 if self.left_side else -1]
        if UNBOUNDED not in (size, shared) and size != shared:
            raise ShapeError(
                f"b has {shared} {'rows' if self.left_side else 'columns'}, the matrices in a have {size}",
                hint="b is [.., M, K] for op(a) x = b (left_side) and [.., K, M] for x op(a) = b",
            )
        if a.dimensions[:-2] != b.dimensions[:-2]:
            raise ShapeError(
                f"a and b must have the same batch dimensions, got {a} and {b}",
                hint="broadcast both to the same dimensions before the last two",
            )
        if self.transpose_a is Transpose.TRANSPOSE_INVALID:
            raise ShapeError(
                "transpose_a must be NO_TRANSPOSE, TRANSPOSE or ADJOINT",
                hint="give NO_TRANSPOSE to solve for a as it is",
            )
        return b.without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        a, b = to_widest(operands[0]), to_widest(operands[1])
        lower = self.lower
        if self.transpose_a is not Transpose.NO_TRANSPOSE:
            a, lower = a.swapaxes(-1, -2), not lower
        if self.transpose_a is Transpose.ADJOINT:
            a = a.conj()
        if not self.left_side:
            # x op(a) = b is op(a)^T x^T = b^T.
            a, b, lower = a.swapaxes(-1, -2), b.swapaxes(-1, -2), not lower
        x = _substitute(a, b, lower, self.unit_diagonal)
        return _narrow(x if self.left_side else x.swapaxes(-1, -2), operands[1].dtype)


def _substitute(a: Array, b: Array, lower: bool, unit_diagonal: bool) -> Array:
    """Forward or back substitution, row by row, for all matrices at once."""
    size = a.shape[-1]
    x = b.copy()
    with np.errstate(all="ignore"):
        for row in range(size) if lower else range(size - 1, -1, -1):
            known = slice(0, row) if lower else slice(row + 1, size)
            x[..., row, :] -= (a[..., row, None, known] @ x[..., known, :])[..., 0, :]
            if not unit_diagonal:
                x[..., row, :] /= a[..., row, row, None]
    return x


@building
def triangular_solve(
    a: OperandLike,
    b: OperandLike,
    left_side: bool,
    lower: bool,
    unit_diagonal: bool,
    transpose_a: Transpose | str = Transpose.NO_TRANSPOSE,
) -> XlaOp:
    """Solve systems with triangular matrices: op(a) x = b, or x op(a) = b.

    a: an array [.., M, M] of a floating-point or complex type.
    b: an array of the same type and batch dimensions, [.., M, K] with ``left_side``, else [.., K, M].
    left_side: whether op(a) stands to the left of x.
    lower: whether a's lower triangle is read, or its upper one.
    unit_diagonal: whether a's diagonal is taken as 1 and not read.
    transpose_a: whether op(a) is a, its transpose, or its conjugate transpose (ADJOINT).

    Gives an array like ``b``; a zero on the diagonal gives infinities and NaN. Raises ShapeError.
    Source: Operation semantics, TriangularSolve.
    """
    op = TriangularSolve(
        left_side=left_side, lower=lower, unit_diagonal=unit_diagonal, transpose_a=Transpose.of(transpose_a)
    )
    return emit(op, *as_ops(a, b))
