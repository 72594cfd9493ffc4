"""The examples of the document "Operation semantics", from Dot to Fft."""

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from helpers import c64, close, evaluate, f32, floats, infer, ints, pred, refused, s32, same

import xlakit as xla
from xlakit.ops.dot import DotDimensionNumbers

# -- Dot ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lhs", "rhs", "result"), [((5,), (5,), ()), ((3, 5), (5,), (3,)), ((3, 5), (5, 2), (3, 2)), ((5,), (5, 2), (2,))]
)
def test_dot_sums_products_over_the_contracted_dimensions(lhs, rhs, result):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=lhs).astype(np.float32), rng.normal(size=rhs).astype(np.float32)
    assert infer(xla.dot, f32(*lhs), f32(*rhs)).dimensions == result
    close(evaluate(xla.dot, a, b), np.dot(a.astype(float), b.astype(float)))


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


@pytest.mark.parametrize(
    ("lhs", "rhs", "numbers", "result"),
    [
        ((7, 3, 4), (7, 4, 5), ([2], [1], [0], [0]), (7, 3, 5)),
        ((7, 2, 3, 4), (7, 2, 4, 5), ([3], [2], [0, 1], [0, 1]), (7, 2, 3, 5)),
        # Batch dimensions first, then what is left of lhs, then what is left of rhs.
        ((3, 7, 4, 2), (4, 5, 2, 7), ([2], [0], [3, 1], [2, 3]), (2, 7, 3, 5)),
    ],
)
def test_dot_general_result_dimensions(lhs, rhs, numbers, result):
    assert infer(lambda a, b: xla.dot_general(a, b, dimension_numbers(*numbers)), f32(*lhs), f32(*rhs)).dimensions == (
        result
    )


@pytest.mark.parametrize("seed", range(12))
def test_dot_general_is_the_sum_of_products(seed):
    rng = np.random.default_rng(seed)
    batch, contract, left, right = (list(rng.integers(1, 4, rng.integers(0, 3))) for _ in range(4))
    letters = iter("abcdefghijklmnop")
    name = {
        kind: [next(letters) for _ in sizes] for kind, sizes in zip("bclr", (batch, contract, left, right), strict=True)
    }
    sizes = dict(zip(itertools.chain(*name.values()), itertools.chain(batch, contract, left, right), strict=True))
    lhs = list(rng.permutation(name["b"] + name["c"] + name["l"]))
    rhs = list(rng.permutation(name["b"] + name["c"] + name["r"]))
    a = rng.integers(-4, 5, [sizes[x] for x in lhs]).astype(np.float32)
    b = rng.integers(-4, 5, [sizes[x] for x in rhs]).astype(np.float32)
    out = name["b"] + [x for x in lhs if x in name["l"]] + [x for x in rhs if x in name["r"]]
    numbers = dimension_numbers(
        [lhs.index(x) for x in name["c"]],
        [rhs.index(x) for x in name["c"]],
        [lhs.index(x) for x in name["b"]],
        [rhs.index(x) for x in name["b"]],
    )
    expected = np.zeros([sizes[x] for x in out])
    for values in itertools.product(*(range(sizes[x]) for x in sizes)):
        at = dict(zip(sizes, values, strict=True))
        expected[tuple(at[x] for x in out)] += a[tuple(at[x] for x in lhs)] * b[tuple(at[x] for x in rhs)]
    same(evaluate(lambda x, y: xla.dot_general(x, y, numbers), a, b), expected.astype(np.float32))


@pytest.mark.parametrize(
    ("lhs", "rhs", "numbers"),
    [
        ((2, 3), (2, 4), ([1], [1])),  # sizes differ
        ((2, 3), (3, 4), ([1], [0, 1])),  # counts differ
        ((2, 3), (3, 4), ([2], [0])),  # out of range
        ((7, 3, 4), (6, 4, 5), ([2], [1], [0], [0])),  # batch sizes differ
        ((7, 3, 7), (7, 7, 5), ([0], [1], [0], [0])),  # a dimension both batch and contracting
        ((3, 3), (3, 3), ([1, 1], [0, 1])),  # twice
    ],
)
def test_dot_general_has_rules(lhs, rhs, numbers):
    refused(lambda a, b: xla.dot_general(a, b, dimension_numbers(*numbers)), f32(*lhs), f32(*rhs))


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


