"""Programs over several devices that run while Python goes on: results, errors, memory, deadlocks, and a fork."""

import threading
import time

import numpy as np
import pytest
from jax_process import assert_fork_and_exit, loaded_program, registered
from test_jax_dispatch import COUNT


def _mesh():
    import jax

    return jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))


def _split(values):
    import jax

    return jax.device_put(values, jax.sharding.NamedSharding(_mesh(), jax.sharding.PartitionSpec("d")))


def _slow(**options):
    """A program over two devices that takes some 50 ms for a count of 1 << 24; adds to x the sum over the devices."""
    import jax
    from jax import numpy as jnp
    from jax.sharding import PartitionSpec as P

    def sharded_slowly(count, x):
        last = jax.lax.fori_loop(0, count, lambda _, a: a * 1664525 + 1013904223, jnp.uint32(1))
        return x + jax.lax.psum(jnp.where(last == 7, 2, 1).astype(x.dtype), "d")

    body = jax.shard_map(sharded_slowly, mesh=_mesh(), in_specs=(P(), P("d")), out_specs=P("d"), check_vma=False)
    return jax.jit(body, **options)


def check_results_come_later():
    import jax

    slow = _slow()
    x = _split(np.arange(8, dtype=np.float32))
    both = jax.jit(lambda y: (y * 2, y.sum()))
    jax.block_until_ready((slow(1, x), both(x), x.addressable_shards[1].data + 1))
    y = slow(COUNT, x)
    assert not y.is_ready()
    # A program that is short waits behind it, and so does one on a single device, and what copies.
    z = both(y)
    part = y.addressable_shards[1].data + 1
    assert not y.is_ready() and not z[0].is_ready() and not part.is_ready()
    np.testing.assert_array_equal(part, np.arange(4, 8) + 3)
    np.testing.assert_array_equal(z[0], (np.arange(8) + 2) * 2)
    assert float(z[1]) == np.arange(8).sum() + 16
    whole = jax.device_put(slow(COUNT, x), jax.devices()[1])
    np.testing.assert_array_equal(whole, np.arange(8) + 2)


def check_errors_come_with_results():
    import jax

    slow, double = _slow(), jax.jit(lambda x: x * 2)
    x = _split(np.ones(8, np.float32))
    slow(1, x), double(x)
    contexts = loaded_program("jit_sharded_slowly").loaded.compiled._replicas._contexts
    contexts[1].interrupt = True
    y = slow(2, x)
    z = double(y)
    for array in (y, z):
        with pytest.raises(jax.errors.JaxRuntimeError, match="interrupted"):
            array.block_until_ready()
    # A program that needs Python gets the error at once.
    with pytest.raises(jax.errors.JaxRuntimeError, match="interrupted"):
        jax.jit(lambda x: jax.pure_callback(lambda x: x, x, x))(z)
    contexts[1].interrupt = False
    np.testing.assert_array_equal(double(slow(2, x)), np.full(8, 6.0))


def check_deadlocks():
    import jax
    from jax.sharding import PartitionSpec as P

    def meeting_in_vain(count, x):
        # Devices do not run the loop equally often.
        return jax.lax.while_loop(lambda s: s[0] > 0, lambda s: (s[0] - 1, jax.lax.psum(s[1], "d")), (count[0], x))[1]

    meet = jax.jit(
        jax.shard_map(meeting_in_vain, mesh=_mesh(), in_specs=(P("d"), P("d")), out_specs=P("d"), check_vma=False)
    )
    x = _split(np.ones(4, np.float32))
    evenly, unevenly = (_split(np.array(counts, np.int32)) for counts in ((2, 2), (3, 1)))
    np.testing.assert_array_equal(meet(evenly, x), np.full(4, 4.0))
    program = loaded_program("jit_meeting_in_vain")
    replicas = program.loaded.compiled._replicas._record
    from xlakit.cpu.runtime.devices.replicas import REPLICAS

    # On one thread, and on two.
    for alone, together in ((1, 1 << 40), (1 << 40, 1)):
        replicas[REPLICAS.index("tried")] = 3
        replicas[REPLICAS.index("time")], replicas[REPLICAS.index("time") + 1] = alone, together
        last = meet(unevenly, x)
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"wait for each other.*XLAKIT_ASYNC=0"):
            last.block_until_ready()
        np.testing.assert_array_equal(meet(evenly, x), np.full(4, 4.0))


