"""``python -m fuzz.jax_versions``: tests of JAX's platform with each version of JAX that it supports.

For each version an environment is made in a folder, once, by ``venv`` and ``pip``, which downloads; the tests then run
in it, one version after the other::

    python -m fuzz.jax_versions --environments FOLDER
    python -m fuzz.jax_versions --environments FOLDER --version 0.10.1 --tests tests/jax

By default files of ``tests/jax`` that cover programs, calls, layouts, callbacks and exported programs, a few minutes
for each version. What a version needs stands in :mod:`xlakit.jax.versions`. The exit status is 1 where a test failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from xlakit.data.text_table import aligned
from xlakit.jax.versions import VERSIONS

_ROOT = Path(__file__).parents[1]
_NEEDED = ("numpy", "ml_dtypes", "protobuf", "scipy", "llvmlite", "pytest")
_TESTS = ("programs", "calls", "interface", "ffi", "layouts", "exchange", "as_cpu", "profiler")


def environment(folder: Path, version: str) -> Path:
    """The Python of a version, whose environment is made if it is not there. Raises OSError, CalledProcessError."""
    home = folder / f"jax-{version}"
    python, ready = home / "bin" / "python", home / "ready"
    if not ready.exists():
        venv.create(home, clear=True, with_pip=True)
        wanted = [f"jax=={version}", f"jaxlib=={version}", *_NEEDED]
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *wanted], check=True)
        ready.touch()
    return python


def tested(python: Path, tests: Sequence[str]) -> tuple[bool, str]:
    """Whether the tests pass with a Python, and the last line that pytest prints."""
    command = [str(python), "-m", "pytest", "--no-header", "-p", "no:cacheprovider", *tests]
    given = {**os.environ, "PYTHONPATH": str(_ROOT)}
    for name in ("XLAKIT_AS", "JAX_PLATFORMS"):
        given.pop(name, None)
    done = subprocess.run(command, env=given, cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", flush=True)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return done.returncode == 0, lines[-1] if lines else f"status {done.returncode}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Test versions; gives the exit status."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--environments", type=Path, required=True, help="where the environments are or will be made")
    parser.add_argument("--version", action="append", choices=[*VERSIONS], help="by default all")
    parser.add_argument("--tests", nargs="+", default=[f"tests/jax/test_jax_{name}.py" for name in _TESTS])
    asked = parser.parse_args(arguments)
    rows, is_good = [("jax", "result")], True
    for version in asked.version or VERSIONS:
        try:
            python = environment(asked.environments, version)
        except (OSError, subprocess.CalledProcessError) as error:
            rows.append((version, f"no environment: {error}"))
            is_good = False
            continue
        passed, summary = tested(python, asked.tests)
        rows.append((version, summary))
        is_good = is_good and passed
    print(aligned(rows))
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
