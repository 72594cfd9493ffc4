"""The examples of the document "Operation semantics", from GetDimensionSize to Pad, Gather apart."""

import numpy as np
import pytest
from helpers import evaluate, f32, floats, infer, ints, pred, refused, s32, same

import xlakit as xla

# -- GetDimensionSize, SetDimensionSize -----------------------------------------------------------

TEN = floats([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])


def test_get_dimension_size():
    for dimension, size in enumerate((2, 3)):
        same(evaluate(lambda x, d=dimension: xla.get_dimension_size(x, d), floats([[0] * 3] * 2)), ints(size))


def test_set_dimension_size_of_the_example():
    def program(v, five, six):
        padded_v_five = xla.set_dimension_size(v, five, 0)
        padded_v_six = xla.set_dimension_size(v, six, 0)
        return (
            xla.reduce(padded_v_five, 0.0, xla.add, [0]),
            xla.reduce(padded_v_five, 1.0, xla.mul, [0]),
            xla.reduce(padded_v_six, 0.0, xla.add, [0]),
        )

    expected = (floats(1 + 2 + 3 + 4 + 5), floats(1 * 2 * 3 * 4 * 5), floats(1 + 2 + 3 + 4 + 5 + 6))
    same(evaluate(program, TEN, ints(5), ints(6)), expected)


def test_dimension_size_operations_take_arrays_and_their_dimensions():
    refused(lambda x: xla.get_dimension_size(x, 2), f32(2, 3))
    refused(lambda x: xla.get_dimension_size(x, -1), f32(2, 3))
    refused(lambda x: xla.get_dimension_size(xla.tuple_(x, x), 0), f32(2))
    refused(lambda x, n: xla.set_dimension_size(x, n, 1), f32(2), s32())
    refused(lambda x, n: xla.set_dimension_size(x, n, 0), f32(2), s32(1))
    refused(lambda x, n: xla.set_dimension_size(x, n, 0), f32(2), f32())
    refused(lambda x, n: xla.set_dimension_size(xla.tuple_(x, x), n, 0), f32(2), s32())


# -- GetTupleElement and Tuple --------------------------------------------------------------------


def test_get_tuple_element_of_the_example():
    def program(v, s):
        t = xla.tuple_(v, s)
        element_1 = xla.get_tuple_element(t, 1)
        assert element_1.shape.compatible(s32())
        return element_1

    same(evaluate(program, np.arange(10, dtype=np.float32), ints(5)), ints(5))


def test_a_tuple_has_the_shapes_of_its_elements():
    result = infer(xla.tuple_, f32(10), s32())
    assert result.to_string(with_layout=False) == "(f32[10], s32[])"


def test_get_tuple_element_has_rules():
    refused(lambda x: xla.get_tuple_element(x, 0), f32(2), match="takes a tuple")
    refused(lambda x: xla.get_tuple_element(xla.tuple_(x, x), 2), f32(2), match="out of range")
    refused(lambda x: xla.get_tuple_element(xla.tuple_(x, x), -1), f32(2), match="out of range")


# -- Iota -----------------------------------------------------------------------------------------


def test_iota_of_the_examples():
    rows = [[i] * 8 for i in range(4)]
    same(evaluate(lambda b: xla.iota(b, s32(4, 8), 0)), ints(rows))
    same(evaluate(lambda b: xla.iota(b, s32(4, 8), 1)), ints([list(range(8))] * 4))


def test_iota_of_floats_is_the_converted_iota_of_integers():
    def program(builder):
        whole = xla.convert_element_type(xla.iota(builder, s32(5), 0), xla.BF16)
        return xla.iota(builder, xla.make_shape(xla.BF16, (5,)), 0), whole

    floating, converted = evaluate(program)
    same(floating, converted)


