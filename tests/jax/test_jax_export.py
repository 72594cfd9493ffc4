"""Programs that ``jax.export`` writes on jaxlib's CPU run here, and the reverse."""

import os
from pathlib import Path

_FOLDER = Path(__file__).parent


def _make_ours(folder):
    import export_programs

    export_programs.make(folder, platform="xlakit")


def _run_theirs(folder):
    import export_programs

    export_programs.run(folder)


def test_exported_programs_go_both_ways(as_cpu, forks, tmp_path):
    ours, of_jaxlib = tmp_path / "ours", tmp_path / "jaxlib"
    for folder in (ours, of_jaxlib):
        folder.mkdir()
    as_cpu(_make_ours, ours)
    code = f"""
import pathlib, sys
sys.path.insert(0, {str(_FOLDER)!r})
import export_programs
export_programs.run(pathlib.Path({str(ours)!r}))
export_programs.make(pathlib.Path({str(of_jaxlib)!r}), platform="jaxlib")
"""
    done = forks.run(code, environment={**os.environ, "JAX_PLATFORMS": "cpu", "XLAKIT_AS": ""})
    assert not done.returncode, done.stderr
    as_cpu(_run_theirs, of_jaxlib)
    assert len(list(of_jaxlib.glob("*.npz"))) == len(list(ours.glob("*.npz"))) == 3