def test_dynamic_slice_has_rules():
    refused(lambda a, s: xla.dynamic_slice(a, [s], [6]), f32(5), s32())
    refused(lambda a, s: xla.dynamic_slice(a, [s], [-1]), f32(5), s32())
    refused(lambda a, s: xla.dynamic_slice(a, [s], [2, 2]), f32(5), s32())
    refused(lambda a, s: xla.dynamic_slice(a, [s], [2]), f32(5), f32())
    refused(lambda a, s: xla.dynamic_slice(a, [s], [2, 2]), f32(5, 5), s32())


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


def test_integer_division_truncates():
    same(evaluate(xla.div, X.astype(np.int32), Y.astype(np.int32)), ints([3, -3, -3, 3]))


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "and_", "or_"])
def test_logical_operations(name):
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    expected = a & b if "and" in name else a | b
    same(evaluate(getattr(xla, name), a, b), expected)


def test_the_remainder_has_the_dividends_sign_and_is_less_than_the_divisor():
    rng = np.random.default_rng(1)
    a, b = rng.integers(-50, 50, 200).astype(np.int32), rng.integers(1, 20, 200).astype(np.int32)
    b[::2] *= -1
    for dtype in (np.int32, np.float32):
        r = evaluate(xla.rem, a.astype(dtype), b.astype(dtype))
        assert np.all((np.sign(r) == np.sign(a)) | (r == 0))
        assert np.all(np.abs(r) < np.abs(b))
        same(r, np.fmod(a.astype(dtype), b.astype(dtype)))


def test_integer_division_overflow_gives_some_value():
    low = np.iinfo(np.int32).min
    same(evaluate(xla.div, ints([5, low]), ints([0, -1])), ints([-1, low]))
    same(evaluate(xla.rem, ints([5, low]), ints([0, -1])), ints([5, 0]))
    same(evaluate(xla.div, np.array([5], np.uint8), np.array([0], np.uint8)), np.array([255], np.uint8))


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
SPECIAL = floats([np.nan, -np.inf, -1.0, -0.0, 0.0, 1.0, np.inf, np.nan])
PAIRS = np.array(list(itertools.product(SPECIAL, SPECIAL)), dtype=np.float32)


@pytest.mark.parametrize("name", DIRECTIONS)
def test_comparisons_follow_ieee_754(name):
    a, b = PAIRS[:, 0].copy(), PAIRS[:, 1].copy()
    same(evaluate(getattr(xla, name), a, b), DIRECTIONS[name](a, b))


@pytest.mark.parametrize("name", DIRECTIONS)
def test_total_order(name):
    negative_nan = np.array(0xFFC00000, dtype=np.uint32).view(np.float32)
    ordered = floats([negative_nan, -np.inf, -1.0, -0.0, 0.0, 1.0, np.inf, np.nan])
    ordered[0] = negative_nan
    i, j = (g.reshape(-1) for g in np.mgrid[0:8, 0:8])
    same(evaluate(getattr(xla, name + "_total_order"), ordered[i], ordered[j]), DIRECTIONS[name](i, j))


@pytest.mark.parametrize("name", DIRECTIONS)
def test_comparisons_give_pred_and_broadcast(name):
    function = getattr(xla, name)
    result = infer(lambda m, v: function(m, v, broadcast_dimensions=(0,)), s32(2, 3), s32(2))
    assert (result.element_type, result.dimensions) == (xla.PRED, (2, 3))
    assert infer(function, f32(2, 3), f32()).dimensions == (2, 3)
    refused(function, f32(2, 3), f32(3))
    refused(function, f32(3), s32(3))


@pytest.mark.parametrize("name", ["ge", "gt", "le", "lt"])
def test_complex_numbers_have_no_order(name):
    refused(getattr(xla, name), c64(2), c64(2))


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


def test_rounding_at_the_halves():
    halves = floats([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])
    same(evaluate(xla.round, halves), floats([-3, -2, -1, 1, 2, 3]))
    same(evaluate(xla.round_nearest_even, halves), floats([-2, -2, -0.0, 0, 2, 2]))


def test_sign_of_every_case():
    result = evaluate(xla.sign, floats([-3, -0.0, np.nan, 0.0, 5]))
    same(result, floats([-1, -0.0, np.nan, 0.0, 1]))
    assert list(np.signbit(result[[1, 3]])) == [True, False]
    same(evaluate(xla.sign, ints([-3, 0, 5])), ints([-1, 0, 1]))


def test_is_finite():
    same(evaluate(xla.is_finite, SPECIAL), np.isfinite(SPECIAL))
    refused(xla.is_finite, s32(2))


def test_real_and_imaginary_parts_of_complex_numbers():
    values = np.array([1 + 2j, -3.5j], dtype=np.complex64)
    same(evaluate(xla.real, values), floats([1, -0.0]))
    same(evaluate(xla.imag, values), floats([2, -3.5]))


