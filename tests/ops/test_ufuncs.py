"""NumPy's functions on handles build what those of xlakit do, or say what to write; operators stay as they were."""

import operator
import re

import numpy as np
import pytest

import xlakit as xla
from xlakit.ops.shared import ufuncs

A = np.array([2, 3, 4], np.float32)
X = np.array([0.5, -0.25, 0.75], np.float32)
W = np.array([5, -7, 9], np.int32)
N = np.array([1, 2, 3], np.int32)
SAME = [
    "abs", "exp", "expm1", "log", "log1p", "sqrt", "cbrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "arcsin",
    "arccos",
    "arctan", "arcsinh", "arctanh", "sign", "floor", "ceil", "rint", "square", "reciprocal", "isnan", "isinf",
    "isfinite",
    "negative",
]  # fmt: skip
SAME_OF_TWO = [
    "add", "subtract", "multiply", "divide", "fmod", "power", "maximum", "minimum", "arctan2", "less", "less_equal",
    "greater", "greater_equal", "equal", "not_equal", "matmul",
]  # fmt: skip


def value(build, *arguments):
    builder = xla.XlaBuilder("test")
    parameters = [
        xla.parameter(builder, n, xla.make_shape(xla.S32 if a.dtype.kind == "i" else xla.F32, a.shape), f"p{n}")
        for n, a in enumerate(arguments)
    ]
    return xla.compile(builder.build(build(*parameters)), backend="interpreter")(*arguments)


@pytest.mark.parametrize("name", SAME)
def test_functions_of_one_operand(name):
    function = getattr(np, name)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(value(function, X), function(X), rtol=1e-6)


@pytest.mark.parametrize("name", SAME_OF_TWO)
def test_functions_of_two_operands_with_an_array_on_either_side(name):
    function = getattr(np, name)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(value(lambda x: function(x, A), X), function(X, A), rtol=1e-6)
        np.testing.assert_allclose(value(lambda x: function(A, x), X), function(A, X), rtol=1e-6)


@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "truediv", "mod", "pow", "lt", "le", "gt", "ge", "eq", "ne", "matmul"]
)
def test_operators_of_an_array_and_a_handle_are_those_of_two_handles(name):
    apply = getattr(operator, name)
    np.testing.assert_array_equal(value(lambda x: apply(A, x), X), value(apply, A, X))
    np.testing.assert_array_equal(value(lambda x: apply(x, A), X), value(apply, X, A))


@pytest.mark.parametrize("name", ["and_", "or_", "xor", "lshift", "rshift", "mod", "truediv", "floordiv"])
def test_operators_of_integers(name):
    apply = getattr(operator, name)
    if name == "floordiv":
        with pytest.raises(xla.ArgumentError, match="floor_divide"):
            value(lambda x: apply(W, x), N)
        return
    np.testing.assert_array_equal(value(lambda x: apply(W, x), N), value(apply, W, N))
    np.testing.assert_array_equal(value(lambda x: apply(x, N), W), value(apply, W, N))


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (np.exp2, "numpy.exp2 has no meaning for an XlaOp", r"xlakit.pow\(2.0, x\)"),
        (lambda x: np.hypot(x, x), "numpy.hypot has no meaning", "xlakit.lib"),
        (np.add.reduce, "numpy.add.reduce has no meaning", "xlakit.reduce"),
        (np.sum, "numpy.sum has no meaning", "xlakit.reduce"),
        (lambda x: np.where(x > 0, x, A), "numpy.where has no meaning", "xlakit.select"),
        (lambda x: np.where(A > 0, A, x), "numpy.where has no meaning", "xlakit.select"),
        (lambda x: np.concatenate([A, x]), "numpy.concatenate has no meaning", "xlakit.concatenate"),
        (lambda x: np.stack([x, x]), "numpy.stack has no meaning", "None"),
        (lambda x: np.split(x, 3), "numpy.split has no meaning", "begin:end"),
        (lambda x: np.array_equal(x, x), "numpy.array_equal has no meaning", "x == y"),
        (np.sort, "numpy.sort has no meaning", "xlakit.sort"),
        (np.shape, "numpy.shape has no meaning", "x.shape.dimensions"),
        (np.linalg.inv, "numpy.linalg.inv has no meaning", "xlakit.lib"),
        (lambda x: x // 2, "rounds down", "floor"),
        (lambda x: divmod(2, x), "rounds down", "floor"),
        (float, "value of an XlaOp is not known", "compile"),
        (int, "value of an XlaOp is not known", "compile"),
        (lambda x: np.exp(x, dtype=np.float64), "takes no dtype", "convert"),
        (lambda x: np.add(x, A, out=A.copy()), "numpy.add cannot write an XlaOp into an array", "array = array"),
        (lambda x: operator.iadd(A.copy(), x), "numpy.add cannot write an XlaOp into an array", "array = array"),
        (lambda x: np.exp(A, out=(x,)), "numpy.exp cannot write", "array = array"),
        (lambda x: np.remainder(x, A), "sign of the divisor", "x % y"),
        (lambda x: np.matmul(x, np.ones((3, 3, 3), np.float32)), "batches of matrices", "dot_general"),
        (np.asarray, "elements of an XlaOp are not known", "compile"),
    ],
)
def test_what_has_no_counterpart_says_what_to_write(call, message, hint):
    with pytest.raises(xla.ArgumentError, match=message) as error:
        value(call, X)
    assert error.match(hint)


def test_division_of_integers_by_numpy_is_no_truncation():
    with pytest.raises(xla.ArgumentError, match="gives floats"):
        value(lambda x: np.divide(x, N), W)


def test_reshape_is_the_method():
    np.testing.assert_array_equal(value(lambda x: np.reshape(x, (3, 1)), X), X.reshape(3, 1))
    with pytest.raises(xla.ArgumentError, match="reshape has no meaning"):
        value(lambda x: np.reshape(x, (3, 1), order="F"), X)


def test_what_the_hints_name_exists():
    instead = {**ufuncs._INSTEAD, **ufuncs._INSTEAD_OF_FUNCTION}
    names = {name for text in instead.values() for name in re.findall(r"xlakit\.(lib\.\w+|\w+)", text)}
    assert len(names) > 20
    for name in names:
        assert callable(operator.attrgetter(name)(xla)) or name in ("F32", "S32"), name


def test_the_functions_that_have_hints_are_numpys():
    assert [name for name in ufuncs._INSTEAD_OF_FUNCTION if not hasattr(np, name)] == []
