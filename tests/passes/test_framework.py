"""What passes are made of: rules and tables, the rewriter, fuel and switches, the pipeline, the inliner's limits."""

import dataclasses

import numpy as np
import pytest
from evaluating import f32, opcodes, same

import xlakit as xla
from xlakit.errors import InternalError
from xlakit.execution.inputs import make_inputs
from xlakit.ir.attributes import Annotations, OpMetadata, Sharding
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.data import Parameter
from xlakit.ops.movement import Reshape
from xlakit.ops.registry import OPERATIONS
from xlakit.passes import Pass, PassContext, RulePass, Rules
from xlakit.passes.canonicalize import inline_calls
from xlakit.passes.core.deferred import Deferred
from xlakit.passes.pipeline import PASSES, PIPELINE, TABLES, run_pipeline
from xlakit.passes.simplify.arithmetic import ARITHMETIC
from xlakit.passes.simplify.logic import LOGIC


def parse(body, *, before=""):
    return xla.HloModule.from_text(f"HloModule m\n{before}\nENTRY e {{\n{body}\n}}\n")


# -- rules -----------------------------------------------------------------------------------------


def test_a_rule_has_the_name_of_its_function_and_its_docstring_as_law():
    for table in TABLES:
        for rule in table.rules:
            assert "_" not in rule.name
            assert "->" in rule.law, rule.name
            assert len(rule.law) > 10


def test_no_two_rules_have_the_same_name():
    names = [rule.name for table in TABLES for rule in table.rules]
    assert len(names) == len(set(names))
    assert not set(names) & set(PASSES)


def test_tables_and_passes_add_up():
    both = ARITHMETIC + LOGIC
    assert [*both] == [*ARITHMETIC, *LOGIC]
    module = parse("  x = s32[] parameter(0)\n  y = s32[] negate(x)\n  z = s32[] negate(y)\n  ROOT r = s32[] and(z, z)")
    added = RulePass("arithmetic", ARITHMETIC) + RulePass("logic", LOGIC)
    assert opcodes(added.run(module, PassContext())) == ["parameter"]


def test_a_replacement_takes_the_name_and_annotations_of_what_it_replaces():
    module = parse("  x = f32[4] parameter(0)\n  y = f32[4] negate(x)\n  ROOT z = f32[4] add(x, y)")
    root = module.entry.root
    told = Annotations(
        metadata=OpMetadata(op_name="here"),
        sharding=Sharding("REPLICATED"),
        backend_config="x",
        statistics=(("a", 1.0),),
    )
    changed = module.replace(
        entry=module.entry.rebuild(lambda i, o: i.replace(operands=o, annotations=told) if i is root else i)
    )
    new = run_pipeline(changed, ["arithmetic"]).entry.root
    assert (new.name, new.opcode) == ("z", "subtract")
    assert new.annotations == Annotations(metadata=told.metadata, sharding=told.sharding)


def test_inner_instructions_get_new_names_and_the_place_they_came_from():
    module = parse(
        "  x = f32[4] parameter(0)\n  constant.1 = f32[] constant(8)\n"
        '  broadcast.2 = f32[4] broadcast(constant.1), dimensions={}, metadata={op_name="b"}\n'
        '  ROOT z = f32[4] divide(x, broadcast.2), metadata={op_name="here"}, sharding={replicated}'
    )
    after = run_pipeline(module, ["arithmetic"], context=PassContext(check=True))
    names = [i.name for i in after.entry.instructions]
    assert len(set(names)) == len(names) == 4
    inner = after.entry.root.operands[1]
    assert inner.annotations == Annotations(metadata=OpMetadata(op_name="here"))


def test_what_has_an_effect_stays_with_its_operands_improved():
    module = parse(
        "  x = f32[4] parameter(0)\n  t = token[] after-all()\n  y = f32[4] negate(x)\n  z = f32[4] negate(y)\n"
        "  o = token[] outfeed(z, t), outfeed_shape=f32[4]\n  ROOT r = () tuple()"
    )
    after = run_pipeline(module, context=PassContext(check=True))
    outfeed = next(i for i in after.entry.instructions if i.opcode == "outfeed")
    assert outfeed.operands[0] is after.entry.parameters[0]


