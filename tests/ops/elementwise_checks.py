"""What the tests of element-wise operations share: equality that knows NaN, zeros' signs and every element type."""

import numpy as np

import xlakit as xla
from xlakit.ops.numerics import to_double


def same(actual, expected):
    """The same values, sizes and element types; NaN equals any NaN, and 0 differs from -0."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    kind = xla.PrimitiveType.from_dtype(actual.dtype)
    if kind.is_complex:
        same(actual.real, expected.real)
        same(actual.imag, expected.imag)
    elif kind.is_floating:
        left, right = to_double(actual), to_double(expected)
        np.testing.assert_array_equal(left, right)
        signed = ~np.isnan(left)
        np.testing.assert_array_equal(np.signbit(left) & signed, np.signbit(right) & signed)
    else:
        np.testing.assert_array_equal(actual, expected)


def array_of(kind, values):
    """Integers or floats as an array of an element type, below a byte too."""
    if kind.is_integral:
        return np.array(values, dtype=kind.dtype if kind.bit_width >= 8 else np.int8).astype(kind.dtype)
    with np.errstate(all="ignore"):
        return np.array(values).astype(kind.dtype)
