"""The page of dots."""

import ml_dtypes
import numpy as np
import pytest
from evaluating import evaluate, f32, floats, infer, ints, refused, s32, same

import xlakit as xla
from xlakit.ops.dot import DotDimensionNumbers, PrecisionConfig
from xlakit.ops.dot_variants import RaggedDotDimensionNumbers

RNG = np.random.default_rng(7)


def random(*sizes):
    """Small integers as floats: their sums are exact."""
    return RNG.integers(-5, 6, sizes).astype(np.float32)


@pytest.mark.parametrize(
    ("lhs", "rhs"), [((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((3, 4), (4, 5)), ((0, 4), (4, 5)), ((3, 0), (0, 5))]
)
def test_dot_is_a_product_of_matrices(lhs, rhs):
    a, b = random(*lhs), random(*rhs)
    same(evaluate(xla.dot, a, b), a @ b)


@pytest.mark.parametrize("seed", range(25))
def test_dot_general_is_a_sum_over_pairs(seed):
    rng = np.random.default_rng(seed)
    batch, contracted, left, right = (rng.integers(0, 4, rng.integers(0, 3)).tolist() for _ in range(4))
    lhs_order, rhs_order = (
        rng.permutation(len(batch + contracted + left)),
        rng.permutation(len(batch + contracted + right)),
    )
    a, b = random(*batch, *contracted, *left), random(*batch, *contracted, *right)
    letters = "abcdefghijkl"
    nb, nc = len(batch), len(contracted)
    ours = letters[: nb + nc]
    a_letters, b_letters = ours + letters[6 : 6 + len(left)], ours + letters[9 : 9 + len(right)]
    # The free dimensions come in the order that the operands have them in.
    free = [a_letters[i] for i in lhs_order if i >= nb + nc] + [b_letters[i] for i in rhs_order if i >= nb + nc]
    expected = np.einsum(f"{a_letters},{b_letters}->{ours[:nb]}{''.join(free)}", a, b)
    at, bt = np.argsort(lhs_order).tolist(), np.argsort(rhs_order).tolist()
    numbers = DotDimensionNumbers(at[nb : nb + nc], bt[nb : nb + nc], at[:nb], bt[:nb])
    got = evaluate(lambda a, b: xla.dot_general(a, b, numbers), a.transpose(lhs_order), b.transpose(rhs_order))
    same(got, expected)


@pytest.mark.reference
def test_floats_are_summed_exactly_and_rounded_once():
    a, b = floats([[1e8, 1, -1e8]]), floats([[1], [1], [1]])
    same(evaluate(xla.dot, a, b), floats([[1]]))
    half = ml_dtypes.bfloat16
    a, b = np.full((1, 1000), 1, half), np.full((1000, 1), 1.01, half)
    same(evaluate(xla.dot, a, b), np.array([[1000 * float(half(1.01))]]).astype(half))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, ml_dtypes.int4])
