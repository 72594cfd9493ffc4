"""Programs in HLO text: what is read, what is printed, and how faults are told."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from xlakit.data.layout import Layout
from xlakit.data.shape import make_shape
from xlakit.errors import ParseError, ShapeError
from xlakit.formats.hlo_text import (
    parse_module,
    print_instruction,
    print_module,
)
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
    'frontend_attributes={composite.attributes={"k": {}},composite.name="a.b"}',
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
    'source_column=5 source_end_column=6}, backend_config={"a": {"b": "}"}}',
    "%r = f32[8]{0} negate(%x), statistics={visualizing_index=1,nan=2,mean=0.25}, "
    'origin={({"a" {0}}, (({}), {"b"}))}, backend_config="plain"',
    "%r = f32[8]{0} negate(%x), origin={[synthetic_call]}",
    '%r = f32[8]{0} negate(%x), origin={((), {"b"}, ((), ({"c"})))}',
    "%r = () tuple(), origin={()}",
]


def ending_in(line):
    """A module whose root is that of the line."""
    return entry(
        "x = f32[8] parameter(0)",
        "z = f32[] parameter(1)",
        "m = f32[4,8] parameter(2)",
        "q = f32[3,4,1,2] parameter(3)",
        "k = f32[2,1,8] parameter(4)",
        f"ROOT {line}",
        before=SCALAR_SUM,
    )


@pytest.mark.parametrize("line", LINES)
def test_instruction_prints_as_it_stands(line):
    module = ending_in(line)
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
    illegal = entry(
        "p = pred[] parameter(0)",
        "v = f32[] parameter(1)",
        "ROOT c = f32[] conditional(p, v), branch_computations={sum}",
        before=text,
    )
    assert "branch_computations={%sum}" in print_module(illegal)


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
    old = "HloModule m, allow_spmd_sharding_propagation_to_output=true\nENTRY e { ROOT x = f32[] parameter(0) }"
    assert "allow_spmd_sharding_propagation_to_output={true}" in HloModule.from_text(old).to_text()
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
    assert str(module.location_of(module.entry.root)) == "a.py:3:4"
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
    threads = {c.name: c.execution_thread for c in module.computations}
    assert threads == {"later": "side", "_": "main", "main": "main"}
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


def test_an_update_keeps_its_own_aliasing():
    state = "((f32[8]{0}), f32[8]{0}, u32[])"
    module = entry(
        "x = f32[8] parameter(0)",
        f's = {state} custom-call-start(x), custom_call_target="f", output_to_operand_aliasing={{{{}}: (0, {{}})}}',
        f"u = {state} custom-call-update(s), output_to_operand_aliasing={{{{2}}: (0, {{2}})}}",
        f"v = {state} custom-call-update(u), output_to_operand_aliasing={{{{}}: (0, {{}})}}",
        "d = f32[8] custom-call-done(v)",
    )
    own = named(module, "u").op.output_to_operand_aliasing
    assert [(entry.output_index, entry.operand_number) for entry in own] == [((2,), 0)]
    # That of v is the start's again, as old texts have it.
    assert named(module, "v").op.output_to_operand_aliasing == ()
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
    ("a = f32[] constant(1), backend_config={{", "this '{' is never closed", 2, 40),
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
    ("a = f32[] " + "negate(" * 100_000, "a name and a line of its own", 2, None),
    ("a = f32[] custom-call(), literal=" + "(" * 100_000, "nested deeper", 2, None),
    ("a = f32[] parameter(0), origin={" + "(" * 100_000, "leave origin={...} out", 2, None),
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
        ("f32[] negate(f32[] a) b", "expected the end"),
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


# -- with XLA ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", LINES)
def test_jaxlib_prints_the_same(line):
    hlo = pytest.importorskip("jaxlib._hlo")
    module = ending_in(line)
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    printed = print_module(module)
    theirs = hlo.hlo_module_from_text(printed).to_string(options)
    assert sorted(theirs.splitlines()) == sorted(printed.splitlines())


# -- shapes that the text leaves out -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "shape"),
    [
        ("negate(x)", "f32[2,3]{0,1}"),
        ("add(y, x)", "f32[2,3]{1,0}"),
        ("compare(x, x), direction=EQ", "pred[2,3]{0,1}"),
        ("clamp(y, x, y)", "f32[2,3]{0,1}"),
        ("select(z, x, y)", "f32[2,3]{0,1}"),
        ("transpose(y), dimensions={1,0}", "f32[3,2]{0,1}"),
        ("tuple(x, y)", "(f32[2,3]{0,1}, f32[2,3]{1,0})"),
        ("concatenate(x, x), dimensions={0}", "f32[4,3]{1,0}"),
        ("call(x), to_apply=same", "f32[2,3]{0,1}"),
    ],
)
def test_an_inferred_shape_has_the_layout_of_what_it_comes_from(expression, shape):
    text = f"""HloModule m
same {{
  ROOT p = f32[2,3]{{0,1}} parameter(0)
}}
ENTRY main {{
  x = f32[2,3]{{0,1}} parameter(0)
  y = f32[2,3]{{1,0}} parameter(1)
  z = pred[2,3]{{1,0}} parameter(2)
  ROOT r = {expression}
}}
"""
    assert str(HloModule.from_text(text).entry.root.shape) == shape


# -- old and rare spellings --------------------------------------------------------------------------


def test_a_custom_call_may_name_its_computation_with_to_apply():
    text = """HloModule m
f {
  ROOT p = f32[] parameter(0)
}
ENTRY main {
  x = f32[] parameter(0)
  ROOT r = f32[] custom-call(x), custom_call_target="run", to_apply=f
}
"""
    (called,) = HloModule.from_text(text).entry.root.op.called_computations
    assert called.name == "f"
