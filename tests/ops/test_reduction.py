"""The page of reduce and map."""

import math

import ml_dtypes
import numpy as np
import pytest
from evaluating import build, evaluate, f32, floats, infer, ints, refused, s32, same

import xlakit as xla
from xlakit.ops.reduction import reducer_op

CUBE = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
KNOWN = {
    "add": (xla.add, np.add, 0),
    "mul": (xla.mul, np.multiply, 1),
    "max": (xla.max, np.maximum, -99),
    "min": (xla.min, np.minimum, 99),
}


def scalars(kind, count):
    return [xla.make_shape(kind)] * count


@pytest.mark.parametrize("dimensions", [[], [0], [1], [2], [2, 0], [0, 1, 2]])
@pytest.mark.parametrize("name", KNOWN)
def test_known_reducers(name, dimensions):
    function, ufunc, identity = KNOWN[name]
    expected = ufunc.reduce(CUBE - 7, axis=tuple(dimensions), dtype=np.int32)
    same(evaluate(lambda x: xla.reduce(x, identity, function, dimensions), CUBE - 7), expected)


@pytest.mark.parametrize("dimensions", [[0], [1, 2], [0, 1, 2]])
def test_unknown_reducers_give_the_same(dimensions):
    shifted = lambda a, b: (a + b) + 0  # noqa: E731
    same(
        evaluate(lambda x: xla.reduce(x, 0, shifted, dimensions), CUBE),
        CUBE.sum(axis=tuple(dimensions), dtype=np.int32),
    )


def test_the_initial_value_counts_once():
    for function in (xla.add, lambda a, b: (a + b) + 0):
        same(evaluate(lambda x, f=function: xla.reduce(x, 100, f, [0]), ints([1, 2, 3])), ints(106))
        same(evaluate(lambda x, f=function: xla.reduce(x, 100, f, [0]), np.zeros((0, 2), np.int32)), ints([100, 100]))
        same(evaluate(lambda x, f=function: xla.reduce(x, 100, f, [1]), np.zeros((0, 2), np.int32)), ints([]))


def test_order_is_kept():
    """Digits are put one after the other: associative, not commutative, two values at a time."""

    def join(value, scale, digit, ten):
        return value * ten + digit, scale * ten

    digits = ints([[3, 1, 4, 1, 5, 9, 2], [2, 7, 1, 8, 2, 8, 1]])
    tens = np.full_like(digits, 10)
    values, scales = evaluate(lambda d, t: xla.reduce([d, t], [0, 1], join, [1]), digits, tens)
    same(values, ints([3141592, 2718281]))
    same(scales, ints([10**7] * 2))


def test_floats_accumulate_in_double_and_round_once():
    x = np.full(3000, 0.1, np.float32)
    expected = np.float32(math.fsum(float(v) for v in x))
    same(evaluate(lambda x: xla.reduce(x, 0, xla.add, [0]), x), expected)
    h = np.full(300, 1, ml_dtypes.bfloat16)
    same(evaluate(lambda x: xla.reduce(x, 0, xla.add, [0]), h), np.array(300).astype(ml_dtypes.bfloat16))
    same(evaluate(lambda x: xla.reduce(x, 0, xla.add, [0]), floats([1e30, 1, -1e30])), floats(0))


def test_nan_goes_through_maximum_and_minimum():
    for function in (xla.max, xla.min):
        assert np.isnan(evaluate(lambda x, f=function: xla.reduce(x, 0, f, [0]), floats([1, np.nan, 2])))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, ml_dtypes.int4, ml_dtypes.uint4, np.uint64])
def test_integers_wrap(dtype):
    bits = 4 if "4" in np.dtype(dtype).name and "64" not in np.dtype(dtype).name else np.iinfo(dtype).bits
    x = np.full(20, 7, np.int8).astype(dtype)
    got = int(evaluate(lambda x: xla.reduce(x, xla.constant(x.builder, np.array(0).astype(dtype)), xla.add, [0]), x))
    assert (got - 140) % (1 << bits) == 0


