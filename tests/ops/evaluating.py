"""What the tests of the op pages share: build, infer and run a function of handles."""

import numpy as np
import pytest

import xlakit as xla


def build(function, *shapes):
    builder = xla.XlaBuilder("test")
    operands = [xla.parameter(builder, i, shape, f"p{i}") for i, shape in enumerate(shapes)]
    result = function(*operands)
    return builder.build(xla.tuple_(builder, *result) if isinstance(result, (tuple, list)) else result)


def infer(function, *shapes):
    """The result shape as HLO text, without its layout."""
    return build(function, *shapes).program_shape.result.to_string(with_layout=False)


def evaluate(function, *arguments):
    """The interpreter's result on these values."""
    arrays = [np.asarray(a) for a in arguments]
    return xla.compile(build(function, *(xla.make_shape(a.dtype, a.shape) for a in arrays)))(*arrays)


def same(actual, expected):
    """Assert equality of values, sizes and element types."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(actual, expected)


def refused(match, function, *shapes):
    """Assert that building raises a ShapeError that says ``match``, the operation, the operands and the line."""
    with pytest.raises(xla.ShapeError, match=match) as caught:
        build(function, *shapes)
    assert caught.value.operation
    assert caught.value.location is not None


def f32(*dimensions, dynamic=()):
    return xla.make_shape(xla.F32, dimensions, dynamic_dimensions=dynamic)


def s32(*dimensions):
    return xla.make_shape(xla.S32, dimensions)


def floats(values):
    return np.array(values, dtype=np.float32)


def ints(values):
    return np.array(values, dtype=np.int32)
