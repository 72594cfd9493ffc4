"""What the tests of XLA's documents share beside ``evaluating``."""

from pathlib import Path

import numpy as np
import pytest
from evaluating import build, compiled, evaluate, f32, floats, ints, s32, same, shape, shape_of

import xlakit as xla

__all__ = ["build", "close", "evaluate", "f32", "floats", "infer", "ints", "refused", "replicated", "s32", "same"]


def f64(*dimensions):
    return shape(xla.F64, *dimensions)


def u32(*dimensions):
    return shape(xla.U32, *dimensions)


def pred(*dimensions):
    return shape(xla.PRED, *dimensions)


def c64(*dimensions):
    return shape(xla.C64, *dimensions)


def infer(function, *shapes):
    """The result shape, without its layout."""
    return build(function, *shapes).program_shape.result.without_layout()


def replicated(function, per_replica, **options):
    """Each replica's result; ``per_replica`` has one list of arguments for each."""
    computation = build(function, *(shape_of(a) for a in per_replica[0]))
    executable = compiled(computation, num_replicas=len(per_replica), **options)
    return executable.execute_replicated(per_replica)


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
    assert Path(error.location.file).is_relative_to(Path(__file__).parents[1])
    return error
