"""``xlakit bisect``: seeded faults of the compiler are named, with the rewrite that shows them."""

import json
from pathlib import Path

import pytest

import xlakit as xla
from xlakit.ir.instruction import HloModule
from xlakit.memory import copy_insertion
from xlakit.passes import pipeline
from xlakit.passes.core.framework import PassContext
from xlakit.passes.pipeline import PASSES
from xlakit.passes.spmd.pieces import emit
from xlakit.tools import bisect as bisecting, cli
from xlakit.tools.compare import Tolerance
from xlakit.tools.diff.changed import changed_texts
from xlakit.tools.oracles.arguments import Arguments
from xlakit.tools.shards import on_devices

BROKEN = str(Path(__file__).parents[2] / "fuzz" / "workbench" / "broken_compiler.py")
PROGRAM = """HloModule program

ENTRY main {
  x = f32[8,8] parameter(0)
  y = f32[8,8] parameter(1)
  zero = f32[] constant(0)
  zeros = f32[8,8] broadcast(zero), dimensions={}
  a = f32[8,8] add(x, zeros)
  s = f32[8,8] multiply(a, a)
  t = f32[8,8] tanh(y)
  u = f32[8,8] transpose(t), dimensions={1,0}
  v = f32[8,8] transpose(u), dimensions={1,0}
  ROOT r = f32[8,8] subtract(s, v)
}
"""


@pytest.fixture
def mended():
    """What the compiler with faults changes in this process is put back afterwards."""
    before = pipeline.PIPELINE
    yield
    pipeline.PIPELINE = before
    PASSES.pop("forget-tanh", None)
    table = PASSES["simplify"].rules.rules
    table[:] = [r for r in table if r.name != "square-is-self"]


@pytest.fixture
def bisect(monkeypatch, mended, observed_here):
    def found(fault, backend, program=PROGRAM):
        monkeypatch.setenv("FAULT", fault)
        oracle = xla.Disagreement((backend, "interpreter"))
        return xla.bisect_module(HloModule.from_text(program), oracle, load=[BROKEN])

    return found


def test_a_wrong_rule_is_named_with_what_it_did(bisect):
    found = bisect("rule", "cpu")
    assert (found.pass_name, found.rule) == ("simplify", "square-is-self")
    assert found.changes_meaning is True
    assert "multiply" in found.before
    assert "multiply" not in found.after
    assert "square-is-self" in found.without
    assert 0 < found.fuel <= found.rewrites
    assert "the rewrite is wrong" in str(found)
    assert "-  %" in found.diff or "-  s = " in found.diff


SOLVE = (
    'custom_call_target="lapack_strsm_ffi", operand_layout_constraints={f32[4,4]{0,1}, f32[4,4]{0,1}}, '
    "api_version=API_VERSION_TYPED_FFI, "
    "backend_config={diag = 78 : ui8, side = 76 : ui8, trans_x = 78 : ui8, uplo = 76 : ui8}"
)
SOLVED = f"""HloModule solved

ENTRY main {{
  x = f32[4,4]{{1,0}} parameter(0)
  y = f32[4,4]{{0,1}} custom-call(x, x), {SOLVE}
  z = f32[4,4]{{0,1}} custom-call(x, y), {SOLVE}
  ROOT r = f32[4,4]{{1,0}} multiply(z, z)
}}
"""


def test_rewrites_are_numbered_from_the_calls_of_lapack_with_their_transposes(bisect):
    found = bisect("rule", "broken", SOLVED)
    assert (found.rule, found.changes_meaning) == ("square-is-self", True)


SPLIT = """HloModule split, num_partitions=2

add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }

ENTRY main {
  x = f32[8,8] parameter(0), sharding={devices=[2,1]<=[2]}
  zero = f32[] constant(0)
  v = f32[8,8] reverse(x), dimensions={0}
  n = f32[8] reduce(v, zero), dimensions={0}, to_apply=add
  t = f32[8,8] broadcast(n), dimensions={1}
  s = f32[8,8] multiply(t, t)
  r = f32[8,8] subtract(s, v)
  ROOT both = (f32[8,8], f32[8]) tuple(r, n)
}
"""


