"""Devices that wait: deadlocks, failures, timeouts, and no thread left over."""

import signal
import threading
import time

import evaluating
import numpy as np
import pytest

import xlakit as xla

S32 = xla.make_shape(xla.S32)


def compiled(function, *shapes, **options):
    builder = xla.XlaBuilder(options.pop("name", "program"))
    operands = [xla.parameter(builder, i, shape) for i, shape in enumerate(shapes)]
    return evaluating.compiled(builder.build(function(builder, *operands)), **options)


def on_first_replica(x, function):
    """``function`` on replica 0, nothing elsewhere."""
    return xla.conditional(xla.eq(xla.replica_id(x.builder), 0), x, function, x, lambda v: v)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 5
    while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left


def test_a_collective_that_others_never_reach_is_a_deadlock_at_once():
    executable = compiled(lambda b, x: on_first_replica(x, lambda v: xla.all_reduce(v, xla.add)), S32, num_replicas=3)
    start = time.monotonic()
    with pytest.raises(xla.DeadlockError) as caught:
        executable(1)
    assert time.monotonic() - start < 2
    message = str(caught.value)
    assert "replica 0 waits in all-reduce 'all-reduce" in message
    assert "for replica 1; replica 2" in message
    assert "test_execution_context.py:" in message


def test_a_loop_that_one_replica_runs_longer_is_a_deadlock():
    def gathered(v):
        return xla.reduce_all(xla.all_gather(xla.broadcast(xla.constant(v.builder, 1), [1]), 0, 2), 0, xla.add)

    executable = compiled(lambda b, x: xla.while_(lambda v: v < 10, lambda v: v + gathered(v), x), S32, num_replicas=2)
    with pytest.raises(xla.DeadlockError, match="replica 1 waits"):
        executable.execute_replicated([[9], [0]])


def test_two_collectives_in_different_orders_are_a_deadlock():
    def crossed(builder, x):
        def gather(v):
            return xla.reduce_all(xla.all_gather(xla.reshape(v, [1]), 0, 2), 0, xla.add)

        def total(v):
            return xla.all_reduce(v, xla.add)

        return xla.conditional(
            xla.eq(xla.replica_id(builder), 0), x, lambda v: total(gather(v)), x, lambda v: gather(total(v))
        )

    executable = compiled(crossed, S32, num_replicas=2)
    with pytest.raises(xla.DeadlockError) as caught:
        executable(1)
    assert "replica 0 waits in all-gather" in str(caught.value)
    assert "replica 1 waits in all-reduce" in str(caught.value)
    assert "a cycle: replica 0 -> replica 1 -> replica 0" in str(caught.value)


def test_a_cycle_is_a_deadlock_at_once_though_another_replica_may_go_on():
    def crossed(builder, x):
        def total(v):
            return xla.all_reduce(v, xla.add, replica_groups=[[0], [1, 2]])

        def greatest(v):
            return xla.all_reduce(v, xla.max, replica_groups=[[0], [1, 2]])

        branches = [
            lambda v: v + xla.infeed(v.builder, S32),
            lambda v: total(greatest(v)),
            lambda v: greatest(total(v)),
        ]
        return xla.conditional(xla.convert_element_type(xla.replica_id(builder), xla.S32), branches, [x, x, x])

    context = xla.ExecutionContext(timeout=60)
    executable = compiled(crossed, S32, num_replicas=3, execution_context=context)
    idle = threading.Event()
    host = threading.Thread(target=idle.wait)
    host.start()
    start = time.monotonic()
    try:
        with pytest.raises(xla.DeadlockError) as caught:
            executable(1)
    finally:
        idle.set()
        host.join()
    assert time.monotonic() - start < 30
    message = str(caught.value)
    assert message.startswith("devices wait that cannot go on any more")
    assert "a cycle: replica 1 of program -> replica 2 of program -> replica 1 of program" in message
    assert "replica 0 of program waits in infeed" in message
    assert "every device of a group must reach the collective" in caught.value.hint


def test_an_infeed_that_never_comes_is_a_deadlock():
    executable = compiled(lambda b: xla.infeed(b, S32), execution_context=xla.ExecutionContext(timeout=0.2))
    with pytest.raises(xla.DeadlockError, match=r"waits in infeed 'infeed.1' .* for an infeed of s32\[\]"):
        executable()


def test_a_recv_without_a_send_is_a_deadlock():
    executable = compiled(lambda b: xla.recv(b, S32, 9))
    with pytest.raises(xla.DeadlockError, match="for a send on channel 9"):
        executable()


