"""Mistakes that are easily made on the command line: a sentence that names the file and says what to do."""

import json
import sys
from pathlib import Path

import pytest

import xlakit as xla
from xlakit import api
from xlakit.tools import cli

STEP = """HloModule step

ENTRY main {
  x = f32[4] parameter(0)
  ROOT y = f32[4] sine(x)
}
"""

OWN = """import xlakit  # in place of HloModule step

def compile_module(module, *, seed, **options):
    print("own compiles")
    return xlakit.compile(module, backend="interpreter", seed=seed)

xlakit.register_backend("own", compile_module)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder that the command runs in, with programs and what is none."""
    monkeypatch.chdir(tmp_path)
    Path("step.hlo").write_text(STEP)
    Path("shapes.hlo").write_text(STEP.replace("f32[4] sine", "f32[5] sine"))
    Path("unknown.hlo").write_text(STEP.replace("sine(x)", 'custom-call(x), custom_call_target="unknown"'))
    Path("own.py").write_text(OWN)
    Path("twice.hlo").write_text(STEP + STEP)
    Path("binary").write_bytes(bytes(range(256)))
    Path("page.html").write_bytes(b"<!DOCTYPE html>\n\x01")
    Path("itself.hlo").symlink_to("itself.hlo")
    Path("empty").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("run shapes.hlo", 1, "shapes.hlo: sine 'y' in computation main: declared as f32[5]"),
        ("run step.hlo --backend gpu", 2, "there is no backend 'gpu'\n  hint: known: cpu, interpreter"),
        ("diff step.hlo step.hlo --backend gpu", 2, "there is no backend 'gpu'"),
        ("inspect shapes.hlo", 1, "shapes.hlo: sine 'y'"),
        ("opt shapes.hlo", 1, "shapes.hlo: sine 'y'"),
        ("run unknown.hlo", 1, "unknown.hlo: custom-call 'y': no custom call is registered as 'unknown'"),
        ("diff step.hlo unknown.hlo --run", 2, "step.hlo unknown.hlo: custom-call 'y'"),
        ("extract step.hlo --instruction z -o part", 1, "step.hlo: step has no instruction %z"),
        ("extract step.hlo --instruction y --iteration 1 -o part", 1, "step.hlo: %main has no run 1: it runs 1 time\n"),
        ("opt step.hlo --dump binary", 2, "--dump binary is a file\n  hint: name a folder"),
        ("view step.hlo --until none", 2, "no pass 'none' runs\n  hint: these do: "),
        ("view step.hlo --disable none", 2, "there is no pass and no rule 'none'\n  hint: 'xlakit opt"),
        (
            "view step.hlo --no-passes --profile binary",
            1,
            "step.hlo: binary is no report of a profile\n  hint: xlakit run",
        ),
        ("convert step.hlo --to proto -o a/b.pb", 1, "a/b.pb: there is no folder a\n"),
        ("run step.hlo --against twice.hlo", 1, "twice.hlo:7:1: a second module begins here\n"),
        ("run step.hlo --against binary", 1, "no HLO module: binary data"),
        ("run step.hlo --against shapes.hlo", 1, "sine 'y' in computation main: declared as f32[5]"),
        ("check itself.hlo", 1, "itself.hlo: Too many levels of symbolic links"),
        ("reduce itself.hlo --crash --jobs 1", 1, "itself.hlo: Too many levels of symbolic links"),
        ("reduce empty --crash -o small.hlo", 1, "empty is a folder without programs"),
        ("run stop.hlo", 1, "stop.hlo: No such file or directory\n  hint: did you mean step.hlo"),
        ("run empty/step.hlo", 1, "empty/step.hlo: No such file or directory\n"),
        ("view step.hlo --until simplyfy", 2, "no pass 'simplyfy' runs\n  hint: did you mean simplify?"),
        ("opt step.hlo --passes simplyfy", 2, "there is no pass 'simplyfy'\n  hint: did you mean simplify?"),
        ("view step.hlo --errors binary", 1, "step.hlo: binary is no report of rounding errors\n  hint: xlakit run"),
        (
            "extract step.hlo --loop y -o part",
            1,
            "step.hlo: %y of step is no computation and no loop\n  hint: it is an",
        ),
        ("check page.html", 1, "this is a page of HTML, and no program"),
        ("check own.py", 1, "none of the formats that are known\n  at: own.py:1\n  hint: if it is Python, XLA_FLAGS"),
    ],
)
def test_errors_name_the_file(folder, capsys, line, status, said):
    assert cli.main(line.split()) == status
    assert f"\n{said}" in f"\n{capsys.readouterr().err}".replace("\nxlakit: ", "\n")


