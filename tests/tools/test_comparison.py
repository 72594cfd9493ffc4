import ml_dtypes
import numpy as np
import pytest

from xlakit.data.primitive import PrimitiveType as P
from xlakit.data.shape import OPAQUE_SHAPE, ProgramShape, make_shape, make_tuple_shape
from xlakit.errors import UnsupportedError
from xlakit.execution.inputs import make_inputs
from xlakit.tools.compare import compare, format_table
from xlakit.tools.inputs import flatten


def test_nan_and_infinities_must_be_the_same():
    same = np.float32([np.nan, np.inf, 1])
    assert compare(same, same.copy())[0].agrees
    assert not compare(np.float32([np.inf]), np.float32([-np.inf]))[0].agrees
    assert not compare(np.float32([np.nan]), np.float32([1]))[0].agrees


def test_integers_must_be_equal_and_floats_near():
    assert not compare(np.int32([1, 2]), np.int32([1, 3]))[0].agrees
    assert compare(np.float32([1, 2]), np.float32([1, 2 + 1e-6]))[0].agrees
    assert not compare(np.float64([1, 2]), np.float64([1, 2 + 1e-6]))[0].agrees


def test_shapes_and_leaves_must_match():
    leaves = compare((np.zeros(2), np.zeros(3)), (np.zeros(2), np.zeros(4)))
    assert [leaf.agrees for leaf in leaves] == [True, False]
    assert "DIFFERS" in format_table(leaves)
    assert not compare((np.zeros(2),), (np.zeros(2), np.zeros(2)))[1].agrees


def test_made_up_inputs_suit_their_types():
    shapes = [make_shape(kind, (4, 5)) for kind in P if kind.is_array]
    program = ProgramShape((*shapes, make_tuple_shape([make_shape(P.S32, (100,))])), make_shape(P.F32))
    values = make_inputs(program, 0)
    for shape, value in zip(shapes, values, strict=False):
        assert value.dtype == shape.element_type.dtype
        assert value.shape == (4, 5)
    labels = values[-1][0]
    assert labels.min() >= 0
    assert labels.max() < 8
    with pytest.raises(UnsupportedError):
        make_inputs(ProgramShape((OPAQUE_SHAPE,), make_shape(P.F32)), 0)


def test_leaves_are_named_by_their_index():
    names = list(flatten((np.zeros(1), (np.zeros(1), None), ml_dtypes.bfloat16(1))))
    assert names == ["0", "1.0", "2"]