def test_integers_wrap(dtype):
    bits = 4 if dtype is ml_dtypes.int4 else np.iinfo(dtype).bits
    raw = RNG.integers(0, 2**62, (2, 4, 5)).astype(object) * 5
    modulus = 1 << bits
    signed = lambda x: np.where(x >= modulus // 2, x - modulus, x)  # noqa: E731
    is_signed = np.dtype(dtype).kind != "u"
    values = [signed(v % modulus) if is_signed else v % modulus for v in raw]
    product = (values[0] @ values[1].T) % modulus
    expected = signed(product) if is_signed else product
    narrow = np.int8 if dtype is ml_dtypes.int4 else dtype
    a, b, expected = (np.array(v.tolist(), narrow).astype(dtype) for v in (values[0], values[1].T, expected))
    same(evaluate(xla.dot, a, b), expected)


def test_pred_is_or_of_and():
    a, b = np.array([[True, True], [False, True]]), np.array([[True, False], [True, False]])
    same(evaluate(xla.dot, a, b), np.array([[True, False], [True, False]]))


def test_complex():
    a, b = (
        (random(3, 4) + 1j * random(3, 4)).astype(np.complex64),
        (random(4, 2) + 1j * random(4, 2)).astype(np.complex64),
    )
    same(evaluate(xla.dot, a, b), a @ b)


@pytest.mark.reference
def test_short_sums_of_doubles_are_taken_in_order():
    a, b = RNG.normal(size=(5, 3)), RNG.normal(size=(3, 4))
    same(evaluate(xla.dot, a, b), (a[:, :1] * b[0] + a[:, 1:2] * b[1]) + a[:, 2:] * b[2])
    # The fused operation would keep what is lost in rounding 0.1 * 0.1.
    z = np.array([[0.1 + 0.1j]])
    same(evaluate(xla.dot, z, z), np.array([[0.1 * 0.1 * 2j]]))


def test_nan_and_infinity_pass_through():
    a = floats([[np.nan, 0], [np.inf, 0], [1, 1]])
    same(evaluate(xla.dot, a, floats([[0], [1]])), floats([[np.nan], [np.nan], [1]]))


@pytest.mark.parametrize(
    ("operand", "preferred", "name"),
    [(xla.S8, xla.S32, "s32"), (xla.BF16, xla.F32, "f32"), (xla.F8E4M3FN, xla.BF16, "bf16"), (xla.F32, xla.F64, "f64")],
)
def test_the_preferred_element_type_is_the_results(operand, preferred, name):
    shape = xla.make_shape(operand, [2, 2])
    assert infer(lambda a, b: xla.dot(a, b, preferred_element_type=preferred), shape, shape) == f"{name}[2,2]"
    x = (
        np.array([[100, 100], [1, 2]], operand.dtype)
        if operand is xla.S8
        else np.array([[1, 2], [3, 4]]).astype(operand.dtype)
    )
    expected = (x.astype(np.float64) @ x.astype(np.float64)).astype(preferred.dtype)
    same(evaluate(lambda a, b: xla.dot(a, b, preferred_element_type=preferred), x, x), expected)


def test_mixed_operands_take_the_more_precise_type():
    assert infer(xla.dot, xla.make_shape(xla.BF16, [2, 3]), f32(3, 4)) == "f32[2,4]"
    assert infer(xla.dot, xla.make_shape(xla.S8, [2, 3]), s32(3, 4)) == "s32[2,4]"


def test_dynamic_dimensions_of_dot():
    assert infer(xla.dot, f32(2, 3, dynamic=[True, False]), f32(3, 4, dynamic=[False, True])) == "f32[<=2,<=4]"


def test_precision_is_kept():
    config = PrecisionConfig(["high", "highest"], "dot_bf16_bf16_f32_x3")
    builder = xla.XlaBuilder("t")
    x = xla.parameter(builder, 0, f32(2, 2))
    op = xla.dot(x, x, config).instruction.op
    assert [p.name for p in op.operand_precision] == ["HIGH", "HIGHEST"]
    assert op.algorithm.text == "dot_bf16_bf16_f32_x3"


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (DotDimensionNumbers([1], [0, 1]), "contracting dimensions"),
        (DotDimensionNumbers([1], [1]), "size"),
        (DotDimensionNumbers([2], [0]), "out of range"),
        (DotDimensionNumbers([-1], [0]), "out of range"),
        (DotDimensionNumbers([1, 1], [0, 0]), "twice"),
        (DotDimensionNumbers([1], [0], [1], [1]), "twice"),
        (DotDimensionNumbers([1], [0], [0], []), "batch dimensions"),
        (DotDimensionNumbers([1], [0], [0], [1]), "batch dimension 0"),
    ],
)
def test_dot_general_refuses(numbers, message):
    refused(message, lambda a, b: xla.dot_general(a, b, numbers), f32(2, 3), f32(3, 4))


# -- ragged dot


def ragged(numbers, a, b, sizes):
    return evaluate(lambda a, b, g: xla.ragged_dot(a, b, g, numbers), a, b, sizes)


def test_groups_of_rows_meet_their_own_matrix():
    a, b, sizes = random(11, 3), random(4, 3, 5), [3, 0, 5, 2]
    numbers = RaggedDotDimensionNumbers(DotDimensionNumbers([1], [1]), [0], [0])
    owner = np.repeat(range(4), sizes)
    expected = np.zeros((11, 5), np.float32)
    expected[:10] = np.einsum("mk,mkn->mn", a[:10], b[owner])
    same(ragged(numbers, a, b, ints(sizes)), expected)


def test_groups_may_differ_between_batches():
    a, b, sizes = random(2, 3, 7, 4), random(3, 2, 4, 5), RNG.integers(0, 4, (2, 3, 3))
    numbers = RaggedDotDimensionNumbers(DotDimensionNumbers([3], [2], [0], [1]), [2], [0])
    expected = np.zeros((2, 3, 7, 5), np.float32)
    for batch, row in np.ndindex(2, 3):
        owner = np.repeat(range(3), sizes[batch, row])[:7]
        expected[batch, row, : len(owner)] = np.einsum("mk,mkn->mn", a[batch, row, : len(owner)], b[owner, batch])
    same(ragged(numbers, a, b, sizes), expected)