@pytest.mark.usefixtures("no_other_thread")
def test_programs_that_wait_for_each_other_are_a_deadlock():
    execution_context = xla.ExecutionContext(timeout=2)
    first = compiled(
        lambda b, x: (r := xla.recv(b, S32, 1), xla.send(r, 2))[0],
        S32,
        execution_context=execution_context,
        name="first",
    )
    second = compiled(
        lambda b, x: (r := xla.recv(b, S32, 2), xla.send(r, 1))[0],
        S32,
        execution_context=execution_context,
        name="second",
    )
    with pytest.raises(xla.DeadlockError) as caught:
        xla.run_together((first, [1]), (second, [1]))
    assert "of first waits in recv" in str(caught.value)
    assert "of second waits in recv" in str(caught.value)
    assert "a cycle: replica 0 of first -> replica 0 of second -> replica 0 of first" in str(caught.value)


def test_waiting_for_another_thread_ends_at_the_timeout():
    executable = compiled(lambda b: xla.infeed(b, S32), execution_context=xla.ExecutionContext(timeout=0.2))
    idle = threading.Event()
    thread = threading.Thread(target=idle.wait)
    thread.start()
    start = time.monotonic()
    try:
        with pytest.raises(xla.DeadlockError, match="infeed") as caught:
            executable()
    finally:
        idle.set()
        thread.join()
    assert time.monotonic() - start >= 0.2
    assert "XLAKIT_TIMEOUT" in caught.value.hint


def test_the_timeout_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("XLAKIT_TIMEOUT", "1.5")
    assert xla.ExecutionContext().timeout == 1.5
    monkeypatch.setenv("XLAKIT_TIMEOUT", "soon")
    with pytest.raises(xla.ArgumentError, match="XLAKIT_TIMEOUT"):
        xla.ExecutionContext()


def test_an_outfeed_that_nobody_fills_is_an_error():
    with pytest.raises(xla.DeadlockError, match="outfeed of device 3"):
        xla.ExecutionContext(timeout=0.2).outfeed(3)


def test_the_host_waits_for_an_outfeed_of_a_running_program():
    executable = compiled(lambda b, x: (xla.outfeed(xla.infeed(b, S32) + x), x)[1], S32)
    thread = threading.Thread(target=executable, args=(1,))
    thread.start()
    executable.execution_context.infeed(0, 10)
    assert int(executable.execution_context.outfeed(0)) == 11
    thread.join()


def test_a_replica_that_fails_stops_the_others():
    def fails(x):
        if x == 2:
            raise ZeroDivisionError("replica two")
        return x

    executable = compiled(
        lambda b, x: xla.all_reduce(xla.custom_call(b, "fails", [x], S32), xla.add),
        S32,
        num_replicas=3,
        custom_calls={"fails": fails},
    )
    with pytest.raises(xla.ExecutionError, match="replica two") as caught:
        executable.execute_replicated([[0], [1], [2]])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "raised on device 2 (replica 2)" in caught.value.__notes__
    # The executable is as good as new.
    assert [int(r) for r in executable.execute_replicated([[0], [1], [3]])] == [4, 4, 4]


def test_a_replica_that_fails_stops_one_that_loops_for_ever():
    def fails(x):
        raise ValueError("enough")

    executable = compiled(
        lambda b, x: xla.conditional(
            xla.eq(xla.replica_id(b), 0),
            x,
            lambda v: xla.custom_call(v.builder, "fails", [v], S32),
            x,
            lambda v: xla.while_(lambda w: w < 1, lambda w: w, v),
        ),
        S32,
        num_replicas=2,
        custom_calls={"fails": fails},
    )
    with pytest.raises(xla.ExecutionError, match="enough"):
        executable(0)


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals go to the main thread")
def test_ctrl_c_gets_through_while_a_program_waits():
    executable = compiled(
        lambda b, x: xla.all_reduce(x + xla.infeed(b, S32), xla.add),
        S32,
        num_replicas=2,
        execution_context=xla.ExecutionContext(timeout=60),
    )
    timer = threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,))
    idle = threading.Event()
    host = threading.Thread(target=idle.wait)
    host.start()
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            executable(1)
    finally:
        idle.set()
        host.join()
        timer.join()


def test_many_replicas_meet_many_times():
    def loop(builder, x):
        def body(state):
            count, total = (xla.get_tuple_element(state, i) for i in range(2))
            return count + 1, xla.collective_permute(total, [(i, (i + 1) % 8) for i in range(8)])

        start = (xla.constant(builder, 0), x)
        return xla.get_tuple_element(xla.while_(lambda s: xla.get_tuple_element(s, 0) < 20, body, start), 1)

    results = compiled(loop, S32, num_replicas=8).execute_replicated([[np.int32(i)] for i in range(8)])
    assert [int(r) for r in results] == [(i - 20) % 8 for i in range(8)]
