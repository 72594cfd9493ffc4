"""The model of how training over processes scales."""

import numpy as np
import pytest

from benchmarks.jax_scaling import fit, reduce_seconds

_SIZES = (65536, 1 << 20, 1 << 24)


@pytest.mark.parametrize("constants", [(1e-3, 2e-5, 1e-9), (0.0, 2e-5, 1e-9), (1e-3, 0.0, 3e-10)])
def test_the_fit_finds_the_constants(constants):
    rows = [(p, n, reduce_seconds(p, n, constants)) for p in (2, 4, 8) for n in _SIZES]
    assert np.allclose(fit(rows), constants, rtol=1e-6, atol=1e-12)


def test_no_constant_is_negative():
    # Times that grow slower than the model's would need one.
    rows = [(p, n, 1e-3 + n * 1e-9 / p) for p in (2, 4) for n in _SIZES]
    found = fit(rows)
    assert min(found) >= 0
    assert max(found) > 0
    assert reduce_seconds(1, 1 << 20, found) == 0