def test_groups_of_a_contracting_dimension_are_summed_apart():
    a, b, sizes = random(2, 3, 7, 4), random(7, 3, 2, 5), RNG.integers(0, 4, (2, 3, 3))
    numbers = RaggedDotDimensionNumbers(DotDimensionNumbers([1, 2], [1, 0], [0], [2]), [2], [])
    expected = np.zeros((3, 2, 4, 5), np.float32)
    for batch, row, group in np.ndindex(2, 3, 3):
        start = sizes[batch, row, :group].sum()
        rows = slice(start, start + sizes[batch, row, group])
        expected[group, batch] += a[batch, row, rows].T @ b[rows, row, batch]
    same(ragged(numbers, a, b, sizes), expected)


def test_batches_in_no_group_are_zero():
    a, b = random(4, 2, 3), random(4, 3, 5)
    numbers = RaggedDotDimensionNumbers(DotDimensionNumbers([2], [1], [0], [0]), [0], [])
    expected = a @ b
    expected[3] = 0
    same(ragged(numbers, a, b, ints([1, 2])), expected)


@pytest.mark.parametrize(
    ("numbers", "groups", "message"),
    [
        (RaggedDotDimensionNumbers(DotDimensionNumbers([1], [1]), [], [0]), s32(4), "exactly one ragged"),
        (RaggedDotDimensionNumbers(DotDimensionNumbers([1], [1]), [2], [0]), s32(4), "out of range"),
        (RaggedDotDimensionNumbers(DotDimensionNumbers([1], [1]), [0], []), s32(4), "group dimensions"),
        (RaggedDotDimensionNumbers(DotDimensionNumbers([1], [1]), [0], [1]), s32(4), "cannot be"),
        (RaggedDotDimensionNumbers(DotDimensionNumbers([1], [1]), [0], [0]), s32(5), "group sizes"),
        (RaggedDotDimensionNumbers(DotDimensionNumbers([1], [1]), [0], [0]), s32(2, 4), "group sizes"),
        (RaggedDotDimensionNumbers(DotDimensionNumbers([1], [1]), [0], [0]), f32(4), "integers"),
        (RaggedDotDimensionNumbers(DotDimensionNumbers([1], [1]), [1], [0]), s32(4), "group dimensions"),
    ],
)
def test_ragged_dot_refuses(numbers, groups, message):
    refused(message, lambda a, b, g: xla.ragged_dot(a, b, g, numbers), f32(11, 3), f32(4, 3, 5), groups)


# -- scaled dot


def test_scales_cover_blocks():
    a, b = random(4, 8), random(8, 6)
    lhs_scale, rhs_scale = floats(2.0 ** RNG.integers(-3, 4, (4, 2))), floats(2.0 ** RNG.integers(-3, 4, (4, 3)))
    numbers = DotDimensionNumbers([1], [0])
    expected = (a * np.repeat(lhs_scale, 4, 1)) @ (b * np.repeat(np.repeat(rhs_scale, 2, 0), 2, 1))
    same(evaluate(lambda *o: xla.scaled_dot(*o, numbers), a, b, lhs_scale, rhs_scale), expected)


def test_scaled_dot_refuses():
    numbers = DotDimensionNumbers([1], [0])
    refused("multiple", lambda *o: xla.scaled_dot(*o, numbers), f32(4, 8), f32(8, 6), f32(4, 3), f32(1, 1))
    refused("rank", lambda *o: xla.scaled_dot(*o, numbers), f32(4, 8), f32(8, 6), f32(4), f32(1, 1))
    half = [xla.make_shape(xla.BF16, d) for d in ([4, 8], [8, 6], [], [])]
    refused("must not be a scalar", lambda *o: xla.scaled_dot(*o, numbers), *half)


@pytest.mark.parametrize("kind", [np.float32, ml_dtypes.bfloat16])
def test_fractions_count_where_the_result_is_an_integer(kind):
    a, b = np.array([[1.5, 0.5]], kind), np.array([[1.5], [0.5]], kind)
    same(evaluate(lambda x, y: xla.dot(x, y, preferred_element_type=xla.S32), a, b), ints([[2]]))


def test_long_complex_sums_that_cancel_are_positive_zeros():
    rng = np.random.default_rng(0)
    for _ in range(50):
        parts = rng.integers(-1, 2, (4, 9, 9)).astype(np.float32)
        lhs, rhs = (np.complex64(parts[k] + 1j * parts[k + 1]) for k in (0, 2))
        result = np.asarray(evaluate(xla.dot, lhs, rhs))
        for part in (result.real, result.imag):
            assert not np.signbit(part[part == 0]).any()
