"""``xlakit opt``, as a person meets it."""

import pytest

import xlakit as xla
from xlakit.passes.pipeline import PIPELINE
from xlakit.tools import cli

PROGRAM = """HloModule twice

ENTRY main {
  x = f32[3] parameter(0)
  y = f32[3] negate(x)
  z = f32[3] negate(y)
  ROOT r = f32[3] exponential(z)
}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "twice.hlo"
    path.write_text(PROGRAM)
    return str(path)


def printed(capsys, *arguments):
    assert cli.main(["opt", *arguments]) == 0
    return capsys.readouterr().out


def test_it_prints_the_improved_program(file, capsys):
    module = xla.HloModule.from_text(printed(capsys, file))
    assert [i.opcode for i in module.entry.instructions] == ["parameter", "exponential"]


def test_instructions_may_have_the_names_that_fusion_gives(tmp_path, capsys):
    path = tmp_path / "names.hlo"
    path.write_text("""HloModule names
ENTRY main {
  a = f32[64] parameter(0)
  p0 = f32[64] cosine(a)
  result = f32[64] tanh(p0)
  p1 = f32[64] multiply(p0, a)
  ROOT values = (f32[64], f32[64]) tuple(result, p1)
}
""")
    assert "fused" in printed(capsys, str(path))


def test_passes_can_be_chosen_and_switched_off(file, capsys):
    assert "negate" not in printed(capsys, file, "--passes", "arithmetic")
    assert "negate" in printed(capsys, file, "--passes", "logic,dead-code")
    assert "negate" in printed(capsys, file, "--disable", "negate-twice")
    assert "negate" in printed(capsys, file, "--until", "inline-calls")
    assert "negate" in printed(capsys, file, "--fuel", "0")


def test_diff_shows_what_each_pass_has_changed(file, capsys):
    out = printed(capsys, file, "--passes", "inline-calls,simplify", "--diff")
    assert "--- before 02-simplify\n+++ after 02-simplify\n" in out
    assert "-  %y = f32[3]{0} negate(%x)\n" in out
    assert "inline-calls" not in out


def test_dump_writes_a_file_for_each_pass(file, capsys, tmp_path):
    printed(capsys, file, "--dump", str(tmp_path / "dump"))
    names = sorted(path.name for path in (tmp_path / "dump").iterdir())
    assert names == ["00-before.hlo", *(f"{n:02}-{step.name}.hlo" for n, step in enumerate(PIPELINE, 1))]
    for path in (tmp_path / "dump").iterdir():
        xla.HloModule.from_text(path.read_text()).verify()


def test_passes_and_rules_are_listed_with_their_laws(capsys):
    out = printed(capsys, "--list-passes")
    assert "common-subexpressions" in out
    assert "multiply-by-one" in out
    assert "x * 1 -> x" in out


@pytest.mark.parametrize(
    ("arguments", "message", "status"),
    [
        ([], "no FILE is given", 2),
        (["FILE", "--passes", "nonsense"], "there is no pass 'nonsense'", 2),
        (["FILE", "--disable", "nonsense"], "there is no pass and no rule 'nonsense'", 2),
        (["FILE", "--until", "nonsense"], "no pass 'nonsense' runs", 2),
        (["/nowhere.hlo"], "/nowhere.hlo", 1),
    ],
)
def test_errors_are_said_without_a_traceback(file, arguments, message, status, capsys):
    assert cli.main(["opt", *(file if a == "FILE" else a for a in arguments)]) == status
    told = capsys.readouterr().err
    assert message in told
    assert "Traceback" not in told


_THREAD = """HloModule m

condition {
  s = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(40)
  ROOT p = pred[] compare(i, n), direction=LT
}, execution_thread="other"

body {
  s = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8,8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = s32[] constant(0)
  low = s32[] maximum(i, zero)
  row = f32[1,8] dynamic-slice(x, low, zero), dynamic_slice_sizes={1,8}
  d = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[8,8] add(d, x)
  z = f32[8,8] tanh(y)
  w = f32[8,8] dynamic-update-slice(z, row, low, zero)
  ROOT t = (s32[], f32[8,8]) tuple(j, w)
}, execution_thread="other"

called {
  x = f32[8,8] parameter(0)
  e = f32[8,8] negate(x)
  f = f32[8,8] exponential(e)
  zero = s32[] constant(0)
  s = (s32[], f32[8,8]) tuple(zero, f)
  w = (s32[], f32[8,8]) while(s), condition=condition, body=body
  r = f32[8,8] get-tuple-element(w), index=1
  ROOT g = f32[8,8] sine(r)
}, execution_thread="other"

ENTRY main {
  x = f32[8,8] parameter(0)
  begun = ((f32[8,8]), f32[8,8], u32[]) async-start(x), async_execution_thread="other", calls=called
  ROOT ended = f32[8,8] async-done(begun)
}
"""


@pytest.mark.parametrize("is_called", [False, True])
def test_what_passes_make_runs_on_the_thread_of_the_computation_around_it(tmp_path, capsys, is_called):
    path = tmp_path / "m.hlo"
    call = "ROOT ended = f32[8,8] call(x), to_apply=called\n}\n"
    path.write_text(_THREAD[: _THREAD.index("begun =")] + call if is_called else _THREAD)
    assert cli.main(["opt", str(path)]) == 0
    text = capsys.readouterr().out
    assert "fusion(" in text
    # An asynchronous operation that is run at once is one of the main thread.
    assert ('execution_thread="other"' in text) == is_called
