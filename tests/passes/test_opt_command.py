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
