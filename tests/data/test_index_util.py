import numpy as np
import pytest

from xlakit.data import index_util
from xlakit.data.layout import Layout
from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType as P
from xlakit.data.shape import make_shape
from xlakit.errors import ShapeError


def padded_shapes():
    rng = np.random.default_rng(0)
    for i in range(100):
        sizes = rng.integers(1, 5, i % 5)
        order = rng.permutation(sizes.size).tolist()
        widths = (sizes + rng.integers(0, 3, sizes.size)).tolist() if i % 2 else ()
        yield make_shape(P.S32, sizes.tolist(), layout=Layout(tuple(order), tuple(widths)))


def test_linear_and_multidimensional_indices_are_inverse():
    for shape in padded_shapes():
        seen = set()
        for index in np.ndindex(*shape.dimensions):
            linear = index_util.multidimensional_index_to_linear_index(shape, index)
            assert index_util.linear_index_to_multidimensional_index(shape, linear) == index
            seen.add(linear)
        assert len(seen) == shape.num_elements
        for linear in set(range(index_util.linear_size(shape))) - seen:
            with pytest.raises(ShapeError, match="padding"):
                index_util.linear_index_to_multidimensional_index(shape, linear)


def test_the_linear_buffer_holds_each_element_at_its_linear_index():
    for shape in padded_shapes():
        array = np.arange(1, shape.num_elements + 1, dtype=np.int32).reshape(shape.dimensions)
        literal = Literal(shape, array)
        buffer = literal.to_linear()
        for index in np.ndindex(*shape.dimensions):
            assert buffer[index_util.multidimensional_index_to_linear_index(shape, index)] == array[index]
        assert np.count_nonzero(buffer) == shape.num_elements
        assert Literal.from_linear(shape, buffer) == literal