def test_iota_has_rules():
    refused_nullary = [
        lambda b: xla.iota(b, s32(4), 1),
        lambda b: xla.iota(b, s32(4), -1),
        lambda b: xla.iota(b, s32(), 0),
    ]
    for program in refused_nullary:
        refused(program)
    refused(lambda b: xla.iota(b, pred(4), 0))


# -- Map ------------------------------------------------------------------------------------------


def test_map_applies_a_scalar_computation_at_every_index():
    a, b, c = (np.random.default_rng(i).normal(size=(2, 3)).astype(np.float32) for i in range(3))
    same(
        evaluate(lambda a, b, c: xla.map([a, b, c], lambda x, y, z: x * y - z, [0, 1]), a, b, c),
        (a.astype(float) * b).astype(np.float32) - c,
    )


# -- OptimizationBarrier --------------------------------------------------------------------------


def test_optimization_barrier_gives_its_operand():
    same(evaluate(xla.optimization_barrier, TEN), TEN)
    same(evaluate(lambda a, b: xla.optimization_barrier(xla.tuple_(a, b)), TEN, ints(3)), (TEN, ints(3)))


# -- Pad ------------------------------------------------------------------------------------------

SIX = floats([[1, 2, 3], [4, 5, 6]])


def pad(*config):
    return lambda x, v: xla.pad(x, v, config)


def test_pad_at_the_edges():
    same(
        evaluate(pad((1, 0, 0), (0, 2, 0)), SIX, floats(9)),
        floats([[9, 9, 9, 9, 9], [1, 2, 3, 9, 9], [4, 5, 6, 9, 9]]),
    )


def test_pad_between_the_elements():
    same(
        evaluate(pad((0, 0, 1), (0, 0, 2)), SIX, floats(0)),
        floats([[1, 0, 0, 2, 0, 0, 3], [0] * 7, [4, 0, 0, 5, 0, 0, 6]]),
    )


def test_negative_edge_padding_removes_after_the_interior():
    same(evaluate(pad((0, 0, 0), (-1, 0, 0)), SIX, floats(0)), floats([[2, 3], [5, 6]]))
    # [1 7 2 7 3] without its first and its last two elements.
    same(evaluate(pad((0, 0, 0), (-1, -2, 1)), SIX, floats(7)), floats([[7, 2], [7, 5]]))
    same(evaluate(pad((0, 0, 0), (2, -3, 0)), SIX, floats(7)), floats([[7, 7], [7, 7]]))


def test_no_padding_changes_nothing():
    same(evaluate(pad((0, 0, 0), (0, 0, 0)), SIX, floats(7)), SIX)


@pytest.mark.parametrize("seed", range(15))
def test_pad_puts_every_element_in_its_place(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 4, 2)
    config = [
        (int(a), int(b), int(c)) for a, b, c in zip(*rng.integers(-2, 4, (2, 2)), rng.integers(0, 3, 2), strict=True)
    ]
    wide = [max(0, int((n - 1) * (c + 1) + 1 if n else 0) + a + b) for n, (a, b, c) in zip(sizes, config, strict=True)]
    if any((n - 1) * (c + 1) + 1 + a + b < 0 for n, (a, b, c) in zip(sizes, config, strict=True)):
        return
    array = rng.integers(0, 100, sizes).astype(np.float32)
    expected = np.full(wide, -1, np.float32)
    for index in np.ndindex(*sizes):
        place = tuple(a + i * (c + 1) for i, (a, _, c) in zip(index, config, strict=True))
        if all(0 <= p < n for p, n in zip(place, wide, strict=True)):
            expected[place] = array[index]
    same(evaluate(pad(*config), array, floats(-1)), expected)


def test_pad_has_rules():
    refused(pad((0, 0, -1)), f32(3), f32(), match="negative")
    refused(pad((-4, 0, 0)), f32(3), f32(), match="negative")
    refused(pad((0, 0, 0), (0, 0, 0)), f32(3), f32())
    refused(pad((0, 0, 0)), f32(3), s32())
    refused(pad((0, 0, 0)), f32(3), f32(1))
