"""Factorizations: their products are the matrices again."""

import numpy as np
import pytest
from both_backends import run

from xlakit import lib
from xlakit.errors import ShapeError

DRAWN = np.random.default_rng(5).standard_normal((2, 4, 3))
COMPLEX = (DRAWN + 1j * DRAWN[::-1]).astype(np.complex64)


def adjoint(matrices):
    return matrices.conj().swapaxes(-1, -2)


@pytest.mark.parametrize("a", [DRAWN, COMPLEX, adjoint(DRAWN)])
def test_svd(a):
    u, d, v = run(lib.svd, a, exact=False)
    rank = min(a.shape[-2:])
    np.testing.assert_allclose((u[..., :rank] * d[..., None, :]) @ adjoint(v[..., :rank]), a, atol=1e-5)
    assert (np.diff(d) <= 0).all()


@pytest.mark.parametrize("sizes", [(3, 0), (0, 3), (2, 3, 0), (0, 0), (0, 2, 3)])
def test_svd_of_nothing_has_orthogonal_vectors(sizes):
    u, d, v = run(lib.svd, np.zeros(sizes, np.float32))
    *batch, rows, columns = sizes
    np.testing.assert_array_equal(u @ adjoint(u), np.broadcast_to(np.eye(rows), (*batch, rows, rows)))
    np.testing.assert_array_equal(v @ adjoint(v), np.broadcast_to(np.eye(columns), (*batch, columns, columns)))
    assert d.shape == (*batch, min(rows, columns))


@pytest.mark.parametrize("a", [DRAWN, COMPLEX, adjoint(COMPLEX)])
def test_qr(a):
    q, r = run(lib.qr, a, exact=False)
    np.testing.assert_allclose(q @ r, a, atol=1e-5)
    np.testing.assert_array_equal(r, np.triu(r))


@pytest.mark.parametrize("lower", [True, False])
def test_eigh_reads_one_triangle(lower):
    square = COMPLEX[:, :3]
    half = np.tril(square, -1)
    whole = half + adjoint(half) + 2 * np.eye(3, dtype=np.complex64)
    vectors, values = run(lambda a: lib.eigh(a, lower=lower), np.tril(whole) if lower else np.triu(whole), exact=False)
    np.testing.assert_allclose(whole @ vectors, vectors * values[..., None, :], atol=1e-5)


def test_lu_and_its_permutation():
    factors, pivots, order = run(lib.lu, DRAWN, exact=False)
    product = (np.tril(factors, -1) + np.eye(4, 3)) @ np.triu(factors[:, :3])
    np.testing.assert_allclose(product, np.take_along_axis(DRAWN, order[..., None], 1), atol=1e-12)
    np.testing.assert_array_equal(run(lambda p: lib.lu_pivots_to_permutation(p, 4), pivots), order)
    with pytest.raises(ShapeError, match="at most 2"):
        run(lambda p: lib.lu_pivots_to_permutation(p, 2), pivots)
