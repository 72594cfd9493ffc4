import numpy as np
import pytest
from hypothesis import given, strategies as st

from xlakit.data import index_util
from xlakit.data.layout import Layout
from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType as P
from xlakit.data.shape import make_shape
from xlakit.errors import ShapeError


@st.composite
def padded_shapes(draw):
    sizes = draw(st.lists(st.integers(1, 4), max_size=4))
    order = draw(st.permutations(range(len(sizes))))
    widths = tuple(size + draw(st.integers(0, 2)) for size in sizes) if sizes and draw(st.booleans()) else ()
    return make_shape(P.S32, sizes, layout=Layout(tuple(order), widths))


@given(padded_shapes())
def test_linear_and_multidimensional_indices_are_inverse(shape):
    seen = set()
    for index in np.ndindex(*shape.dimensions):
        linear = index_util.multidimensional_index_to_linear_index(shape, index)
        assert index_util.linear_index_to_multidimensional_index(shape, linear) == index
        seen.add(linear)
    assert len(seen) == shape.num_elements
    for linear in set(range(index_util.linear_size(shape))) - seen:
        with pytest.raises(ShapeError, match="padding"):
            index_util.linear_index_to_multidimensional_index(shape, linear)


@given(padded_shapes())
def test_the_linear_buffer_holds_each_element_at_its_linear_index(shape):
    array = np.arange(1, shape.num_elements + 1, dtype=np.int32).reshape(shape.dimensions)
    literal = Literal(shape, array)
    buffer = literal.to_linear()
    for index in np.ndindex(*shape.dimensions):
        assert buffer[index_util.multidimensional_index_to_linear_index(shape, index)] == array[index]
    assert np.count_nonzero(buffer) == shape.num_elements
    assert Literal.from_linear(shape, buffer) == literal
