"""The command that compares generated JAX programs: it agrees on some, and sees what is wrong."""

import os
import sys

import numpy as np
import pytest

from fuzz.jax_programs import __main__ as command

pytest.importorskip("jax")


def test_some_programs_agree(capfd):
    assert command.main(["--seed", "test", "--count", "4"]) == 0
    assert "4 programs: 4 agreed" in capfd.readouterr().out


def test_a_wrong_result_is_a_fault(monkeypatch):
    from fuzz.jax_programs import worker

    def run(seed, platform, given):
        return [np.float32([1, 2 if platform == "cpu" else 3])], 0.0

    monkeypatch.setattr(worker, "_run", run)
    assert worker.judge("test.0")["fault"] == "result 0, float32[2]: [1. 3.] instead of [1. 2.]"


def test_a_program_that_ends_its_process_is_a_fault_and_the_next_one_runs(monkeypatch, tmp_path):
    (tmp_path / "worker.py").write_text(
        "import json, os, sys\n"
        "for number in range(int(sys.argv[2]), int(sys.argv[2]) + int(sys.argv[3])):\n"
        "    print(json.dumps({'begin': number}), flush=True)\n"
        "    if number == 1: os._exit(9)\n"
        "    print(json.dumps({'seed': f'x.{number}'}), flush=True)\n"
    )
    popen = command.subprocess.Popen
    monkeypatch.setattr(
        command.subprocess,
        "Popen",
        lambda given, **options: popen([sys.executable, str(tmp_path / "worker.py"), *given[3:]], **options),
    )
    found = {report["seed"]: report.get("fault", "") for report in command.reports("x", 0, 3)}
    assert list(found) == ["x.0", "x.1", "x.2"]
    assert found["x.1"].startswith("the process ended with 9")
    assert not found["x.0"] + found["x.2"]
    assert os.environ.get("JAX_PLATFORMS", "") != "xlakit,cpu"
