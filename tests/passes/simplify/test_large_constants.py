"""What is computed of constants of many elements: only what does not make the program larger."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.ops.data import Constant
from xlakit.passes.pipeline import run_pipeline

X = np.random.default_rng(0).standard_normal((16, 1500)).astype(np.float32)
BYTES = np.arange(24_000, dtype=np.int8).reshape(16, 1500)


def total(x):
    return xla.reduce(x, xla.constant(x.builder, 0.0, xla.F32), xla.add, [0])


def normalized(x):
    return x / xla.broadcast_in_dim(total(x * x), X.shape, [1])


@pytest.mark.parametrize(
    ("program", "constant", "is_folded"),
    [
        (xla.sin, X, True),
        (lambda x: xla.transpose(x, [1, 0]), X, True),
        (total, X, True),
        (normalized, X, True),
        # These have more bytes than what they are computed from.
        (lambda x: xla.convert_element_type(x, xla.F32), BYTES, False),
        (lambda x: xla.dot(xla.transpose(x, [1, 0]), x), X[:, :300], False),
    ],
)
def test_what_has_no_more_bytes_is_computed(program, constant, is_folded):
    builder = xla.XlaBuilder("large")
    module = builder.build(program(xla.constant(builder, constant))).to_module()
    assert isinstance(run_pipeline(module).entry.root.op, Constant) == is_folded
    expected = np.asarray(xla.compile(module, backend="interpreter")())
    np.testing.assert_allclose(np.asarray(xla.compile(module, backend="cpu")()), expected, rtol=1e-5, atol=1e-5)
