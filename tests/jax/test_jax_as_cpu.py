"""xlakit as JAX's platform ``cpu``: what programs and libraries do with that platform, by its name."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest


def check_the_platform():
    import jax
    import jax.numpy as jnp
    from jax import lax
    from jax.experimental import topologies

    assert jax.default_backend() == "cpu"
    assert jax.devices() == jax.devices("cpu") == jax.local_devices(backend="cpu")
    # As many as XLA's flag says.
    assert [repr(device) for device in jax.devices()] == ["CpuDevice(id=0)", "CpuDevice(id=1)"]
    assert [str(device) for device in jax.devices()] == ["cpu:0", "cpu:1"]
    assert [device.device_kind for device in jax.devices()] == ["cpu", "cpu"]
    assert "xlakit" in jax.devices()[0].client.platform_version
    assert float(lax.platform_dependent(1.0, cpu=jnp.sin, default=jnp.cos)) == pytest.approx(np.sin(1))
    try:
        topologies.get_topology_desc(platform="cpu")
    except NotImplementedError as error:
        assert "topology not implemented for cpu" in str(error)
    else:
        raise AssertionError("there are topologies without devices")
    with jax.default_device(jax.devices("cpu")[1]):
        assert jnp.ones(3).devices() == {jax.devices()[1]}


def check_linear_algebra():
    import jax
    import jax.numpy as jnp

    a = np.random.default_rng(0).normal(size=(3, 5, 5)).astype(np.float32)
    positive = a @ a.swapaxes(1, 2) + 5 * np.eye(5, dtype=np.float32)
    lower = jnp.linalg.cholesky(positive)
    np.testing.assert_allclose(lower @ lower.swapaxes(1, 2), positive, rtol=1e-5)
    np.testing.assert_allclose(jnp.linalg.solve(positive, a) @ np.eye(5), np.linalg.solve(positive, a), rtol=1e-3)
    np.testing.assert_allclose(jnp.linalg.svd(a)[1], np.linalg.svd(a)[1], rtol=1e-4)
    # Neither is left to LAPACK where the compiler does it itself.
    text = jax.jit(jnp.linalg.cholesky).lower(positive).as_text()
    assert "stablehlo.cholesky" in text
    assert "lapack" not in text


def check_callbacks():
    import jax
    import jax.numpy as jnp
    from jax.experimental import io_callback

    x = jnp.arange(4.0)
    seen = []

    @jax.jit
    def program(x):
        io_callback(seen.append, None, x[0], ordered=True)
        jax.debug.callback(seen.append, x[1])
        io_callback(seen.append, None, x[2], ordered=True)
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    np.testing.assert_allclose(program(x), np.sin(x), rtol=1e-6)
    jax.effects_barrier()
    assert [float(value) for value in seen if value != 1] == [0, 2]
    assert sorted(map(float, seen)) == [0, 1, 2]


def check_callbacks_of_several_devices():
    import jax
    import jax.numpy as jnp
    from jax.experimental import io_callback
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P, SingleDeviceSharding

    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))
    x = jax.device_put(jnp.arange(4.0), NamedSharding(mesh, P("x")))
    wholes, parts, sums = [], [], []

    def total(x):
        sums.append(float(x.sum()))
        return x.sum()

    @jax.jit
    def program(x):
        jax.debug.callback(lambda x: wholes.append(x.tolist()), x)
        jax.debug.callback(lambda x: parts.append(x.tolist()), x, partitioned=True)
        scalar = jax.ShapeDtypeStruct((), x.dtype)
        first = io_callback(total, scalar, x, ordered=True, sharding=SingleDeviceSharding(jax.devices()[1]))
        return first + io_callback(total, scalar, x + 1, ordered=True)

    assert float(program(x)) == 16
    jax.effects_barrier()
    assert (wholes, sorted(parts), sums) == ([[0, 1, 2, 3]], [[0, 1], [2, 3]], [6, 10])
    assert "maximal_mesh_1" in program.lower(x).as_text()


def check_functions_that_write_into_buffers():
    import jax
    from jax.experimental import buffer_callback as module

    def double(context, result, argument):
        np.asarray(result)[...] = np.asarray(argument) * 2

    x = np.float32([1, 2, 3])
    call = module.buffer_callback(double, jax.ShapeDtypeStruct(x.shape, x.dtype))
    np.testing.assert_array_equal(jax.jit(call)(x), x * 2)


def check_arrays_in_the_same_memory():
    import jax
    import jax.numpy as jnp

    x = jnp.arange(12.0).reshape(3, 4) + 0
    assert np.asarray(x).ctypes.data == x.unsafe_buffer_pointer()
    assert np.from_dlpack(x).ctypes.data == x.unsafe_buffer_pointer()
    given = np.ones((64, 64), np.float32)
    assert jax.dlpack.from_dlpack(given).devices() == {jax.devices()[0]}
    np.testing.assert_array_equal(jnp.from_dlpack(given), given)
    np.testing.assert_array_equal(jnp.from_dlpack(given[::2].T), given[::2].T)
    odd = np.zeros(9, np.uint8)[1:].view(np.float32)
    np.testing.assert_array_equal(jnp.from_dlpack(odd), odd)
    try:
        jnp.from_dlpack(given.T[:3], copy=False)
    except ValueError as error:
        assert "copy is False" in str(error)
    else:
        raise AssertionError("it was copied")
    y = jax.jit(lambda x: x * 2, donate_argnums=0)(jnp.copy(x))
    np.testing.assert_array_equal(y, np.arange(12).reshape(3, 4) * 2)


def check_programs_in_files():
    import jax
    import jax.numpy as jnp
    from jax.experimental import serialize_executable

    x = jnp.arange(6.0)
    lowered = jax.jit(lambda x: jnp.cumsum(x) * 2).lower(x)
    compiled = lowered.compile()
    expected = np.cumsum(np.arange(6.0)) * 2
    np.testing.assert_array_equal(compiled(x), expected)
    assert lowered.cost_analysis()["flops"] > 0
    assert compiled.as_text().startswith("HloModule")
    loaded = serialize_executable.deserialize_and_load(
        *serialize_executable.serialize(compiled), execution_devices=jax.devices()[:1]
    )
    np.testing.assert_array_equal(loaded(x), expected)
    assert loaded.runtime_executable().fingerprint == compiled.runtime_executable().fingerprint
    exported = jax.export.export(jax.jit(lambda x: jnp.linalg.qr(x)[1] * 2))(jnp.eye(3))
    assert exported.platforms == ("cpu",)
    np.testing.assert_allclose(abs(exported.call(jnp.eye(3))), np.eye(3) * 2)


def check_several_devices():
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec as P

    mesh = jax.make_mesh((2,), ("x",))
    x = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, P("x")))
    assert len(x.addressable_shards) == 2
    np.testing.assert_array_equal(jax.jit(lambda x: (x * x).sum())(x), 140)
    total = jax.shard_map(lambda x: jax.lax.psum(x.sum(), "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    assert float(total(x)) == 28
    np.testing.assert_array_equal(jax.pmap(lambda x: x + jax.lax.psum(x, "i"), "i")(np.arange(2.0)), [1, 2])


def check_kinds_of_memory():
    import jax
    import jax.numpy as jnp
    from jax.experimental import serialize_executable
    from jax.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding

    device = jax.devices()[0]
    kinds = [memory.kind for memory in device.addressable_memories()]
    assert kinds == ["device", "pinned_host", "unpinned_host"]
    assert device.default_memory().kind == "device"
    for kind in kinds:
        sharding = SingleDeviceSharding(device, memory_kind=kind)
        x = jax.device_put(jnp.arange(4.0), sharding)
        assert x.sharding.memory_kind == kind
        # The second program comes from the compile cache, where what is asked of results is kept, too.
        for _ in range(2):
            jax.clear_caches()
            there, here = jax.jit(lambda x: (x * 2, x + 1), out_shardings=(sharding, None))(jnp.arange(4.0))
            assert (there.sharding.memory_kind, here.sharding.memory_kind) == (kind, "device")
            np.testing.assert_array_equal(there, [0, 2, 4, 6])
    sharding = SingleDeviceSharding(device, memory_kind="pinned_host")
    mesh = jax.make_mesh((2,), ("x",))
    for split in (sharding, NamedSharding(mesh, P("x"), memory_kind="pinned_host")):
        x = jax.device_put(jnp.arange(4.0), split)
        doubled = jax.jit(lambda x: jax.device_put(x, jax.memory.Space.Device) * 2, out_shardings=split)
        compiled = doubled.lower(x).compile()
        devices = sorted(split.device_set, key=lambda device: device.id)
        loaded = serialize_executable.deserialize_and_load(
            *serialize_executable.serialize(compiled), execution_devices=devices
        )
        for program in (compiled, loaded):
            assert program(x).sharding == split
            np.testing.assert_array_equal(program(x), [0, 2, 4, 6])


def check_options_of_its_compiler():
    import jax
    import jax.numpy as jnp

    x = jnp.arange(3.0)
    lowered = jax.jit(lambda x: x + 1).lower(x)
    for options in ({}, {"xla_embed_ir_in_executable": True}, {"xla_dump_to": "/nowhere"}):
        np.testing.assert_array_equal(lowered.compile(compiler_options=options)(x), [1, 2, 3])
    for options, sentence in (
        ({"invalid_key": "value"}, "No such compile option: 'invalid_key'"),
        ({"xla_nothing_of_the_kind": 1}, "No such compile option"),
        ({"xla_embed_ir_in_executable": "invalid"}, "'invalid' is not a valid bool value"),
    ):
        with pytest.raises(jax.errors.JaxRuntimeError, match=sentence):
            lowered.compile(compiler_options=options)


def check_what_a_gradient_needs_in_host_memory():
    import jax
    import jax.numpy as jnp
    from jax.ad_checkpoint import checkpoint_name

    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["a"], offload_src="device", offload_dst="pinned_host"
    )

    def total(x, remat):
        def body(c, _):
            return remat(lambda c: jnp.tanh(checkpoint_name(jnp.sin(c), "a")))(c), c.sum()

        return jax.lax.scan(body, x, None, length=4)[1].sum()

    found = jax.jit(jax.grad(lambda x: total(x, lambda f: jax.checkpoint(f, policy=policy))))(jnp.arange(3.0))
    np.testing.assert_allclose(found, jax.jit(jax.grad(lambda x: total(x, lambda f: f)))(jnp.arange(3.0)), rtol=1e-6)


def test_in_its_place(as_cpu, check):
    as_cpu(check)


# -- processes of their own ------------------------------------------------------------------------


def environment_with(variables):
    """Of the environment, nothing but these says what JAX runs on."""
    if not entry_points(group="jax_plugins", name="xlakit"):
        pytest.skip("the package is not installed, so JAX does not find it")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_FLAGS"))}
    return {**environment, **variables}


def run(code, **variables):
    """Run a program in a process where nothing but the environment says that it is xlakit."""
    return subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        env=environment_with(variables),
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def run_forked(forks):
    """The same where JAX has been imported, which comes first in these programs."""
    return lambda code, *arguments, **variables: forks.run(code, *arguments, environment=environment_with(variables))


_SUM = "import jax, jax.numpy as jnp; print(jnp.arange(5.).sum(), len(jax.devices()), jax.default_backend())"


@pytest.mark.parametrize(
    ("variables", "devices"),
    [
        # Without more variables: in the test of settings below.
        ({"JAX_PLATFORMS": "cpu", "XLAKIT_DEVICES": "3"}, 3),
        ({"JAX_PLATFORM_NAME": "cpu", "JAX_NUM_CPU_DEVICES": "2", "XLAKIT_DEVICES": "3"}, 2),
    ],
)
def test_a_program_runs_on_it_unchanged(as_cpu, variables, devices):
    code = f"{_SUM}; print(jax.devices()[0].client.platform_version.split()[-2])"
    done = run(code, XLAKIT_AS="cpu", **variables)
    assert (done.stdout, done.stderr) == (f"10.0 {devices} cpu\nxlakit\n", "")


def test_a_program_takes_over(run_forked):
    code = f"""
