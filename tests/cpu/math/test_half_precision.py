"""The functions of 16-bit types, at every number that these have."""

import ml_dtypes
import numpy as np
import pytest
from evaluating import build, shape_of
from scipy import special

import xlakit as xla
from xlakit import target
from xlakit.cpu.math.library import HALF_PRECISION_NAMES
from xlakit.options import compiling

EVERY = np.arange(1 << 16, dtype=np.uint16)
KINDS = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
EXACT = {"erf": special.erf, "exp": np.exp, "log": np.log, "logistic": special.expit, "tanh": np.tanh}


def errors(kind, results, exact):
    """Differences from numbers of F64 in units of the last place; infinity stands for the power of two beyond all."""
    info = ml_dtypes.finfo(kind)
    beyond = 2.0 ** int(info.maxexp)
    wide, exact = (np.clip(a.astype(np.float64), -beyond, beyond) for a in (results, exact))
    last = np.minimum(np.frexp(exact)[1], int(info.maxexp)) - 1
    return np.abs(wide - exact) / np.ldexp(1.0, np.maximum(last, int(info.minexp)) - int(info.nmant))


@pytest.mark.parametrize("width", [w for w in (16, 32, 64) if w <= target.vector_bytes()])
@pytest.mark.parametrize("name", KINDS)
def test_every_number_of_sixteen_bits_has_a_result_rounded_well(name, width):
    kind = KINDS[name]
    x = EVERY.view(kind)
    assert set(EXACT) == set(HALF_PRECISION_NAMES)
    program = build(lambda x: [getattr(xla, function)(x) for function in EXACT], shape_of(x))
    with compiling(vector_bytes=width):
        found = xla.compile(program, backend="cpu")(x)
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64)
    rising = np.argsort(np.where(np.isnan(wide), np.inf, wide), kind="stable")
    for (function, exactly), result in zip(EXACT.items(), found, strict=True):
        with np.errstate(all="ignore"):
            exact = np.asarray(exactly(wide), np.float64)
        nan = np.isnan(exact)
        np.testing.assert_array_equal(np.isnan(result), nan, function)
        # Rounding alone takes up to a half.
        assert errors(kind, result[~nan], exact[~nan]).max() <= 0.505, function
        zero = ~nan & (exact == 0)
        np.testing.assert_array_equal(result[zero].view(np.uint16), exact[zero].astype(kind).view(np.uint16), function)
        ordered = result[rising].astype(np.float64)
        ordered = ordered[~np.isnan(ordered)]
        assert (ordered[1:] >= ordered[:-1]).all(), function
