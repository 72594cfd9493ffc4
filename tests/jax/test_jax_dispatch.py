"""Calls that run while Python goes on: their results, errors, memory, and what ends while they run."""

import os
import threading
import time

import numpy as np
import pytest
from jax_process import assert_fork_and_exit, asynchronous_process, loaded_program, registered


def _slow():
    """A program that takes some 50 ms for a count of 1 << 24, and adds 1."""
    import jax
    from jax import numpy as jnp

    def slowly(count, x):
        last = jax.lax.fori_loop(0, count, lambda _, a: a * 1664525 + 1013904223, jnp.uint32(1))
        return x + jnp.where(last == 7, 2, 1).astype(x.dtype)

    return jax.jit(slowly)


COUNT = 1 << 24


def check_results_come_later():
    import jax

    slow = _slow()
    x = jax.numpy.arange(1000.0)
    slow(1, x).block_until_ready()
    # So long that this thread goes on before it ends, whatever else the machine does.
    y = slow(4 * COUNT, x)
    assert not y.is_ready()
    z = slow(4 * COUNT, y) * 2
    both = jax.jit(lambda y, z: (y.sum(), z - y))(y, z)
    assert not z.is_ready() and not both[1].is_ready()
    expected = np.arange(1000.0, dtype=np.float32)
    np.testing.assert_array_equal(np.asarray(z), (expected + 2) * 2)
    assert y.is_ready() and y.block_until_ready() is y
    assert float(both[0]) == (expected + 1).sum()
    np.testing.assert_array_equal(both[1], (expected + 2) * 2 - (expected + 1))
    w = slow(COUNT, x)
    np.testing.assert_array_equal(np.from_dlpack(w), expected + 1)
    w = slow(COUNT, x)
    assert w.unsafe_buffer_pointer() and w.is_ready()
    w = slow(COUNT, x)
    del w, slow
    jax.clear_caches()


def check_a_waiting_thread_does_not_hold_the_gil():
    import jax

    slow, steps, done = _slow(), [], threading.Event()
    x = jax.numpy.arange(10.0)
    slow(1, x).block_until_ready()

    def count():
        while not done.wait(1e-4):
            steps.append(None)

    def steps_of_a_wait():
        y, before = slow(COUNT, x), len(steps)
        y.block_until_ready()
        return len(steps) - before

    thread = threading.Thread(target=count)
    thread.start()
    try:
        # The system may give all processors to others for the time of a wait.
        assert any(steps_of_a_wait() > 5 for _ in range(20))
    finally:
        done.set()
        thread.join()


def check_errors_come_with_results():
    import jax

    from xlakit.cpu.runtime.context import CONTEXT

    slow, double = _slow(), jax.jit(lambda x: x * 2)
    x = jax.numpy.ones(10)
    slow(1, x), double(x)
    context = loaded_program("jit_slowly").loaded.compiled._context
    arena = context.arena_bytes
    for text, word, value in (("interrupted", "interrupt", 1), ("not enough memory", "arena_bytes", 1 << 60)):
        context._memory[CONTEXT.index(word)] = value
        y = slow(2, x)
        z = double(y)
        for array in (y, z):
            with pytest.raises(jax.errors.JaxRuntimeError, match=text):
                array.block_until_ready()
            assert array.is_ready()
            with pytest.raises(jax.errors.JaxRuntimeError, match=text):
                np.asarray(array)
        # A program that needs Python gets the error at once.
        with pytest.raises(jax.errors.JaxRuntimeError, match=text):
            jax.jit(lambda x: jax.pure_callback(lambda x: x, x, x))(z)
        with pytest.raises(jax.errors.JaxRuntimeError, match=text):
            jax.device_put(z, jax.devices()[1]).block_until_ready()
        context._memory[CONTEXT.index("interrupt")] = 0
        context._memory[CONTEXT.index("arena_bytes")] = arena
        np.testing.assert_array_equal(double(slow(2, x)), np.full(10, 4.0))


