"""What JAX's start on xlakit loads."""

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
# What compiles programs: a process whose programs are all in the compile cache does without.
_COMPILER = ("xlakit.face", "xlakit.ops", "xlakit.passes", "xlakit.formats", "xlakit.verifier", "xlakit.interpreter")


def test_devices_come_without_the_compiler():
    code = (
        "import jax, sys; from xlakit.jax import initialize; initialize(); jax.devices();"
        f"found = [m for m in sys.modules if m.startswith({_COMPILER})]; assert not found, sorted(found)"
    )
    for own in ({"JAX_PLATFORMS": "xlakit", "XLAKIT_AS": ""}, {"JAX_PLATFORMS": "cpu", "XLAKIT_AS": "cpu"}):
        environment = {**os.environ, **own, "PYTHONPATH": str(_ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        assert not done.returncode, done.stderr
