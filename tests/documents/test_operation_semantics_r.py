"""The examples of the document "Operation semantics", from Reduce to RngBitGenerator."""

import ml_dtypes
import numpy as np
import pytest
from helpers import close, evaluate, f32, floats, infer, ints, refused, replicated, s32, same

import xlakit as xla

# -- Reduce ---------------------------------------------------------------------------------------

SIX = floats([[1, 2, 3], [4, 5, 6]])
CUBE = floats([[[1, 2, 3], [4, 5, 6]]] * 4)


def add_over(*dimensions):
    return lambda x: xla.reduce(x, 0.0, xla.add, dimensions)


def test_reduce_a_vector_in_any_association():
    vector = ints([10, 11, 12, 13])
    same(evaluate(lambda x: xla.reduce(x, 0, xla.add, [0]), vector), ints(46))
    same(evaluate(lambda x: xla.reduce(x, -100, xla.max, [0]), vector), ints(13))


def test_reduce_a_matrix():
    same(evaluate(add_over(0), SIX), floats([5, 7, 9]))
    same(evaluate(add_over(1), SIX), floats([6, 15]))


def test_reduce_a_cube():
    same(evaluate(add_over(0), CUBE), floats([[4, 8, 12], [16, 20, 24]]))
    same(evaluate(add_over(2), CUBE), floats([[6, 15]] * 4))
    same(evaluate(add_over(0, 1), CUBE), floats([20, 28, 36]))
    same(evaluate(add_over(1, 0), CUBE), floats([20, 28, 36]))
    same(evaluate(add_over(0, 1, 2), CUBE), floats(84))


def argmax(maximum, position, value, index):
    better = value >= maximum
    return xla.select(better, value, maximum), xla.select(better, index, position)


def test_variadic_reduce_of_maximum_and_its_position():
    def program(v, k):
        return xla.reduce([v, k], [float("-inf"), -1], argmax, [0])

    values = floats([3, 9, 2, 9, 4])
    # "value >= max" takes the later of two that are equal.
    same(evaluate(program, values, np.arange(5, dtype=np.int32)), (floats(9), ints(3)))


def test_variadic_reduce_is_the_recursion():
    rng = np.random.default_rng(2)
    values, keys = rng.integers(0, 5, (6, 3)).astype(np.float32), np.arange(18, dtype=np.int32).reshape(6, 3)
    maximum, position = np.full(3, -1, np.float32), np.full(3, -1, np.int32)
    for row, key in zip(values, keys, strict=True):
        better = row >= maximum
        maximum, position = np.where(better, row, maximum), np.where(better, key, position)
    same(
        evaluate(lambda v, k: xla.reduce([v, k], [-1.0, -1], argmax, [0]), values, keys),
        (maximum, position),
    )


# -- ReducePrecision ------------------------------------------------------------------------------

WIDE = np.concatenate(
    [
        np.random.default_rng(0).normal(size=200) * 10.0 ** np.arange(-20, 20).repeat(5),
        [0.0, -0.0, np.inf, -np.inf, np.nan],
    ]
).astype(np.float32)


@pytest.mark.parametrize(
    ("exponent_bits", "mantissa_bits", "dtype"),
    [(8, 7, ml_dtypes.bfloat16), (5, 10, np.float16), (8, 23, np.float32), (11, 52, np.float32)],
)
def test_reduce_precision_is_as_a_conversion_there_and_back(exponent_bits, mantissa_bits, dtype):
    with np.errstate(over="ignore"):
        expected = WIDE.astype(dtype).astype(np.float32)
    # Denormals of the narrow format are flushed; every other value is as a conversion.
    smallest = 2.0 ** (2 - 2 ** (exponent_bits - 1))
    normal = ~(np.abs(WIDE) < smallest) | (WIDE == 0)
    result = evaluate(lambda x: xla.reduce_precision(x, exponent_bits, mantissa_bits), WIDE)
    same(result[normal], expected[normal])


# -- ReduceScatter --------------------------------------------------------------------------------


def test_reduce_scatter_of_the_example():
    data = [[floats([1.0, 2.25])], [floats([3.0, 5.25])]]
    same(tuple(replicated(lambda x: xla.reduce_scatter(x, xla.add, 0, 2), data)), (floats([4.0]), floats([7.5])))


def test_reduce_scatter_works_within_groups_in_their_order():
    data = [floats([10.0**i, 2 * 10.0**i]) for i in range(4)]
    results = replicated(
        lambda x: xla.reduce_scatter(x, xla.add, 0, 2, replica_groups=[[2, 0], [1, 3]]), [[d] for d in data]
    )
    same(tuple(results), (floats([202]), floats([1010]), floats([101]), floats([2020])))