def check_arrays_of_the_caller_may_change():
    import jax

    slow = _slow()
    memory = np.zeros(100_016, np.float32)
    start = -memory.ctypes.data % 64 // 4
    mine, unaligned = memory[start : start + 100_000], memory[start + 4 : start + 100_004]
    slow(1, mine).block_until_ready()
    first = slow(COUNT, mine)
    put = jax.device_put(mine)
    shares = np.shares_memory(np.asarray(put), mine)
    put = jax.device_put(mine)
    second, third = slow(COUNT, put), slow(1, put)
    tensor = jax.dlpack.from_dlpack(mine)
    fourth = slow(COUNT, tensor)
    assert shares
    # jaxlib's CPU copies what is not aligned to cache lines.
    assert not np.shares_memory(np.asarray(jax.device_put(unaligned)), memory)
    # What is a view of another library's memory is read before the call returns.
    assert not first.is_ready() or fourth.is_ready()
    mine[:] = 7
    for result in (first, second, third, fourth):
        np.testing.assert_array_equal(result, np.ones(100_000))


def check_donated_memory():
    import jax

    from xlakit.jax.native.records import Mode

    slow, add = _slow(), jax.jit(lambda x, y: x + y, donate_argnums=0)
    x = jax.numpy.full(100_000, 3.0)
    add(jax.numpy.copy(x), x), slow(1, x).block_until_ready()
    address = x.unsafe_buffer_pointer()
    before = slow(COUNT, x)
    after = add(x, before)
    assert x.is_deleted() and not before.is_ready()
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(x)
    more = add(after, before)
    np.testing.assert_array_equal(more, np.full(100_000, 11.0))
    assert more.unsafe_buffer_pointer() == address
    np.testing.assert_array_equal(before, np.full(100_000, 4.0))
    # A call on Python's thread does not write to what calls in the queue are still to read.
    reader = slow(COUNT, more)
    registered().native.set_queue_mode(Mode.LEARNED)
    written = add(more, jax.numpy.ones(100_000))
    registered().native.set_queue_mode(Mode.ON)
    assert reader.is_ready()
    np.testing.assert_array_equal(reader, np.full(100_000, 12.0))
    np.testing.assert_array_equal(written, np.full(100_000, 12.0))
    # Another thread cannot see what a program writes.
    registered().native.set_queue_mode(Mode.OFF)
    taking = jax.jit(slow, donate_argnums=1)
    taking(1, jax.numpy.copy(written)), jax.numpy.copy(written)
    given = jax.numpy.copy(written)
    thread = threading.Thread(target=taking, args=(COUNT, given))
    thread.start()
    while thread.is_alive() and not given.is_deleted():
        time.sleep(1e-4)
    assert thread.is_alive()
    thread.join()
    registered().native.set_queue_mode(Mode.ON)
    # NumPy has a view.
    seen = np.asarray(written)
    last = add(written, reader)
    np.testing.assert_array_equal(last, np.full(100_000, 24.0))
    np.testing.assert_array_equal(seen, np.full(100_000, 12.0))


def check_callbacks():
    import jax
    from jax import numpy as jnp
    from jax.experimental import io_callback

    slow = _slow()
    x = jnp.ones(10)
    other = slow(COUNT, x)
    order = []

    def on_host(x):
        order.append(float(np.sum(x)))
        # It may wait for calls, and make some.
        return np.asarray(slow(10, other)) + np.asarray(x)

    @jax.jit
    def calling(x):
        io_callback(lambda x: order.append(float(x[0])), None, x, ordered=True)
        y = io_callback(on_host, x, x, ordered=True)
        return y * 2

    y = slow(COUNT, x)
    z = slow(COUNT, calling(y))
    np.testing.assert_array_equal(z, np.full(10, 11.0))
    assert order == [2.0, 20.0]
    jax.effects_barrier()


def check_several_devices():
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    slow = _slow()
    x = jax.numpy.arange(8.0)
    y = slow(COUNT, x)
    there = jax.device_put(y, jax.devices()[1])
    np.testing.assert_array_equal(there, np.arange(8.0) + 1)
    mesh = Mesh(np.array(jax.devices()), "d")
    split = jax.device_put(slow(COUNT, x), NamedSharding(mesh, P("d")))
    total = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "d"), mesh=mesh, in_specs=P("d"), out_specs=P()))(split)
    np.testing.assert_array_equal(total, np.arange(1, 5) + np.arange(5.0, 9))
    parts = [slow(COUNT, jax.device_put(x, device)) for device in jax.devices()]
    for part in parts:
        np.testing.assert_array_equal(part, np.arange(8.0) + 1)


