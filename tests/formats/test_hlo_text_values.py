"""The values in HLO text: shapes, literals, strings and shardings."""

from __future__ import annotations

import numpy as np
import pytest

from xlakit.data.layout import Layout, SplitConfig, Tile
from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import UNBOUNDED, Shape, make_shape, make_tuple_shape
from xlakit.errors import ParseError
from xlakit.formats.hlo_text import parse_literal, parse_shape, parse_sharding, print_literal, print_sharding
from xlakit.formats.hlo_text.lexer import MAX_DEPTH, Lexer, quote, unescape

# -- shapes ------------------------------------------------------------------------------------------

SHAPES = [
    ("f32[2,3]{0,1}", make_shape(np.float32, (2, 3), layout=(0, 1))),
    ("pred[]", make_shape(np.bool_)),
    ("(s8[1]{0}, (token[], u4[2]{0}))", None),
    ("()", make_tuple_shape([])),
    ("f32[<=5,?]{1,0}", make_shape(np.float32, (5, UNBOUNDED), dynamic_dimensions=(True, True))),
    ("b(f32[7]{0})", Shape(PrimitiveType.BUFFER, tuple_shapes=(make_shape(np.float32, (7,)),))),
    (
        "bf16[8,128]{1,0:T(8,128)(2,1)L(16)#(u32)*(u64)E(4)S(1)SC(0:4,6)M(12)}",
        Shape(
            PrimitiveType.BF16,
            (8, 128),
            Layout(
                (1, 0),
                tiles=(Tile((8, 128)), Tile((2, 1))),
                tail_padding_alignment_in_elements=16,
                index_primitive_type=PrimitiveType.U32,
                pointer_primitive_type=PrimitiveType.U64,
                element_size_in_bits=4,
                memory_space=1,
                split_configs=(SplitConfig(0, (4, 6)),),
                dynamic_shape_metadata_prefix_bytes=12,
            ),
        ),
    ),
    ("f32[4]{0:P(s8[16]{0})}", None),
    ("s32[3,2]{1,0:T(*,2)}", None),
    ("f32[2,3]{1,0:D(C+,S~)#(u32)}", None),
    ("f32[2,3]{1,0:D(H+~,D)S(5)}", None),
]


@pytest.mark.parametrize(("text", "shape"), SHAPES)
def test_shape(text, shape):
    assert shape is None or parse_shape(text) == shape
    assert str(parse_shape(text)) == text


def test_shape_gets_the_default_layout():
    assert parse_shape("f32[2,3]").layout == Layout.default(2)


def test_an_array_whose_dimensions_are_all_dense_is_dense():
    assert parse_shape("f32[2,3]{1,0:D(D,D)}") == parse_shape("f32[2,3]")


def test_a_layout_may_stand_apart_and_is_of_that_shape_alone():
    for _ in range(2):
        assert parse_shape("f32[2,7] {0,1}").layout == Layout((0, 1))
        assert parse_shape("f32[2,7]/*apart*/\n{ 0,1}").layout == Layout((0, 1))
        assert parse_shape("f32[2,7]").layout == Layout.default(2)


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("f33[2]", "unknown element type 'f33'", 1),
        ("f32[2", "expected ',' or ']' between dimension sizes, got the end", 6),
        ("f32[2,]", "expected a dimension size, got ']'", 7),
        ("f32[-4]", "negative", 1),
        ("f32[2,3]{1}", "not a permutation", 9),
        ("f32[2,3]{0}", "orders 1 dimensions", 1),
        ("f32[2]{0:Z(1)}", "expected one of T(...)", 10),
        ("f32[2]{0:#(s32)}", "not an unsigned integer type", 12),
        ("f32[2]{0:D(X)}", "level types", 12),
        ("f32[2]{0:D(D+)}", "a dense dimension has no marks", 12),
        ("f32[2]{0:D(D,D)}", "level_types has 2 entries for rank 1", 7),
        ("f32[2]{0:D(C)T(2)}", "a sparse array has no tiles", 7),
        ("f32[99999999999999999999]", "64-bit", 5),
        ("(f32[], s32[]", "expected ',' or ')' in a tuple shape, got the end of the text", 14),
        ("(" * 100_000, "nested deeper", MAX_DEPTH + 1),
        ("f32[] f32[]", "expected the end of the text", 7),
    ],
)
def test_shape_errors(text, message, column):
    with pytest.raises(ParseError) as caught:
        parse_shape(text)
    assert message in str(caught.value)
    assert caught.value.column == column


# -- literals ----------------------------------------------------------------------------------------

