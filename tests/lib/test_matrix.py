"""Diagonals and triangles of matrices against NumPy."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.lib import matrix

ODD = np.array([[-0.0, np.nan, np.inf, 1], [2, -3, np.nan, 4], [5, 6, -0.0, np.nan]], np.float32)
BATCH = np.arange(24, dtype=np.int16).reshape(2, 4, 3)


def compiled(function, array, k):
    builder = xla.XlaBuilder("matrix")
    a = xla.parameter(builder, 0, xla.make_shape(array.dtype, array.shape), "a")
    return xla.compile(builder.build(function(a, k)))(array)


@pytest.mark.parametrize("array", [ODD, BATCH], ids=["odd", "batch"])
@pytest.mark.parametrize("k", [-2, -1, 0, 1, 2])
def test_diagonals_and_triangles_are_those_of_numpy(array, k):
    expected = np.diagonal(array, k, -2, -1)
    found = compiled(matrix.matrix_diagonal, array, k)
    assert np.ascontiguousarray(expected).tobytes() == np.ascontiguousarray(found).tobytes()
    for function, model in ((matrix.lower_triangle, np.tril), (matrix.upper_triangle, np.triu)):
        assert np.array_equal(compiled(function, array, k), model(array, k), equal_nan=array.dtype.kind == "f")


def test_what_has_no_diagonal_is_an_error():
    builder = xla.XlaBuilder("none")
    a = xla.parameter(builder, 0, xla.make_shape(xla.F32, (2, 3)), "a")
    with pytest.raises(xla.ShapeError, match="no diagonal 3"):
        matrix.matrix_diagonal(a, 3)
    with pytest.raises(xla.ShapeError, match="takes matrices"):
        matrix.upper_triangle(xla.reshape(a, new_sizes=[6]))
