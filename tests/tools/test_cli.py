"""The command line, as a person meets it: in a process of its own."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import xlakit
from xlakit.api import BACKENDS
from xlakit.ir.instruction import HloModule
from xlakit.tools import cli
from xlakit.tools.commands import shared


def test_run_prints_what_numpy_prints(add_file, tmp_path, capsys):
    np.savez(tmp_path / "x.npz", x=np.float32([1, 2, 3]), arg1=np.float32([10, 20, 30]))
    assert cli.main(["run", add_file, "--input", str(tmp_path / "x.npz")]) == 0
    assert capsys.readouterr().out == "[11. 22. 33.]\n"


def test_run_is_the_same_for_the_same_seed(add_file, capsys):
    outputs = []
    for seed in ("1", "1", "2"):
        assert cli.main(["run", add_file, "--seed", seed]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] != outputs[2]


def test_run_saves_results_and_times_iterations(add_file, tmp_path, capsys):
    output = tmp_path / "y.npz"
    assert cli.main(["run", add_file, "--iterations", "3", "--output", str(output)]) == 0
    assert np.load(output)["result"].shape == (3,)
    assert "median of 3 runs" in capsys.readouterr().err


def test_check_and_its_errors(add_text, add_file, tmp_path, capsys):
    assert cli.main(["check", add_file]) == 0
    assert "1 computation, 3 instructions" in capsys.readouterr().out
    bad = tmp_path / "bad.hlo"
    bad.write_text(add_text.replace("add(x, y)", "add(x, z)"))
    assert cli.main(["check", str(bad)]) == 1
    error = capsys.readouterr().err
    assert "bad.hlo:6:28" in error
    assert "^" in error
    assert "Traceback" not in error
    bad.write_text(add_text.replace("f32[3] parameter(1)", "f32[4] parameter(1)"))
    assert cli.main(["check", str(bad)]) == 1
    assert "sum" in capsys.readouterr().err


def test_check_tells_every_fault(add_text, add_file, tmp_path, capsys):
    bad = tmp_path / "bad.hlo"
    bad.write_text(
        add_text.replace("f32[3] parameter(0)", "f32[4] parameter(0)").replace("f32[3] parameter(1)", "f33[3] p(1)")
    )
    bad.write_text(bad.read_text().replace("ROOT", "n = s32[4] negate(x)\n  ROOT"))
    assert cli.main(["check", str(bad)]) == 1
    error = capsys.readouterr().err
    assert f"{bad}:5:7: unknown element type 'f33'" in error
    assert f"{bad}:6:3: negate 'n' in computation main: declared as s32[4], the rule gives f32[4]" in error
    assert error.endswith(f"xlakit: {bad}: 2 faults\n")
    # A proto has no lines, and tells all the same.
    text = add_text.replace("ROOT sum = f32[3] add(x, y)", "a = f32[4] negate(x)\n  ROOT b = f32[5] negate(y)")
    proto = tmp_path / "bad.pb"
    proto.write_bytes(HloModule.from_text(text).to_proto())
    assert cli.main(["check", str(proto)]) == 1
    error = capsys.readouterr().err
    assert "the rule gives f32[3]" in error.split("negate 'b'")[0]
    assert error.endswith("2 faults\n")


def test_convert_there_and_back(add_file, tmp_path, capsysbinary):
    proto, text = tmp_path / "add.pb", tmp_path / "again.hlo"
    assert cli.main(["convert", add_file, "--to", "proto", "--output", str(proto)]) == 0
    assert cli.main(["convert", str(proto), "--to", "text", "--output", str(text)]) == 0
    assert "add" in text.read_text()
    assert cli.main(["convert", str(text), "--to", "json"]) == 0
    assert b'"opcode"' in capsysbinary.readouterr().out


def test_narrow_types_are_printed_as_numbers_of_their_kind(tmp_path, capsys):
    path = tmp_path / "narrow.hlo"
    path.write_text(
        "HloModule m\nENTRY e { x = s4[2] constant({-8, 7}) y = u2[] constant(3) z = bf16[2] constant({0.1, 2})"
        " ROOT t = (s4[2], u2[], bf16[2]) tuple(x, y, z) }"
    )
    assert cli.main(["run", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[1::2] == ["[-8  7]", "3", "[0.10009766 2.        ]"]


def test_the_number_of_devices_can_be_given(tmp_path, capsys):
    path = tmp_path / "ids.hlo"
    path.write_text("HloModule m\nENTRY e { r = u32[] replica-id() p = u32[] partition-id() ROOT s = u32[] add(r, p) }")
    assert cli.main(["run", str(path), "--replicas", "2", "--partitions", "2"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line[0] != "#"] == ["0", "1", "1", "2"]


def test_values_that_cannot_be_made_up(tmp_path, capsys):
    path = tmp_path / "dynamic.hlo"
    path.write_text("HloModule m\nENTRY e { ROOT x = f32[?] parameter(0) }")
    assert cli.main(["run", str(path)]) == 1
    assert "--input" in capsys.readouterr().err
    np.savez(tmp_path / "x.npz", x=np.arange(2, dtype=">f4"))
    # Machine code is for sizes that have bounds.
    assert cli.main(["run", str(path), "--input", str(tmp_path / "x.npz"), "--backend", "interpreter"]) == 0
    assert capsys.readouterr().out == "[0. 1.]\n"


def test_traceback_on_request(add_file):
    with pytest.raises(Exception, match="No such file"):
        cli.main(["check", add_file + ".not", "--traceback"])


def test_usage_errors_exit_with_2(capsys):
    with pytest.raises(SystemExit) as exit:
        cli.main(["run"])
    assert exit.value.code == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["check", "FILE", "--trace"], ["run", "FILE", "--see", "1"], ["--vers"]])
def test_options_are_written_out(add_file, capsys, command):
    with pytest.raises(SystemExit) as exit:
        cli.main([add_file if word == "FILE" else word for word in command])
    assert exit.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_no_command_of_the_project_takes_abbreviations():
    root = Path(__file__).parents[2]
    for path in (p for folder in ("xlakit", "fuzz", "benchmarks", "examples") for p in (root / folder).rglob("*.py")):
        source = path.read_text()
        if "ArgumentParser" not in source and "add_parser" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("ArgumentParser", ".add_parser")):
                assert "allow_abbrev" in [k.arg for k in node.keywords], f"{path}:{node.lineno}"


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("--iterations", "0", "at least 1"),
        ("--iterations", "ten", "'ten' is not a whole number"),
        ("--seed", "-1", "at least 0"),
        ("--compare-timeout", "nan", "'nan' is not a number of seconds"),
        ("--compare-memory", "much", "'much' is not a number of bytes"),
    ],
)
def test_values_of_options_are_checked(add_file, capsys, option, value, rule):
    with pytest.raises(SystemExit) as exit:
        cli.main(["run", add_file, option, value])
    assert exit.value.code == 2
    assert rule in capsys.readouterr().err


def test_backends_are_those_that_there_are(add_file, capsys):
    assert shared.BACKENDS == BACKENDS
    assert cli.main(["run", add_file, "--backend", "gpu"]) == 2
    assert "interpreter" in capsys.readouterr().err


def test_what_is_too_large_is_refused(add_text, tmp_path, capsys, monkeypatch):
    path = tmp_path / "large.hlo"
    path.write_text(add_text.replace("f32[3]", "f32[1000000000000]"))
    assert cli.main(["run", str(path)]) == 1
    assert "'x': needs 4,000,000,000,000 bytes" in capsys.readouterr().err

    def fail(*_, **__):
        raise MemoryError("no room for 3 arrays")

    monkeypatch.setattr("xlakit.tools.run.run", fail)
    assert cli.main(["run", str(path)]) == 1
    assert capsys.readouterr().err == f"xlakit: {path}: out of memory: no room for 3 arrays\n"


def test_ops_lists_and_documents_are_up_to_date(capsys):
    assert cli.main(["ops", "reduce"]) == 0
    out = capsys.readouterr().out
    assert "reduce-window" in out
    assert "ReduceScatter" in out
    assert cli.main(["ops", "frobnicate"]) == 2
    assert "frobnicate" in capsys.readouterr().err
    docs = Path(__file__).parents[2] / "docs"
    for page in ("operations", "support"):
        assert cli.main(["ops", "--markdown", page]) == 0
        assert capsys.readouterr().out == (docs / f"{page}.md").read_text(), f"write docs/{page}.md again"


def test_the_command_alone_says_what_there_is(capsys):
    assert cli.main([]) == 2
    said = capsys.readouterr().err
    assert "first steps:" in said and "xlakit check DIR" in said


def test_import_is_quick_and_loads_nothing():
    # In seconds of the processor, which others may share.
    code = "import sys, time; before = time.process_time(); import xlakit; "
    code += "print(time.process_time() - before, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, numpy_loaded = done.stdout.split()
    assert float(seconds) < 0.15
    assert numpy_loaded == "False"


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ("hlo", ["ENTRY", "add("]),
        ("llvm", ["target triple", "xlakit_entry"]),
        ("llvm-raw", ["define"]),
        ("assembly", ["xlakit_entry"]),
        ("cost", ["flops", "3\n"]),
        ("memory", ["arguments", "24\n", "peak"]),
    ],
)
def test_inspect_shows_what_a_program_becomes(add_file, capsys, view, words):
    assert cli.main(["inspect", add_file, "--as", view]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in words), out


@pytest.mark.parametrize("view", ["hlo", "cost", "memory", "memory-plan", "fallbacks", "collectives"])
def test_inspect_makes_no_machine_code_where_none_is_shown(add_file, capsys, monkeypatch, view):
    from xlakit.cpu.llvm import engine
    from xlakit.tools.inspect import VIEWS

    def shown() -> str:
        assert cli.main(["inspect", add_file, "--as", view]) == 0
        return capsys.readouterr().out

    def refuse(*_: object) -> None:
        raise AssertionError("machine code was made")

    executable = xlakit.compile(HloModule.from_text(Path(add_file).read_text()))
    expected = VIEWS[view](executable).rstrip("\n") + "\n"
    if view == "memory":
        # It has no machine code, and so no size of it.
        expected = re.sub(r"code .*\n", "", expected)
    monkeypatch.setattr(engine, "compile_objects", refuse)
    monkeypatch.setattr(engine, "emit_object", refuse)
    monkeypatch.setenv("XLAKIT_CACHE", "off")
    assert shown() == expected
    if view in {"cost", "collectives"}:
        # The passes alone answer: nothing is lowered.
        monkeypatch.setattr("xlakit.cpu.codegen.generate", refuse)
        assert shown() == expected


@pytest.mark.parametrize("view", ["hlo", "cost", "memory", "llvm"])
def test_what_cannot_run_here_is_inspected(tmp_path, capsys, view):
    path = tmp_path / "call.hlo"
    path.write_text(
        'HloModule m\nENTRY e { x = f32[3] parameter(0) y = f32[3] custom-call(x), custom_call_target="their.Kernel"'
        " ROOT z = f32[3,100000000,1000000] broadcast(y), dimensions={0} }"
    )
    assert cli.main(["inspect", str(path), "--as", view]) == 0, capsys.readouterr()
    assert capsys.readouterr().out
    assert cli.main(["run", str(path)]) == 1
    assert "no custom call is registered as 'their.Kernel'" in capsys.readouterr().err


def test_an_option_of_another_verb_is_refused_by_the_verb(capsys):
    with pytest.raises(SystemExit) as exit:
        cli.main(["tune", "m.hlo", "--max-seconds", "2"])
    assert exit.value.code == 2
    told = capsys.readouterr().err
    assert "xlakit tune: error: unrecognized arguments: --max-seconds 2" in told
    assert "--seconds SECONDS" in told


def test_the_views_are_those_that_the_help_lists(capsys):
    from xlakit.tools.inspect import VIEWS

    with pytest.raises(SystemExit):
        cli.main(["inspect", "--help"])
    assert f"{{{','.join(VIEWS)}}}" in "".join(capsys.readouterr().out.split())


def test_cache_is_shown_and_cleared(add_file, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XLAKIT_CACHE_DIR", str(tmp_path / "cache"))
    assert cli.main(["cache", "--dir"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'cache'}\n"
    (tmp_path / "cache").mkdir(mode=0o700)
    (tmp_path / "cache" / "program-1.xlakit").write_bytes(b"12345")
    assert cli.main(["cache"]) == 0
    assert "1 entries, 5 of 1,073,741,824 bytes" in capsys.readouterr().out
    assert cli.main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == "removed 1 entries\n"
    with pytest.raises(SystemExit):
        cli.main(["cache", "--clear", "--dir"])
    monkeypatch.setenv("XLAKIT_CACHE", "off")
    assert cli.main(["cache"]) == 0
    assert "switched off by XLAKIT_CACHE" in capsys.readouterr().out