def check_memory():
    import jax

    slow = _slow()
    taking = _slow(donate_argnums=1)
    mine = np.zeros(100_000, np.float32)
    x = jax.numpy.copy(_split(mine))
    taking(1, jax.numpy.copy(x)), slow(1, mine), slow(1, x).block_until_ready()
    addresses = [shard.data.unsafe_buffer_pointer() for shard in x.addressable_shards]
    before = slow(COUNT, x)
    after = taking(COUNT, x)
    assert x.is_deleted() and not before.is_ready()
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(x)
    np.testing.assert_array_equal(after, np.full(100_000, 2.0))
    assert [shard.data.unsafe_buffer_pointer() for shard in after.addressable_shards] == addresses
    np.testing.assert_array_equal(before, np.full(100_000, 2.0))
    # Arrays of the caller may change, and results and arguments may be dropped.
    put = _split(mine)
    results = [slow(COUNT, mine), slow(COUNT, put), slow(1, put)]
    mine[:] = 7
    for result in results:
        np.testing.assert_array_equal(result, np.full(100_000, 2.0))
    dropped = slow(COUNT, before)
    del dropped, before, put, slow, taking
    jax.clear_caches()


def check_callbacks_and_their_order():
    import jax
    from jax.experimental import io_callback
    from jax.sharding import PartitionSpec as P

    slow, order = _slow(), []

    def note(x):
        order.append(float(np.sum(x)))
        return np.float32(len(order))

    @jax.jit
    def noting(x):
        return x + io_callback(note, jax.ShapeDtypeStruct((), np.float32), x, ordered=False)

    x = _split(np.ones(8, np.float32))
    y = slow(COUNT, noting(slow(COUNT, x)))
    np.testing.assert_array_equal(y, np.full(8, 6.0))
    assert order == [24.0]

    def body(x):
        jax.debug.callback(lambda i: order.append(int(i)), jax.lax.axis_index("d"))
        return x * 2

    printing = jax.jit(jax.shard_map(body, mesh=_mesh(), in_specs=P("d"), out_specs=P("d")))
    np.testing.assert_array_equal(printing(slow(COUNT, x)), np.full(8, 6.0))
    jax.effects_barrier()
    assert sorted(order[1:]) == [0, 1]


def check_interrupts():
    import _thread

    import jax

    slow = _slow()
    x = _split(np.ones(8, np.float32))
    slow(1, x)
    y = slow(60 * COUNT, x)
    timer = threading.Timer(0.05, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        y.block_until_ready()
        time.sleep(10)
    timer.join()
    assert not y.is_ready()
    registered().native.cancel_queue()
    with pytest.raises(jax.errors.JaxRuntimeError, match="interrupted"):
        y.block_until_ready()
    while registered().native.queue_weight():
        time.sleep(0.001)
    np.testing.assert_array_equal(slow(1, x), np.full(8, 3.0))


def test_sharded_calls_that_run_later(asynchronously, check):
    asynchronously(check)


_AT_EXIT = """
import atexit
import jax
import numpy as np
import test_jax_sharded_dispatch as tests

kept = []
atexit.register(lambda: print("saved", np.asarray(kept[0])[5]))
slow = tests._slow()
x = tests._split(np.ones(8, np.float32))
slow(1, x)
"""


def test_a_fork_and_an_exit_while_sharded_calls_run(forks):
    assert_fork_and_exit(forks, _AT_EXIT, "3.0")
