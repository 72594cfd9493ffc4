"""XLAKIT_TUNE=1 under JAX: a program is tuned once, whether or not it was kept before."""

import os
from pathlib import Path

import pytest

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


# As if narrow vectors had been the fastest, whichever machine this is.
NARROW = """
from xlakit.cpu.tuning import tune
from xlakit.cpu.tuning.record import VECTOR_BYTES, Tuning
tune.tune = lambda *arguments, **options: Tuning({VECTOR_BYTES: 16})
"""


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def tunes(cache, forks):
    """Runs the program in a process, and says whether it was tuned there."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "xlakit",
        "PYTHONPATH": str(Path(xlakit.__file__).parents[1]),
        "XLAKIT_CACHE_DIR": str(cache),
    }

    def tunes(program: str = PROGRAM, **more: str) -> bool:
        ended = forks.run(program, environment={**environment, **more})
        assert not ended.returncode, ended.stderr
        return ended.stdout.split()[-1] == "True"

    return tunes


def test_a_program_is_tuned_once(cache, tunes):
    assert not tunes()
    assert list(cache.glob("tuning-*")) == []
    assert tunes(XLAKIT_TUNE="1")
    assert list(cache.glob("tuning-*"))
    # What was chosen is found by its bytes.
    assert not tunes(XLAKIT_TUNE="1")
    assert not tunes()


def test_a_program_with_narrower_vectors_is_loaded_where_they_are_wider(tunes):
    """It imports common functions for its own vectors, which are to be found, or compiled, in processes with others."""
    assert not tunes()
    assert tunes(NARROW + PROGRAM, XLAKIT_TUNE="1")
    assert not tunes(XLAKIT_TUNE="1")
    assert not tunes(XLAKIT_TUNE="1")
    assert not tunes()
