"""What tests share: build, infer and run a function of handles, and compare what comes out."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.ops.shared.numerics import to_double


def shape(kind, *dimensions, dynamic=()):
    return xla.make_shape(kind, dimensions, dynamic_dimensions=dynamic)


def f32(*dimensions, dynamic=()):
    return shape(xla.F32, *dimensions, dynamic=dynamic)


def s32(*dimensions):
    return shape(xla.S32, *dimensions)


def floats(values):
    return np.array(values, dtype=np.float32)


def ints(values):
    return np.array(values, dtype=np.int32)


def array_of(kind, values):
    """Integers or floats as an array of an element type, below a byte too."""
    if kind.is_integral:
        return np.array(values, dtype=kind.dtype if kind.bit_width >= 8 else np.int8).astype(kind.dtype)
    with np.errstate(all="ignore"):
        return np.array(values).astype(kind.dtype)


def build(function, *shapes, name="example"):
    """The computation of ``function`` on parameters of these shapes (on the builder itself where there are none)."""
    builder = xla.XlaBuilder(name)
    operands = [xla.parameter(builder, i, shape, f"p{i}") for i, shape in enumerate(shapes)]
    result = function(*operands) if operands else function(builder)
    return builder.build(xla.tuple_(builder, *result) if isinstance(result, (tuple, list)) else result)


def infer(function, *shapes):
    """The result shape as HLO text, without its layout."""
    return build(function, *shapes).program_shape.result.to_string(with_layout=False)


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


def same(actual, expected, *, signs=True):
    """The same values, sizes and element types, tuples element by element.

    NaN equals any NaN and, with ``signs``, 0 differs from -0.
    """
    if isinstance(expected, tuple):
        assert isinstance(actual, tuple)
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            same(a, e, signs=signs)
        return
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    kind = xla.PrimitiveType.from_dtype(actual.dtype)
    if kind.is_complex:
        same(actual.real, expected.real, signs=signs)
        same(actual.imag, expected.imag, signs=signs)
    elif kind.is_floating:
        left, right = to_double(actual), to_double(expected)
        np.testing.assert_array_equal(left, right)
        signed = ~np.isnan(left) & signs
        np.testing.assert_array_equal(np.signbit(left) & signed, np.signbit(right) & signed)
    else:
        np.testing.assert_array_equal(actual, expected)


def refused(match, function, *shapes):
    """Assert that building raises a ShapeError that says ``match``, the operation and the line; gives the error."""
    with pytest.raises(xla.ShapeError, match=match) as caught:
        build(function, *shapes)
    assert caught.value.operation
    assert caught.value.location is not None
    return caught.value
