"""The examples of the document "Shapes and layout"."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.data.index_util import (
    linear_index_to_multidimensional_index,
    multidimensional_index_to_linear_index,
)

LETTERS = np.array([[ord(c) for c in "abc"], [ord(c) for c in "def"]], dtype=np.uint8)


def letters(linear):
    return " ".join(chr(c) if c else "0" for c in linear)


def matrix(**layout):
    return xla.Literal(xla.make_shape(xla.U8, (2, 3), layout=xla.Layout(**layout)), LETTERS)


# -- terminology, notation and conventions -------------------------------------------------------


def test_rank_is_the_number_of_dimensions():
    assert xla.make_shape(xla.F32, (4, 1, 5)).rank == 3
    assert xla.make_shape(xla.F32).rank == 0


def test_true_rank_counts_dimensions_greater_than_one():
    assert xla.make_shape(xla.F32, (4, 1, 5)).true_rank == 2
    assert xla.make_shape(xla.F32, (1, 1)).true_rank == 0


def test_dimensions_are_listed_in_ascending_order_of_their_number():
    shape = xla.make_shape(xla.F32, (2, 3, 5))
    assert [shape.dimension(0), shape.dimension(1), shape.dimension(2)] == [2, 3, 5]


@pytest.mark.parametrize(("rank", "letters"), [(2, "yx"), (3, "zyx"), (4, "pzyx")])
def test_dimensions_have_customary_letters(rank, letters):
    assert "".join(xla.make_shape(xla.F32, (2,) * rank).dimension_letters) == letters


def test_make_shape_takes_dimensions_in_ascending_order():
    shape = xla.make_shape(xla.F32, [2, 3, 4, 5])
    assert shape.element_type is xla.F32
    assert shape.dimensions == (2, 3, 4, 5)


# -- layout: the order of dimensions, minor to major -----------------------------------------------


def test_minor_to_major_0_1_is_column_major():
    literal = matrix(minor_to_major=(0, 1))
    assert letters(literal.to_linear()) == "a d b e c f"
    assert literal.shape.layout.is_monotonic_with_dim0_minor
    assert not literal.shape.layout.is_monotonic_with_dim0_major


def test_minor_to_major_1_0_is_row_major():
    literal = matrix(minor_to_major=(1, 0))
    assert letters(literal.to_linear()) == "a b c d e f"
    assert literal.shape.layout.is_monotonic_with_dim0_major
    assert not literal.shape.layout.is_monotonic_with_dim0_minor


@pytest.mark.parametrize("rank", range(5))
def test_the_default_is_major_to_minor(rank):
    assert xla.make_shape(xla.F32, (2,) * rank).layout == xla.Layout(tuple(reversed(range(rank))))


def test_minor_to_major_is_a_permutation():
    for order in [(0, 0), (1, 2), (0,), ()]:
        with pytest.raises(xla.ShapeError):
            xla.make_shape(xla.F32, (2, 3), layout=xla.Layout(order))


def test_the_layout_does_not_change_the_value():
    assert matrix(minor_to_major=(0, 1)) == matrix(minor_to_major=(1, 0))


# -- padding ------------------------------------------------------------------------------------


def test_padding_widens_each_dimension():
    literal = matrix(minor_to_major=(0, 1), padded_dimensions=(3, 5), padding_value=0)
    assert letters(literal.to_linear()) == "a d 0 b e 0 c f 0 0 0 0 0 0 0"


def test_padding_is_as_the_padded_array_in_the_same_order():
    wide = np.zeros((3, 5), dtype=np.uint8)
    wide[:2, :3] = LETTERS
    padded = matrix(minor_to_major=(0, 1), padded_dimensions=(3, 5), padding_value=0)
    whole = xla.Literal(xla.make_shape(xla.U8, (3, 5), layout=(0, 1)), wide)
    np.testing.assert_array_equal(padded.to_linear(), whole.to_linear())


def test_padded_dimensions_has_one_width_for_each_dimension():
    with pytest.raises(xla.ShapeError, match="padded_dimensions has 1 entries for rank 2"):
        xla.Layout((0, 1), padded_dimensions=(3,))


def test_a_padded_width_is_at_least_the_size():
    with pytest.raises(xla.ShapeError, match="padded width 1 is less"):
        xla.make_shape(xla.F32, (2, 3), layout=xla.Layout((0, 1), padded_dimensions=(1, 5)))


# -- indexing into arrays -------------------------------------------------------------------------


def test_the_index_of_a_scalar_is_empty():
    shape = xla.make_shape(xla.F32)
    assert multidimensional_index_to_linear_index(shape, ()) == 0
    assert linear_index_to_multidimensional_index(shape, 0) == ()


def test_indices_outside_the_array_are_refused():
    shape = xla.make_shape(xla.F32, (2, 3))
    for index in [(2, 0), (0, 3), (-1, 0), (0,), (0, 0, 0)]:
        with pytest.raises(xla.ShapeError):
            multidimensional_index_to_linear_index(shape, index)
    for position in (-1, 6):
        with pytest.raises(xla.ShapeError):
            linear_index_to_multidimensional_index(shape, position)