def test_dynamic_sizes_are_left_alone():
    body = "  x = f32[<=4] parameter(0)\n  y = f32[<=4] negate(x)\n  ROOT z = f32[<=4] negate(y)"
    assert opcodes(run_pipeline(parse(body), disabled=["pad-dynamic"])) == ["parameter", "negate", "negate"]
    assert "negate" not in opcodes(run_pipeline(parse(body)))


def test_a_layout_that_a_bitcast_looks_at_stays():
    body = "  x = f32[2,3]{1,0} parameter(0)\n  y = f32[2,3]{0,1} copy(x)\n  ROOT z = f32[6]{0} bitcast(y)"
    module = parse(body)
    assert opcodes(run_pipeline(module, ["conversions"])) == ["parameter", "copy", "bitcast"]
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    after = run_pipeline(module, context=PassContext(check=True, disabled=["fusion"]))
    assert opcodes(after) == ["parameter", "transpose", "reshape"]
    same(xla.compile(after, backend="interpreter")(values), xla.compile(module, backend="interpreter")(values))


def test_rules_that_undo_each_other_are_found():
    table = Rules("circle")

    @table.rule("negate")
    def there(x, make):
        return make.apply("abs", x.operands[0])

    @table.rule("abs")
    def back(x, make):
        return make.apply("negate", x.operands[0])

    module = parse("  x = f32[4] parameter(0)\n  ROOT y = f32[4] negate(x)")
    step = RulePass("circle", table)
    with pytest.raises(InternalError, match="does not come to an end; the last rule was"):
        run_pipeline(module, [step], context=PassContext(check=True))
    run_pipeline(module, [step]).verify()


def test_a_rule_that_changes_the_shape_is_found():
    table = Rules("wrong")

    @table.rule("negate")
    def flat(x, make):
        return make.reshape(x.operands[0], (2, 2))

    module = parse("  x = f32[4] parameter(0)\n  ROOT y = f32[4] negate(x)")
    with pytest.raises(InternalError, match=r"rule flat replaces f32\[4\].* by f32\[2,2\]"):
        run_pipeline(module, [RulePass("wrong", table)])


# -- scale -----------------------------------------------------------------------------------------


def chain(count, step):
    """A module of so many instructions in a row: ``step`` gives the operation and the shape of each."""
    value = Instruction(Parameter(number=0), (), f32(4).without_layout(), "x")
    made = [value]
    for number in range(count):
        op, shape = step(number)
        value = Instruction(op, (value,), shape, f"y{number}")
        made.append(value)
    return HloModule("chain", Computation("main", tuple(made), value))


def test_a_long_chain_is_rewritten_without_recursion():
    shape = f32(4).without_layout()
    ops = [OPERATIONS["exponential"](), OPERATIONS["negate"](), OPERATIONS["negate"]()]
    after = PASSES["simplify"].run(chain(100_000, lambda n: (ops[n % 3], shape)), PassContext())
    assert after.instruction_count() == 1 + 33_334
    assert not any(i.opcode == "negate" for i in after.entry.instructions)


def test_a_chain_of_rewrites_takes_one_rewrite_for_each():
    shapes = [f32(2, 2).without_layout(), f32(4).without_layout()]
    context = PassContext()
    after = PASSES["simplify"].run(chain(20_001, lambda n: (Reshape(), shapes[n % 2])), context)
    assert opcodes(after) == ["parameter", "reshape"]
    assert context.rewrites <= 40_000


