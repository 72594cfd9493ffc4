"""The command that compares what JAX programs take up to their first result."""

import json

import pytest

from benchmarks import first_second


def test_a_program_in_processes_of_its_own(capsys):
    assert first_second.main(["tiny", "--rounds", "1", "--state", "empty"]) == 0
    out = capsys.readouterr().out
    assert "tiny                     empty" in out and "empty    compile  geometric mean" in out


def test_platforms_take_turns_and_ratios_are_of_medians(monkeypatch, capsys):
    seconds = {"xlakit": iter((1.0, 5.0, 2.0)), "cpu": iter((4.0, 4.0, 9.0))}
    seen = []

    def run(name, platform, folder):
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
