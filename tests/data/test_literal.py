import ml_dtypes
import numpy as np
import pytest

from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType as P
from xlakit.data.shape import make_shape
from xlakit.errors import LiteralError, XlakitError


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (True, "pred[]"),
        (3, "s32[]"),
        (2**40, "s64[]"),
        (1.5, "f32[]"),
        (1j, "c64[]"),
        ([[1.0, 2.0]], "f32[1,2]{1,0}"),
        (np.float64(1), "f64[]"),
        (np.zeros((2, 0), ml_dtypes.bfloat16), "bf16[2,0]{1,0}"),
        ((1, (2.0, True)), "(s32[], (f32[], pred[]))"),
    ],
)
def test_python_and_numpy_values_get_their_types(value, shape):
    assert str(Literal.from_value(value).shape) == shape


def test_a_literal_does_not_change_with_the_array_it_came_from():
    array = np.array([1, 2], np.int32)
    literal = Literal.from_numpy(array)
    array[0] = 9
    assert literal.array.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        literal.array[0] = 3


def test_equality_is_by_bits():
    assert Literal.from_value(np.float32(np.nan)) == Literal.from_value(np.float32(np.nan))
    assert Literal.from_value(0.0) != Literal.from_value(-0.0)
    assert Literal.from_value(1) != Literal.from_value(1.0)


@pytest.mark.parametrize(
    ("value", "kind"), [(300, P.S8), (-1, P.U32), (8, P.S4), (2, P.PRED), (1.5, P.S32), (1j, P.F32), ("x", None)]
)
def test_values_that_do_not_fit_are_refused(value, kind):
    with pytest.raises(XlakitError):
        Literal.from_value(value, kind)


def test_arrays_that_do_not_fit_the_shape_are_refused():
    with pytest.raises(LiteralError, match="does not fit"):
        Literal(make_shape(P.F32, (3,)), np.zeros(2, np.float32))
    with pytest.raises(LiteralError, match="does not fit"):
        Literal(make_shape(P.F32, (2,)), np.zeros(2, np.float64))
    with pytest.raises(LiteralError):
        Literal.from_linear(make_shape(P.F32, (2, 3)), [1, 2])


def test_a_dynamic_literal_holds_fewer_elements_than_the_bound():
    shape = make_shape(P.F32, (10,), dynamic_dimensions=(True,))
    assert Literal(shape, np.ones(5, np.float32)).array.shape == (5,)
    with pytest.raises(LiteralError):
        Literal(shape, np.ones(11, np.float32))