def test_meanings_of_a_split_program_are_compared_over_its_devices():
    texts = SPLIT, SPLIT.replace(" multiply(", " add(")
    module, wrong = (on_devices(HloModule.from_text(text)).module for text in texts)
    meaning = bisecting._OtherMeaning(module.to_proto(), Arguments(), Tolerance())
    assert [leaf.agrees for leaf in meaning.observe(module)] == [True, True]
    assert [leaf.agrees for leaf in meaning.observe(wrong)] == [False, True]


def test_the_rewrites_of_a_split_program_are_those_of_a_device():
    before, after, rule = bisecting._Trace(HloModule.from_text(SPLIT)).around(1)
    assert rule
    for step in (before, after):
        assert step.after.entry.parameters[0].shape.dimensions == (4, 8)


CALL = """HloModule call

ENTRY main {
  x = f32[4,4] parameter(0)
  y = f32[4,4] add(x, x)
  ROOT c = (f32[4,4]{0,1}, s32[]) custom-call(y), custom_call_target="lapack_spotrf_ffi",
    operand_layout_constraints={f32[4,4]{0,1}}, api_version=API_VERSION_TYPED_FFI,
    backend_config={mhlo.backend_config = {uplo = 76 : ui8}}
}
"""


def test_the_rewrites_of_calls_of_lapack_are_those_of_the_compiler(monkeypatch):
    module = HloModule.from_text(CALL)
    seen = []
    run = pipeline.run_pipeline
    monkeypatch.setattr(pipeline, "run_pipeline", lambda given, *rest: seen.append(given) or run(given, *rest))
    xla.compile(module, cache=False)
    assert len(seen) == 1
    assert bisecting._Trace(module)._module.to_text() == seen[0].to_text() != module.to_text()


def test_a_rewrite_that_is_right_may_show_a_fault_of_code_generation(bisect):
    found = bisect("fused", "broken")
    assert found.pass_name == "fusion"
    assert found.changes_meaning is False
    assert "fusion" in found.after
    assert "code generation fails" in str(found)
    assert "fusion" in found.without


def test_a_part_of_code_generation_is_named(bisect):
    found = bisect("part", "broken")
    assert (found.rule, found.parts) == ("", ("memory",))
    assert "XLAKIT_PLAIN=memory" in str(found)


SWAPPED = """HloModule swapped

step {
  s = (f32[], f32[4], f32[4]) parameter(0)
  n = f32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  y = f32[4] get-tuple-element(s), index=2
  m = f32[] add(n, n)
  z = f32[4] tanh(y)
  ROOT t = (f32[], f32[4], f32[4]) tuple(m, z, x)
}

less {
  s = (f32[], f32[4], f32[4]) parameter(0)
  n = f32[] get-tuple-element(s), index=0
  most = f32[] constant(100)
  ROOT p = pred[] compare(n, most), direction=LT
}

ENTRY main {
  n = f32[] parameter(0)
  x = f32[4] parameter(1)
  one = f32[] constant(1)
  start = f32[] maximum(n, one)
  s = (f32[], f32[4], f32[4]) tuple(start, x, x)
  w = (f32[], f32[4], f32[4]) while(s), condition=less, body=step
  y = f32[4] get-tuple-element(w), index=1
  ROOT r = f32[4] add(x, y)
}
"""


def test_a_missing_copy_is_a_fault_of_the_memory_plan(bisect, monkeypatch):
    # Put back afterwards: the file is loaded in this process, too.
    monkeypatch.setattr(copy_insertion.CopyInsertion, "_copies", copy_insertion.CopyInsertion._copies)
    monkeypatch.setenv("XLAKIT_CHECK_MEMORY", "0")
    found = bisect("copies", "cpu", SWAPPED)
    assert (found.rule, found.is_split_wrong) == ("", False)
    assert "the memory plan is wrong: " in str(found)
    assert "%w{2}" in found.memory_fault


def test_what_always_fails_is_told(bisect):
    found = bisect("always", "broken")
    assert (found.rule, found.parts) == ("", ())
    assert "a kernel is wrong" in str(found)


def test_a_wrong_pass_is_named(bisect):
    found = bisect("tangents", "broken")
    assert (found.pass_name, found.rule) == ("forget-tanh", "forget-tanh")
    assert found.changes_meaning is True
    assert "forget-tanh" in found.without


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.hlo"
    path.write_text(PROGRAM)
    return path


