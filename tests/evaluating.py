"""What tests share: build, infer and run a function of handles, and compare what comes out."""

import ml_dtypes
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


# What runs the programs of the tests; conftest.py sets it for each.
BACKEND = "interpreter"


def compiled(program, **options):
    """An executable of a program on the backend that is tested."""
    try:
        return xla.compile(program, backend=BACKEND, **options)
    except xla.UnsupportedError as error:
        if BACKEND == "cpu" and "dynamic dimensions" in error.rule:
            pytest.skip(error.rule)
        raise


def program(function, *shapes, **options):
    """An executable of a function of the builder and of parameters."""
    builder = xla.XlaBuilder("program")
    operands = [xla.parameter(builder, i, shape) for i, shape in enumerate(shapes)]
    return compiled(builder.build(function(builder, *operands)), **options)


def opcodes(module):
    """Those of the entry, in order."""
    return [i.opcode for i in module.entry.instructions]


def evaluate(function, *arguments, seed=0):
    """The result of ``function`` on these values."""
    return compiled(build(function, *(shape_of(a) for a in arguments)), seed=seed)(*arguments)


def _agree(actual, expected, kind):
    """Equal where the interpreter computes; machine code may be off by some units in the last place."""
    if BACKEND == "interpreter":
        np.testing.assert_array_equal(actual, expected)
        return
    ulps = 2.0 if kind.bit_width < 32 else 16.0
    with np.errstate(all="ignore"):
        largest = np.max(np.abs(expected), where=np.isfinite(expected), initial=0.0)
        close = np.abs(actual - expected) <= ulps * kind_epsilon(kind) * np.maximum(np.abs(expected), largest / 16)
    same_value = (actual == expected) | (np.isnan(actual) & np.isnan(expected)) | close
    assert same_value.all(), f"{actual[~same_value]} instead of {expected[~same_value]}"


def kind_epsilon(kind):
    """The distance from 1 to the next larger number of a type."""
    return float(ml_dtypes.finfo(kind.dtype).eps)


def same(actual, expected, *, signs=True):
    """The same values, sizes and element types, tuples element by element.

    NaN equals any NaN and, with ``signs``, 0 differs from -0.
    """
    if isinstance(actual, (list, tuple)):
        # A list has the results of each device.
        assert isinstance(expected, type(actual))
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
        left, right = np.asarray(to_double(actual)), np.asarray(to_double(expected))
        _agree(left, right, kind)
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