LITERALS = [
    ("f32[]", "1.5"),
    ("f32[3]", "{0.1, -inf, 0.333333343}"),
    ("f64[2]", "{0.1, 0.33333333333333331}"),
    ("f32[2,2]", "{ { 1, 2 }, { 3, -0 } }"),
    ("s32[2,1]", "{ {-1}, {2} }"),
    ("s8[0]", "{}"),
    ("f32[2,0]", "{ {}, {} }"),
    ("f32[2,1,1,2]", "{ { /*i0=0*/ { /*i1=0*/ { 1, 2 } } }, { /*i0=1*/ { /*i1=0*/ { 3, 4 } } } }"),
    ("pred[]", "true"),
    ("pred[3]", "{1, 0, 1}"),
    ("u64[2]", "{18446744073709551615, 0}"),
    ("s64[1]", "{-9223372036854775808}"),
    ("s4[2]", "{-8, 7}"),
    ("c64[2]", "{(1, -2), (nan, inf)}"),
    ("f32[2]", "{nan(0x7), -nan}"),
    ("bf16[1]", "{nan(0x1)}"),
    ("f8e4m3fn[2]", "{448, -nan}"),
    ("f8e5m2fnuz[1]", "{-nan}"),
    ("f8e8m0fnu[2]", "{2, nan}"),
    ("f4e2m1fn[2]", "{6, -0.5}"),
    ("(f32[], (s32[2], pred[]))", "( 1, ( {2, 3}, false ) )"),
    ("()", "(  )"),
    ("f32[<=4]", "{1, 2}"),
    ("token[]", "token"),
]


@pytest.mark.parametrize(("shape", "text"), LITERALS)
def test_literal(shape, text):
    literal = parse_literal(parse_shape(shape), text)
    printed = print_literal(literal)
    assert printed == text
    assert parse_literal(literal.shape, printed) == literal


def test_literal_spellings():
    assert parse_literal(parse_shape("f32[]"), "0x1.8p3").array == 12
    assert parse_literal(parse_shape("pred[2]"), "{true, 0}").array.tolist() == [True, False]
    assert parse_literal(parse_shape("u64[]"), "-1").array == 2**64 - 1
    with_comments = parse_literal(parse_shape("s32[2,2]"), "{ /*a*/ {1, /*b*/ 2}, // c\n {3, 4} }")
    assert with_comments.array.tolist() == [[1, 2], [3, 4]]
    # As XLA reads them: commas may be missing.
    without_commas = parse_literal(parse_shape("s32[3,2]"), "{ {1, 2} {3 4}, {5, 6,}, }")
    assert without_commas.array.tolist() == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("shape", "text", "message", "column"),
    [
        ("f32[2]", "{1, 2, 3}", "expected 2 elements in dimension 0, got more", 8),
        ("f32[2,2]", "{{1, 2}, {3}}", "expected 2 elements in dimension 1 at [1], got 1", 12),
        ("f32[2]", "{1 2 3}", "expected 2 elements in dimension 0, got more", 6),
        ("f32[2]", "{1, }", "expected 2 elements in dimension 0, got 1", 5),
        ("f32[2]", "{1, 2, 3}", "make the declared shape and the elements agree", 8),
        ("f32[2]", "{1}", "make the declared shape and the elements agree", 3),
        ("f32[2,2]", "{1, 2}", "each dimension has its own braces", 2),
        ("f32[]", "{1}", "each dimension has its own braces", 1),
        ("f32[2]", "{, 1}", "got ','", 2),
        ("f32[2,2]", "{1, 2}", "expected '{': a literal of rank 2 nests 2 deep, not 1", 2),
        ("f32[2,0]", "1", "expected '{': a literal of rank 2", 1),
        ("c64[2]", "(1, 2)", "expected '{': a literal of rank 1", 1),
        ("f32[1099511627776]", "1", "4398046511104 bytes are too many", 1),
        ("f32[]", "{1}", "nests 0 deep", 1),
        ("f32[2]", "{1, 2", "got the end of the text", 6),
        ("f32[2]", "{...}", "elided", 2),
        ("(f32[])", "{...}", "elided", 1),
        ("f32[1099511627776]", "{1, 2}", "expected 1099511627776 elements", 6),
        ("f32[1000000000000,0]", "{{}}", "expected 1000000000000 elements", 4),
        ("s8[2]", "{1, 128}", "128 is out of s8's range [-128, 127]", 5),
        ("u8[]", "-1", "out of u8's range", 1),
        ("s32[]", "1.5", "expected an integer for s32, got '1.5'", 1),
        ("f32[]", "1e39", "out of f32's range", 1),
        ("f64[]", "1e999", "out of f64's range", 1),
        ("f32[]", "1_0", "expected a number", 1),
        ("f32[2]", "{1, infinity}", "expected a number, got 'infinity'", 5),
        ("f8e4m3fn[]", "inf", "out of f8e4m3fn's range", 1),
        ("f4e2m1fn[]", "nan", "has no NaN", 1),
        ("f16[]", "nan(0x400)", "payload 0x400 is out of range", 1),
        ("pred[]", "2", "expected true, false, 1 or 0", 1),
        ("c64[]", "1", "expected a complex number", 1),
        ("f32[]", "(1, 2)", "expected a number", 1),
        ("(f32[], f32[])", "(1)", "expected ',' after element 0", 3),
    ],
)
def test_literal_errors(shape, text, message, column):
    with pytest.raises(ParseError) as caught:
        parse_literal(parse_shape(shape), text)
    assert message in str(caught.value)
    assert caught.value.column == column