def test_calls_of_calls_do_not_multiply_without_end(monkeypatch):
    monkeypatch.setattr(inline_calls, "_MOST_INSTRUCTIONS", 500)
    monkeypatch.setattr(inline_calls, "_MOST_GROWTH", 1)
    lines = ["f0 {\n  x = f32[] parameter(0)\n  ROOT y = f32[] sine(x)\n}"]
    for n in range(1, 30):
        lines.append(
            f"f{n} {{\n  x = f32[] parameter(0)\n  a = f32[] call(x), to_apply=f{n - 1}\n"
            f"  ROOT b = f32[] call(a), to_apply=f{n - 1}\n}}"
        )
    module = parse("  x = f32[] parameter(0)\n  ROOT y = f32[] call(x), to_apply=f29", before="\n\n".join(lines))
    after = run_pipeline(module, ["inline-calls", "dead-code"], context=PassContext(check=True))
    assert after.instruction_count() < 1000


def test_a_custom_call_keeps_the_layout_in_which_another_one_gives_its_operand():
    module = parse(
        """
  x = f32[2,3] parameter(0)
  a = f32[2,3]{0,1} custom-call(x), custom_call_target="f"
  ROOT b = f32[2,3] custom-call(a), custom_call_target="g"
"""
    )
    before = module.replace(entry=module.entry.rebuild(_without_default_layout))
    step = PASSES["normalize-layouts"]
    after = step.run(before, PassContext())
    (constraint,) = after.entry.root.op.operand_layout_constraints
    assert constraint.layout.minor_to_major == (0, 1)
    assert step.run(after, PassContext()) is after


def _without_default_layout(old, operands):
    layout = old.shape.layout
    plain = layout is None or layout.is_default
    return old.replace(operands=operands, shape=old.shape.without_layout() if plain else old.shape)


def test_a_module_that_a_pass_left_as_it_was_is_not_given_to_it_again():
    given = []

    class Looks(Pass):
        name = "looks"

        def run(self, module, context):
            given.append(module)
            return module

    module, context, dumped = parse(TWO), PassContext(), []
    looks = Looks()
    dump = lambda number, name, before, after: dumped.append((number, name))  # noqa: E731
    after = run_pipeline(module, [looks, looks, "simplify", looks], context=context, dump=dump)
    assert given == [module, after]
    assert given[1] is not module
    assert dumped == [(1, "looks"), (2, "looks"), (3, "simplify"), (4, "looks")]
    assert [name for name, _ in context.statistics] == [name for _, name in dumped]


def test_an_instruction_is_copied_once_however_deep_calls_are_nested():
    depth = 200
    lines = ["f0 {\n  x = f32[] parameter(0)\n  ROOT y = f32[] sine(x)\n}"]
    for n in range(1, depth):
        lines.append(
            f"f{n} {{\n  x = f32[] parameter(0)\n  a = f32[] sine(x)\n  ROOT b = f32[] call(a), to_apply=f{n - 1}\n}}"
        )
    module = parse(
        f"  x = f32[] parameter(0)\n  ROOT y = f32[] call(x), to_apply=f{depth - 1}", before="\n\n".join(lines)
    )
    after = PASSES["inline-calls"].run(module, PassContext())
    assert [i.opcode for i in after.entry.instructions] == ["parameter", *["sine"] * depth]
    assert after.instruction_count() < module.instruction_count() + depth


def test_names_in_a_function_follow_those_of_its_calls():
    module = parse(
        """
  x = f32[] parameter(0)
  a = f32[] call(x), to_apply=outer, metadata={op_name="jit(f)/encoder/jit(outer)"}
  ROOT b = f32[] fusion(a), kind=kLoop, calls=fused, metadata={op_name="model/b"}
""",
        before="""
inner {
  x = f32[] parameter(0), metadata={op_name="x"}
  ROOT y = f32[] sine(x), metadata={op_name="sin"}
}

outer {
  x = f32[] parameter(0)
  a = f32[] call(x), to_apply=inner, metadata={op_name="jit(inner)"}
  b = f32[] cosine(a), metadata={op_name="jit(f)/cos"}
  c = f32[] tan(b)
  ROOT d = f32[] exponential(c), metadata={source_line=7}
}

fused {
  x = f32[] parameter(0)
  ROOT y = f32[] negate(x), metadata={op_name="loss/y"}
}
""",
    )
    after = PASSES["inline-calls"].run(module, PassContext())
    names = {i.opcode: i.annotations.metadata and i.annotations.metadata.op_name for i in after.entry.instructions}
    encoder = "jit(f)/encoder/jit(outer)"
    expected = {"sine": f"{encoder}/jit(inner)/sin", "cosine": "jit(f)/cos", "tan": encoder, "exponential": ""}
    assert names == {"parameter": None, **expected, "negate": "loss/y"}


