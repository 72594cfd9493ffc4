import numpy as np
import pytest

from xlakit.data.layout import Layout, Tile
from xlakit.data.primitive import PrimitiveType as P
from xlakit.data.shape import TOKEN_SHAPE, ProgramShape, Shape, make_shape, make_tuple_shape
from xlakit.errors import ArgumentError, ShapeError, XlakitError


@pytest.mark.parametrize("kind", [p for p in P if p.is_array])
def test_every_array_type_has_a_dtype_of_its_width(kind):
    assert P.from_dtype(kind.dtype) is kind
    assert P.from_name(kind.hlo_name) is kind
    assert kind.dtype.itemsize == kind.byte_width
    assert sum([kind is P.PRED, kind.is_integral, kind.is_floating, kind.is_complex]) == 1


@pytest.mark.parametrize("kind", [p for p in P if p.is_floating and p.bit_width <= 16], ids=str)
def test_types_say_which_bits_are_nan(kind):
    bits = np.arange(1 << kind.bit_width, dtype=f"u{kind.byte_width}")
    nans = bits[np.isnan(bits.view(kind.dtype).astype(np.float32))]
    assert kind.has_one_nan is (nans.size == 1)
    assert kind.has_nan_for_negative_zero is (nans.tolist() == [1 << (kind.bit_width - 1)])


def test_bit_widths():
    widths = {P.PRED: 8, P.S1: 1, P.U2: 2, P.S4: 4, P.F4E2M1FN: 4, P.F6E3M2FN: 6, P.F8E8M0FNU: 8, P.BF16: 16, P.C64: 64}
    assert {kind: kind.bit_width for kind in widths} == widths


def test_numbers_are_those_of_xla_data_proto():
    numbers = {"PRED": 1, "S4": 21, "BF16": 16, "F8E4M3FN": 20, "TOKEN": 17, "C128": 18, "F4E2M1FN": 32, "BUFFER": 34}
    assert {name: P[name].value for name in numbers} == numbers


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(ShapeError, match=r"'f31'[\s\S]*f32"):
        P.from_name("f31")
    with pytest.raises(XlakitError):
        P.from_dtype("datetime64[s]")


@pytest.mark.parametrize("kind", list(P))
def test_a_type_is_found_by_its_name_in_hlo_unless_the_name_is_another_type_of_numpy(kind):
    assert P.from_dtype(kind.name) is kind
    if kind in (P.U1, P.U2, P.U4, P.U8, P.F16):
        with pytest.raises(ArgumentError, match=f"'{kind.hlo_name}' is {kind.name} in HLO and .* in NumPy"):
            make_shape(kind.hlo_name)
    else:
        assert P.from_dtype(kind.hlo_name) is kind


def test_dynamic_dimensions_print_with_their_bound():
    shape = make_shape(P.F32, (10, 3), dynamic_dimensions=(True, False))
    assert shape.to_string(with_layout=False) == "f32[<=10,3]"
    assert shape.is_dynamic
    assert not make_shape(P.F32, (10, 3)).is_dynamic


def test_nested_tuples():
    inner = make_tuple_shape([make_shape(P.S32), TOKEN_SHAPE])
    shape = make_tuple_shape([make_shape(P.F32, (2,)), inner])
    assert str(shape) == "(f32[2]{0}, (s32[], token[]))"
    assert shape.at((1, 0)) == make_shape(P.S32)
    assert [index for index, _ in shape.leaves()] == [(0,), (1, 0), (1, 1)]
    with pytest.raises(ShapeError, match="nothing at index"):
        shape.at((2,))


def test_equality_with_and_without_layout():
    row, column = make_shape(P.F32, (2, 3)), make_shape(P.F32, (2, 3), layout=(0, 1))
    assert row != column
    assert row.compatible(column)
    assert not row.compatible(make_shape(P.F64, (2, 3)))
    assert make_tuple_shape([row]).compatible(make_tuple_shape([column]))


@pytest.mark.parametrize(
    "bad",
    [
        lambda: make_shape(P.F32, (-1,)),
        lambda: make_shape(P.F32, (2**31, 2**31)),
        lambda: make_shape(P.F32, (2, 3), layout=(0,)),
        lambda: make_shape(P.F32, (2, 3), layout=(0, 0)),
        lambda: make_shape(P.F32, (2, 3), layout=Layout((1, 0), padded_dimensions=(1, 3))),
        lambda: Layout((1, 0), padded_dimensions=(3,)),
        lambda: Layout((0,), padding_value=1),
        lambda: Shape(P.TOKEN, (2,)),
        lambda: Shape(P.F32, (), None, (), (TOKEN_SHAPE,)),
        lambda: make_shape(P.F32, (2,)).dimension(2),
        lambda: TOKEN_SHAPE.rank,
    ],
)
def test_malformed_shapes_are_refused(bad):
    with pytest.raises(ShapeError):
        bad()


def test_layout_text():
    layout = Layout((1, 0), tiles=(Tile((8, 128)), Tile((2, 1))), element_size_in_bits=4, memory_space=5)
    assert str(make_shape(P.S4, (2, 3), layout=layout)) == "s4[2,3]{1,0:T(8,128)(2,1)E(4)S(5)}"


def test_program_shape_text():
    program = ProgramShape((make_shape(P.F32, (2,)),), make_shape(P.F32), ("x",))
    assert program.to_string(with_layout=False) == "(x: f32[2]) -> f32[]"


@pytest.mark.parametrize("rank", range(6))
def test_negative_dimension_numbers_count_from_the_end(rank):
    sizes = [3, 0, 5, 1, 4][:rank]
    shape = make_shape(P.F32, sizes)
    for number in range(-7, 7):
        if -rank <= number < rank:
            assert shape.dimension(number) == sizes[number]
            assert shape.dimension_number(number) == range(rank)[number]
        else:
            with pytest.raises(ShapeError):
                shape.dimension(number)


def test_the_shapes_of_a_tuple_or_the_shape_itself():
    scalar = make_shape(P.F32)
    assert scalar.tuple_shapes_or_self == (scalar,)
    assert make_tuple_shape([scalar, scalar]).tuple_shapes_or_self == (scalar, scalar)
    assert make_tuple_shape([]).tuple_shapes_or_self == ()
