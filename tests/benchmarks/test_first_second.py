"""The command that compares what JAX programs take up to their first result."""

import json
import re

import pytest

from benchmarks import first_second


def test_a_program_in_processes_of_its_own(capsys):
    assert first_second.main(["tiny", "--rounds", "1", "--state", "empty"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^tiny +empty ", out, re.MULTILINE) and "empty    compile  geometric mean" in out


def test_platforms_take_turns_and_ratios_are_of_medians(monkeypatch, capsys):
    seconds = {"xlakit": iter((1.0, 5.0, 2.0)), "cpu": iter((4.0, 4.0, 9.0))}
    seen = []

    def run(name, platform, folder, python):
        seen.append(platform)
        took = next(seconds[platform])
        return {"start": took, "compile": took, "first": took, "wall": took}

    monkeypatch.setattr(first_second, "_run", run)
    assert first_second.main(["sampler", "--rounds", "3", "--state", "empty"]) == 0
    assert seen == ["xlakit", "cpu"] * 3
    assert "geometric mean  0.50" in capsys.readouterr().out


def test_a_program_that_fails_says_so(monkeypatch, tmp_path):
    def run(command, **_):
        return first_second.subprocess.CompletedProcess(command, 3, "", "no such thing")

    monkeypatch.setattr(first_second.subprocess, "run", run)
    with pytest.raises(SystemExit, match="tiny on cpu ended with 3:\nno such thing"):
        first_second._run("tiny", "cpu", tmp_path)
    ran = json.dumps({"first": 1.0})
    monkeypatch.setattr(
        first_second.subprocess,
        "run",
        lambda command, **_: first_second.subprocess.CompletedProcess(command, 0, ran, ""),
    )
    assert first_second._run("tiny", "cpu", tmp_path) == {"first": 1.0}


def test_programs_of_libraries(monkeypatch, capsys):
    """Each is there, by its name in its file; a row has what a call takes after the first, and the worst are listed."""
    for name, file in first_second._LIBRARIES.items():
        path = first_second._ROOT / "fuzz" / "library_programs" / f"{file.replace('.', '/')}.py"
        assert f'"{name}"' in path.read_text()

    def run(name, platform, folder, python):
        seconds = 3.0 if platform == "xlakit" and "nuts" in name else 1.0
        return dict.fromkeys(("start", "compile", "first", "wall", "steady"), seconds)

    monkeypatch.setattr(first_second, "_run", run)
    assert first_second.main(["--libraries", "--state", "empty", "--rounds", "1", "nuts", "mjx/"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^numpyro/nuts +empty( +3.0000 +1.0000 +3.00){3} +3.00$", out, re.MULTILINE)
    assert "empty    steady   geometric mean  1.44, 1 of 3 above 1; worst: numpyro/nuts 3.00, mjx/contacts 1.00" in out


def test_a_program_of_a_library_runs():
    pytest.importorskip("jax")
    found = first_second._run("control/kalman_filter", "xlakit", first_second.Path(first_second.tempfile.mkdtemp()))
    assert 0 < found["compile"] < found["first"] and found["steady"] > 0
