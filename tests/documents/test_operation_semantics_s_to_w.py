"""The examples of the document "Operation semantics", from Select to While, Scatter and Send apart."""

import itertools

import numpy as np
import pytest
from helpers import build, evaluate, f32, floats, infer, ints, refused, s32, same

import xlakit as xla

# -- Select ---------------------------------------------------------------------------------------

V1, V2 = ints([1, 2, 3, 4]), ints([100, 200, 300, 400])


def test_select_by_element():
    p = np.array([True, False, False, True])
    same(evaluate(xla.select, p, V1, V2), ints([1, 200, 300, 4]))


def test_select_by_a_scalar():
    same(evaluate(xla.select, np.bool_(True), V1, V2), ints([1, 2, 3, 4]))
    same(evaluate(xla.select, np.bool_(False), V1, V2), ints([100, 200, 300, 400]))


# -- SelectAndScatter -----------------------------------------------------------------------------


def max_pool_gradient(window, strides, padding="VALID", init=0.0):
    def program(operand, source):
        return xla.select_and_scatter(operand, xla.ge, window, strides, padding, source, init, xla.add)

    return program


def test_select_and_scatter_of_windows_that_do_not_overlap():
    operand = floats([[7, 2, 5, 3, 10, 2], [3, 8, 9, 3, 4, 2], [1, 5, 7, 5, 6, 1], [0, 6, 2, 7, 2, 8]])
    expected = [[0, 0, 0, 0, 6, 0], [0, 0, 2, 0, 0, 0], [0, 0, 3, 0, 0, 0], [0, 0, 0, 0, 0, 1]]
    same(evaluate(max_pool_gradient((2, 3), (2, 3)), operand, floats([[2, 6], [3, 1]])), floats(expected))


def test_an_element_of_two_windows_is_selected_twice():
    # Both windows of the upper row select the 9, which gets 2 + 6.
    operand = floats([[7, 2, 5, 3, 8], [3, 8, 9, 3, 4], [1, 5, 7, 5, 6], [0, 6, 2, 10, 2]])
    expected = [[0, 0, 0, 0, 0], [0, 0, 8, 0, 0], [0, 0, 3, 0, 0], [0, 0, 0, 1, 0]]
    same(evaluate(max_pool_gradient((2, 3), (2, 2)), operand, floats([[2, 6], [3, 1]])), floats(expected))


def test_of_equal_elements_the_first_stays_selected():
    # The first argument of select comes earlier in the window; ge keeps it, gt does not.
    def program(select):
        return lambda o, s: xla.select_and_scatter(o, select, (3,), (3,), "VALID", s, 0.0, xla.add)

    same(evaluate(program(xla.ge), floats([5, 5, 5]), floats([1])), floats([1, 0, 0]))
    same(evaluate(program(xla.gt), floats([5, 5, 5]), floats([1])), floats([0, 0, 1]))


def test_select_and_scatter_has_rules():
    program = max_pool_gradient((2, 3), (2, 3))
    assert infer(program, f32(4, 6), f32(2, 2)).dimensions == (4, 6)
    refused(program, f32(4, 6), f32(2, 3))
    refused(program, f32(4, 6), s32(2, 2))
    refused(program, f32(4), f32(2, 2))
    refused(
        lambda o, s: xla.select_and_scatter(o, xla.add, (2, 3), (2, 3), "VALID", s, 0.0, xla.add), f32(4, 6), f32(2, 2)
    )
    refused(
        lambda o, s: xla.select_and_scatter(o, xla.ge, (2, 3), (2, 3), "VALID", s, 0.0, xla.ge), f32(4, 6), f32(2, 2)
    )
    refused(
        lambda o, s, i: xla.select_and_scatter(o, xla.ge, (2, 3), (2, 3), "VALID", s, i, xla.add),
        f32(4, 6),
        f32(2, 2),
        s32(),
    )


# -- Slice ----------------------------------------------------------------------------------------

A = floats([0.0, 1.0, 2.0, 3.0, 4.0])
B = floats([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0], [9.0, 10.0, 11.0]])


def test_slice_a_vector():
    same(evaluate(lambda a: xla.slice(a, (2,), (4,)), A), floats([2.0, 3.0]))


def test_slice_a_matrix():
    same(evaluate(lambda b: xla.slice(b, (2, 1), (4, 3)), B), floats([[7.0, 8.0], [10.0, 11.0]]))