@pytest.mark.usefixtures("observed_here")
def test_the_command_says_how_to_go_on_and_goes_on(program, capsys, monkeypatch):
    monkeypatch.setenv("FAULT", "part")
    options = ["bisect", str(program), "--compare", "broken,interpreter", "--load", BROKEN]
    assert cli.main(options) == 0
    out = capsys.readouterr().out
    assert f"xlakit reduce {program} --compare broken,interpreter --load {BROKEN}\n" in out
    limits = ["--fill-elided", "zeros", "--timeout", "50", "--memory", "2G"]
    assert cli.main([*options, *limits]) == 0
    limits[-1] = str(2 << 30)
    assert f"--load {BROKEN} {' '.join(limits)}\n" in capsys.readouterr().out
    assert cli.main([*options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parts"] == ["memory"]
    assert cli.main([*options, "--reduce"]) == 0
    assert "-> 1 instructions" in capsys.readouterr().out
    assert program.with_suffix(".reduced.hlo").exists()


def test_a_backend_that_there_is_not_is_a_fault_of_the_command_line(program, capsys):
    with pytest.raises(SystemExit) as exit:
        cli.main(["bisect", str(program), "--compare", "cpu,gpu"])
    assert exit.value.code == 2
    assert "there is no backend 'gpu': cpu, interpreter, plain, jaxlib" in capsys.readouterr().err


@pytest.mark.usefixtures("observed_here")
def test_a_program_that_does_not_fail_is_refused(program, capsys):
    assert cli.main(["bisect", str(program), "--compare", "cpu,interpreter"]) == 1
    assert "the module as given does not give different results on cpu and interpreter" in capsys.readouterr().err
    assert cli.main(["bisect", str(program), "--crash"]) == 1
    assert "the program runs" in capsys.readouterr().err


UNSUMMED = """
from xlakit.passes.spmd.pieces.emit import Emitter
Emitter.all_reduce = lambda self, value, combining, groups: value
"""


@pytest.mark.usefixtures("observed_here")
def test_a_wrong_partitioner_is_named(tmp_path, monkeypatch):
    # Put back afterwards: the file is loaded in this process, too.
    monkeypatch.setattr(emit.Emitter, "all_reduce", emit.Emitter.all_reduce)
    broken = tmp_path / "broken.py"
    broken.write_text(UNSUMMED)
    found = xla.bisect_module(HloModule.from_text(SPLIT), xla.Crash(), load=[str(broken)])
    assert found.is_split_wrong
    assert "the partitioner is wrong" in str(found)


def test_what_only_has_another_name_is_not_shown_as_changed():
    before = HloModule.from_text(PROGRAM)
    text = PROGRAM.replace("  s = ", "  other = ").replace("(s)", "(other)").replace("(s,", "(other,")
    after = HloModule.from_text(text)
    assert str(after) != str(before)
    assert changed_texts(before, after) == ("", "")


def test_layouts_are_shown_where_the_rewrite_drops_them():
    text = """HloModule m
    ENTRY e {
      x = f32[3,4]{0,1} parameter(0)
      ROOT y = f32[4,3]{1,0} bitcast(x)
    }"""
    module = HloModule.from_text(text)
    old, new = changed_texts(module, PASSES["normalize-layouts"].run(module, PassContext()))
    assert "{0,1}" in old
    assert "{" not in new.split("\n", 1)[1].replace("{1,0}", "").replace("}", "")


@pytest.mark.usefixtures("mended")
def test_the_smaller_program_goes_where_it_is_told(program, tmp_path, monkeypatch, capsys):
    """In processes of their own, as a person's searches are: they load the file, and have the fuel of their run."""
    monkeypatch.setenv("FAULT", "rule")
    out = tmp_path / "small.hlo"
    words = ["bisect", str(program), "--compare", "broken,interpreter", "--load", BROKEN, "-o", str(out), "--jobs", "1"]
    with pytest.raises(SystemExit):
        cli.main(words)
    assert "--reduce" in capsys.readouterr().err
    assert cli.main([*words, "--reduce"]) == 0
    assert "square-is-self, in pass" in capsys.readouterr().out
    assert "ENTRY" in out.read_text()
    assert " multiply(" in out.read_text()
