"""jax.distributed: two processes of two devices give the bits of one of four, by MPI, too; a process that is killed."""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("zmq")

_BEGIN = """
import sys
from xlakit.jax import initialize
initialize()
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
rank, count, port = map(int, sys.argv[1:])
if port:
    jax.distributed.initialize(f"localhost:{port}", num_processes=count, process_id=rank)
else:
    jax.distributed.initialize(cluster_detection_method="mpi4py")
    rank = jax.process_index()
devices = jax.devices()
mesh = Mesh(np.array(devices), ("x",))

def whole(f, mesh=mesh, **specs):
    spec = NamedSharding(mesh, P("x"))
    data = np.random.default_rng(0).normal(size=(8, 2048)).astype(np.float32)
    x = jax.make_array_from_callback(data.shape, spec, lambda index: data[index])
    return f(x) if f else x

def show(name, value):
    if isinstance(value, jax.Array):
        value = np.asarray(multihost_utils.process_allgather(value, tiled=True)).tobytes().hex()
        value = hash_of(value)
    if rank == 0:
        print(name, value, flush=True)

def hash_of(text):
    import hashlib
    return hashlib.sha256(text.encode()).hexdigest()
"""

_PROGRAMS = """
assert [d.id for d in devices] == [0, 1, 2, 3]
assert jax.process_count() == count and jax.process_index() == rank
assert [d.process_index for d in devices] == [d.id * count // 4 for d in devices]
assert [d.id for d in jax.local_devices()] == [d.id for d in devices if d.process_index == rank]
assert float(jax.jit(lambda x: x + rank)(1.0)) == 1 + rank
show("sum", whole(jax.jit(lambda x: jnp.exp(x).sum())))
# Its devices have nothing to say to each other: machine code alone runs it, in place of what it is given.
local = jax.jit(lambda x: jnp.exp(x) * 2, donate_argnums=0)
show("each", whole(local))
if count > 1:
    from xlakit.jax.plugin import _registered
    record = list(_registered["cpu"][0].programs.values())
    spanning = [p.loaded for p in record if type(p.loaded).__name__ == "SpanningExecutable"]
    assert {loaded._alone is None for loaded in spanning} == {True, False}
show("gradient", whole(jax.jit(jax.grad(lambda x: jnp.tanh(x @ x.T).sum()))))
permuted = Mesh(np.array(devices)[[2, 0, 3, 1]], ("x",))
def collectives(x):
    y = jax.lax.ppermute(x, "x", [(0, 2), (2, 1), (1, 3), (3, 0)])
    z = jax.lax.all_to_all(x, "x", 1, 0, tiled=True).reshape(x.shape)
    return jax.lax.psum_scatter(x.T, "x", scatter_dimension=0, tiled=True).T.sum() + y + z + jax.lax.psum(x, "x")
for number, m in enumerate((mesh, permuted)):
    f = jax.jit(jax.shard_map(collectives, mesh=m, in_specs=P("x"), out_specs=P("x")))
    show(f"collectives {number}", whole(f, m))
half = Mesh(np.array([devices[1], devices[2]]), ("x",))
show("half", whole(jax.jit(lambda x: x.sum(0)), half))
own = Mesh(np.array(jax.local_devices()), ("x",))
assert float(whole(jax.jit(lambda x: (x * 0 + 1).sum()), own)) == 8 * 2048
ones = np.ones((4 // count, 3), np.float32)
assert np.asarray(jax.pmap(lambda x: jax.lax.psum(x, "i"), "i")(ones).addressable_data(0)).tolist() == [[4, 4, 4]]
if count > 1:
    from xlakit.jax.processes import _jobs
    (cluster,) = _jobs[0].clusters.values()
    link = cluster.network.link
    links = multihost_utils.process_allgather(np.float32([link.alpha, link.beta]))
    assert (links == links[0]).all() and (links > 0).all()
multihost_utils.sync_global_devices("end")
import os, signal, threading
if not port:
    assert cluster.network.endpoint.startswith("mpi:")
elif count == 2:
    total = jax.jit(lambda x: jnp.exp(x).sum())
    try:
        if rank:
            jax._src.distributed.global_state.client.blocking_key_value_get("interrupted", 60_000)
        else:
            threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        whole(total).block_until_ready()
        raise AssertionError("was not interrupted")
    except KeyboardInterrupt:
        assert rank == 0
        jax._src.distributed.global_state.client.key_value_set("interrupted", "")
    except (ValueError, RuntimeError) as error:
        assert rank == 1 and "process 0 (devices 0 to 1) failed: KeyboardInterrupt" in str(error), error
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        whole(total).block_until_ready()
    except Exception as error:
        print(error, flush=True)
    os._exit(0)
"""