def test_bits_and_pred():
    x = ints([0b1100, 0b1010])
    same(evaluate(lambda x: xla.reduce(x, -1, xla.and_, [0]), x), ints(0b1000))
    same(evaluate(lambda x: xla.reduce(x, 0, xla.or_, [0]), x), ints(0b1110))
    same(evaluate(lambda x: xla.reduce(x, 0, xla.xor, [0]), x), ints(0b0110))
    p = np.array([[True, False], [True, True]])
    same(evaluate(lambda x: xla.reduce(x, True, xla.and_, [0]), p), np.array([True, False]))
    same(evaluate(lambda x: xla.reduce(x, False, xla.or_, [0]), p), np.array([True, True]))


def test_reduce_all():
    same(evaluate(lambda x: xla.reduce_all(x, 0, xla.add), CUBE), ints(CUBE.sum()))
    same(evaluate(lambda x: xla.reduce_all(x, 1, xla.add), ints(4)), ints(5))


def test_reducer_op():
    def opcode(function, kind=xla.F32):
        op = reducer_op(build(function, *scalars(kind, 2)).computation)
        return op and op.opcode

    assert opcode(xla.add) == "add"
    assert opcode(lambda a, b: xla.max(b, a)) == "maximum"
    assert opcode(lambda a, b: xla.add(a, a)) is None
    assert opcode(xla.sub) is None
    assert opcode(lambda a, b: a + b + 0) is None
    assert opcode(xla.xor, xla.S32) == "xor"


def test_dynamic_dimensions_of_reduce():
    assert infer(lambda x: xla.reduce(x, 0, xla.add, [1]), f32(2, 3, dynamic=[True, True])) == "f32[<=2]"


def test_reduce_refuses():
    refused("twice", lambda x: xla.reduce(x, 0, xla.add, [0, 0]), f32(2, 3))
    refused("out of range", lambda x: xla.reduce(x, 0, xla.add, [2]), f32(2, 3))
    refused("2 initial values", lambda x: xla.reduce(x, [0, 0], xla.add, [0]), f32(2))
    refused("initial value", lambda x, i: xla.reduce(x, i, xla.add, [0]), f32(2), f32(1))
    refused("initial value", lambda x, i: xla.reduce(x, i, xla.add, [0]), f32(2), s32())
    refused("same dimensions", lambda x, y: xla.reduce([x, y], [0, 0], lambda a, b, c, d: (a, b), [0]), f32(2), f32(3))
    refused("give 2 scalars", lambda x, y: xla.reduce([x, y], [0, 0], lambda a, b, c, d: a, [0]), f32(2), f32(2))
    refused("running value", lambda x: xla.reduce(x, 0, xla.lt, [0]), f32(2))
    three = build(lambda a, b, c: a + b + c, *scalars(xla.F32, 3))
    refused("parameters", lambda x: xla.reduce(x, 0, three, [0]), f32(2))


# -- map


def test_map():
    same(evaluate(lambda x, y: xla.map([x, y], lambda a, b: a * b + 1), CUBE, CUBE), CUBE * CUBE + 1)
    same(evaluate(lambda x: xla.map(x, lambda a: xla.gt(a, 3), [0]), ints([1, 5])), np.array([False, True]))
    same(evaluate(lambda x: xla.map(x, lambda a: a * 2), ints(4)), ints(8))
    same(evaluate(lambda x: xla.map(x, lambda a: a * 2), np.zeros((0, 3), np.int32)), np.zeros((0, 3), np.int32))


def test_map_runs_any_computation():
    doubled = lambda a: xla.while_(lambda s: xla.lt(s, 100), lambda s: s * 2, a)  # noqa: E731
    same(evaluate(lambda x: xla.map(x, doubled), ints([1, 3, 50, 200])), ints([128, 192, 100, 200]))


def test_map_refuses():
    refused("same dimensions", lambda x, y: xla.map([x, y], xla.add), f32(2), f32(3))
    refused("in order", lambda x: xla.map(x, xla.neg, [1]), f32(2))
    refused("parameters", lambda x: xla.map([x, x], build(xla.neg, *scalars(xla.F32, 1))), f32(2))
    refused("take an element", lambda x: xla.map(x, build(xla.neg, *scalars(xla.S32, 1))), f32(2))
    refused("give a scalar", lambda x: xla.map(x, lambda a: (a, a)), f32(2))
