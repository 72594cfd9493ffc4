"""Values check what they are made of: whatever is given, it is converted or refused by an error of ours."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.data.index_util import linear_size

ODD = (
    *(None, "abc", b"ab", 1.5, True, -1, 2**70, float("nan"), object(), int, [None], [1.5], ["a"], [-1, -2], [2**70]),
    *({}, {0}, [(0,)], np.arange(2), np.array(["a"]), np.float32(1.5), np.array(1), range(3), xla.F32, xla.TOKEN_SHAPE),
)
MATRIX = xla.make_shape(xla.F32, (2, 3))
MAKERS = {
    "make_shape type": lambda odd: xla.make_shape(odd, (2,)),
    "make_shape dimensions": lambda odd: xla.make_shape(xla.F32, odd),
    "make_shape dynamic": lambda odd: xla.make_shape(xla.F32, (2, 3), dynamic_dimensions=odd),
    "make_shape layout": lambda odd: xla.make_shape(xla.F32, (2, 3), layout=odd),
    "make_tuple_shape": xla.make_tuple_shape,
    "Shape type": xla.Shape,
    "Shape dimensions": lambda odd: xla.Shape(xla.F32, odd),
    "Shape layout": lambda odd: xla.Shape(xla.F32, (2, 3), odd),
    "Shape dynamic": lambda odd: xla.Shape(xla.F32, (2, 3), None, odd),
    "Shape elements": lambda odd: xla.Shape(xla.TUPLE, tuple_shapes=odd),
    "Layout order": xla.Layout,
    "Layout widths": lambda odd: xla.Layout((1, 0), odd),
    "Layout padding": lambda odd: xla.Layout((1, 0), (4, 4), odd),
    "Layout tiles": lambda odd: xla.Layout((1, 0), tiles=odd),
    "Layout bits": lambda odd: xla.Layout((1, 0), element_size_in_bits=odd),
    "Layout index type": lambda odd: xla.Layout((1, 0), index_primitive_type=odd),
    "Layout.default": xla.Layout.default,
    "Layout.major_to_minor": xla.Layout.major_to_minor,
    "Tile": xla.Tile,
    "dimension": MATRIX.dimension,
    "compatible": MATRIX.compatible,
    "same_dimensions": MATRIX.same_dimensions,
    "ProgramShape parameters": lambda odd: xla.ProgramShape(odd, MATRIX),
    "ProgramShape result": lambda odd: xla.ProgramShape((), odd),
    "ProgramShape names": lambda odd: xla.ProgramShape((), MATRIX, odd),
    "ProgramShape.compatible": lambda odd: xla.ProgramShape((MATRIX,), MATRIX).compatible(odd),
    "at": MATRIX.at,
    "with_layout": MATRIX.with_layout,
    "with_dimensions": MATRIX.with_dimensions,
    "with_element_type": MATRIX.with_element_type,
    "Literal shape": lambda odd: xla.Literal(odd, np.zeros(2, np.float32)),
    "Literal array": lambda odd: xla.Literal(MATRIX, odd),
    "Literal elements": lambda odd: xla.Literal(xla.make_tuple_shape([MATRIX]), None, odd),
    "Literal.from_value": xla.Literal.from_value,
    "Literal.from_value type": lambda odd: xla.Literal.from_value(1, odd),
    "Literal.from_numpy": xla.Literal.from_numpy,
    "Literal.from_linear shape": lambda odd: xla.Literal.from_linear(odd, [1]),
    "Literal.from_linear buffer": lambda odd: xla.Literal.from_linear(MATRIX, odd),
    "Literal.make_tuple": xla.Literal.make_tuple,
    "to linear index": lambda odd: xla.multidimensional_index_to_linear_index(MATRIX, odd),
    "from linear index": lambda odd: xla.linear_index_to_multidimensional_index(MATRIX, odd),
    "linear_size": linear_size,
    "PrimitiveType.from_name": xla.PrimitiveType.from_name,
    "PrimitiveType.from_dtype": xla.PrimitiveType.from_dtype,
    "IotaTileAssignment": lambda odd: xla.IotaTileAssignment(odd, odd, odd),
    "ReplicaGroups": xla.ReplicaGroups.from_lists,
    "make_padding": lambda odd: xla.make_padding(odd, [2], [1], odd),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_no_value_breaks_a_constructor(make):
    for odd in ODD:
        try:
            made = make(odd)
        except xla.XlakitError as error:
            assert error.rule
        else:
            str(made)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: xla.make_shape(xla.F32, (2.7,)), r"dimensions\[0\] must be an integer, got 2.7"),
        (lambda: xla.make_shape(xla.F32, "23"), "dimensions must be a sequence of integers"),
        (lambda: xla.Shape(xla.F32, (2.0,)), r"dimensions\[0\] must be an integer"),
        (lambda: xla.Shape("f32"), "element_type must be a PrimitiveType, got 'f32'"),
        (lambda: xla.make_shape(None), "None is neither a PrimitiveType nor a dtype"),
        (lambda: xla.Layout.default(-1), "rank -1"),
        (lambda: xla.DotDimensionNumbers(lhs_contracting_dims=[1]), "did you mean lhs_contracting_dimensions"),
        (lambda: xla.ScatterDimensionNumbers([1], [0], [0], 1), r"the parameters are \(update_window_dims, "),
        (lambda: xla.GatherDimensionNumbers(offset_dims=[1]), "collapsed_slice_dims.*"),
        (xla.ConvolutionDimensionNumbers, "input_batch_dimension"),
        (lambda: xla.PaddingDimension(low=1), "edge_padding_low"),
        (lambda: xla.Literal.from_value([[1], [2, 3]]), "different lengths"),
        (lambda: xla.Literal.from_value("text"), "a value of type str"),
        (lambda: xla.Literal.from_value(2**70), "64 bits"),
        (lambda: xla.Literal.from_value(1, xla.TOKEN), "has no type token"),
        (lambda: xla.Literal.from_linear(xla.TOKEN_SHAPE, [1]), "no linear buffer"),
        (lambda: xla.Shape(xla.F32, (1, 1), xla.Layout((1, 0), (2**40, 2**40))), "more bytes than int64 counts"),
    ],
)
def test_the_error_says_what_was_wrong(make, said):
    with pytest.raises(xla.XlakitError, match=said):
        make()


def test_numpy_integers_and_lists_become_ints_and_tuples():
    shape = xla.Shape(xla.F32, [np.int64(2), 3], xla.Layout(np.array([0, 1]), [np.int32(4), 4]), [np.True_, False])
    assert shape == xla.Shape(xla.F32, (2, 3), xla.Layout((0, 1), (4, 4)), (True, False))
    assert hash(shape) == hash(xla.Shape(xla.F32, (2, 3), xla.Layout((0, 1), (4, 4)), (True, False)))
    assert str(shape) == "f32[<=2,3]{0,1}"
    assert all(type(size) is int for size in shape.dimensions)


def test_a_sharding_is_of_a_known_kind():
    with pytest.raises(xla.ShapeError, match="REPLICATED"):
        xla.Sharding("abc")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (xla.Shape, "missing a required argument: 'element_type'"),
        (xla.Layout, "missing a required argument: 'minor_to_major'"),
        (xla.Tile, "missing a required argument: 'dimensions'"),
        (xla.ProgramShape, "missing a required argument: 'parameters'"),
        (xla.Literal, "missing a required argument: 'shape'"),
        (lambda: xla.Shape(xla.F32, sizes=(2,)), "unexpected keyword argument 'sizes'"),
        (MATRIX.compatible, "missing a required argument: 'other'"),
        (MATRIX.with_layout, "missing a required argument: 'layout'"),
        (MATRIX.with_dimensions, "missing a required argument: 'dimensions'"),
        (lambda: MATRIX.to_string(True), "too many positional arguments"),
        (xla.Layout.default, "missing a required argument: 'rank'"),
        (xla.Literal.from_value(1).with_layout, "missing a required argument: 'layout'"),
    ],
)
def test_a_call_with_other_arguments_lists_them(call, said):
    with pytest.raises(xla.ArgumentError, match=said) as caught:
        call()
    assert caught.value.hint.startswith("the parameters are (")
    assert "self" not in caught.value.hint
