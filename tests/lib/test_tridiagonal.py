"""Tridiagonal systems and products against dense matrices."""

import ml_dtypes
import numpy as np
import pytest
from both_backends import plain, run

import xlakit as xla
from xlakit.lib import tridiagonal


def drawn(dtype, batch, size, columns):
    """Three diagonals, the main one dominant, what does not count NaN, and another matrix."""
    rng = np.random.default_rng(7)

    def numbers(*shape):
        parts = rng.normal(size=(2, *shape))
        return (parts[0] + 1j * parts[1] if np.dtype(dtype).kind == "c" else parts[0]).astype(dtype)

    lower, main, upper = (numbers(*batch, 1, size) for _ in range(3))
    main += dtype(6)
    dense = np.zeros((*batch, size, size), np.complex128 if main.dtype.kind == "c" else np.float64)
    for k, diagonal in ((-1, lower[..., 1:]), (0, main), (1, upper[..., :-1])):
        rows = np.arange(max(size - abs(k), 0))
        dense[..., rows + max(-k, 0), rows + max(k, 0)] = diagonal[..., 0, : rows.size]
    if size:
        lower[..., 0] = upper[..., -1] = np.nan
    return lower, main, upper, numbers(*batch, columns, size), dense


@pytest.mark.parametrize(
    ("dtype", "batch", "size", "columns"),
    [
        (np.float32, (2, 3), 9, 2),
        (np.complex128, (), 6, 1),
        (ml_dtypes.bfloat16, (2,), 4, 3),
        (np.float64, (2,), 1, 2),
        (np.float64, (0,), 3, 2),
        (np.float32, (2,), 0, 2),
        (np.float64, (2,), 2, 0),
    ],
)
def test_solutions_and_products(dtype, batch, size, columns):
    lower, main, upper, rhs, dense = drawn(dtype, batch, size, columns)
    tolerance = float(ml_dtypes.finfo(dtype).eps) * 20

    def program(lower, main, upper, rhs):
        one = tridiagonal.tridiagonal_solver(lower, main, upper, rhs)
        diagonals = xla.concat_in_dim([upper, main, lower], len(batch))
        matrix = xla.transpose(rhs, [*range(len(batch)), len(batch) + 1, len(batch)])
        product = tridiagonal.tridiagonal_mat_mul(upper, main, lower, matrix)
        return [one, tridiagonal.tridiagonal_solver(diagonals, rhs), product]

    first, second, product = run(program, lower, main, upper, rhs, exact=False)
    right = np.swapaxes(plain(rhs), -1, -2)
    expected = np.swapaxes(np.linalg.solve(dense, right), -1, -2)
    np.testing.assert_allclose(plain(first), expected, atol=tolerance)
    np.testing.assert_array_equal(plain(first), plain(second))
    np.testing.assert_allclose(plain(product), dense @ right, atol=20 * tolerance)


def test_a_pivot_of_zero_is_no_error():
    ones = np.ones((1, 3))
    found = run(tridiagonal.tridiagonal_solver, ones, ones * 0, ones, ones)
    assert not np.isfinite(found).any()


def test_what_does_not_fit():
    one, matrix = np.ones((2, 1, 3)), np.ones((2, 4, 3))
    for given in ([one, one, one[..., :2], matrix], [one, one, one.astype(np.float32), matrix], [matrix, matrix],
                  [np.ones((1, 1, 3))] * 3 + [matrix], [one[0, 0]] * 4, [one.astype(int)] * 4):  # fmt: skip
        with pytest.raises(xla.ShapeError):
            run(tridiagonal.tridiagonal_solver, *given)
    with pytest.raises(xla.ShapeError, match="do not fit"):
        run(tridiagonal.tridiagonal_mat_mul, one, one, one, matrix)
    with pytest.raises(xla.ArgumentError, match="2 or 4"):
        run(tridiagonal.tridiagonal_solver, one, one, one)
