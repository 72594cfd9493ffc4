"""Computations of scalars, positions of extremes, comparators, loops and broadcasts against NumPy."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from both_backends import plain, run

import xlakit as xla
from xlakit.lib import arithmetic, broadcast, comparators, loops, math

NAN, INF = np.nan, np.inf
ROWS = np.array([[1, 3, 3, -2], [-INF, -INF, -INF, -INF], [NAN, INF, NAN, 0], [-0.0, 0.0, -0.0, NAN], [INF, INF, 5, 6]])


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8, np.uint64, np.bool_])
@pytest.mark.parametrize(("axis", "kind"), [(-1, xla.S32), (0, xla.U8)])
def test_positions_of_extremes(dtype, axis, kind):
    with np.errstate(invalid="ignore"):
        array = ROWS.astype(dtype)
    extremes = run(lambda a: [arithmetic.arg_max(a, kind, axis), arithmetic.arg_min(a, kind, axis)], array)
    wide = array.astype(np.float64) if dtype == ml_dtypes.bfloat16 else array
    for found, expected in zip(extremes, (np.argmax(wide, axis), np.argmin(wide, axis)), strict=True):
        assert found.dtype == kind.dtype
        np.testing.assert_array_equal(found, expected)


def test_positions_in_no_elements_are_zero():
    found = run(lambda a: arithmetic.arg_max(a, xla.S32, 1), np.zeros((3, 0, 2), np.float32))
    assert found.shape == (3, 2) and not found.any()
    with pytest.raises(xla.ShapeError, match="rank 1"):
        run(lambda a: arithmetic.arg_max(a, xla.S32, 0), np.float32(1))
    with pytest.raises(xla.ShapeError, match="positions are integers"):
        run(lambda a: arithmetic.arg_min(a, xla.F32, 0), np.zeros(3))


@pytest.mark.parametrize("shape", [(), (0,), (3, 2)])
@pytest.mark.parametrize("value", [False, True])
def test_any_and_all(shape, value):
    array = np.full(shape, value)
    if array.size > 1:
        array[1, 1] ^= True
    some, every = run(lambda a: [arithmetic.any(a), arithmetic.all(a)], array)
    assert (some, every) == (array.any(), array.all())
    with pytest.raises(xla.ShapeError, match="array of pred"):
        run(arithmetic.any, np.zeros(3))


def test_computations_of_two_scalars():
    values = np.array([[5, 3, 6], [5, 3, 1]], np.int32)
    for name, expected in (("add", 14), ("multiply", 90), ("max", 6), ("min", 3), ("and", 0), ("or", 7)):
        made = getattr(arithmetic, f"create_scalar_{name}_computation")(xla.S32)
        start = {"multiply": 1, "max": -9, "min": 9, "and": -1}.get(name, 0)
        assert run(lambda a, c=made, s=start: xla.reduce(a[0], s, c, [0]), values) == expected
    greater = arithmetic.create_scalar_ge_computation(xla.F32)
    assert xla.compile(greater)(np.float32(1), np.float32(1))
    assert not xla.compile(greater)(np.float32(NAN), np.float32(1))
    for kind, x in ((xla.PRED, True), (xla.C64, 1 + 2j), (xla.U8, 200)):
        identity = xla.compile(arithmetic.create_scalar_identity_with_zero_computation(kind))
        assert identity(np.asarray(x, kind.dtype), np.zeros((), kind.dtype)) == x


def test_comparators_order_as_they_say():
    keys = np.array([0.0, -0.0, NAN, -NAN, INF, -INF, 1, -1], np.float32)
    keys = np.copysign(keys, [1, -1, 1, -1, 1, -1, 1, -1]).astype(np.float32)
    other = np.arange(8, dtype=np.int32)
    types = [xla.F32, xla.S32]

    def ordered(comparator):
        return run(lambda k, o: list(xla.sort([k, o], comparator)), keys, other)[1].tolist()

    assert ordered(comparators.create_scalar_lt_computation(types)) == [3, 5, 7, 1, 0, 6, 4, 2]
    assert ordered(comparators.create_scalar_gt_computation(types)) == [2, 4, 6, 0, 1, 7, 5, 3]
    integers = np.array([3, -1, 2], np.int8)
    descending = comparators.create_scalar_gt_computation([xla.S8])
    assert run(lambda k: xla.sort(k, descending), integers).tolist() == [3, 2, -1]


def test_comparators_of_several_keys():
    rng = np.random.default_rng(5)
    first, second, third = rng.integers(0, 3, 40), rng.integers(0, 3, 40), rng.integers(0, 9, 40).astype(np.float32)
    comparator = comparators.create_scalar_comparison_computation(
        "keys", [xla.S64, xla.S64, xla.F32], [xla.gt, None, xla.lt_total_order]
    )
    sorted_ = run(lambda *a: list(xla.sort(list(a), comparator)), first, second, third)
    order = np.lexsort((third, -first))
    for found, given in zip(sorted_, (first, second, third), strict=True):
        np.testing.assert_array_equal(found, given[order])
    # -0 and 0 are equal keys where they are compared as numbers, and different ones in total order.
    for compare, expected in ((xla.lt, False), (xla.lt_total_order, True)):
        made = comparators.create_scalar_comparison_computation("two", [xla.F32, xla.S32], [compare, xla.lt])
        zeros = [np.float32(-0.0), np.float32(0.0)]
        assert xla.compile(made)(*zeros, np.int32(2), np.int32(1)) == expected
    for types, given in (([], []), ([xla.F32], [None]), ([xla.F32], [xla.lt, xla.lt])):
        with pytest.raises(xla.ShapeError):
            comparators.create_scalar_comparison_computation("none", types, given)


def test_loops():
    def fibonacci(x):
        def body(values):
            a, b = values
            return b, a + b

        return loops.while_loop_helper(lambda v: v[1] < 100, body, [x, x + 1])

    assert [int(v) for v in run(fibonacci, np.int32(0))] == [89, 144]

    def triangle(x):
        counted = loops.for_each_index(
            x.builder, 200, xla.U8, lambda i, v: [v[0] + xla.convert_element_type(i, xla.S32)], [x]
        )
        unchanged = loops.for_each_index(x.builder, 0, xla.S32, lambda i, v: [v[0] + i], [x])
        return [*counted, *unchanged]

    assert [int(v) for v in run(triangle, np.int32(1))] == [1 + 199 * 100, 1]
    builder = xla.XlaBuilder("none")
    assert loops.for_each_index(builder, 3, xla.S32, lambda i, v: [], []) == []
    with pytest.raises(xla.ShapeError, match="does not count to 200"):
        loops.for_each_index(builder, 200, xla.S8, lambda i, v: [], [])


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ((), (2, 3)),
        ((3,), (2, 3)),
        ((2, 1), (4, 5)),
        ((2, 3), (4, 3)),
        ((1, 2), (3, 1, 6)),
        ((0, 2), (0, 4)),
        ((1,), (0,)),
    ],
)
def test_broadcasts_repeat(shape, sizes):
    array = np.arange(np.prod(shape, dtype=int), dtype=np.int16).reshape(shape)
    padded = array.reshape((1,) * (len(sizes) - len(shape)) + shape)
    expected = np.tile(padded, [w // s if s else 1 for s, w in zip(padded.shape, sizes, strict=True)])
    np.testing.assert_array_equal(run(lambda a: broadcast.broadcast_to(a, sizes), array), expected)


@pytest.mark.parametrize(("shape", "sizes"), [((2,), (3,)), ((0,), (2,)), ((2, 2), (2,)), ((2,), (-2,))])
def test_broadcasts_that_cannot_be(shape, sizes):
    with pytest.raises(xla.ShapeError, match="cannot broadcast"):
        run(lambda a: broadcast.broadcast_to(a, sizes), np.zeros(shape))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_functions_of_elements(dtype):
    x = np.array([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, NAN, INF, -INF], dtype)
    is_zero, rounded = run(lambda a: [math.is_neg_zero(a), math.round_to_even(a)], x)
    assert is_zero.tolist() == [False, True] + [False] * 7
    np.testing.assert_array_equal(plain(rounded), np.rint(x.astype(np.float64)))


def test_polynomials():
    x = np.linspace(-2, 2, 9)
    coefficients = [0.25, -3.0, 1.5, 2.0]
    found = run(lambda a: [math.evaluate_polynomial(a, coefficients), math.evaluate_polynomial(a, [])], x, exact=False)
    np.testing.assert_allclose(found[0], np.polyval(coefficients, x), rtol=1e-14)
    assert not found[1].any()
    series = run(lambda a: math.evaluate_chebyshev_polynomial(a, coefficients), x, exact=False)
    halved = coefficients[::-1]
    halved[0] /= 2
    np.testing.assert_allclose(series, np.polynomial.chebyshev.chebval(x / 2, halved), rtol=1e-13, atol=1e-14)
    with pytest.raises(xla.ShapeError, match="floating point or complex"):
        run(lambda a: math.evaluate_polynomial(a, [1.0]), np.arange(3))


def test_conjugates():
    x = np.array([1 + 2j, INF - 3j], np.complex64)
    for given, flag in itertools.product((x, x.real), (True, False)):
        np.testing.assert_array_equal(
            run(lambda a, f=flag: math.maybe_conjugate(a, f), given), np.conj(given) if flag else given
        )
