"""HLO text: what is read, what is printed, and how faults are told."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlakit.data.layout import Layout, SplitConfig, Tile
from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import TOKEN_SHAPE, UNBOUNDED, Shape, make_shape, make_tuple_shape
from xlakit.errors import ParseError, ShapeError
from xlakit.formats.hlo_text import (
    parse_literal,
    parse_module,
    parse_shape,
    parse_sharding,
    print_instruction,
    print_literal,
    print_module,
    print_sharding,
)
from xlakit.formats.hlo_text.lexer import MAX_DEPTH, Lexer, quote, unescape
from xlakit.ir.attributes import (
    AliasEntry,
    AxisRef,
    BufferDonor,
    OpMetadata,
    ReplicaGroups,
    StackFrames,
    Window,
    WindowDimension,
)
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.control import Call
from xlakit.ops.data import Parameter

SCALAR_SUM = """
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
"""


def entry(*lines: str, before: str = "") -> HloModule:
    body = "\n".join(f"  {line}" for line in lines)
    return parse_module(f"HloModule m\n{before}\nENTRY main {{\n{body}\n}}\n")


def named(module: HloModule, name: str) -> Instruction:
    return next(i for i in module.entry.instructions if i.name == name)


def skeleton(module: HloModule) -> object:
    """Everything that a module says, as a value that can be compared."""

    def one(computation: Computation) -> object:
        places = {instruction: i for i, instruction in enumerate(computation.instructions)}
        lines = [
            (
                i.name,
                str(i.shape),
                i.op.map_computations(lambda c: c.name),  # type: ignore[arg-type, return-value]
                tuple(places[o] for o in i.operands),
                tuple(places[o] for o in i.control_predecessors),
                i.annotations,
            )
            for i in computation.instructions
        ]
        return computation.name, computation.execution_thread, places[computation.root], lines

    values = {f.name: getattr(module, f.name) for f in dataclasses.fields(module)}
    values["entry"] = module.entry.name
    values["computations"] = [one(c) for c in module.computations]
    return values


def check_round_trip(text: str) -> HloModule:
    module = parse_module(text)
    printed = print_module(module)
    again = parse_module(printed)
    assert skeleton(again) == skeleton(module)
    assert print_module(again) == printed
    return module


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
]


@pytest.mark.parametrize(("text", "shape"), SHAPES)
def test_shape(text, shape):
    assert shape is None or parse_shape(text) == shape
    assert str(parse_shape(text)) == text


def test_shape_gets_the_default_layout():
    assert parse_shape("f32[2,3]").layout == Layout.default(2)


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("f33[2]", "unknown element type 'f33'", 1),
        ("f32[2", "expected ',' or ']' between dimension sizes, got the end", 6),
        ("f32[2,]", "expected a dimension size, got ']'", 7),
        ("f32[-4]", "negative", 1),
        ("f32[2,3]{1}", "orders 1 dimensions", 1),
        ("f32[2]{0:Z(1)}", "expected one of T(...)", 10),
        ("f32[2]{0:#(s32)}", "not an unsigned integer type", 12),
        ("f32[2]{0:D(X)}", "level types", 12),
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
    ("f32[1,2,1,2]", "{ { /*i1=0*/ { 1, 2 } }, { /*i1=1*/ { 3, 4 } } }"),
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
    assert printed.replace("/*i0=0*/ ", "") == text or "i1" in text
    assert parse_literal(literal.shape, printed) == literal


def test_literal_spellings():
    assert parse_literal(parse_shape("f32[]"), "0x1.8p3").array == 12
    assert parse_literal(parse_shape("pred[2]"), "{true, 0}").array.tolist() == [True, False]
    assert parse_literal(parse_shape("u64[]"), "-1").array == 2**64 - 1
    with_comments = parse_literal(parse_shape("s32[2,2]"), "{ /*a*/ {1, /*b*/ 2}, // c\n {3, 4} }")
    assert with_comments.array.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("shape", "text", "message", "column"),
    [
        ("f32[2]", "{1, 2, 3}", "expected 2 elements in dimension 0, got more", 8),
        ("f32[2,2]", "{{1, 2}, {3}}", "expected 2 elements in dimension 1 at [1], got 1", 12),
        ("f32[2]", "{1 2}", "expected ','", 4),
        ("f32[2]", "{1, }", "expected an element after ','", 5),
        ("f32[2]", "{, 1}", "got ','", 2),
        ("f32[2]", "1", "expected '{': a literal of rank 1", 1),
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


FLOATS = [t for t in PrimitiveType if t.is_floating]


@given(st.sampled_from(FLOATS), st.integers(0, 2**64 - 1))
def test_every_float_prints_round_trip(kind, bits):
    size = kind.dtype.itemsize
    mask = (1 << kind.bit_width) - 1
    array = np.array([bits & mask], dtype=f"u{size}").view(kind.dtype)
    literal = Literal(make_shape(kind, (1,)), array)
    again = parse_literal(literal.shape, print_literal(literal))
    # Only the sign of zero-sized facts is lost: some types have several bit patterns for their one NaN.
    with np.errstate(all="ignore"):
        both_nan = np.isnan(array.astype(np.float64)).all() and np.isnan(again.array.astype(np.float64)).all()
    assert again == literal or (both_nan and kind in (PrimitiveType.F8E4M3FN, PrimitiveType.F8E8M0FNU))


@given(st.text())
def test_strings_round_trip(text):
    assert unescape(quote(text)[1:-1]) == text


def test_strings_are_escaped_as_c_does():
    assert quote('é"\n\x01') == r'"\303\251\"\n\001"'
    assert unescape(r"\x41\102\u00e9\t") == "AB\u00e9\t"
    with pytest.raises(ParseError, match="unknown escape"):
        Lexer(r'"\q"').expect_string()


# -- instructions ------------------------------------------------------------------------------------

# Each prints as it stands.
LINES = [
    "%r = f32[8]{0} add(%x, %x)",
    "%r = f32[8]{0} exponential(%x), result_accuracy={mode=highest}",
    "%r = f32[8]{0} exponential(%x), result_accuracy={tolerance={atol=0.5,rtol=0.1,ulps=3}}",
    "%r = pred[8]{0} compare(%x, %x), direction=LT, type=TOTALORDER",
    "%r = f32[8]{0} convolution(%q, %k), window={size=2 stride=2 pad=1_-1 lhs_dilate=2 rhs_dilate=3 rhs_reversal=1}, "
    "dim_labels=?0bf_0io->0bf, feature_group_count=2, operand_precision={highest,default}",
    "%r = f32[4,8]{1,0} dot(%m, %m), lhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_batch_dims={0}, "
    "rhs_contracting_dims={1}, algorithm=dot_bf16_bf16_f32",
    "%r = f32[11]{0} pad(%x, %z), padding=1_2",
    "%r = f32[18]{0} pad(%x, %z), padding=1_2_1",
    "%r = f32[2]{0} slice(%x), slice={[0:4:2]}",
    "%r = f32[4,2]{1,0} slice(%m), slice={[0:4], [3:5]}",
    "%r = f32[] reduce(%x, %z), dimensions={0}, to_apply=%sum",
    "%r = f32[] call(%z, %z), to_apply=%sum, is_composite=true, "
    'frontend_attributes={composite.name="a.b",composite.attributes={"k": {}}}',
    "%r = f32[] fusion(%z, %z), kind=kLoop, output_to_operand_aliasing={{}: (0, {})}, calls=%sum",
    "%r = f32[8]{0} all-reduce(%x), channel_id=3, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, "
    "to_apply=%sum",
    "%r = f32[8]{0} all-reduce(%x), replica_groups=[2,2]<=[2,2]T(1,0), to_apply=%sum",
    "%r = f32[16]{0} all-gather(%x), replica_groups=mesh['a'=2,'b'=4] {'b':(1)2}, dimensions={0}",
    "%r = f32[8]{0} collective-permute(%x), channel_id=1, source_target_pairs={{0,1},{1,0}}",
    "%r = f32[8]{0} rng(%z, %z), distribution=rng_uniform",
    "%r = (f32[8]{0}, f32[8]{0}, f32[8]{0}, f32[8]{0}, f32[8]{0}, /*index=5*/f32[8]{0}) "
    "tuple(%x, %x, %x, %x, %x, /*index=5*/%x)",
    "%r = token[] after-all(), control-predecessors={%x, %z}",
    "%r = (f32[8]{0}, f32[8]{0}, f32[8]{0}) batch-norm-training(%x, %x, %x), epsilon=0.001, feature_index=0",
    '%r = f32[8]{0} custom-call(%x, %z), custom_call_target="a\\"b", '
    "operand_layout_constraints={f32[8]{0}, f32[]}, custom_call_has_side_effect=true, "
    "literal=( s32[2]{0} {1, 2}, f32[] nan ), schedule=SCHEDULE_LATEST, api_version=API_VERSION_TYPED_FFI",
    '%r = f32[8]{0} domain(%x), domain={kind="sharding", entry={maximal device=1}, exit={}}',
    "%r = f32[8]{0} negate(%x), sharding={devices=[2,2]<=[4] last_tile_dim_replicate}, "
    'metadata={op_type="neg" op_name="f/\\303\\251" source_file="a.py" source_line=3 source_end_line=4 '
    'source_column=5 source_end_column=6 stack_frame_id=2}, backend_config={"a": {"b": "}"}}',
    "%r = f32[8]{0} negate(%x), statistics={visualizing_index=1,nan=2,mean=0.25}, "
    'origin={({"a" {0}}, (({}), {"b"}))}, backend_config="plain"',
    "%r = f32[8]{0} negate(%x), origin={[synthetic_call]}",
]


@pytest.mark.parametrize("line", LINES)
def test_instruction_prints_as_it_stands(line):
    module = entry(
        "x = f32[8] parameter(0)",
        "z = f32[] parameter(1)",
        "m = f32[4,8] parameter(2)",
        "q = f32[3,4,1,2] parameter(3)",
        "k = f32[2,1,8] parameter(4)",
        f"ROOT {line}",
        before=SCALAR_SUM,
    )
    assert print_instruction(module.entry.root) == line
    check_round_trip(print_module(module))


def test_attributes_become_values():
    module = entry(
        "x = f32[4,8] parameter(0), parameter_replication={true}",
        "z = f32[] constant(-3)",
        "w = f32[4,8] reduce-window(x, z), to_apply=sum, window={pad=1_0x2_-1 size=2x2}",
        'n = negate(x), metadata={op_name="n", source_line=7}, frontend_attributes={b="2",a={"k": 1}}',
        "g = f32[8,8] all-gather(x), replica_groups=mesh['a'=2,'b'=2] {'a'}, dimensions={0}",
        before=SCALAR_SUM,
    )
    window = named(module, "w").op.window
    assert window == Window((WindowDimension(2, padding_low=1), WindowDimension(2, padding_low=2, padding_high=-1)))
    assert named(module, "x").annotations.parameter_replication == (True,)
    assert named(module, "n").annotations.metadata == OpMetadata(op_name="n", source_line=7)
    assert named(module, "n").annotations.frontend_attributes == (("a", '{"k": 1}'), ("b", "2"))
    assert named(module, "n").shape == named(module, "x").shape
    groups = named(module, "g").op.replica_groups
    assert isinstance(groups, ReplicaGroups)
    assert groups.groups == ((0, 2), (1, 3))
    assert groups.mesh_axes == (AxisRef(0),)


def test_conditionals_name_their_branches_by_the_kind_of_choice():
    text = SCALAR_SUM.replace("b = f32[] parameter(1)\n", "").replace("add(a, b)", "add(a, a)")
    on_predicate = entry(
        "p = pred[] parameter(0)",
        "v = f32[] parameter(1)",
        "ROOT c = f32[] conditional(p, v, v), false_computation=sum, true_computation=sum",
        before=text,
    )
    assert "true_computation=%sum, false_computation=%sum" in print_module(on_predicate)
    on_index = entry(
        "p = s32[] parameter(0)",
        "v = f32[] parameter(1)",
        "ROOT c = f32[] conditional(p, v, v), branch_computations={sum, %sum}",
        before=text,
    )
    assert "branch_computations={%sum, %sum}" in print_module(on_index)
    check_round_trip(print_module(on_predicate))
    check_round_trip(print_module(on_index))


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


# -- modules -----------------------------------------------------------------------------------------

HEADER = (
    "HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, must-alias), {1}: (1, {}, may-alias) }, "
    "buffer_donor={ (1, {}) }, alias_passthrough_params=true, "
    "entry_computation_layout={(f32[2,3]{0,1}, f32[])->(f32[2,3]{1,0}, f32[])}, "
    "allow_spmd_sharding_propagation_to_output={true,false}, replica_count=2, num_partitions=4, "
    'frontend_attributes={a="1"}, something_new={"x": {}}'
)


def test_header():
    module = check_round_trip(
        HEADER + "\nENTRY e { x = f32[2,3] parameter(0)\n y = f32[] parameter(1)\n ROOT t = tuple(x, y) }"
    )
    assert module.is_scheduled
    assert (module.replica_count, module.num_partitions) == (2, 4)
    assert module.input_output_alias == (AliasEntry((0,), 0, (), True), AliasEntry((1,), 1, ()))
    assert module.buffer_donor == (BufferDonor(1),)
    assert module.program_shape.parameters[0].layout == Layout((0, 1))
    assert ("something_new", '{"x": {}}') in module.header
    assert print_module(module).splitlines()[0] == HEADER


FRAMES = """HloModule m, entry_computation_layout={()->s32[]}

