"""Remainders of floats, in vectors and one by one: those of C's fmod, to the bit."""

import ml_dtypes
import numpy as np
import pytest

import xlakit as xla
from xlakit.options import compiling

TYPES = {"f32": (np.float32, np.uint32), "f16": (np.float16, np.uint16), "bf16": (ml_dtypes.bfloat16, np.uint16)}
SPECIAL = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 65504.0, 6e-8, -6e-5, 3.0, 0.1]


def program(kind, count):
    return xla.HloModule.from_text(f"""HloModule remainders
        ENTRY e {{
          x = {kind}[{count}] parameter(0)
          y = {kind}[{count}] parameter(1)
          ROOT r = {kind}[{count}] remainder(x, y)
        }}""")


def check(compiled, kind, x, y):
    dtype, unsigned = TYPES[kind]
    with np.errstate(invalid="ignore"):
        expected = np.fmod(x.astype(np.float64), y.astype(np.float64)).astype(dtype)
    found = compiled(x, y)
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found.view(unsigned)[~nan], expected.view(unsigned)[~nan])


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("kind", TYPES)
def test_remainders_of_all_magnitudes(kind, width):
    dtype, unsigned = TYPES[kind]
    rng = np.random.default_rng(width)
    with compiling(vector_bytes=width):
        compiled = xla.compile(program(kind, 4099))
    for _ in range(8):
        x, y = (rng.integers(0, np.iinfo(unsigned).max, 4099, unsigned, endpoint=True).view(dtype) for _ in "xy")
        check(compiled, kind, x, y)
    # Neighbors of multiples, whose quotients may be rounded up to a whole number.
    y = rng.uniform(0.1, 9, 4099).astype(dtype)
    x = (y.astype(np.float32) * rng.integers(0, 1 << 12, 4099)).astype(dtype)
    for step in (-1, 0, 1):
        check(compiled, kind, (x.view(unsigned) + unsigned(step % (1 << 8 * x.itemsize))).view(dtype), y)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("plain", ["", "llvm"])
def test_remainders_of_special_values(kind, plain):
    x, y = (pair.astype(TYPES[kind][0]).ravel() for pair in np.meshgrid(SPECIAL, SPECIAL))
    with compiling(plain=plain):
        check(xla.compile(program(kind, x.size)), kind, x, y)
        one = xla.compile(program(kind, 1))
    for n in range(x.size):
        check(one, kind, x[n : n + 1], y[n : n + 1])