import jax
import xlakit.jax
xlakit.jax.take_over()
xlakit.jax.take_over()
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4)
{_SUM}
assert "xlakit" in jax.devices()[0].client.platform_version
xlakit.jax.take_over()
jax.extend.backend.clear_backends()
jax.config.update("jax_num_cpu_devices", 2)
{_SUM}
"""
    done = run_forked("import jax.extend\n" + code)
    assert (done.stdout, done.stderr) == ("10.0 4 cpu\n10.0 2 cpu\n", "")


@pytest.mark.parametrize(
    ("variables", "before", "sentence"),
    [
        ({}, "jax.numpy.ones(3)", "JAX has made its devices already"),
        ({"JAX_PLATFORMS": "xlakit"}, "jax.devices()", "xlakit is JAX's platform xlakit in this process"),
    ],
)
def test_it_says_when_it_is_too_late(run_forked, variables, before, sentence):
    code = f"""
import jax, xlakit.jax
{before}
try:
    xlakit.jax.take_over()
except xlakit.ExecutionError as error:
    print(error)
"""
    done = run_forked(code, **variables)
    assert done.stdout.startswith(sentence), done.stderr
    assert "hint: " in done.stdout


def test_settings_that_a_kept_program_does_not_ask_for_are_read_all_the_same(run_forked):
    # JAX asks again for devices that it was not given. What nothing catches is said to the person, too.
    code = f"""
