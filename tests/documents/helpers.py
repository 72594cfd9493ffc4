"""What the tests of the seed documents share: build, infer, run, and expect a refusal."""

from pathlib import Path

import numpy as np
import pytest

import xlakit as xla


def f32(*dimensions):
    return xla.make_shape(xla.F32, dimensions)


def f64(*dimensions):
    return xla.make_shape(xla.F64, dimensions)


def s32(*dimensions):
    return xla.make_shape(xla.S32, dimensions)


def u32(*dimensions):
    return xla.make_shape(xla.U32, dimensions)


def pred(*dimensions):
    return xla.make_shape(xla.PRED, dimensions)


def c64(*dimensions):
    return xla.make_shape(xla.C64, dimensions)


def floats(values):
    return np.array(values, dtype=np.float32)


def ints(values):
    return np.array(values, dtype=np.int32)


def build(function, *shapes, name="example"):
    """The computation of ``function`` on parameters of these shapes (on the builder itself where there are none)."""
    builder = xla.XlaBuilder(name)
    operands = [xla.parameter(builder, i, shape, f"p{i}") for i, shape in enumerate(shapes)]
    result = function(*operands) if operands else function(builder)
    if isinstance(result, (tuple, list)):
        result = xla.tuple_(builder, *result)
    return builder.build(result)


def infer(function, *shapes):
    """The result shape, without its layout."""
    return build(function, *shapes).program_shape.result.without_layout()


def shape_of(value):
    """The shape of an argument: an array's, or a tuple's of them."""
    if isinstance(value, tuple):
        return xla.make_tuple_shape([shape_of(v) for v in value])
    array = np.asarray(value)
    return xla.make_shape(array.dtype, array.shape)


def evaluate(function, *arguments, seed=0):
    """The result of ``function`` on these values, through the interpreter."""
    computation = build(function, *(shape_of(a) for a in arguments))
    return xla.compile(computation, backend="interpreter", seed=seed)(*arguments)


def replicated(function, per_replica, **options):
    """Each replica's result; ``per_replica`` has one list of arguments for each."""
    computation = build(function, *(shape_of(a) for a in per_replica[0]))
    executable = xla.compile(computation, backend="interpreter", num_replicas=len(per_replica), **options)
    return executable.execute_replicated(per_replica)


def same(actual, expected):
    """Assert equality of values, sizes and element types; tuples element by element."""
    if isinstance(expected, tuple):
        assert isinstance(actual, tuple)
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            same(a, e)
        return
    expected = np.asarray(expected)
    actual = np.asarray(actual)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(actual, expected)


def close(actual, expected, rtol=1e-5, atol=1e-6):
    """Assert near equality, with the same sizes."""
    assert np.shape(actual) == np.shape(expected)
    np.testing.assert_allclose(
        np.asarray(actual, dtype=np.result_type(actual, np.float64)), expected, rtol=rtol, atol=atol
    )


def refused(function, *shapes, match=None):
    """Assert that building raises ShapeError that says the operation, the operands and a line of the test."""
    with pytest.raises(xla.ShapeError, match=match) as caught:
        build(function, *shapes)
    error = caught.value
    assert error.operation
    assert error.shapes or not shapes
    assert error.location is not None
    assert Path(error.location.file).parent == Path(__file__).parent
    return error