def test_reduce_scatter_divides_its_dimension():
    assert infer(lambda x: xla.reduce_scatter(x, xla.add, 1, 4), f32(3, 8)).dimensions == (3, 2)
    refused(lambda x: xla.reduce_scatter(x, xla.add, 1, 3), f32(3, 8))
    refused(lambda x: xla.reduce_scatter(x, xla.add, 2, 4), f32(3, 8))


# -- ReduceWindow ---------------------------------------------------------------------------------


def test_reduce_window_of_the_example():
    def program(x):
        return xla.reduce_window(x, float("-inf"), xla.max, (2, 3), (2, 3), "VALID")

    array = np.random.default_rng(0).permutation(24).astype(np.float32).reshape(4, 6)
    same(evaluate(program, array), array.reshape(2, 2, 2, 3).max(axis=(1, 3)))


@pytest.mark.parametrize(("padding", "expected"), [("VALID", [100, 1]), ("SAME", [1000, 10, 1])])
def test_reduce_window_with_padding(padding, expected):
    biggest = float(np.finfo(np.float32).max)
    vector = floats([10000, 1000, 100, 10, 1])
    same(
        evaluate(lambda x: xla.reduce_window(x, biggest, xla.min, (3,), (2,), padding), vector),
        floats(expected),
    )


def test_reduce_window_of_several_arrays():
    def program(v, k):
        return xla.reduce_window([v, k], [float("-inf"), -1], argmax, (2,), (2,), "VALID")

    values = floats([3, 9, 7, 2, 5, 6])
    same(evaluate(program, values, np.arange(6, dtype=np.int32)), (floats([9, 7, 6]), ints([1, 2, 5])))


def test_reduce_window_has_rules():
    def window(dimensions=(2, 2), strides=(1, 1), padding="VALID", computation=xla.add, init=0.0):
        return lambda x: xla.reduce_window(x, init, computation, dimensions, strides, padding)

    assert infer(window(), f32(3, 4)).dimensions == (2, 3)
    for program in [
        window(dimensions=(2,)),
        window(dimensions=(0, 2)),
        window(strides=(1,)),
        window(strides=(0, 1)),
        window(computation=xla.lt),
    ]:
        refused(program, f32(3, 4))
    refused(lambda x, i: xla.reduce_window(x, i, xla.add, (2, 2), (1, 1), "VALID"), f32(3, 4), s32())
    refused(lambda x, y: xla.reduce_window([x, y], [0.0, 0.0], argmax, (2, 2), (1, 1), "VALID"), f32(3, 4), f32(3, 5))


# -- Reshape --------------------------------------------------------------------------------------

V = floats(
    [
        [[10, 11, 12], [15, 16, 17]],
        [[20, 21, 22], [25, 26, 27]],
        [[30, 31, 32], [35, 36, 37]],
        [[40, 41, 42], [45, 46, 47]],
    ]
)
IN_ORDER = [10, 11, 12, 15, 16, 17, 20, 21, 22, 25, 26, 27, 30, 31, 32, 35, 36, 37, 40, 41, 42, 45, 46, 47]
OUT_OF_ORDER = [10, 20, 30, 40, 11, 21, 31, 41, 12, 22, 32, 42, 15, 25, 35, 45, 16, 26, 36, 46, 17, 27, 37, 47]


@pytest.mark.parametrize("sizes", [(24,), (8, 3)])
def test_reshape_collapses_in_order(sizes):
    same(evaluate(lambda v: xla.reshape(v, (0, 1, 2), sizes), V), floats(IN_ORDER).reshape(sizes))
    same(evaluate(lambda v: xla.reshape(v, sizes), V), floats(IN_ORDER).reshape(sizes))


@pytest.mark.parametrize("sizes", [(24,), (8, 3), (2, 6, 2)])
def test_reshape_collapses_out_of_order(sizes):
    same(evaluate(lambda v: xla.reshape(v, (1, 2, 0), sizes), V), floats(OUT_OF_ORDER).reshape(sizes))


# -- Rev ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimensions", [(), (0,), (1,), (0, 2), (2, 1, 0)])
def test_rev_turns_index_i_into_n_minus_1_minus_i(dimensions):
    result = evaluate(lambda v: xla.rev(v, dimensions), V)
    for index in np.ndindex(*V.shape):
        turned = tuple(V.shape[d] - 1 - i if d in dimensions else i for d, i in enumerate(index))
        assert result[turned] == V[index]


def test_rev_has_rules():
    for dimensions in [(3,), (-1,), (0, 0)]:
        refused(lambda v, d=dimensions: xla.rev(v, d), f32(4, 2, 3))


# -- the numbers stay close -----------------------------------------------------------------------


@pytest.mark.reference
def test_sums_of_many_floats_are_rounded_once():
    many = np.full(100_000, 0.1, np.float32)
    close(evaluate(add_over(0), many), np.float64(np.float32(0.1)) * 100_000, rtol=1e-7)