# -- switches --------------------------------------------------------------------------------------

TWO = """
  x = f32[4] parameter(0)
  a = f32[4] negate(x)
  b = f32[4] negate(a)
  c = pred[4] compare(b, b), direction=LT
  ROOT d = (f32[4], pred[4]) tuple(b, c)
"""


def test_fuel_stops_after_so_many_rewrites():
    module = parse(TWO)
    counts = []
    for fuel in range(4):
        context = PassContext(fuel=fuel, check=True)
        run_pipeline(module, ["simplify"], context=context)
        counts.append(context.rewrites)
    assert counts == [0, 1, 2, 2]
    assert run_pipeline(module, fuel=0) is module


@pytest.mark.parametrize("name", ["negate-twice", "arithmetic"])
def test_a_rule_or_a_table_can_be_switched_off(name):
    assert opcodes(run_pipeline(parse(TWO), disabled=[name, "fusion"])).count("negate") == 2
    assert opcodes(run_pipeline(parse(TWO), disabled=["fusion"])).count("negate") == 0


def test_a_pass_can_be_switched_off_by_the_environment(monkeypatch):
    monkeypatch.setenv("XLAKIT_DISABLE_PASSES", "simplify, dead-code, fusion")
    assert opcodes(run_pipeline(parse(TWO))).count("negate") == 2


def test_fuel_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("XLAKIT_FUEL", "0")
    module = parse(TWO)
    assert run_pipeline(module) is module
    monkeypatch.setenv("XLAKIT_FUEL", "a lot")
    with pytest.raises(xla.ArgumentError, match="XLAKIT_FUEL is 'a lot'"):
        run_pipeline(module)


def test_what_machine_code_needs_takes_no_fuel():
    module = xla.HloModule.from_text(
        """HloModule sizes

        ENTRY e {
          x = f32[<=4] parameter(0)
          y = f32[<=4] negate(x)
          ROOT z = f32[<=4] negate(y)
        }
        """
    )
    padded = run_pipeline(module, fuel=0)
    assert not any(i.shape.is_dynamic for i in padded.entry.instructions)
    assert opcodes(padded).count("negate") == 2


def test_a_part_of_a_pass_can_be_switched_off():
    module = parse(
        """
        x = f32[4] parameter(0)
        y = f32[4] custom-call(x), custom_call_target="Sharding", sharding={replicated}
        ROOT z = f32[4] domain(y), domain={kind="sharding", entry={maximal device=0}, exit={maximal device=0}}
        """
    )
    assert opcodes(run_pipeline(module, ["expand"])) == ["parameter"]
    assert opcodes(run_pipeline(module, ["expand"], disabled=["hint"])) == ["parameter", "custom-call"]
    names = [name for step in PASSES.values() for name in step.parts]
    assert not set(names) & {*PASSES, *(rule.name for table in TABLES for rule in table.rules)}


def test_no_constants_stay_that_only_fusions_had():
    module = parse(
        """
        x = f32[64,64] parameter(0)
        c = f32[] constant(2.5)
        b = f32[64,64] broadcast(c), dimensions={}
        y = f32[64,64] add(x, b)
        ROOT z = f32[64,64] exponential(y)
        """
    )
    assert opcodes(run_pipeline(module)) == ["parameter", "fusion"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"passes": ["nonsense"]}, "there is no pass 'nonsense'"),
        ({"disabled": ["nonsense"]}, "there is no pass and no rule 'nonsense'"),
        ({"until": "nonsense"}, "no pass 'nonsense' runs"),
    ],
)
def test_unknown_names_are_refused(arguments, message):
    with pytest.raises(xla.ArgumentError, match=message):
        run_pipeline(parse(TWO), **arguments)