# Arrays that JAX's own sockets carry from the devices of one process to those of the other; a program on the receiving
# side takes them as soon as they are asked for.
_BY_SOCKETS = """jax.config.update("jax_force_dcn_cross_host_transfers", True)
jax.config.update("jax_cross_host_transfer_transfer_size", 65536)
import socket
with socket.socket() as probe:
    probe.bind(("localhost", 0))
    own = probe.getsockname()[1]
jax.config.update("jax_cross_host_transfer_socket_address", f"127.0.0.1:{own}")"""
_SOCKETS = """
source = NamedSharding(Mesh(np.array([d for d in devices if d.process_index == 0]), ("x",)), P("x"))
target = NamedSharding(Mesh(np.array([d for d in devices if d.process_index == 1]), ("x",)), P("x"))
data = np.random.default_rng(0).normal(size=(64, 1000)).astype(np.float32)
for _ in range(3):
    there = jax.device_put(jax.device_put(data, source) * 2, target)
    if rank == 1:
        np.testing.assert_array_equal(jax.jit(lambda x: x + 1, out_shardings=target)(there), data * 2 + 1)
"""


# A process that asks for its devices while the other one is not there yet, and asks again.
_AGAIN = """
import os
errors = []
if rank:
    # Until the first process has failed to find this one.
    jax._src.distributed.global_state.client.blocking_key_value_get("has failed", 60_000)
else:
    os.environ["XLAKIT_TIMEOUT"] = "1"
while True:
    try:
        devices = jax.devices()
        break
    except RuntimeError as error:
        errors.append(str(error))
        if rank == 0 and len(errors) == 2:
            assert all("process 1 has not said" in text for text in errors), errors
            del os.environ["XLAKIT_TIMEOUT"]
            jax._src.distributed.global_state.client.key_value_set("has failed", "twice")
assert rank or len(errors) > 1
"""

# The processes leave the job, are another one's with other numbers, and then each is alone.
_ANOTHER_JOB = """
import socket, threading, jax.extend

def networks():
    return sum(thread.name == "xlakit-network" for thread in threading.enumerate())

whole(jax.jit(lambda x: x.sum())).block_until_ready()
client = jax._src.distributed.global_state.client
if rank == 0:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        client.key_value_set("next", str(probe.getsockname()[1]))
port = client.blocking_key_value_get("next", 60_000)
jax.distributed.shutdown()
jax.extend.backend.clear_backends()
jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=1 - rank)
assert jax.process_index() == 1 - rank
jax.devices()
assert networks() == 1
assert [d.id for d in jax.local_devices()] == [[2, 3], [0, 1]][rank]
mesh = Mesh(np.array(jax.devices()), ("x",))
ones = jax.make_array_from_callback((4,), NamedSharding(mesh, P("x")), lambda index: np.ones(4, np.float32)[index])
print(float(jax.jit(jnp.sum)(ones)), flush=True)
jax.distributed.shutdown()
jax.extend.backend.clear_backends()
assert [d.id for d in jax.devices()] == [0, 1]
assert networks() == 0
"""


def _mpiexec():
    """The launcher, beside this Python or on the path."""
    found = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    return found if importlib.util.find_spec("mpi4py") else None


def _start(code, count, launcher=None, first="", begin=_BEGIN):
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = 0 if launcher else probe.getsockname()[1]
    code = begin.replace("rank, count, port =", f"{first}\nrank, count, port =") + code
    devices = f"--xla_force_host_platform_device_count={4 // count}"
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "XLAKIT_AS": "cpu", "XLA_FLAGS": devices, "PYTHONPATH": root, "JAX_PLATFORMS": ""}
    prefix = [launcher, "-n", str(count)] if launcher else []
    return [
        subprocess.Popen(
            [*prefix, sys.executable, "-c", code, str(rank), str(count), str(port)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for rank in range(1 if launcher else count)
    ]  # fmt: skip


def test_two_processes_have_the_bits_of_one_and_one_is_killed():
    started = [*_start(_PROGRAMS, 2), *_start(_PROGRAMS, 1)]
    first, second, alone = started
    launcher = _mpiexec()
    try:
        for process in (first, second):
            lines = [process.stdout.readline() for _ in range(7 if process is first else 1)]
            assert lines[-1] == "ready\n", (lines, process.kill(), process.stderr.read())
            if process is first:
                found = lines[:-1]
        # Which way they talk is no part of programs: these find them in the compile cache.
        started += _start(_PROGRAMS, 2, launcher) if launcher else []
        output, errors = alone.communicate(timeout=120)
        assert alone.returncode == 0, errors
        assert output == "".join(found)
        for by_mpi in started[3:]:
            output, errors = by_mpi.communicate(timeout=120)
            assert by_mpi.returncode == 0, errors
            assert output == "".join(found)
        second.kill()
        second.wait()
        output, errors = first.communicate("\n", timeout=60)
        assert "process 1 (devices 2 to 3) is gone: its connection has ended, after" in output, errors
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_processes_find_each_other_late_send_arrays_by_sockets_and_change_to_another_job():
    begin = _BEGIN.replace("devices = jax.devices()\n", _AGAIN)
    assert begin != _BEGIN
    started = _start(_SOCKETS + _ANOTHER_JOB, 2, first=_BY_SOCKETS, begin=begin)
    try:
        for process in started:
            output, errors = process.communicate(timeout=120)
            assert (process.returncode, output) == (0, "4.0\n"), errors
            # jaxlib's client would log an error of its watch when the job ends.
            assert "WatchTasks" not in errors
    finally:
        for process in started:
            process.kill()
            process.communicate()
