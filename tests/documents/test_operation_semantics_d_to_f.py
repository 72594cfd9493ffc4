"""The examples of the document "Operation semantics", from Dot to Fft."""

import numpy as np
import pytest
from helpers import c64, evaluate, f32, floats, infer, ints, pred, refused, s32, same

import xlakit as xla
from xlakit.ops.dot import DotDimensionNumbers

# -- Dot ------------------------------------------------------------------------------------------


def test_dot_contracted_dimensions_have_the_same_size():
    refused(xla.dot, f32(3, 5), f32(4, 2))
    refused(xla.dot, f32(5), f32(4))


def test_dot_takes_vectors_and_matrices():
    refused(xla.dot, f32(), f32(4))


# -- DotGeneral -----------------------------------------------------------------------------------


def dimension_numbers(lhs_contracting=(), rhs_contracting=(), lhs_batch=(), rhs_batch=()):
    return DotDimensionNumbers(
        lhs_contracting_dimensions=tuple(lhs_contracting),
        rhs_contracting_dimensions=tuple(rhs_contracting),
        lhs_batch_dimensions=tuple(lhs_batch),
        rhs_batch_dimensions=tuple(rhs_batch),
    )


def test_dot_general_with_contracting_dimensions():
    lhs = floats([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    rhs = floats([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]])
    numbers = dimension_numbers([1], [1])
    same(evaluate(lambda a, b: xla.dot_general(a, b, numbers), lhs, rhs), floats([[6.0, 12.0], [15.0, 30.0]]))


def test_dot_general_with_batch_dimensions():
    lhs = floats([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]])
    rhs = floats([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]])
    numbers = dimension_numbers([2], [1], [0], [0])
    same(evaluate(lambda a, b: xla.dot_general(a, b, numbers), lhs, rhs), lhs)


# -- DynamicSlice ---------------------------------------------------------------------------------

A = floats([0.0, 1.0, 2.0, 3.0, 4.0])
B = floats([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0], [9.0, 10.0, 11.0]])


def test_dynamic_slice_of_a_vector():
    same(evaluate(lambda a, s: xla.dynamic_slice(a, [s], [2]), A, ints(2)), floats([2.0, 3.0]))


def test_dynamic_slice_of_a_matrix():
    same(
        evaluate(lambda b, s, t: xla.dynamic_slice(b, [s, t], [2, 2]), B, ints(2), ints(1)),
        floats([[7.0, 8.0], [10.0, 11.0]]),
    )


@pytest.mark.parametrize("start", range(-3, 9))
def test_dynamic_slice_stays_inside(start):
    clamped = min(max(start, 0), 5 - 2)
    same(evaluate(lambda a, s: xla.dynamic_slice(a, [s], [2]), A, ints(start)), A[clamped : clamped + 2])


# -- DynamicUpdateSlice ---------------------------------------------------------------------------


def test_dynamic_update_slice_of_a_vector():
    same(
        evaluate(lambda a, u, s: xla.dynamic_update_slice(a, u, [s]), A, floats([5.0, 6.0]), ints(2)),
        floats([0.0, 1.0, 5.0, 6.0, 4.0]),
    )


def test_dynamic_update_slice_of_a_matrix():
    update = floats([[12.0, 13.0], [14.0, 15.0], [16.0, 17.0]])
    same(
        evaluate(lambda b, u, s, t: xla.dynamic_update_slice(b, u, [s, t]), B, update, ints(1), ints(1)),
        floats([[0.0, 1.0, 2.0], [3.0, 12.0, 13.0], [6.0, 14.0, 15.0], [9.0, 16.0, 17.0]]),
    )


@pytest.mark.parametrize("start", range(-3, 9))
def test_dynamic_update_slice_stays_inside(start):
    expected = A.copy()
    clamped = min(max(start, 0), 5 - 2)
    expected[clamped : clamped + 2] = [5, 6]
    same(
        evaluate(lambda a, u, s: xla.dynamic_update_slice(a, u, [s]), A, floats([5, 6]), ints(start)),
        expected,
    )


def test_dynamic_update_slice_has_rules():
    refused(lambda a, u, s: xla.dynamic_update_slice(a, u, [s]), f32(5), f32(6), s32())
    refused(lambda a, u, s: xla.dynamic_update_slice(a, u, [s]), f32(5), s32(2), s32())
    refused(lambda a, u, s: xla.dynamic_update_slice(a, u, [s]), f32(5), f32(1, 2), s32())
    refused(lambda a, u, s: xla.dynamic_update_slice(a, u, [s]), f32(5), f32(2), f32())


