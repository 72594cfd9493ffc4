"""Factorizations against their definitions, where jaxlib 0.6.0's processors have none of their own."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.lib import linear_algebra, special


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def compiled(function, *arrays):
    builder = xla.XlaBuilder("factors")
    shapes = [xla.make_shape(array.dtype, array.shape) for array in arrays]
    parameters = [xla.parameter(builder, i, shape, f"p{i}") for i, shape in enumerate(shapes)]
    result = function(*parameters)
    root = xla.tuple_(builder, list(result)) if isinstance(result, tuple) else result
    return xla.compile(builder.build(root))(*arrays)


def matrices(rng, dtype, *shape):
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("shape", [(4, 4), (2, 5, 3), (3, 6), (1, 1)])
class TestFactors:
    @staticmethod
    def bound(a):
        return 30 * max(a.shape[-2:]) * np.finfo(a.dtype).eps * max(1, np.abs(a).max())

    def test_lu(self, rng, dtype, shape):
        a = matrices(rng, dtype, *shape)
        packed, pivots, permutation = compiled(linear_algebra.lu, a)
        rows, columns = shape[-2:]
        lower = (np.tril(packed, -1) + np.eye(rows, columns, dtype=dtype))[..., : min(rows, columns)]
        upper = np.triu(packed)[..., : min(rows, columns), :]
        assert pivots.dtype == permutation.dtype == np.int32
        np.testing.assert_allclose(lower @ upper, np.take_along_axis(a, permutation[..., None], -2), atol=self.bound(a))
        for row, order in zip(pivots.reshape(-1, min(rows, columns)), permutation.reshape(-1, rows), strict=True):
            expected = list(range(rows))
            for i, pivot in enumerate(row):
                expected[i], expected[pivot] = expected[pivot], expected[i]
            assert order.tolist() == expected

    @pytest.mark.parametrize("full", [False, True])
    def test_qr(self, rng, dtype, shape, full):
        a = matrices(rng, dtype, *shape)
        q, r = compiled(lambda x: linear_algebra.qr(x, full), a)
        np.testing.assert_allclose(q @ r, a, atol=self.bound(a))
        unit = np.broadcast_to(np.eye(q.shape[-1]), (*a.shape[:-2], q.shape[-1], q.shape[-1]))
        np.testing.assert_allclose(q.conj().swapaxes(-1, -2) @ q, unit, atol=self.bound(a))
        assert (np.tril(r, -1) == 0).all()

    def test_svd(self, rng, dtype, shape):
        a = matrices(rng, dtype, *shape)
        u, d, v = compiled(linear_algebra.svd, a)
        rank = d.shape[-1]
        product = (u[..., :rank] * d[..., None, :]) @ v[..., :rank].conj().swapaxes(-1, -2)
        np.testing.assert_allclose(product, a, atol=self.bound(a))
        assert (np.diff(d, axis=-1) <= 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
@pytest.mark.parametrize("lower", [True, False])
def test_eigh_reads_one_triangle(rng, dtype, lower):
    a = matrices(rng, dtype, 2, 4, 4)
    part = np.tril(a, -1) if lower else np.triu(a, 1)
    whole = part + part.conj().swapaxes(-1, -2) + np.eye(4) * np.diagonal(a, axis1=-2, axis2=-1).real[..., None]
    vectors, values = compiled(lambda x: linear_algebra.eigh(x, lower), a)
    np.testing.assert_allclose(whole @ vectors, vectors * values[..., None, :], atol=1e-4)
    assert (np.diff(values, axis=-1) >= 0).all()


def test_a_factorization_that_fails_gives_nan():
    vectors, values = compiled(linear_algebra.eigh, np.full((2, 3, 3), np.nan, np.float32))
    assert np.isnan(vectors).all()
    assert np.isnan(values).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_next_numbers_are_those_of_c(dtype):
    ends = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal, np.nan]
    a, b = (np.array(x, dtype).ravel() for x in np.meshgrid(ends, ends))
    with np.errstate(all="ignore"):
        # C gives `to` where both are equal, zeros of different signs too; NumPy's float16 does not.
        expected = np.where(a == b, b, np.nextafter(a, b))
    found = compiled(special.next_after, a, b)
    same = (found.view(f"u{found.itemsize}") == expected.view(f"u{found.itemsize}")) | np.isnan(expected)
    assert same.all(), (a[~same], b[~same], found[~same], expected[~same])
    assert np.isnan(found[np.isnan(expected)]).all()


def test_errors_name_the_operation():
    with pytest.raises(xla.ShapeError, match="square"):
        compiled(linear_algebra.eigh, np.zeros((2, 3), np.float32))
    with pytest.raises(xla.ShapeError, match="floating point"):
        compiled(special.lgamma, np.zeros(3, np.int32))
