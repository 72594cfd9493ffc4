"""What tests of operations on arrays share: run a function on values, infer its shape, expect a refusal."""

import numpy as np
import pytest

import xlakit as xla


def shape(kind, *dimensions):
    return xla.make_shape(kind, dimensions)


def build(function, *shapes):
    builder = xla.XlaBuilder("program")
    operands = [xla.parameter(builder, i, s) for i, s in enumerate(shapes)]
    return builder.build(function(*operands) if operands else function(builder))


def run(function, *arguments, seed=0):
    arrays = [np.asarray(a) for a in arguments]
    computation = build(function, *(shape(a.dtype, *a.shape) for a in arrays))
    return xla.compile(computation, seed=seed)(*arrays)


def infer(function, *shapes):
    return str(build(function, *shapes).program_shape.result.without_layout())


def refused(words, function, *shapes):
    with pytest.raises(xla.ShapeError, match=words):
        build(function, *shapes)


def same(actual, expected, *, signs=True):
    """The same values, sizes and element types; NaN equals itself and, with ``signs``, 0 differs from -0."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    if actual.dtype.kind == "V":  # ml_dtypes' types, some of which have no comparison that knows NaN
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(actual, expected)
    if signs and actual.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))