# -- element-wise binary arithmetic ---------------------------------------------------------------

X, Y = floats([7, -7, 7, -7]), floats([2, 2, -2, -2])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add", [9, -5, 5, -9]),
        ("sub", [5, -9, 9, -5]),
        ("mul", [14, -14, -14, 14]),
        ("div", [3.5, -3.5, -3.5, 3.5]),
        ("rem", [1, -1, 1, -1]),
        ("max", [7, 2, 7, -2]),
        ("min", [2, -7, -2, -7]),
    ],
)
def test_binary_arithmetic(name, expected):
    function = getattr(xla, name)
    same(evaluate(function, X, Y), floats(expected))
    if name != "div":
        same(evaluate(function, X.astype(np.int32), Y.astype(np.int32)), ints(expected))


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "and_", "or_"])
def test_logical_operations(name):
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    expected = a & b if "and" in name else a | b
    same(evaluate(getattr(xla, name), a, b), expected)


BINARY = ["add", "sub", "mul", "div", "rem", "max", "min"]


@pytest.mark.parametrize("name", BINARY)
def test_binary_operations_broadcast_with_dimensions(name):
    function = getattr(xla, name)
    matrix, vector = floats([[7, 8, 9], [1, 2, 3]]), floats([2, 3, 4])
    wide = np.broadcast_to(vector, (2, 3)).copy()
    same(
        evaluate(lambda m, v: function(m, v, broadcast_dimensions=(1,)), matrix, vector),
        evaluate(function, matrix, wide),
    )
    refused(function, f32(2, 3), f32(3), match="broadcast_dimensions")


@pytest.mark.parametrize("name", BINARY)
def test_binary_operands_have_one_type(name):
    refused(getattr(xla, name), f32(2), s32(2))


# -- element-wise comparison ----------------------------------------------------------------------

DIRECTIONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
}


@pytest.mark.parametrize("name", DIRECTIONS)
def test_comparisons_give_pred_and_broadcast(name):
    function = getattr(xla, name)
    result = infer(lambda m, v: function(m, v, broadcast_dimensions=(0,)), s32(2, 3), s32(2))
    assert (result.element_type, result.dimensions) == (xla.PRED, (2, 3))
    assert infer(function, f32(2, 3), f32()).dimensions == (2, 3)
    refused(function, f32(2, 3), f32(3))
    refused(function, f32(3), s32(3))


# -- element-wise unary functions -----------------------------------------------------------------

GRID = floats([-2.5, -1.5, -0.5, -0.0, 0.0, 0.25, 0.5, 1.5, 2.5, 3.75])


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("abs", np.abs),
        ("ceil", np.ceil),
        ("cos", np.cos),
        ("exp", np.exp),
        ("floor", np.floor),
        ("log", np.log),
        ("logistic", lambda x: 1 / (1 + np.exp(-x))),
        ("neg", np.negative),
        ("rsqrt", lambda x: 1 / np.sqrt(x)),
        ("sqrt", np.sqrt),
        ("cbrt", np.cbrt),
        ("tanh", np.tanh),
        ("round_nearest_even", np.rint),
        ("round", lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)),
        ("real", lambda x: x),
        ("imag", np.zeros_like),
        ("sign", np.sign),
    ],
)
def test_unary_functions(name, reference):
    with np.errstate(all="ignore"):
        expected = reference(GRID.astype(np.float64)).astype(np.float32)
    # NumPy's sign of -0 is 0; the document's is -0.
    same(evaluate(getattr(xla, name), GRID), expected, signs=name != "sign")


def test_unary_functions_take_scalars():
    same(evaluate(xla.exp, floats(0)), floats(1))


@pytest.mark.parametrize("name", ["cos", "exp", "log", "logistic", "rsqrt", "sqrt", "cbrt", "tanh"])
def test_transcendental_functions_take_no_integers(name):
    refused(getattr(xla, name), s32(2))
    refused(getattr(xla, name), pred(2))


@pytest.mark.parametrize("name", ["ceil", "floor", "round", "round_nearest_even"])
def test_roundings_take_real_floats(name):
    refused(getattr(xla, name), s32(2))
    refused(getattr(xla, name), c64(2))