def test_until_stops_behind_a_pass_and_dump_sees_each():
    seen = []
    run_pipeline(parse(TWO), dump=lambda *told: seen.append(told[:2]))
    assert seen == [(n, step.name) for n, step in enumerate(PIPELINE, 1)]
    seen.clear()
    run_pipeline(parse(TWO), until="7", dump=lambda *told: seen.append(told[:2]))
    assert len(seen) == 7
    seen.clear()
    run_pipeline(
        parse(TWO), ["inline-calls", "simplify"], until="inline-calls", dump=lambda *told: seen.append(told[:2])
    )
    assert seen == [(1, "inline-calls")]


def test_debug_prints_times_and_rewrites(monkeypatch, capsys):
    monkeypatch.setenv("XLAKIT_DEBUG", "passes")
    run_pipeline(parse(TWO))
    told = capsys.readouterr().err
    assert "simplify" in told
    assert "1 negate-twice" in told
    assert "ms" in told


def test_a_module_where_nothing_is_to_do_is_given_back():
    module = run_pipeline(parse(TWO))
    assert run_pipeline(module) is module


# -- layouts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "  x = f32[3,5]{1,0:T(2,4)} parameter(0)\n  ROOT y = f32[15]{0} bitcast(x)",
        "  x = f32[3,5]{0,1:T(4)} parameter(0)\n  n = f32[3,5]{0,1:T(4)} negate(x)\n  ROOT y = f32[5,3] bitcast(n)",
        "  x = f32[6] parameter(0)\n  ROOT y = f32[2,3]{0,1:T(2,2)} bitcast(x)",
        "  x = c64[4] parameter(0)\n  ROOT y = f32[4,2]{1,0} bitcast(x)",
        "  x = s4[6]{0:E(4)} parameter(0)\n  ROOT y = u8[3]{0} bitcast(x)",
    ],
)
def test_bitcasts_that_are_not_of_plain_memory_are_done_by_the_interpreter(body):
    module = parse(body)
    given = make_inputs(module.program_shape, 0)
    compiled = xla.compile(module, backend="cpu")
    assert [i.opcode for i in compiled.host_instructions] == ["custom-call"]
    np.testing.assert_array_equal(compiled(*given), xla.compile(module, backend="interpreter")(*given))


def test_a_bitcast_of_a_dynamic_array_has_no_meaning_in_machine_code():
    body = "  x = f32[<=4] parameter(0)\n  ROOT y = s32[<=4] bitcast(x)"
    with pytest.raises(xla.UnsupportedError, match="a bitcast of the dynamic array"):
        run_pipeline(parse(body))


def test_layouts_of_arguments_and_results_are_kept():
    module = parse("  x = f32[2,3]{0,1} parameter(0)\n  ROOT y = f32[2,3]{0,1} negate(x)")
    module = dataclasses.replace(module, entry_computation_layout=None)
    after = run_pipeline(module, context=PassContext(check=True))
    assert str(after.entry_computation_layout) == "(x: f32[2,3]{0,1}) -> f32[2,3]{0,1}"
    assert all(i.shape.layout is None for i in after.entry.instructions)


def test_a_custom_call_keeps_the_layouts_of_its_memory():
    module = parse('  x = f32[2,3]{0,1} parameter(0)\n  ROOT y = f32[2,3]{0,1} custom-call(x), custom_call_target="f"')
    call = run_pipeline(module, context=PassContext(check=True)).entry.root
    assert str(call.shape) == "f32[2,3]{0,1}"
    assert [str(s) for s in call.op.operand_layout_constraints] == ["f32[2,3]{0,1}"]


def test_passes_of_other_modules_are_what_their_classes_say():
    deferred = [step for step in PASSES.values() if isinstance(step, Deferred)]
    assert len(deferred) > 10
    for step in deferred:
        own = step.loaded
        assert (step.name, step.left_out_by, step.is_needed) == (own.name, own.left_out_by, own.is_needed)
