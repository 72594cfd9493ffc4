"""Cholesky and TriangularSolve against their equations."""

import ml_dtypes
import numpy as np
import pytest
from evaluating import evaluate, infer, refused, same, shape

import xlakit as xla

KINDS = [np.float32, np.float64, np.complex64, np.complex128, ml_dtypes.bfloat16, np.float16]


def matrices(kind, *sizes):
    rng = np.random.default_rng(0)
    values = rng.standard_normal(sizes)
    return values + 1j * rng.standard_normal(sizes) if np.dtype(kind).kind == "c" else values


def wide(array):
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def tolerance(kind):
    return {4: 1e-5, 8: 1e-5 if kind is np.complex64 else 1e-11, 16: 1e-11, 2: 0.1}[np.dtype(kind).itemsize]


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_cholesky_reads_one_triangle_and_leaves_the_other_zero(kind, lower):
    a = matrices(kind, 2, 3, 4, 4)
    a = a @ a.conj().swapaxes(-1, -2) + 4 * np.eye(4)
    unread = np.triu(np.full((4, 4), 77), 1) if lower else np.tril(np.full((4, 4), 77), -1)
    keep = np.tril if lower else np.triu
    factor = evaluate(lambda x: xla.cholesky(x, lower), (keep(a) + unread).astype(kind))
    assert factor.dtype == kind
    f = wide(factor)
    np.testing.assert_array_equal(f, keep(f))
    product = f @ f.conj().swapaxes(-1, -2) if lower else f.conj().swapaxes(-1, -2) @ f
    np.testing.assert_allclose(product, a, atol=20 * tolerance(kind))


def test_cholesky_of_what_is_not_positive_definite_is_nan():
    good, bad = np.array([[4, 9], [2, 5]], np.float32), np.array([[1, 0], [2, 1]], np.float32)
    result = evaluate(xla.cholesky, np.stack([bad, good, bad]))
    same(result[1], np.array([[2, 0], [1, 2]], np.float32))
    assert np.isnan(result[[0, 2]]).all()


def test_empty_matrices():
    same(evaluate(xla.cholesky, np.zeros((3, 0, 0), np.float32)), np.zeros((3, 0, 0), np.float32))
    same(evaluate(xla.cholesky, np.zeros((0, 2, 2), np.float64)), np.zeros((0, 2, 2), np.float64))
    solve = lambda a, b: xla.triangular_solve(a, b, True, True, False)  # noqa: E731
    same(evaluate(solve, np.zeros((0, 0), np.float32), np.zeros((0, 3), np.float32)), np.zeros((0, 3), np.float32))


@pytest.mark.parametrize("transpose_a", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize("unit_diagonal", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("left_side", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_triangular_solve_solves_the_equation(kind, left_side, lower, unit_diagonal, transpose_a):
    a = (matrices(kind, 2, 4, 4) / 3 + 2 * np.eye(4)).astype(kind)
    x = matrices(kind, 2, 4, 3)
    triangle = (np.tril if lower else np.triu)(wide(a))
    if unit_diagonal:
        triangle = triangle - triangle * np.eye(4) + np.eye(4)
    op = {"NO_TRANSPOSE": triangle, "TRANSPOSE": triangle.swapaxes(-1, -2)}.get(transpose_a)
    op = triangle.conj().swapaxes(-1, -2) if op is None else op
    b = (op @ x if left_side else x.swapaxes(-1, -2) @ op).astype(kind)
    result = evaluate(lambda a, b: xla.triangular_solve(a, b, left_side, lower, unit_diagonal, transpose_a), a, b)
    assert result.dtype == kind
    np.testing.assert_allclose(wide(result), x if left_side else x.swapaxes(-1, -2), atol=5 * tolerance(kind))


def test_a_singular_matrix_gives_infinity_and_nan():
    a = np.array([[1, 7, 7], [2, 0, 7], [1, 1, 1]], np.float32)
    b = np.array([[1, 0], [2, 1], [3, 0]], np.float32)
    result = evaluate(lambda a, b: xla.triangular_solve(a, b, True, True, False), a, b)
    same(result, np.array([[1, 0], [np.nan, np.inf], [np.nan, -np.inf]], np.float32), signs=False)


def test_rules():
    square, right = shape(xla.F32, 2, 4, 4), shape(xla.F32, 2, 4, 3)
    assert infer(xla.cholesky, square) == "f32[2,4,4]"
    refused("must be equal", xla.cholesky, shape(xla.F32, 3, 4))
    refused("rank 2", xla.cholesky, shape(xla.F32, 3))
    refused("floating-point or complex", xla.cholesky, shape(xla.S32, 3, 3))

    def solve(left_side=True):
        return lambda a, b: xla.triangular_solve(a, b, left_side, True, False)

    assert infer(solve(), square, right) == "f32[2,4,3]"
    refused("must be equal", solve(), right, right)
    refused("3 columns", solve(False), square, right)
    refused("3 rows", solve(), square, shape(xla.F32, 2, 3, 4))
    refused("rank 2", solve(), shape(xla.F32, 4), shape(xla.F32, 4))
    refused("floating-point or complex", solve(), shape(xla.S32, 4, 4), shape(xla.S32, 4, 3))
    refused("same rank", solve(), square, shape(xla.F32, 4, 3))
    refused("same element type", solve(), square, shape(xla.F64, 2, 4, 3))
    refused("batch dimensions", solve(), square, shape(xla.F32, 3, 4, 3))
    refused(
        "NO_TRANSPOSE",
        lambda a, b: xla.triangular_solve(a, b, True, True, False, "TRANSPOSE_INVALID"),
        square,
        right,
    )
