"""Determinants against NumPy."""

import numpy as np
import pytest
from both_backends import run

import xlakit as xla
from xlakit.lib import logdet


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
@pytest.mark.parametrize("shape", [(5, 5), (7, 3, 3), (2, 0, 0), (0, 2, 2)])
def test_signs_and_logarithms(dtype, shape):
    rng = np.random.default_rng(1)
    a = (rng.normal(size=shape) + (1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else 0)).astype(dtype)
    sign, logarithm, whole = run(lambda m: [*logdet.slog_det(m), logdet.log_det(m)], a, exact=False)
    expected = np.linalg.slogdet(a)
    tolerance = 2e-5 if dtype == np.float32 else 1e-13
    np.testing.assert_allclose(sign, expected.sign, atol=tolerance)
    np.testing.assert_allclose(logarithm, expected.logabsdet, atol=tolerance)
    assert (sign.dtype, logarithm.dtype, whole.dtype) == (a.dtype, a.real.dtype, a.dtype)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(whole, np.log(expected.sign) + expected.logabsdet, atol=tolerance)


def test_singular_matrices():
    a = np.array([[[1, 2], [2, 4]], [[0, 0], [0, 0]], [[np.nan, 1], [1, 1]]])
    sign, logarithm, whole = run(lambda m: [*logdet.slog_det(m), logdet.log_det(m)], a)
    np.testing.assert_array_equal(sign, [0, 0, np.nan])
    np.testing.assert_array_equal(logarithm, [-np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(whole, logarithm)
    with pytest.raises(xla.ShapeError, match="square"):
        run(lambda m: list(logdet.slog_det(m)), np.zeros((2, 3)))
