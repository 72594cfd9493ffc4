"""The examples of the two documents on broadcasting."""

import numpy as np
import pytest
from helpers import evaluate, f32, floats, infer, refused, same

import xlakit as xla

MATRIX = floats([[1, 2, 3], [4, 5, 6]])
VECTOR = floats([7, 8, 9])


def add(broadcast_dimensions=None):
    if broadcast_dimensions is None:
        return xla.add
    return lambda a, b: xla.add(a, b, broadcast_dimensions=broadcast_dimensions)


# -- what is broadcasting -------------------------------------------------------------------------


def test_a_vector_is_added_to_each_row():
    same(evaluate(add([1]), MATRIX, VECTOR), floats([[8, 10, 12], [11, 13, 15]]))


def test_the_operand_of_lower_rank_may_come_first():
    same(evaluate(add([1]), VECTOR, MATRIX), floats([[8, 10, 12], [11, 13, 15]]))


# -- broadcasting a lower-rank array onto a higher-rank array -------------------------------------


def test_a_scalar_goes_everywhere_without_dimensions():
    same(evaluate(add(), MATRIX, floats(7)), floats([[8, 9, 10], [11, 12, 13]]))
    same(evaluate(add(), floats(7), MATRIX), floats([[8, 9, 10], [11, 12, 13]]))


def test_a_number_goes_everywhere():
    same(evaluate(lambda m: m + 7, MATRIX), floats([[8, 9, 10], [11, 12, 13]]))


def test_a_vector_without_dimensions_is_refused():
    error = refused(add(), f32(2, 3), f32(3), match="broadcast_dimensions")
    assert "infers nothing" in error.hint


def test_dimension_1_repeats_the_vector_as_rows():
    zeros = np.zeros((3, 3), np.float32)
    same(evaluate(add([1]), zeros, VECTOR), floats([[7, 8, 9], [7, 8, 9], [7, 8, 9]]))


def test_dimension_0_repeats_the_vector_as_columns():
    zeros = np.zeros((3, 3), np.float32)
    same(evaluate(add([0]), zeros, VECTOR), floats([[7, 7, 7], [8, 8, 8], [9, 9, 9]]))


def test_a_dimension_of_another_size_is_refused():
    refused(add([0]), f32(2, 3), f32(3), match="size 3 cannot match dimension 0 of size 2")


def test_a_matrix_matches_two_dimensions_of_a_cuboid():
    cuboid = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    plane = np.arange(12, dtype=np.float32).reshape(3, 4) * 100
    same(evaluate(add([1, 2]), cuboid, plane), cuboid + plane[None])


# -- formal definition ----------------------------------------------------------------------------

M, N, P, Q = 2, 3, 4, 5


@pytest.mark.parametrize("dimension", range(4))
def test_a_vector_matches_any_one_dimension(dimension):
    sizes = (M, N, P, Q)
    array = np.arange(M * N * P * Q, dtype=np.float32).reshape(sizes)
    vector = np.arange(sizes[dimension], dtype=np.float32) * 1000
    column = [1] * 4
    column[dimension] = -1
    same(evaluate(add([dimension]), array, vector), array + vector.reshape(column))


@pytest.mark.parametrize("dimensions", [(2, 3), (1, 2), (0, 3), (0, 1), (0, 2), (1, 3)])
def test_a_matrix_matches_any_increasing_pair(dimensions):
    sizes = (M, N, P, Q)
    array = np.arange(M * N * P * Q, dtype=np.float32).reshape(sizes)
    t, v = (sizes[d] for d in dimensions)
    matrix = np.arange(t * v, dtype=np.float32).reshape(t, v) * 1000
    wide = [1] * 4
    wide[dimensions[0]], wide[dimensions[1]] = t, v
    same(evaluate(add(dimensions), array, matrix), array + matrix.reshape(wide))


def test_dimensions_that_do_not_increase_are_refused():
    # V with N and T with P; and V with P and N.
    refused(add([2, 1]), f32(M, N, P, Q), f32(P, N), match="strictly increasing")
    refused(add([2, 2]), f32(M, N, P, Q), f32(P, P), match="strictly increasing")


def test_dimensions_must_be_as_many_as_the_lower_rank():
    refused(add([1]), f32(M, N, P, Q), f32(N, P), match="1 entries")
    refused(add([1, 2, 3]), f32(M, N, P, Q), f32(N, P), match="3 entries")


def test_dimensions_must_exist():
    refused(add([4]), f32(M, N, P, Q), f32(Q), match="out of range")
    refused(add([-1]), f32(M, N, P, Q), f32(Q), match="out of range")


# -- broadcasting similar-rank arrays with degenerate dimensions ----------------------------------


@pytest.mark.parametrize(
    ("lhs", "rhs", "result"),
    [
        ((2, 1), (2, 3), (2, 3)),
        ((1, 2, 5), (7, 2, 5), (7, 2, 5)),
        ((7, 2, 5), (7, 1, 5), (7, 2, 5)),
        ((2, 1), (1, 3), (2, 3)),  # the outer operation
    ],
)
def test_compatible_dimensions(lhs, rhs, result):
    a = np.arange(np.prod(lhs), dtype=np.float32).reshape(lhs)
    b = np.arange(np.prod(rhs), dtype=np.float32).reshape(rhs) * 10
    assert infer(add(), f32(*lhs), f32(*rhs)).dimensions == result
    same(evaluate(add(), a, b), a + b)
    same(evaluate(add(), b, a), a + b)


def test_incompatible_dimensions_are_refused():
    error = refused(add(), f32(7, 2, 5), f32(7, 2, 6), match="dimension 2 has size 5 on one side and 6 on the other")
    assert error.operation == "add"
    assert [s.split("{")[0] for s in error.shapes] == ["f32[7,2,5]", "f32[7,2,6]"]


# -- broadcast composition ------------------------------------------------------------------------


def test_both_kinds_at_once():
    expected = floats([[6, 7], [7, 8], [8, 9], [9, 10]])
    same(evaluate(add([0]), floats([1, 2, 3, 4]), floats([[5, 6]])), expected)
    same(evaluate(add([0]), floats([[5, 6]]), floats([1, 2, 3, 4])), expected)


def test_the_more_complicated_example():
    small = floats([[1, 2]])
    large = np.arange(12, dtype=np.float32).reshape(4, 3, 1) * 10
    assert infer(add([1, 2]), f32(1, 2), f32(4, 3, 1)).dimensions == (4, 3, 2)
    same(evaluate(add([1, 2]), small, large), large + small.reshape(1, 1, 2))
