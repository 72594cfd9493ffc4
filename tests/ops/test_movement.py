"""The page of movement: broadcast, reshape, transpose, reverse, slice, pad, concatenate."""

import itertools

import numpy as np
import pytest
from evaluating import evaluate, f32, floats, infer, ints, refused, same

import xlakit as xla
from xlakit.ops.movement import Broadcast
from xlakit.ops.shared.regrouping import common_factors

CUBE = np.arange(24, dtype=np.float32).reshape(4, 2, 3)


# -- broadcast


def test_broadcast_adds_dimensions_on_the_left():
    same(evaluate(lambda x: xla.broadcast(x, [2, 3]), floats(2)), np.full((2, 3), 2, np.float32))
    same(evaluate(lambda x: xla.broadcast(x, [2]), CUBE), np.broadcast_to(CUBE, (2, 4, 2, 3)))
    assert infer(lambda x: xla.broadcast(x, [7, 0]), f32(5, dynamic=[True])) == "f32[7,0,<=5]"


def test_broadcast_of_hlo_may_permute_but_not_stretch():
    operand, result = f32(2, 3), f32(3, 5, 2)
    assert Broadcast(dimensions=(2, 0)).result_shape([operand], result) == result.without_layout()
    for dimensions, message in [((0, 1), "cannot be"), ((0,), "entries"), ((2, 2), "twice"), ((0, 3), "out of range")]:
        with pytest.raises(xla.ShapeError, match=message):
            Broadcast(dimensions=dimensions).result_shape([operand], result)


# -- reshape


def test_reshape_with_and_without_an_order():
    same(evaluate(lambda x: xla.reshape(x, [8, 3]), CUBE), CUBE.reshape(8, 3))
    turned = CUBE.transpose(1, 2, 0)
    same(evaluate(lambda x: xla.reshape(x, [1, 2, 0], [2, 6, 2]), CUBE), turned.reshape(2, 6, 2))
    same(evaluate(lambda x: xla.reshape(x, [0, 1], []), floats([[5]])), floats(5))
    same(evaluate(lambda x: xla.reshape(x, [], [1, 1]), floats(5)), floats([[5]]))
    same(evaluate(lambda x: xla.reshape(x, [3, 0, 7]), np.zeros((0, 2), np.int8)), np.zeros((3, 0, 7), np.int8))


def test_reshape_refuses():
    refused("24 elements", lambda x: xla.reshape(x, [5, 5]), f32(4, 2, 3))
    refused("permute", lambda x: xla.reshape(x, [0, 0, 1], [24]), f32(4, 2, 3))
    refused("missing", xla.reshape, f32(4))
    refused("negative", lambda x: xla.reshape(x, [-2, -2]), f32(4))


@pytest.mark.parametrize(
    ("sizes", "dynamic", "target", "inferred", "expected"),
    [
        ([10], [True], [10, 1], -1, "f32[<=10,1]"),
        ([10], [True], [5, 2], 1, "f32[5,<=2]"),
        ([10], [True], [5, 2], -1, "f32[<=5,2]"),
        ([5, 2], [True, False], [10], -1, "f32[<=10]"),
        ([4, 6], [False, True], [2, 2, 6], -1, "f32[2,2,<=6]"),
        ([1, 3], [True, False], [3], -1, "f32[<=3]"),
        ([3, 1], [False, True], [3], -1, "f32[<=3]"),
    ],
)
def test_reshape_of_dynamic_dimensions(sizes, dynamic, target, inferred, expected):
    shape = f32(*sizes, dynamic=dynamic)
    assert infer(lambda x: xla.reshape(x, target, inferred_dimension=inferred), shape) == expected


def test_reshape_cannot_split_and_merge_a_dynamic_dimension():
    with pytest.raises(xla.UnsupportedError, match="both split and merged"):
        infer(lambda x: xla.reshape(x, [8, 3]), f32(4, 6, dynamic=[True, False]))


@pytest.mark.parametrize(
    ("a", "b"),
    [([2, 3], [3, 2]), ([2, 3, 4], [6, 4]), ([], [1, 1]), ([5], [1, 5, 1]), ([0, 10, 3], [0, 3]), ([0], [2, 0])],
)
def test_common_factors_have_equal_products(a, b):
    cuts = common_factors(a, b)
    assert cuts[0] == (0, 0)
    assert cuts[-1] == (len(a), len(b))
    for (i, j), (k, m) in itertools.pairwise(cuts):
        assert np.prod(a[i:k]) == np.prod(b[j:m])