@pytest.mark.usefixtures("folder")
def test_a_backend_that_a_loaded_file_registers_runs_programs(capsys, monkeypatch):
    monkeypatch.setattr(api, "_REGISTERED", {})
    assert cli.main(["run", "step.hlo", "--backend", "own"]) == 2
    assert "hint: known: cpu, interpreter; --load registers others" in capsys.readouterr().err
    for line in ("run step.hlo --compare interpreter", "run step.hlo --against cpu", "diff step.hlo step.hlo --run"):
        assert cli.main([*line.split(), "--backend", "own", "--load", "own.py"]) == 0
        assert "own compiles" in capsys.readouterr().out
    assert cli.main(["run", "step.hlo", "--backend", "ow", "--load", "own.py"]) == 2
    assert "there is no backend 'ow'\n  hint: known: cpu, interpreter, own;" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("diff empty step.hlo", "of empty and step.hlo one is a folder"),
        ("diff twice.hlo step.hlo", "twice.hlo has 2 programs, and step.hlo has 1"),
        ("run step.hlo --backend gpu", "there is no backend 'gpu'"),
        ("run step.hlo --load none.py", "none.py cannot be loaded: there is no such file"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_faults_of_the_command_line_are_objects_too(capsys, monkeypatch, line, message):
    assert cli.main([*line.split(), "--json"]) == 2
    out, err = capsys.readouterr()
    record = json.loads(out)
    assert (record["file"], record["status"], record["error"]["message"], err) == (None, 2, message, "")


@pytest.mark.skipif(sys.platform != "linux", reason="a file that opens and cannot be read")
@pytest.mark.parametrize("line", ["check /proc/self/mem", "run step.hlo --input /proc/self/mem"])
@pytest.mark.usefixtures("folder")
def test_a_file_that_cannot_be_read_is_named(capsys, line):
    assert cli.main(line.split()) == 1
    assert capsys.readouterr().err == "xlakit: /proc/self/mem: Input/output error\n"


@pytest.mark.skipif(sys.platform != "linux", reason="a file that is always full")
@pytest.mark.parametrize(
    "line",
    [
        "convert step.hlo --to proto -o full",
        "view step.hlo --no-passes -o full",
        "run step.hlo --backend interpreter -o full",
        "opt step.hlo --dump dump",
        "machine --describe full",
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_file_that_is_not_written_to_its_end_is_named(capsys, line):
    Path("dump").mkdir()
    for name in ("full", "dump/00-before.hlo"):
        Path(name).symlink_to("/dev/full")
    assert cli.main(line.split()) == 1
    name = "dump/00-before.hlo" if "dump" in line else "full"
    assert capsys.readouterr().err == f"xlakit: {name}: No space left on device\n"


def test_errors_of_standard_input_name_it(folder, monkeypatch, capsys):
    with open("shapes.hlo", encoding="utf-8") as file:
        monkeypatch.setattr("sys.stdin", file)
        assert cli.main(["run", "-"]) == 1
    assert capsys.readouterr().err.startswith("xlakit: <stdin>: sine 'y'")


@pytest.mark.usefixtures("observed_here")
@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("reduce step.hlo --test false", "it must end with status 0 for a program that fails"),
        ("bisect step.hlo --crash", "try other arguments (--seed, --input)\n"),
        (
            "bisect step.hlo --compare cpu,interpreter",
            "try other arguments (--seed, --input), or another tolerance (--rtol)",
        ),
        ("bisect unknown.hlo --compare cpu,interpreter", "mend that first, or look for that with --crash"),
    ],
)
def test_a_program_that_does_not_fail_as_asked_has_a_hint(folder, capsys, line, hint):
    assert cli.main([*line.split(), "--jobs", "1"]) == 1
    assert f"hint: {hint}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda _: xla.lint("HloModule m"), "module must be a HloModule, got 'HloModule m'"),
        (lambda m: xla.diff_modules(m, "b.hlo"), "second must be a HloModule, got 'b.hlo'"),
        (lambda m: xla.view_difference(m, None), "second must be a HloModule, got None"),
        (lambda _: xla.view_module(3), "module must be a HloModule, got 3"),
        (lambda m: xla.reduce_module(m, "cpu"), "test must be an Oracle or a function, got 'cpu'"),
        (lambda m: xla.edit(m).set_shape("x", 3), "shape must be a Shape, got 3"),
        (
            lambda m: xla.edit(m).set_sharding("x", "replicated"),
            "sharding must be a Sharding or None, got 'replicated'",
        ),
        (lambda m: xla.bisect_module(m, lambda _: True), "oracle must be an Oracle, got <function"),
    ],
)
def test_functions_say_which_argument_is_unfit(call, said):
    with pytest.raises(xla.ArgumentError, match=said):
        call(xla.HloModule.from_text("ENTRY e { ROOT x = f32[] parameter(0) }"))


@pytest.mark.parametrize("words", [["run", ""], ["check", "step.hlo", ""], ["diff", "step.hlo", ""], ["view", ""]])
@pytest.mark.usefixtures("folder")
def test_an_empty_name_is_not_the_current_folder(words, capsys):
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert (out, "the name of a program is empty" in err) == ("", True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rum step.hlo", "hint: did you mean run?\n"),
        ("run step.hlo --iteratons 5", "unrecognized arguments: --iteratons 5\n  hint: did you mean --iterations"),
        ("run step.hlo --iteratons=5", "unrecognized arguments: --iteratons=5\n  hint: did you mean --iterations"),
        ("run step.hlo --compare jaxlb", "hint: did you mean jaxlib?\n"),
        ("run step.hlo --seed 9223372036854775808", "argument --seed: must be at most 9223372036854775807\n"),
        ("reduce step.hlo --test no_such_command", "argument --test: there is no command 'no_such_command'\n"),
        ("bisect step.hlo --crash --compare cpu,interpreter", "(which takes --compare), not --compare and --crash\n"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_words_that_are_not_known(line, said, capsys):
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main(line.split())
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_names_of_files_and_texts_of_programs_are_told_apart():
    with pytest.raises(xla.ParseError, match="hint: this is the name"):
        xla.HloModule.from_text("own.py")
    with pytest.raises(xla.ArgumentError, match=r"cannot compile .HloModule step.*\n  hint: HloModule\.from_text"):
        xla.compile(STEP)