import os
for name in ("CACHE_LIMIT", "MEMORY_LIMIT", "TIMEOUT", "DEBUG"):
    os.environ["XLAKIT_" + name] = "much"
    try:
        {_SUM}
    except Exception as error:
        print(str(error).replace(chr(10), " "))
    else:
        print(name, "is not read")
    del os.environ["XLAKIT_" + name]
{_SUM}
print(jax.devices()[0].client.platform_version.split()[-2])
import jax.extend
jax.extend.backend.clear_backends()
os.environ["XLAKIT_CACHE"] = "/some/folder"
{_SUM}
"""
    done = run_forked(code, XLAKIT_AS="cpu")
    *refused, last, version = done.stdout.splitlines()
    assert (last, version) == ("10.0 1 cpu", "xlakit"), done.stderr
    for name, said in zip(("CACHE_LIMIT", "MEMORY_LIMIT", "TIMEOUT", "DEBUG"), refused, strict=True):
        assert f"XLAKIT_{name} is 'much'" in said
    assert "XLAKIT_CACHE is '/some/folder'" in done.stderr
    assert done.returncode


def test_no_entry_point_is_needed_where_the_package_is_on_the_path(as_cpu):
    code = """
import importlib.metadata
importlib.metadata.entry_points = lambda **_: ()
import jax
print(jax.devices()[0].client.platform_version)
"""
    root = str(Path(__file__).parents[2])
    assert "xlakit" in run(code, XLAKIT_AS="cpu", PYTHONPATH=root).stdout


def test_a_cache_of_jax_itself(run_forked, tmp_path):
    code = """
