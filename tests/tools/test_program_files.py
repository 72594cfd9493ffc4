"""Files of the command line: arguments, results, and what is loaded beside a program."""

import re
from pathlib import Path

import numpy as np
import pytest

from xlakit.tools import cli


def test_missing_files_and_inputs_are_one_line(add_file, tmp_path, capsys):
    assert cli.main(["check", str(tmp_path / "none.hlo")]) == 1
    assert "No such file" in capsys.readouterr().err
    np.savez(tmp_path / "x.npz", x=np.float32([1, 2, 3]))
    assert cli.main(["run", add_file, "--input", str(tmp_path / "x.npz")]) == 1
    assert "arg1" in capsys.readouterr().err
    np.savez(tmp_path / "x.npz", x=np.float32([1, 2, 3]), y=np.float32([1, 2]))
    assert cli.main(["run", add_file, "--input", str(tmp_path / "x.npz")]) == 1
    assert "f32[3]" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [b"", b"no arrays", b"HloModule m\n", b"PK\x03\x04" + bytes(40), b"\x93NUMPY\x01\x00\x10\x00{'descr': 'O'}   "],
)
def test_input_that_holds_no_arrays_is_refused(add_file, tmp_path, capsys, content):
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    assert cli.main(["run", add_file, "--input", str(path)]) == 1
    path.rename(tmp_path / "x")
    assert cli.main(["run", add_file, "--input", str(tmp_path / "x")]) == 1
    assert capsys.readouterr().err.count("NumPy arrays") == 2


def test_input_that_is_a_folder_without_arrays_is_refused(add_file, tmp_path, capsys):
    assert cli.main(["run", add_file, "--input", str(tmp_path)]) == 1
    assert "it has no device_0000.npz" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "calls.py cannot be loaded: there is no such file"),
        ("\nimport xlakit\nxlakit.no_such_function()\n", "AttributeError.*\n  at: calls.py:3\n"),
        ("x = 1\nx +\n", "SyntaxError.*\n  at: calls.py:2\n"),
        ("raise SystemExit(0)\n", "SystemExit: 0\n  at: calls.py:1\n"),
    ],
)
def test_what_cannot_be_loaded_is_told_with_its_line(add_file, tmp_path, monkeypatch, capsys, content, said):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("calls.py").write_text(content)
    assert cli.main(["run", add_file, "--load", "calls.py"]) == 2
    assert re.search(said, capsys.readouterr().err)


def test_input_that_is_damaged_or_pickled_is_refused(add_file, tmp_path, capsys):
    path = tmp_path / "x.npz"
    np.savez(path, x=np.float32([1, 2, 3]), y=np.array([{}, 1, 2], dtype=object))
    assert cli.main(["run", add_file, "--input", str(path)]) == 1
    np.savez(path, x=np.float32([1, 2, 3]), y=np.float32([1, 2, 3]))
    data = bytearray(path.read_bytes())
    data[data.index(b"NUMPY") + 130] ^= 255
    path.write_bytes(data)
    assert cli.main(["run", add_file, "--input", str(path)]) == 1
    assert capsys.readouterr().err.count("NumPy arrays") == 2


def test_an_output_that_cannot_be_written_is_told_before_the_run(add_file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("xlakit.tools.run.compiled", lambda *_, **__: pytest.fail("it was compiled"))
    assert cli.main(["run", add_file, "--output", ""]) == 1
    assert "Is a directory" in capsys.readouterr().err
    for path in (tmp_path, tmp_path / "missing" / "y.npz"):
        assert cli.main(["run", add_file, "--output", str(path)]) == 1
        assert capsys.readouterr().err.startswith(f"xlakit: {path}: ")
    kept = tmp_path / "kept.npz"
    kept.write_bytes(b"before")
    monkeypatch.undo()
    assert cli.main(["run", add_file, "--input", str(tmp_path / "none.npz"), "--output", str(kept)]) == 1
    assert kept.read_bytes() == b"before"
    assert cli.main(["run", add_file, "--input", str(tmp_path / "none.npz"), "--output", str(tmp_path / "y")]) == 1
    assert not (tmp_path / "y").exists()


def test_output_goes_to_the_very_path(add_file, tmp_path):
    assert cli.main(["run", add_file, "--output", str(tmp_path / "y")]) == 0
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("y")] == ["y"]
    assert np.load(tmp_path / "y")["result"].shape == (3,)
    assert cli.main(["run", add_file, "--output", str(tmp_path)]) == 1


def test_results_do_not_replace_the_program(tmp_path, add_file, capsys):
    path = tmp_path / "program.hlo"
    path.write_bytes(Path(add_file).read_bytes())
    for verb in (["run"], ["view"], ["reduce", "--test", "true"], ["convert", "--to", "proto"]):
        assert cli.main([*verb, str(path), "--output", str(tmp_path / "." / "program.hlo")]) in (1, 2)
        assert "would replace the program" in capsys.readouterr().err
    assert cli.main(["convert", str(tmp_path), "--to", "text", "--output", str(tmp_path)]) == 1
    assert "would replace the program" in capsys.readouterr().err
    assert path.read_bytes() == Path(add_file).read_bytes()