def test_logical_not():
    same(evaluate(xla.logical_not, np.array([True, False])), np.array([False, True]))


def test_population_count():
    same(evaluate(xla.population_count, ints([0, 1, 255, -1])), ints([0, 1, 8, 32]))
    same(evaluate(xla.population_count, np.array([255], np.uint8)), np.array([8], np.uint8))
    refused(xla.population_count, f32(2))


@pytest.mark.parametrize("name", ["cos", "exp", "log", "logistic", "rsqrt", "sqrt", "cbrt", "tanh"])
def test_transcendental_functions_take_no_integers(name):
    refused(getattr(xla, name), s32(2))
    refused(getattr(xla, name), pred(2))


@pytest.mark.parametrize("name", ["ceil", "floor", "round", "round_nearest_even"])
def test_roundings_take_real_floats(name):
    refused(getattr(xla, name), s32(2))
    refused(getattr(xla, name), c64(2))


def test_narrow_floats_are_rounded_once():
    values = np.linspace(0.1, 3, 50).astype(ml_dtypes.bfloat16)
    same(evaluate(xla.exp, values), np.exp(values.astype(np.float64)).astype(ml_dtypes.bfloat16))


# -- Fft ------------------------------------------------------------------------------------------


def naive_dft(signal, axis, sign):
    n = signal.shape[axis]
    k = np.arange(n)
    matrix = np.exp(sign * 2j * math.pi * np.outer(k, k) / n)
    return np.moveaxis(np.tensordot(matrix, signal, (1, axis)), 0, axis)


def random_complex(*sizes):
    rng = np.random.default_rng(3)
    return (rng.normal(size=sizes) + 1j * rng.normal(size=sizes)).astype(np.complex128)


@pytest.mark.parametrize("lengths", [(5,), (4, 5), (3, 4, 5)])
def test_fft_transforms_the_innermost_axes(lengths):
    signal = random_complex(2, 3, 4, 5)
    expected = signal
    for axis in range(-len(lengths), 0):
        expected = naive_dft(expected, axis, -1)
    close(evaluate(lambda x: xla.fft(x, "FFT", lengths), signal), expected)
    back = evaluate(lambda x: xla.fft(xla.fft(x, "FFT", lengths), "IFFT", lengths), signal)
    close(back, signal)


@pytest.mark.parametrize("n", [16, 17])
def test_rfft_keeps_half_of_the_innermost_axis(n):
    signal = np.random.default_rng(4).normal(size=(3, n))
    assert infer(lambda x: xla.fft(x, "RFFT", (n,)), f32(3, n)).dimensions == (3, 9)
    result = evaluate(lambda x: xla.fft(x, "RFFT", (n,)), signal)
    close(result, naive_dft(signal, -1, -1)[:, : n // 2 + 1])


@pytest.mark.parametrize("n", [16, 17])
def test_irfft_needs_the_length_to_know_its_result(n):
    signal = np.random.default_rng(5).normal(size=(3, n))
    half = np.ascontiguousarray(naive_dft(signal, -1, -1)[:, :9])
    assert infer(lambda x: xla.fft(x, "IRFFT", (n,)), c64(3, 9)) == f32(3, n).without_layout()
    close(evaluate(lambda x: xla.fft(x, "IRFFT", (n,)), half), signal)


def test_rfft_in_several_dimensions_does_the_innermost_first():
    signal = np.random.default_rng(6).normal(size=(2, 4, 6))
    expected = naive_dft(naive_dft(naive_dft(signal, 2, -1)[..., :4], 1, -1), 0, -1)
    result = evaluate(lambda x: xla.fft(x, "RFFT", (2, 4, 6)), signal)
    close(result, expected)
    close(evaluate(lambda x: xla.fft(x, "IRFFT", (2, 4, 6)), result), signal)


def test_fft_has_rules():
    refused(lambda x: xla.fft(x, "FFT", (4,)), f32(4))
    refused(lambda x: xla.fft(x, "RFFT", (4,)), c64(4))
    refused(lambda x: xla.fft(x, "IRFFT", (4,)), f32(4))
    refused(lambda x: xla.fft(x, "FFT", (5,)), c64(4))
    refused(lambda x: xla.fft(x, "IRFFT", (9,)), c64(4))
    refused(lambda x: xla.fft(x, "FFT", ()), c64(4))
    refused(lambda x: xla.fft(x, "FFT", (2, 2, 2, 2)), c64(2, 2, 2, 2))
    refused(lambda x: xla.fft(x, "FFT", (2, 2)), c64(2))