import sys
import jax, jax.monitoring
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event.rsplit("/")[-1]))
f = jax.jit(lambda x: (x * 2).sum())
print(f(jax.numpy.ones(5)), "cache_hits" in events, "cache_misses" in events)
# JAX knows of the function, and keeps the program out of its cache.
jax.jit(lambda x: jax.pure_callback(lambda x: x, x, x))(jax.numpy.ones(5))
"""
    for said in ("10.0 False True\n", "10.0 True False\n"):
        done = run_forked(code, tmp_path, XLAKIT_AS="cpu")
        assert (done.stdout, done.stderr) == (said, "")


@pytest.mark.parametrize("platform", ["XLAKIT_AS=cpu", "JAX_PLATFORMS=xlakit"])
def test_handlers_at_exit_use_jax(as_cpu, platform):
    code = """
import atexit

@atexit.register
def first():
    import jax
    print("before jax", jax.jit(lambda x: x.sum())(jax.numpy.ones(7)))

import jax

@atexit.register
def second():
    print("before the client", f(jax.numpy.ones((3, 3))), jax.pmap(lambda x: jax.lax.psum(x, "i"), "i")(
        jax.numpy.arange(2.0)))

f = jax.jit(lambda x: (x @ x).sum())
print(f(jax.numpy.ones((2, 2))))
"""
    name, _, value = platform.partition("=")
    done = run(code, XLAKIT_DEVICES="2", **{name: value})
    assert (done.stdout, done.stderr) == ("8.0\nbefore the client 27.0 [1. 1.]\nbefore jax 7.0\n", "")


def test_distributed_jax_of_one_process(run_forked):
    # Platform cpu's own process is in devices/test_jax_distributed.py.
    code = f"""
import socket
with socket.socket() as probe:
    probe.bind(("localhost", 0))
    port = probe.getsockname()[1]
import jax
jax.distributed.initialize(f"localhost:{{port}}", num_processes=1, process_id=0)
{_SUM}
print(jax.process_index(), jax.process_count())
"""
    done = run_forked(code, XLAKIT_DEVICES="2", JAX_PLATFORMS="xlakit")
    assert done.stdout == "10.0 2 xlakit\n0 1\n", done.stderr
    assert done.returncode == 0


def test_several_processes_need_a_transport(run_forked):
    code = """
import sys
sys.modules["zmq"] = None
import jax
from jax._src import distributed

class Client(dict):
    # Every process says what this one says.

    def key_value_set(self, key, value):
        self[key.rpartition("/")[0]] = value

    def blocking_key_value_get(self, key, milliseconds):
        return self[key.rpartition("/")[0]]

    def shutdown(self):
        pass

state = distributed.global_state
state.client, state.num_processes, state.coordinator_address = Client(), 2, "localhost:1"
from xlakit.jax.slots import State, _create_client
try:
    _create_client(State("cpu"), {})
except NotImplementedError as error:
    print(error)
"""
    expected = "programs on several processes that MPI did not start need pyzmq"
    assert run_forked(code).stdout.startswith(expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_child_processes(run_forked, tmp_path):
    path = tmp_path / "children.py"
    path.write_text("""
import multiprocessing, os, warnings
import jax, jax.numpy as jnp, numpy as np

total_of = jax.jit(jnp.sum)

def total(n):
    return float(total_of(np.arange(n))), "xlakit" in jax.devices()[0].client.platform_version

if __name__ == "__main__":
    print(total(5))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(total, [4]))
    warnings.simplefilter("ignore")
    # JAX itself compiles nothing in a child.
    child = os.fork()
    if not child:
        os._exit(0 if total(5) == (10.0, True) else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
    done = run_forked(f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')", XLAKIT_AS="cpu")
    assert done.stdout == "(10.0, True)\n[(6.0, True)]\n0\n", done.stderr
