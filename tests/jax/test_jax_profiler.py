"""The steps of programs in the files of ``jax.profiler``."""

import gzip
import json
import os
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


# Programs compiled before a trace and in it, on one device and two, in donated memory, and with a callback.
_SEVERAL = """
import pathlib
import sys
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from xlakit.jax import initialize

initialize()


def before(x):
    return jnp.tanh(x @ x.T).sum(axis=0)


def within(x):
    return jnp.cos(x @ x.T).sum(axis=0)


def called_back(x):
    return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct(x.shape, x.dtype), x + 1)


def names(folder):
    (path,) = pathlib.Path(folder).glob("plugins/profile/*/*.xplane.pb")
    data = jax.profiler.ProfileData.from_file(str(path))
    (plane,) = (plane for plane in data.planes if plane.name == "/device:CUSTOM:xlakit")
    return [event.name for line in plane.lines for event in line.events]


x = jax.device_put(np.ones((64, 64), np.float32))
split = jax.device_put(x, NamedSharding(Mesh(jax.devices(), ("x",)), PartitionSpec("x")))
before, within, called_back = map(jax.jit, (before, within, called_back))
in_place = jax.jit(lambda x: x * 2 + 1, donate_argnums=0)
expected = [before(x), before(split), called_back(x), in_place(jax.device_put(np.ones(64, np.float32)))]
with jax.profiler.trace(sys.argv[1] + "/0"):
    found = [before(x), before(split), called_back(x), in_place(jax.device_put(np.ones(64, np.float32))), within(x)]
    jax.block_until_ready(found)
assert all((np.asarray(a) == np.asarray(b)).all() for a, b in zip(expected, found)), (expected, found)
before(x).block_until_ready()
with jax.profiler.trace(sys.argv[1] + "/1"):
    jax.block_until_ready(within(x))
first, second = names(sys.argv[1] + "/0"), names(sys.argv[1] + "/1")
# One call, and one on each of two devices.
assert first.count("jit_before") == 3, first
assert first.count("jit__lambda") == 1, first
assert first.count("jit_within") == second.count("jit_within") == 1, (first, second)
assert "jit_before" not in second and "jit_called_back" not in first, (first, second)
assert sum("dot" in name for name in second) == 1, second
"""


def test_a_trace_has_the_steps_of_all_programs(forks, tmp_path):
    for run in ("compiled", "from the cache"):
        run_with_jax(forks, _SEVERAL, tmp_path / run, XLAKIT_CACHE_DIR=str(tmp_path / "cache"), XLAKIT_DEVICES="2")


def test_a_trace_outside_of_which_programs_take_no_times(forks):
    script = """
import tempfile
import jax, jax.numpy as jnp
from xlakit.jax import initialize

initialize()
from xlakit.jax.plugin import _registered

double = jax.jit(lambda x: x + x)
double(jnp.ones(4))
(state, _), = _registered.values()
(program,) = (p for p in state.programs.values() if p.name == "jit__lambda")
assert program.timed is None
with jax.profiler.trace(tempfile.mkdtemp()):
    double(jnp.ones(4)).block_until_ready()
    assert program.timed.compiled.recorder.totals()[0].count == 1
double(jnp.ones(4)).block_until_ready()
assert program.timed.compiled.recorder.totals()[0].count == 1
assert state.on_program is None
"""
    run_with_jax(forks, script)


def test_traces_have_the_steps_of_programs(forks, tmp_path):
    run_with_jax(forks, _PROGRAM, tmp_path, XLAKIT_PROFILE=str(tmp_path / "steps"))
    (path,) = (tmp_path / "1").glob("plugins/profile/*/*.trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert sum(event.get("name") == "jit_hyperbolic" for event in events) == 2
    assert any(event.get("args", {}).get("opcode") == "dot" for event in events)


def run_with_jax(forks, script, *arguments, **variables):
    environment = {
        **os.environ, "PYTHONPATH": str(_ROOT), "JAX_PLATFORMS": "cpu", "XLAKIT_AS": "cpu", **variables
    }  # fmt: skip
    done = forks.run(script, *arguments, environment=environment)
    assert not done.returncode, done.stderr
