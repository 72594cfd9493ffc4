"""The steps of programs in the files of ``jax.profiler``."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]

_PROGRAM = """
import sys
import jax
import jax.numpy as jnp
from xlakit.jax import initialize

initialize()


@jax.jit
def hyperbolic(x):
    return jnp.tanh(x @ x.T).sum(axis=0)


x = jnp.ones((64, 64))
hyperbolic(x).block_until_ready()
for run in range(2):
    with jax.profiler.trace(f"{sys.argv[1]}/{run}"):
        for _ in range(run + 1):
            hyperbolic(x).block_until_ready()
for run in range(2):
    (path,) = __import__("pathlib").Path(sys.argv[1], str(run)).glob("plugins/profile/*/*.xplane.pb")
    data = jax.profiler.ProfileData.from_file(str(path))
    planes = {plane.name: [e for line in plane.lines for e in line.events] for plane in data.planes}
    steps = planes["/device:CUSTOM:xlakit"]
    calls = [e for e in steps if e.name == "jit_hyperbolic"]
    assert len(calls) == run + 1, [e.name for e in steps]
    (product, *_) = (e for e in steps if dict(e.stats).get("opcode") == "dot")
    assert dict(product.stats)["hlo_module"] == "jit_hyperbolic"
    assert "<string>" in dict(product.stats)["source"]
    # On the clock of JAX's own events: within its call, and with the step inside of it.
    (host, *_) = (e for e in planes["/host:CPU"] if e.name == "PjRtCApiLoadedExecutable::Execute")
    call = calls[0]
    assert host.start_ns <= call.start_ns + 1e5
    assert call.start_ns <= product.start_ns <= call.start_ns + call.duration_ns
"""


def test_traces_have_the_steps_of_programs(tmp_path):
    environment = {
        **os.environ,
        "PYTHONPATH": str(_ROOT),
        "JAX_PLATFORMS": "cpu",
        "XLAKIT_AS": "cpu",
        "XLAKIT_PROFILE": str(tmp_path / "steps"),
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    (path,) = (tmp_path / "1").glob("plugins/profile/*/*.trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert sum(event.get("name") == "jit_hyperbolic" for event in events) == 2
    assert any(event.get("args", {}).get("opcode") == "dot" for event in events)