FileNames
1 "a.py"

FunctionNames
1 "f"
2 "g"

FileLocations
1 {file_name_id=1 function_name_id=2 line=3 end_line=3 column=4 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}


ENTRY %e () -> s32[] {
  ROOT %c = s32[] constant(1), metadata={stack_frame_id=1}
}

"""


def test_stack_frames():
    module = check_round_trip(FRAMES)
    assert module.stack_frames == StackFrames(("a.py",), ("f", "g"), ((1, 2, 3, 3, 4, 9),), ((1, 0),))
    assert str(module.location_of(module.entry.root.annotations.metadata)) == "a.py:3:4"
    assert print_module(module) == FRAMES


def test_computations_in_any_order_and_on_the_spot():
    module = check_round_trip(
        """HloModule m
        ENTRY %main (x.1: f32[4]) -> f32[] {
          %x.1 = f32[4]{0} parameter(0)
          %zero = f32[] constant(0)
          %a-b = f32[] reduce(f32[4]{0} %x.1, f32[] %zero), to_apply=%later, dimensions={0}
          ROOT r = call(%a-b), to_apply={ p = f32[] parameter(0) ROOT q = sine(p) }
        }
        %later { a = f32[] parameter(0)
          b = f32[] parameter(1)
          ROOT s = add(a, b) }, execution_thread="side"
        """
    )
    assert module.entry.name == "main"
    assert [c.name for c in module.computations] == ["later", "_", "main"]
    assert module.computations[0].execution_thread == "side"
    module.verify()


def test_nested_operands_and_tuple_elements():
    module = check_round_trip(
        "ENTRY e { x = f32[2] parameter(0)\n t = tuple(x, tuple(x, f32[2] negate(f32[2] x)))\n"
        " ROOT r = add(maximum(x, t#0), f32[2]{0} %t#1#1) }"
    )
    assert module.name == "module_e"
    assert [i.opcode for i in module.entry.instructions] == [
        "parameter", "negate", "tuple", "tuple", "get-tuple-element", "maximum", "get-tuple-element",
        "get-tuple-element", "add",
    ]  # fmt: skip
    assert module.entry.instructions[1].name == "negate.anon"
    module.verify()


def test_instructions_alone():
    module = parse_module("f32[2] add(f32[2] a, f32[2])")
    assert [p.name for p in module.entry.parameters] == ["a", "_1"]
    assert module.entry.root.name == "_"
    assert len(parse_module("a = f32[2] sine(f32[2] x)\nb = cosine(a)").entry.instructions) == 3


def test_last_computation_is_the_entry_without_a_mark():
    assert parse_module("a { x = f32[] parameter(0) }\nb { x = f32[] parameter(0) }").entry.name == "b"


def test_names_that_text_cannot_hold_are_changed_when_printed():
    p = Instruction(Parameter(number=0), (), make_shape(np.float32), "a b")
    inner = Computation.from_root("f(x)", p)
    q = Instruction(Parameter(number=0), (), make_shape(np.float32), "f32")
    call = Instruction(Call(to_apply=inner), (q,), make_shape(np.float32), "a_b")
    printed = print_module(HloModule("é", Computation.from_root("e", call)))
    assert "%a_b = f32[] parameter(0)" in printed
    assert "to_apply=%f_x_" in printed
    assert print_module(parse_module(printed)) == printed


def test_a_long_chain():
    lines = [f"  a{i} = f32[] negate(a{i - 1})" for i in range(1, 20_000)]
    module = parse_module("\n".join(["ENTRY e {", "  a0 = f32[] parameter(0)", *lines, "}"]))
    assert len(module.entry.instructions) == 20_000
    assert print_module(module).count("\n") == 20_005


# -- asynchronous operations -------------------------------------------------------------------------


def test_short_asynchronous_operations():
    lines = [
        '%s = ((f32[8]{0}), f32[4]{0}, s32[]) custom-call-start(%x), async_execution_thread="side", '
        'custom_call_target="f", metadata={op_name="n"}',
        "%u = ((f32[8]{0}), f32[4]{0}, s32[]) custom-call-update(%s)",
        "%d = f32[4]{0} custom-call-done(%u)",
    ]
    module = entry("x = f32[8] parameter(0)", *lines)
    start = named(module, "s").op
    assert start.async_execution_thread == "side"
    assert start.calls.execution_thread == "side"
    assert start.calls.root.op.custom_call_target == "f"
    assert [print_instruction(i) for i in module.entry.instructions[1:]] == lines
    check_round_trip(print_module(module))
    module.verify()


def test_asynchronous_operations_around_named_computations_keep_them():
    module = entry(
        "z = f32[] parameter(0)",
        "s = ((f32[], f32[]), f32[], u32[]) async-start(z, z), calls=sum",
        "d = f32[] async-done(s)",
        before=SCALAR_SUM,
    )
    assert "async-start(%z, %z), calls=%sum" in print_module(module)
    check_round_trip(print_module(module))


# -- faults ------------------------------------------------------------------------------------------

FAULTS = [
    ("a = f32[] parameter(0)\n b = f32[] foo(a)", "unknown opcode 'foo'", 3, 12),
    ("a = f32[] parameter(0)\n b = f32[] subtrac(a, a)", "did you mean subtract", 3, 12),
    ("a = f32[] parameter(0)\n b = f32[] add(a, c)", "unknown operand 'c'", 3, 19),
    ("a = f32[] parameter(0)\n b = f32[] add(a)", "add takes 2 operands, got 1", 3, 12),
    ("a = f32[] parameter(0)\n b = f32[] add(a a)", "expected ',' or ')' after an operand, got 'a'", 3, 18),
    ("a = f32[] parameter(0)\n a = f32[] negate(a)", "two instructions called 'a'", 3, 2),
    ("ROOT a = f32[] parameter(0)\n ROOT b = f32[] negate(a)", "second ROOT", 3, 2),
    ("a = f32[] parameter(0), size=1", "unknown attribute of parameter: 'size'", 2, 26),
    ("a = f32[2] iota()", "iota lacks iota_dimension=", 2, 13),
    ("a = f32[2] iota(), iota_dimension=0, iota_dimension=0", "attribute iota_dimension stands twice", 2, 39),
    ("a = f32[] constant(1), metadata={foo=1}", "unknown field 'foo' in metadata", 2, 35),
    ("a = f32[] constant(1), metadata={op_name=1}", "expected a string in quotes, got '1'", 2, 43),
    ('a = f32[] constant(1), backend_config="x', "this quote is never closed", 2, 40),
    ("a = f32[] constant(1), backend_config={", "this '{' is never closed", 2, 40),
    ("a = f32[] constant(1) /* b", "this comment is never closed", 2, 24),
    ("a = f32[] parameter(0)\n b = f32[] call(a), to_apply=g", "unknown computation 'g'", 3, 30),
    ("a = f32[] parameter(0)\n b = f32[] call(a), to_apply=main", "calls itself", 3, 30),
    ("a = f32[] parameter(0)\n b = f32[] add(f32[2] a, a)", "operand 'a' is said to be f32[2], it is f32[]", 3, 16),
    ("a = constant(1)", "a constant needs its shape", 2, 6),
    ("a = g32[2] parameter(0)", "unknown element type 'g32'", 2, 6),
    ("a = f32[] parameter(0)\n b = f32[] compare(a, a), direction=LEFT", "unknown ComparisonDirection 'LEFT'", 3, 37),
    ("a = f32[] parameter(0)\n b = f32[] add-start(a)", "needs its shape", 3, 12),
    ("a = f32[] parameter(0)\n b = f32[2] pad(a, a), padding=1x1", "expected a padding", 3, 32),
    ("a = f32[] parameter(0), sharding=" + "{" * 100_000, "expected a sharding", 2, 37),
    ("a = f32[] " + "negate(" * 100_000, "nested deeper", 2, None),
    ("a = f32[] custom-call(), literal=" + "(" * 100_000, "nested deeper", 2, None),
    ("a = f32[] parameter(0), origin={" + "(" * 100_000, "nested deeper", 2, None),
    ("a = f32[] call(), to_apply=" + "{ a = f32[] call(), to_apply=" * 10_000, "nested deeper", 2, None),
]


@pytest.mark.parametrize(("body", "message", "line", "column"), FAULTS)
def test_faults(body, message, line, column):
    with pytest.raises(ParseError) as caught:
        parse_module(f"ENTRY main {{\n {body}\n}}", name="p.hlo")
    error = caught.value
    assert message in str(error)
    assert error.location is not None
    assert (error.location.file, error.line) == ("p.hlo", line)
    assert column is None or error.column == column


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a module, a computation or an instruction"),
        ("HloModule", "expected the module's name"),
        ("HloModule m", "expected a computation"),
        ("HloModule m, replica_count=0\nENTRY e { a = f32[] parameter(0) }", "at least 1"),
        ("HloModule m\nENTRY e { }", "has no instructions"),
        ("HloModule m\ne { a = f32[] parameter(0) }\ne { a = f32[] parameter(0) }", "two computations called 'e'"),
        ("HloModule m\nENTRY e { a = f32[] parameter(0) }\nENTRY f { a = f32[] parameter(0) }", "only one ENTRY"),
        ("HloModule m\nENTRY e { a = f32[] parameter(0) }\nHloModule n", "second module"),
        ("ENTRY e (a: f32[]) -> f32[2] { a = f32[] parameter(0) }", "said to give f32[2]"),
        ("add(f32[] a, b)", "expected the end"),
        ("r = add(f32[] a, b)", "unknown operand 'b'"),
    ],
)
def test_module_faults(text, message):
    with pytest.raises(ParseError) as caught:
        parse_module(text)
    assert message in str(caught.value)


def test_a_shape_that_cannot_be_inferred_says_where():
    with pytest.raises(ShapeError) as caught:
        parse_module("ENTRY e { a = f32[2] parameter(0)\n b = f32[3] parameter(1)\n c = add(a, b) }", name="q.hlo")
    assert caught.value.location is not None
    assert (caught.value.location.file, caught.value.location.line) == ("q.hlo", 3)
    assert "add 'c'" in str(caught.value)


def test_tokens_have_no_literal_but_token():
    assert parse_literal(TOKEN_SHAPE, "token") == Literal.token()


# -- with XLA ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", LINES)
def test_jaxlib_prints_the_same(line):
    hlo = pytest.importorskip("jaxlib._hlo")
    module = entry(
        "x = f32[8] parameter(0)",
        "z = f32[] parameter(1)",
        "m = f32[4,8] parameter(2)",
        "q = f32[3,4,1,2] parameter(3)",
        "k = f32[2,1,8] parameter(4)",
        f"ROOT {line}",
        before=SCALAR_SUM,
    )
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    printed = print_module(module)
    theirs = hlo.hlo_module_from_text(printed).to_string(options)
    assert sorted(theirs.splitlines()) == sorted(printed.splitlines())