# -- transpose and reverse


def test_transpose_and_reverse():
    for order in itertools.permutations(range(3)):
        same(evaluate(lambda x, order=order: xla.transpose(x, order), CUBE), CUBE.transpose(order))
    same(evaluate(lambda x: xla.rev(x, [2, 0]), CUBE), CUBE[::-1, :, ::-1])
    same(evaluate(lambda x: xla.rev(x, []), CUBE), CUBE)
    assert infer(lambda x: xla.transpose(x, [1, 0]), f32(2, 3, dynamic=[True, False])) == "f32[3,<=2]"


def test_transpose_and_reverse_refuse():
    refused("permute", lambda x: xla.transpose(x, [0, 0]), f32(2, 3))
    refused("permute", lambda x: xla.transpose(x, [0]), f32(2, 3))
    refused("twice", lambda x: xla.rev(x, [0, 0]), f32(2, 3))
    refused("out of range", lambda x: xla.rev(x, [2]), f32(2, 3))


# -- slice


def test_slice():
    x = floats(range(5))
    same(evaluate(lambda x: xla.slice(x, [2], [4]), x), floats([2, 3]))
    same(evaluate(lambda x: xla.slice(x, [0], [5], [3]), x), floats([0, 3]))
    same(evaluate(lambda x: xla.slice(x, [2], [2]), x), floats([]))
    same(evaluate(lambda x: xla.slice_in_dim(x, 1, 2, 1, 2), CUBE), CUBE[:, :, 1:2])


def test_slice_of_one_element_is_static():
    shape = f32(5, dynamic=[True])
    assert infer(lambda x: xla.slice(x, [0], [1]), shape) == "f32[1]"
    assert infer(lambda x: xla.slice(x, [0], [3]), shape) == "f32[<=3]"


# -- pad


def test_pad_cuts_more_than_the_elements():
    same(evaluate(lambda x: xla.pad(x, 9, [(-4, 3, 0)]), ints([1, 2])), ints([9]))
    same(evaluate(lambda x: xla.pad(x, 9, [(2, 0, 5)]), np.zeros(0, np.int32)), ints([9, 9]))
    same(evaluate(lambda x: xla.pad_in_dim(x, 0, 1, 1, 0), ints([[1], [2]])), ints([[0, 1], [0, 2]]))
    same(evaluate(lambda x: xla.pad(x, 0, []), ints(3)), ints(3))


# -- concatenate


def test_concatenate():
    a, b = ints([[1, 2], [3, 4]]), ints([[5, 6]])
    same(evaluate(lambda a, b: xla.concat_in_dim([a, b, a], 0), a, b), np.concatenate([a, b, a]))
    same(evaluate(lambda a: xla.concatenate([a], 1), a), a)
    assert infer(lambda a, b: xla.concat_in_dim([a, b], 0), f32(2, dynamic=[True]), f32(3)) == "f32[<=5]"
    half = xla.make_shape(xla.BF16, [2])
    assert infer(lambda a, b: xla.concat_in_dim([a, b], 0), half, f32(3)) == "f32[5]"


# -- values whose size is known late


def shortened(function):
    """``function`` of the first n elements of its first argument."""
    return lambda x, n: function(xla.set_dimension_size(x, n, 0))


def test_movements_see_only_the_elements_that_are_there():
    x, n = floats(range(6)), ints(4)
    same(evaluate(shortened(lambda x: xla.reshape(x, [3, 2], inferred_dimension=0)), x, n), floats([[0, 1], [2, 3]]))
    same(evaluate(shortened(lambda x: xla.rev(x, [0])), x, n), floats([3, 2, 1, 0]))
    same(evaluate(shortened(lambda x: xla.pad(x, 9, [(0, 1, 0)])), x, n), floats([0, 1, 2, 3, 9]))
    same(evaluate(shortened(lambda x: xla.concat_in_dim([x, x], 0)), x, n), floats([0, 1, 2, 3, 0, 1, 2, 3]))
    same(evaluate(shortened(lambda x: xla.broadcast_in_dim(x, [2, 6], [1])), x, n), floats([[0, 1, 2, 3]] * 2))
    same(evaluate(shortened(lambda x: xla.slice(x, [1], [6])), x, n), floats([1, 2, 3]))
    same(evaluate(shortened(lambda x: xla.slice(x, [5], [6])), x, n), floats([0]))
