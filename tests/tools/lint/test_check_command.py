"""``xlakit check`` on files and folders: what it prints, what it says to programs, and its exit status."""

import json

import pytest

from xlakit.ir.instruction import HloModule
from xlakit.tools import cli

GOOD = "HloModule good\n\nENTRY main {\n  x = f32[3] parameter(0)\n  ROOT r = f32[3] abs(x)\n}\n"
WARNED = GOOD.replace("ROOT", "y = f32[] parameter(1)\n  ROOT").replace("good", "warned")
BAD = GOOD.replace("ROOT r = f32[3]", "ROOT r = f32[4]")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "inner").mkdir()
    for name, text in {"a.hlo": BAD, "b.hlo": WARNED, "inner/c.txt": GOOD, "notes.md": "no program"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "module_0001-buffer-assignment.txt").write_text("BufferAssignment:\n")
    return tmp_path


def test_a_warning_has_its_line_a_caret_and_a_hint(folder, capsys):
    path = str(folder / "b.hlo")
    assert cli.main(["check", path]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{path}: warned is well formed: 1 computation, 3 instructions, 1 warning\n"
    assert shown.err.splitlines() == [
        f"{path}:5:3: warning: nothing reads argument 1 [dead-parameter]",
        "    y = f32[] parameter(1)",
        "    ^",
        "  hint: leave it out of the program (in JAX: jit with keep_unused=False)",
    ]


def test_a_proto_has_no_lines_and_warns_all_the_same(folder, capsys):
    path = folder / "b.pb"
    path.write_bytes(HloModule.from_text(WARNED).to_proto())
    assert cli.main(["check", str(path)]) == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert first == "warning: parameter 'y' in computation main: nothing reads argument 1 [dead-parameter]"


@pytest.mark.parametrize(
    ("files", "more", "status"),
    [
        (["inner/c.txt"], ["--warnings-as-errors"], 0),
        (["b.hlo"], [], 0),
        (["b.hlo"], ["--warnings-as-errors"], 1),
        (["b.hlo"], ["--warnings-as-errors", "--disable", "huge-constant,dead-parameter"], 0),
        (["b.hlo"], ["--warnings-as-errors", "--disable", "all", "--enable", "dead-parameter"], 1),
        (["a.hlo"], [], 1),
        (["none.hlo", "inner/c.txt"], [], 1),
        (["inner"], [], 0),
        (["."], [], 1),
        (["b.hlo"], ["--disable", "no-such-lint"], 2),
    ],
)
def test_the_exit_status_is_the_worst(folder, files, more, status):
    assert cli.main(["check", *(str(folder / f) for f in files), *more]) == status


def test_a_fault_does_not_stop_the_other_files(folder, capsys):
    assert cli.main(["check", str(folder), str(folder / "none.hlo"), str(folder / "inner" / "c.txt")]) == 1
    shown = capsys.readouterr()
    assert [line.split(":")[0].rpartition("/")[2] for line in shown.out.splitlines()] == ["b.hlo", "c.txt", "c.txt"]
    assert f"xlakit: {folder / 'none.hlo'}: No such file or directory" in shown.err
    assert f"xlakit: {folder / 'a.hlo'}: 1 fault" in shown.err


def test_a_folder_without_programs_is_told(tmp_path, capsys):
    assert cli.main(["check", str(tmp_path)]) == 1
    assert "is a folder without programs" in capsys.readouterr().err


def test_json_is_an_object_a_line_for_each_file(folder, capsys):
    assert cli.main(["check", "--json", str(folder), str(folder / "none.hlo")]) == 1
    shown = capsys.readouterr()
    assert shown.err == ""
    bad, warned, good, none = map(json.loads, shown.out.splitlines())
    assert [o["status"] for o in (bad, warned, good, none)] == [1, 0, 0, 1]
    assert (bad["faults"][0]["line"], bad["faults"][0]["column"], bad["module"]) == (5, 8, None)
    assert good == {
        "file": str(folder / "inner" / "c.txt"),
        "status": 0,
        "module": "good",
        "computations": 1,
        "instructions": 2,
        "faults": [],
        "warnings": [],
    }
    (warning,) = warned["warnings"]
    assert (warning["name"], warning["instruction"], warning["line"]) == ("dead-parameter", "y", 5)
    assert none["error"] == {
        "type": "FileNotFoundError",
        "message": f"{folder / 'none.hlo'}: No such file or directory",
        "hint": None,
        "place": None,
    }
