"""Programs that are run again from the compile cache: what differs, fails, or is compiled again is told."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import xlakit
from fuzz import cached
from fuzz.support.workers import batches

pytest.importorskip("jax")

_ROOT = Path(xlakit.__file__).parents[1]


def _worker(folder, role, *numbers):
    command = [
        sys.executable,
        "-m",
        "fuzz.support.workers.cached_worker",
        role,
        str(folder),
        "50000",
        *map(str, numbers),
    ]
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "xlakit",
        "XLAKIT_CACHE_DIR": str(folder / "cache"),
        "XLAKIT_TUNE": "1",
        "PYTHONPATH": str(_ROOT),
    }
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=300)
    return done.stdout


def test_other_results_and_lost_programs_are_told(tmp_path):
    # That nothing is told of what another process has kept is seen each time that the net runs.
    assert _worker(tmp_path, "first", 0) == ""
    for path in (tmp_path / "cache").glob("program-*"):
        path.unlink()
    assert "it was kept, and is compiled again" in _worker(tmp_path, "again", 0)
    file = tmp_path / "0.npz"
    with np.load(file) as kept:
        changed = [kept[name] for name in kept.files]
    changed[0] = changed[0] ^ 1
    np.savez(file, *changed)
    assert "result 0" in _worker(tmp_path, "again", 0)


def test_a_process_that_ends_early_is_told(monkeypatch):
    monkeypatch.setattr(batches.sys, "executable", "false")
    assert cached.judge(0, 0) == "first: ended with 1: "