def test_one_number_for_an_array_is_its_first_element():
    read = parse_literal(parse_shape("s32[2,3]{0,1}"), "7")
    assert read.array.tolist() == [[7, 0, 0], [0, 0, 0]]
    assert parse_literal(parse_shape("pred[2]"), "true").array.tolist() == [True, False]


FLOATS = [t for t in PrimitiveType if t.is_floating]


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_every_float_prints_round_trip(kind):
    width, unsigned = kind.bit_width, f"u{kind.dtype.itemsize}"
    if width <= 8:
        bits = np.arange(1 << width, dtype=unsigned)
    else:
        # Where a power of two begins or ends, the smallest and the largest of all among them; and any.
        powers = np.left_shift(np.ones(width, unsigned), np.arange(width).astype(unsigned))
        near = np.concatenate([powers, powers - 1, powers + 1, np.bitwise_or.accumulate(powers[::-1])])
        drawn = np.random.default_rng(0).integers(0, (1 << width) - 1, 1000, unsigned, endpoint=True)
        bits = np.concatenate([near, ~near, drawn])
    literal = Literal(make_shape(kind, bits.shape), bits.view(kind.dtype))
    again = parse_literal(literal.shape, print_literal(literal)).array
    kept = again.view(unsigned) == bits
    # Some types have several bit patterns for one NaN.
    if kind in (PrimitiveType.F8E4M3FN, PrimitiveType.F8E8M0FNU):
        kept |= np.isnan(literal.array.astype(np.float32)) & np.isnan(again.astype(np.float32))
    assert kept.all()


def test_strings_round_trip():
    rng = np.random.default_rng(0)
    # Sequences of bytes in UTF-8 are longest and shortest at some of these; what is drawn has any number of bytes.
    edges = [*range(0x100), 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF]
    for _ in range(500):
        numbers = rng.integers(0, 1 << rng.integers(5, 21, 20)) % (0x110000 - 0x800)
        drawn = [n if n < 0xD800 else n + 0x800 for n in numbers.tolist()]
        text = "".join(map(chr, rng.permuted([*drawn, *rng.choice(edges, 20)])[: rng.integers(41)]))
        assert unescape(quote(text)[1:-1]) == text
    every = "".join(map(chr, edges))
    assert unescape(quote(every)[1:-1]) == every


def test_strings_are_escaped_as_c_does():
    assert quote('é"\n\x01') == r'"\303\251\"\n\001"'
    assert unescape(r"\x41\102\u00e9\t") == "AB\u00e9\t"
    with pytest.raises(ParseError, match="unknown escape"):
        Lexer(r'"\q"').expect_string()


# -- shardings ---------------------------------------------------------------------------------------

SHARDINGS = [
    "{replicated}",
    "{manual}",
    "{unknown}",
    "{unreduced}",
    "{maximal device=3}",
    "{devices=[2,1]0,1}",
    "{devices=[2,2]<=[2,2]T(1,0) last_tile_dim_replicate}",
    "{devices=[1,2,2]<=[4] last_tile_dims={manual, replicated}}",
    "{replicated shard_as 4}",
    '{devices=[2]0,1 shard_like 1 metadata={op_name="a"}}',
    '{replicated metadata={{op_name="a"}, {op_name="b" source_line=2}}}',
    "{{replicated}, {maximal device=0}}",
    "{}",
    "{mesh['x'=2,'y'=4], [{'x'}, {'y':(1)2, ?}, {?}, {}], replicated={'y':(2)2}, unreduced=max{'x'}}",
    "{mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)), [{'x', 'y'}]}",
    "{mesh['x'=2], device_ids=(1,0), replicated}",
    "{mesh['x'=2], manual, metadata={op_name=\"a\"}}",
    "{mesh['x'=2], unreduced}",
    "{maximal_mesh[device_id=5]}",
]


@pytest.mark.parametrize("text", SHARDINGS)
def test_sharding(text):
    assert print_sharding(parse_sharding(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{replicated manual}", "either replicated or manual"),
        ("{maximal}", "exactly one device"),
        ("{replicated device=1}", "no devices"),
        ("{devices=[2]0}", "more than one device"),
        ("{devices=[2]0,1,2}", "3 devices for 2 tiles"),
        ("{devices=[2,2]<=[5]}", "same product"),
        ("{devices=[4]<=[2,2]T(0,0)}", "does not permute"),
        ("{}{", "expected the end"),
        ("{sharded}", "unknown word 'sharded'"),
        ("{mesh['x'=2], [{'z'}]}", "no axis 'z'"),
        ("{{{replicated}}}", "expected a sharding"),
    ],
)
def test_sharding_errors(text, message):
    with pytest.raises(ParseError, match="(?s).*" + message.replace("(", r"\(")):
        parse_sharding(text)
