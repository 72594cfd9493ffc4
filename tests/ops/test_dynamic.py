"""The page of places and sizes that are known when the program runs."""

import numpy as np
import pytest
from evaluating import build, compiled, evaluate, f32, floats, infer, ints, refused, s32, same

import xlakit as xla
from xlakit.ops.registry import OPERATIONS

TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.mark.parametrize(("y", "x"), [(2, 1), (9, 9), (-5, 0), (3, -1)])
def test_dynamic_slice_clamps(y, x):
    top, left = min(max(y, 0), 2), min(max(x, 0), 1)
    got = evaluate(lambda a, y, x: xla.dynamic_slice(a, [y, x], [2, 2]), TABLE, ints(y), ints(x))
    same(got, TABLE[top : top + 2, left : left + 2])


def test_dynamic_slice_with_a_vector_of_indices_and_with_none():
    got = evaluate(lambda a, i: xla.dynamic_slice(a, i, [1, 3]), TABLE, np.array([2, 200], np.uint8))
    same(got, TABLE[2:3])
    same(evaluate(lambda a: xla.dynamic_slice(a, [], []), floats(3)), floats(3))
    same(evaluate(lambda a: xla.dynamic_slice(a, [4], [0]), floats([1, 2])), floats([]))


def test_dynamic_slice_keeps_a_dynamic_dimension_that_is_whole():
    shape = f32(4, 5, dynamic=[True, True])
    assert infer(lambda a: xla.dynamic_slice(a, [0, 0], [4, 2]), shape) == "f32[<=4,2]"


def test_dynamic_slice_refuses():
    refused("greater", lambda a: xla.dynamic_slice(a, [0], [4]), f32(3))
    refused("negative", lambda a: xla.dynamic_slice(a, [0], [-1]), f32(3))
    refused("start indices", lambda a: xla.dynamic_slice(a, [0, 0], [1]), f32(3))
    refused("entries", lambda a: xla.dynamic_slice(a, [0], [1, 1]), f32(3))
    refused("integers", lambda a, i: xla.dynamic_slice(a, [i], [1]), f32(3), f32())
    refused("scalars", lambda a, i: xla.dynamic_slice(a, [i], [1]), f32(3), s32(1, 1))
    refused("one type", lambda a, i, j: xla.dynamic_slice(a, [i, j], [1, 1]), f32(3, 3), s32(), xla.make_shape(xla.S64))
    refused("2 elements", lambda a, i: xla.dynamic_slice(a, i, [1, 1]), f32(3, 3), s32(3))
    refused("alone", lambda a, i: xla.dynamic_slice(a, [i, i], [1, 1]), f32(3, 3), s32(2))


def test_dynamic_update_slice():
    a, u = floats(range(5)), floats([50, 60])
    update = lambda a, u, i: xla.dynamic_update_slice(a, u, [i])  # noqa: E731
    same(evaluate(update, a, u, ints(2)), floats([0, 1, 50, 60, 4]))
    same(evaluate(update, a, u, ints(9)), floats([0, 1, 2, 50, 60]))
    same(evaluate(update, a, u, ints(-9)), floats([50, 60, 2, 3, 4]))
    same(evaluate(update, a, floats([]), ints(1)), a)
    same(a, floats(range(5)))
    same(evaluate(lambda a, u: xla.dynamic_update_slice(a, u, []), floats(1), floats(2)), floats(2))


def test_dynamic_update_slice_refuses():
    refused("greater", lambda a, u: xla.dynamic_update_slice(a, u, [0]), f32(3), f32(4))
    refused("rank", lambda a, u: xla.dynamic_update_slice(a, u, [0]), f32(3), f32())
    refused("fit", lambda a, u: xla.dynamic_update_slice(a, u, [0]), f32(3), s32(3))


