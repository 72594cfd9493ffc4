"""XLAKIT_TUNE=1 under JAX: a program is tuned once, whether or not it was kept before."""

import os
import subprocess
import sys
from pathlib import Path

import xlakit

PROGRAM = """
import sys
import jax, numpy as np
import jax.numpy as jnp
x = np.arange(300 * 300, dtype=np.float32).reshape(300, 300) % 7
result = jax.jit(lambda a: (a @ a).sum(0))(x)
np.testing.assert_array_equal(result, (x @ x).sum(0))
print("xlakit.cpu.tuning.tune" in sys.modules)
"""


def test_a_program_is_tuned_once(tmp_path):
    cache = tmp_path / "cache"
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "xlakit",
        "PYTHONPATH": str(Path(xlakit.__file__).parents[1]),
        "XLAKIT_CACHE_DIR": str(cache),
    }

    def tunes(**more: str) -> bool:
        command = [sys.executable, "-c", PROGRAM]
        ended = subprocess.run(
            command, env={**environment, **more}, check=True, capture_output=True, text=True, timeout=300
        )
        return ended.stdout.split()[-1] == "True"

    assert not tunes()
    assert list(cache.glob("tuning-*")) == []
    assert tunes(XLAKIT_TUNE="1")
    assert list(cache.glob("tuning-*"))
    # What was chosen is found by its bytes.
    assert not tunes(XLAKIT_TUNE="1")
    assert not tunes()