def check_what_may_run_later():
    import jax

    def is_pure(function, *arguments):
        jax.block_until_ready(jax.jit(function)(*arguments))
        return list(registered().programs.values())[-1].record["is_pure"]

    x = np.eye(4, dtype=np.float32)
    assert is_pure(lambda x: x @ x, x)
    # Random numbers of the device come in the order of the calls.
    assert not is_pure(lambda low: jax.lax.rng_uniform(low, 1.0, (10,)), 0.0)
    assert not is_pure(lambda x: jax.pure_callback(lambda x: x, x, x), x)
    assert not is_pure(lambda x: (jax.debug.callback(lambda x: None, x), x)[1], x)


def check_how_much_may_wait():
    import jax

    slow = _slow()
    x = jax.numpy.ones(10)
    slow(1, x)
    native, most = registered().native, 0
    results = []
    for _ in range(150):
        results.append(slow(1 << 16, x))
        most = max(most, native.queue_weight())
    assert most <= 64
    loaded_program("jit_slowly").record["time"] = 2_000_000
    for _ in range(12):
        results.append(slow(1 << 18, x))
        most = max(most, native.queue_weight())
    assert most <= 64
    assert all(float(result[0]) == 2 for result in results)


def check_interrupts():
    import _thread

    import jax

    slow = _slow()
    x = jax.numpy.ones(10)
    slow(1, x)
    for wait in (lambda y: y.block_until_ready(), np.asarray, lambda y: jax.device_put(y, jax.devices()[1])):
        y = slow(60 * COUNT, x)
        timer = threading.Timer(0.05, _thread.interrupt_main)
        timer.start()
        since = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            wait(y)
            time.sleep(10)
        seconds = time.monotonic() - since
        timer.join()
        assert not y.is_ready(), seconds
        registered().native.cancel_queue()
        with pytest.raises(jax.errors.JaxRuntimeError, match="interrupted"):
            y.block_until_ready()
        while registered().native.queue_weight():
            time.sleep(0.001)
        np.testing.assert_array_equal(slow(1, x), np.full(10, 2.0))


def check_settings():
    import jax

    from xlakit.jax.native.records import Mode
    from xlakit.jax.queue import _mode

    found = []
    for asked in ("0", "1", ""):
        os.environ["XLAKIT_ASYNC"] = asked
        found.append(_mode())
    assert found[:2] == [Mode.OFF, Mode.ON]
    assert found[2] == (Mode.LEARNED if len(os.sched_getaffinity(0)) > 1 else Mode.OFF)
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    assert _mode() == Mode.OFF
    jax.config.update("jax_cpu_enable_async_dispatch", True)
    os.environ["XLAKIT_ASYNC"] = "yes"
    with pytest.raises(Exception, match="XLAKIT_ASYNC is 'yes'"):
        _mode()
    os.environ["XLAKIT_ASYNC"] = "1"


def test_calls_that_run_later(asynchronously, check):
    asynchronously(check)


_AT_EXIT = """
import atexit, time
import jax
import numpy as np
import test_jax_dispatch as tests
import xlakit.jax.queue as queue

kept = []
atexit.register(lambda: print("saved", float(kept[0][0])))
jax.devices()
slow = tests._slow()
x = jax.numpy.ones(10)
slow(1, x)
"""


# What never ends does not keep the process.
_ENDLESS = "queue._EXIT_SECONDS = 0.2; kept.append(x); slow(2**31 - 1, slow(2**31 - 1, x))"


def test_the_process_ends_while_calls_run(forks):
    done = asynchronous_process(forks, _AT_EXIT + _ENDLESS)
    assert (done.returncode, done.stdout.strip()) == (0, "saved 1.0"), done.stderr


def test_a_fork_and_an_exit_while_calls_run(forks):
    assert_fork_and_exit(forks, _AT_EXIT, "2.0")
