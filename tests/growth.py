"""Programs that are compiled and dropped, in a process of their own: how many bytes each leaves in memory.

python tests/growth.py xlakit|jax COUNT
"""

import gc
import os
import subprocess
import sys

import numpy as np
import pytest

# Each program of JAX takes longer.
WARM = {"xlakit": 48, "jax": 24}
ARGUMENT = np.linspace(0, 1, 64, dtype=np.float32)


needs_proc = pytest.mark.skipif(
    not os.path.exists("/proc/self/statm"), reason="this system does not tell resident memory so"
)


def left_behind(way, count, **environment):
    """How many bytes each of ``count`` programs leaves behind."""
    command = [sys.executable, __file__, way, str(count)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600, check=False
    )
    assert not done.returncode, done.stderr
    return int(done.stdout)


def resident():
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def by_xlakit(number):
    import xlakit

    text = f"""HloModule m
ENTRY e {{
  p = f32[64] parameter(0)
  c = f32[] constant({number}.5)
  b = f32[64] broadcast(c), dimensions={{}}
  s = f32[64] sine(p)
  ROOT r = f32[64] add(s, b)
}}
"""
    return xlakit.compile(xlakit.HloModule.from_text(text), cache=False)(ARGUMENT)


def by_jax(number):
    import jax
    import jax.numpy as jnp

    result = np.asarray(jax.jit(lambda x: jnp.sin(x) + (number + 0.5))(ARGUMENT))
    jax.clear_caches()
    return result


def main():
    before = 0
    run = by_xlakit
    if sys.argv[1] == "jax":
        # Also where the package's entry points are not installed.
        from xlakit.jax import initialize

        initialize()
        run = by_jax
    warm, count = WARM[sys.argv[1]], int(sys.argv[2])
    for number in range(warm + count):
        if number == warm:
            before = resident()
        np.testing.assert_allclose(run(number), np.sin(ARGUMENT) + number + 0.5, rtol=1e-5)
        if number % 8 == 7:
            # What waits for Python's collector is not left behind, and how long that waits is its business.
            gc.collect()
    print((resident() - before) // count)


if __name__ == "__main__":
    main()