def test_slice_with_strides_takes_every_nth_element():
    same(evaluate(lambda a: xla.slice(a, (0,), (5,), (2,)), A), floats([0, 2, 4]))
    same(evaluate(lambda b: xla.slice(b, (1, 0), (4, 3), (2, 2)), B), floats([[3, 5], [9, 11]]))
    assert infer(lambda a: xla.slice(a, (1,), (1,), (3,)), f32(5)).dimensions == (0,)


def test_slice_has_rules():
    refused(lambda a: xla.slice(a, (-1,), (4,)), f32(5), match="negative")
    refused(lambda a: xla.slice(a, (3,), (2,)), f32(5), match="less than its start")
    refused(lambda a: xla.slice(a, (0,), (6,)), f32(5), match="greater than its size")
    refused(lambda a: xla.slice(a, (0,), (5,), (0,)), f32(5), match="stride")
    refused(lambda a: xla.slice(a, (0, 0), (5, 1)), f32(5))
    refused(lambda a: xla.slice(a, (0,), (5, 1)), f32(5))


# -- Sort -----------------------------------------------------------------------------------------


def test_sort_three_operands_by_the_first():
    def first_less(p0, p1, *_):
        return p0 < p1

    result = evaluate(
        lambda a, b, c: xla.sort([a, b, c], first_less, 0), ints([3, 1]), ints([42, 50]), floats([-3.0, 1.1])
    )
    same(result, (ints([1, 3]), ints([50, 42]), floats([1.1, -3.0])))


def test_sort_a_vector_upwards_and_downwards():
    values = floats([3, 1, 4, 1, 5])
    same(evaluate(lambda x: xla.sort([x], xla.lt, 0), values), floats([1, 1, 3, 4, 5]))
    same(evaluate(lambda x: xla.sort([x], xla.gt, 0), values), floats([5, 4, 3, 1, 1]))


# -- Transpose ------------------------------------------------------------------------------------


@pytest.mark.parametrize("permutation", list(itertools.permutations(range(3))))
def test_transpose_is_a_reshape_in_that_order(permutation):
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

    def program(x):
        return xla.transpose(x, permutation), xla.reshape(x, permutation, [x.shape.dimensions[p] for p in permutation])

    transposed, reshaped = evaluate(program, array)
    same(transposed, reshaped)


def test_transpose_has_rules():
    for permutation in [(0,), (0, 0), (0, 2), (0, 1, 2)]:
        refused(lambda x, p=permutation: xla.transpose(x, p), f32(2, 3))


# -- While ----------------------------------------------------------------------------------------


def test_while_of_the_example():
    def program(zero_vector, constant_vector):
        def condition(result):
            return xla.get_tuple_element(result, 0) < 1000

        def body(result):
            iteration = xla.get_tuple_element(result, 0) + 1
            constant = xla.get_tuple_element(result, 2)
            return iteration, xla.get_tuple_element(result, 1) + constant, constant

        counter = xla.constant(zero_vector.builder, np.int32(0))
        return xla.while_(condition, body, xla.tuple_(counter, zero_vector, constant_vector))

    vector = np.arange(10, dtype=np.float32)
    same(evaluate(program, np.zeros(10, np.float32), vector), (ints(1000), vector * 1000, vector))


def test_a_while_whose_condition_fails_at_once_gives_its_start():
    same(evaluate(lambda x: xla.while_(lambda s: s < 0, lambda s: s - 1, x), ints(5)), ints(5))


def test_while_takes_built_computations():
    condition, body = build(lambda s: s < 100, s32()), build(lambda s: s * 2, s32())
    same(evaluate(lambda x: xla.while_(condition, body, x), ints(3)), ints(192))


def test_while_has_rules():
    refused(lambda x: xla.while_(lambda s: s + 1, lambda s: s, x), s32())
    refused(lambda x: xla.while_(lambda s: s > 0, lambda s: s > 0, x), s32())
    refused(lambda x: xla.while_(lambda s: s < 0, lambda s: s, x), s32(2))
    of_floats = build(lambda s: s < 0, f32())
    refused(lambda x: xla.while_(of_floats, lambda s: s, x), s32())
    grows = build(lambda s: xla.concat_in_dim([s, s], 0), s32(2))
    refused(lambda x: xla.while_(lambda s: xla.eq(xla.reduce(s, 0, xla.add, [0]), 0), grows, x), s32(2))
