"""Programs that ``jax.export`` writes on jaxlib's CPU run here, and the reverse."""

import os
import subprocess
import sys
from pathlib import Path

_SCRIPT = Path(__file__).with_name("export_programs.py")


def test_exported_programs_go_both_ways(tmp_path):
    folders = [tmp_path / "ours", tmp_path / "jaxlib"]
    for folder in folders:
        folder.mkdir()
    given = {**os.environ, "PYTHONPATH": str(_SCRIPT.parents[2]), "JAX_PLATFORMS": "cpu", "XLAKIT_AS": "cpu"}
    command = [sys.executable, str(_SCRIPT), *map(str, folders)]
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    assert len(list(folders[1].glob("*.npz"))) == len(list(folders[0].glob("*.npz"))) == 3