def test_an_update_of_a_whole_dimension_may_make_it_dynamic():
    whole, part = f32(3, dynamic=[True]), f32(2, dynamic=[True])
    assert infer(lambda a, u: xla.dynamic_update_slice(a, u, [0]), f32(3), whole) == "f32[<=3]"
    assert infer(lambda a, u: xla.dynamic_update_slice(a, u, [0]), f32(3), part) == "f32[3]"


# -- sizes


def test_set_and_get_dimension_size():
    x = floats([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    for size in (0, 5, 10):
        n = ints(size)
        same(evaluate(lambda x, n: xla.get_dimension_size(xla.set_dimension_size(x, n, 0), 0), x, n), n)
        same(evaluate(lambda x, n: xla.set_dimension_size(x, n, 0), x, n), x[:size])
        total = evaluate(lambda x, n: xla.reduce_all(xla.set_dimension_size(x, n, 0), 0, xla.add), x, n)
        same(total, floats(x[:size].sum()))


def test_a_size_can_grow_up_to_the_bound():
    x, n = floats([1, 2, 3, 4]), ints(2)
    same(evaluate(lambda x, n: xla.set_dimension_size(xla.set_dimension_size(x, n, 0), 3, 0), x, n), floats([1, 2, 0]))
    whole = evaluate(lambda x, n: xla.remove_dynamic_dimension(xla.set_dimension_size(x, n, 0), 0), x, n)
    same(whole, floats([1, 2, 0, 0]))


def test_shapes_of_sizes():
    assert infer(lambda x: xla.get_dimension_size(x, 1), f32(2, 3)) == "s32[]"
    assert infer(lambda x, n: xla.set_dimension_size(x, n, 1), f32(2, 3), s32()) == "f32[2,<=3]"
    assert infer(lambda x: xla.remove_dynamic_dimension(x, 0), f32(3, dynamic=[True])) == "f32[3]"


def test_sizes_refuse():
    refused("out of range", lambda x: xla.get_dimension_size(x, 2), f32(2, 3))
    refused("out of range", lambda x: xla.set_dimension_size(x, 1, -1), f32(2, 3))
    refused("s32 scalar", lambda x, n: xla.set_dimension_size(x, n, 0), f32(2), s32(1))
    refused("s32 scalar", lambda x, n: xla.set_dimension_size(x, n, 0), f32(2), xla.make_shape(xla.S64))


@pytest.mark.parametrize("size", [-1, 5])
def test_a_size_outside_its_bound_stops_the_program(size):
    with pytest.raises(xla.ExecutionError, match="outside"):
        evaluate(lambda x, n: xla.set_dimension_size(x, n, 0), floats([1, 2, 3, 4]), ints(size))


# -- dynamic reshape


def test_dynamic_reshape():
    def pairs(x, n):
        short = xla.set_dimension_size(x, n, 0)
        return xla.dynamic_reshape(short, [n / 2, 2], [3, 2], [True, False])

    same(evaluate(pairs, floats(range(6)), ints(4)), floats([[0, 1], [2, 3]]))
    assert build(pairs, f32(6), s32()).program_shape.result.to_string(with_layout=False) == "f32[<=3,2]"
    with pytest.raises(xla.ExecutionError, match="3 elements"):
        evaluate(pairs, floats(range(6)), ints(3))


def test_reshape_of_nothing():
    # Of the sizes only a 1 is dynamic, and it has become 0.
    def flat(x, n):
        return xla.reshape(xla.set_dimension_size(x, n, 0), [6])

    text = """HloModule m
ENTRY e {
  p = f32[1,2,3] parameter(0)
  n = s32[] parameter(1)
  short = f32[<=1,2,3] set-dimension-size(p, n), dimensions={0}
  ROOT r = f32[<=6] reshape(short)
}"""
    run = compiled(xla.HloModule.from_text(text))
    whole = floats(range(6)).reshape(1, 2, 3)
    same(run(whole, ints(0)), floats([]))
    same(run(whole, ints(1)), floats(range(6)))
    assert infer(flat, f32(1, 2, 3), s32()) == "f32[<=6]"


def test_dynamic_reshape_refuses():
    refused("elements", lambda x, n: xla.dynamic_reshape(x, [n], [5], [True]), f32(6), s32())
    refused("sizes are given", lambda x, n: xla.dynamic_reshape(x, [n, n], [6], [True]), f32(6), s32())
    refused("s32 scalars", lambda x, n: xla.dynamic_reshape(x, [n], [6], [True]), f32(6), f32())
    refused("entries", lambda x, n: xla.dynamic_reshape(x, [n], [6], []), f32(6), s32())


def test_the_page_declares_its_operations():
    names = {"dynamic-slice", "dynamic-update-slice", "get-dimension-size", "set-dimension-size", "dynamic-reshape"}
    assert names <= set(OPERATIONS)


def test_operands_of_which_some_are_dynamic_meet_where_both_are():
    def run(x, n):
        part = xla.set_dimension_size(x, n, 0)
        return xla.reduce_all(part + x, 0.0, xla.add)

    same(evaluate(run, floats([1, 2, 3, 4]), ints(2)), floats(6))
    same(evaluate(run, floats([1, 2, 3, 4]), ints(1)), floats(2))
    same(evaluate(run, floats([1, 2, 3, 4]), ints(0)), floats(0))


def test_two_dynamic_operands_meet_in_the_smaller_one():
    def run(x, n, m):
        total = xla.set_dimension_size(x, n, 0) + xla.set_dimension_size(x, m, 0)
        return xla.get_dimension_size(total, 0)

    same(evaluate(run, floats([1, 2, 3, 4]), ints(3), ints(2)), ints(2))


# -- what has less than its shape says


def test_a_tuple_keeps_arrays_of_different_sizes():
    def both(x, n):
        short = xla.set_dimension_size(x, n, 0)
        return xla.tuple_(short, xla.concatenate([short, short], 0))

    first, second = evaluate(both, floats(range(4)), ints(3))
    same(first, floats([0, 1, 2]))
    same(second, floats([0, 1, 2, 0, 1, 2]))


def test_fewer_elements_than_a_result_of_fixed_size_has_leave_zeros():
    def first(x, n):
        return xla.top_k(xla.set_dimension_size(x, n, 0), 3)

    values, places = evaluate(first, floats([1, 5, 2, 9]), ints(2))
    same(values, floats([5, 1, 0]))
    same(places, ints([1, 0, 0]))

    def slices(x, n):
        short = xla.set_dimension_size(x, n, 0)
        return xla.gather(short, ints([1]), slice_sizes=[3], offset_dims=[1], start_index_map=[0], index_vector_dim=1)

    same(evaluate(slices, floats([1, 5, 2, 9]), ints(2)), floats([[1, 5, 0]]))


def test_products_are_of_what_both_operands_have():
    def product(x, y, n):
        return xla.dot(xla.set_dimension_size(x, n, 0), y)

    same(evaluate(product, floats([1, 2, 3]), floats([4, 5, 6]), ints(2)), floats(14))


def test_a_scan_takes_as_many_steps_as_there_are_elements():
    def sums(x, n):
        def step(a, total):
            return xla.tuple_(xla.add(a, total), xla.add(a, total))

        start = xla.constant(x.builder, np.float32(0))
        return xla.scan(xla.set_dimension_size(x, n, 0), start, step, 0)

    for n in (0, 1, 3):
        running, total = evaluate(sums, floats([1, 2, 3]), ints(n))
        same(running, floats([1, 3, 6][:n]))
        same(total, floats([0, 1, 3, 6][n]))


def test_arrays_that_are_reduced_together_count_as_far_as_all_of_them_go():
    def both(x, y, n):
        def sums(a, b, c, d):
            return xla.tuple_(xla.add(a, c), xla.add(b, d))

        return xla.reduce([xla.set_dimension_size(x, n, 0), y], [np.float32(0), np.float32(0)], sums, [0])

    left, right = evaluate(both, floats([1, 2, 3]), floats([4, 5, 6]), ints(2))
    same(left, floats(3))
    same(right, floats(9))
