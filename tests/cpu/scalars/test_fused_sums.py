"""A constant that is added to a product goes into one operation with it; other sums are rounded by themselves."""

import numpy as np
import pytest
from evaluating import build, shape_of

import xlakit as xla


def compiled(function, *values):
    return xla.compile(build(function, *(shape_of(v) for v in values)), backend="cpu")


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_polynomial_is_made_of_fused_operations(kind):
    x = np.linspace(-2, 2, 128).astype(kind)
    executable = compiled(lambda x: (x * kind(0.3) + kind(0.2)) * x + kind(0.1), x)
    lines = executable.llvm_ir(optimized=False).splitlines()
    assert sum("call" in line and "llvm.fmuladd" in line for line in lines) == 2
    exact = (x.astype(np.longdouble) * kind(0.3) + kind(0.2)) * x + kind(0.1)
    assert np.allclose(executable(x), exact.astype(kind), rtol=0, atol=np.finfo(kind).eps)


def test_equal_products_cancel():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 1000)).astype(np.float32)
    executable = compiled(lambda a, b, c, d: a * b + c * d, x, y, -x, y)
    assert not executable(x, y, -x, y).any()


def test_whole_numbers_stay_exact():
    x = np.arange(100, dtype=np.int32)
    assert (compiled(lambda x: x * 3 + 7, x)(x) == x * 3 + 7).all()
