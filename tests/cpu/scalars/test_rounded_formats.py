"""Operations that round to formats with fewer bits, to the bit as the interpreter rounds."""

import platform

import ml_dtypes
import numpy as np
import pytest
from cpu.agreeing import agree

import xlakit as xla
from xlakit.options import compiling

FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def any_bits(kind, count=2000):
    """Numbers of all sizes, subnormal ones, infinities and NaN."""
    unsigned = np.dtype(f"uint{8 * np.dtype(kind).itemsize}")
    rng = np.random.default_rng(1)
    bits = rng.integers(0, np.iinfo(unsigned).max, count, unsigned, endpoint=True)
    near = np.array([0, -0.0, 1, 1.5, -2, 65519, 65520, np.inf, -np.inf, np.nan]).astype(kind)
    return np.concatenate([bits.view(kind), near, np.linspace(-3, 3, 500).astype(kind)])


@pytest.mark.parametrize("kind", FLOATS)
def test_reduced_precision(kind):
    def reduced(x):
        return tuple(xla.reduce_precision(x, *bits) for bits in ((5, 10), (8, 7), (5, 2), (4, 3), (8, 23), (1, 0)))

    agree(reduced, any_bits(kind))


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("target", [xla.S8, xla.S32])
def test_stochastic_rounding(kind, target):
    x = any_bits(kind)
    unsigned = np.dtype(f"uint{8 * np.dtype(kind).itemsize}")
    random = np.random.default_rng(2).integers(0, np.iinfo(unsigned).max, x.size, unsigned, endpoint=True)
    agree(lambda x, r: xla.stochastic_convert_type(x, r, target), x, random)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="about levels of x86-64")
def test_f16_without_instructions_for_it():
    x = any_bits(np.float16)
    with compiling(cpu="x86-64"):
        agree(lambda x: (x * x, xla.convert_element_type(x, xla.F64)), x)
