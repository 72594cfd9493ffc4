"""Feeds: bounds and back-pressure, memory in the layout of the shape, and what remains after a failure."""

import threading
import time

import numpy as np
import pytest
from evaluating import f32, floats, ints, program, s32, same

import xlakit as xla
from xlakit.data.layout import Layout
from xlakit.execution import context
from xlakit.execution.feeds import Feed

COLUMNS = xla.make_shape(xla.F32, (2, 3), layout=Layout((0, 1)))
ROWS = floats([[1, 2, 3], [4, 5, 6]])


def counting(count, **options):
    """A program that feeds out 0, 1, 2, .. ``count - 1``."""
    return program(
        lambda b: xla.while_(lambda v: v < count, lambda v: (xla.outfeed(v), v + 1)[1], xla.constant(b, 0)), **options
    )


def summing(count, **options):
    """A program that gives the sum of ``count`` feeds."""

    def body(state):
        number, total = (xla.get_tuple_element(state, i) for i in range(2))
        return number + 1, total + xla.infeed(state.builder, s32())

    def run(b):
        start = (xla.constant(b, 0), xla.constant(b, 0))
        return xla.get_tuple_element(xla.while_(lambda s: xla.get_tuple_element(s, 0) < count, body, start), 1)

    return program(run, **options)


# -- layouts ---------------------------------------------------------------------------------------


def test_arrays_are_logical_whatever_the_layout():
    executable = program(lambda b: (x := xla.infeed(b, COLUMNS), xla.outfeed(x, COLUMNS))[0])
    for value in (ROWS, xla.Literal(COLUMNS, ROWS), ROWS.tolist()):
        executable.execution_context.infeed(0, value)
        same(executable(), ROWS)
        same(executable.execution_context.outfeed(), ROWS)


def test_bytes_are_memory_in_the_layout_of_the_shape():
    executable = program(lambda b: (x := xla.infeed(b, COLUMNS), xla.outfeed(x), xla.outfeed(x, COLUMNS))[0])
    for memory in (ROWS.T.tobytes(), bytearray(ROWS.T.tobytes()), memoryview(ROWS.T.tobytes())):
        executable.execution_context.infeed(0, memory)
        same(executable(), ROWS)
        assert executable.execution_context.outfeed(raw=True) == ROWS.tobytes()
        assert executable.execution_context.outfeed(raw=True) == ROWS.T.tobytes()


def test_memory_of_tuples():
    pair = xla.make_tuple_shape([COLUMNS, s32()])
    executable = program(lambda b: (x := xla.infeed(b, pair), xla.outfeed(x, pair))[0])
    executable.execution_context.infeed(0, (ROWS.T.tobytes(), 7))
    first, second = executable()
    same(first, ROWS)
    same(second, ints(7))
    assert executable.execution_context.outfeed(raw=True) == (ROWS.T.tobytes(), ints(7).tobytes())


def test_memory_of_another_size_is_an_error():
    executable = program(lambda b: xla.infeed(b, COLUMNS))
    for memory, match in ((bytes(20), "the buffer has 5"), (b"abc", "got 3 bytes")):
        executable.execution_context.infeed(0, memory)
        with pytest.raises(xla.ArgumentError, match=match) as caught:
            executable()
        assert "f32[2,3]{0,1}" in str(caught.value)
        assert caught.value.operation.startswith("infeed 'infeed.1'")


def test_the_host_and_a_device_may_come_to_a_queue_at_once(monkeypatch):
    """Both find none and make one: what is put into the one that is given up would be lost."""
    both = threading.Barrier(2)

    class Slow(Feed):
        def __init__(self, bounds):
            both.wait(30)
            super().__init__(bounds)

    monkeypatch.setattr(context, "Feed", Slow)
    executable = program(lambda b: xla.infeed(b, s32()))
    results = []
    thread = threading.Thread(target=lambda: results.append(executable()))
    thread.start()
    executable.execution_context.infeed(0, 7)
    thread.join()
    same(results[0], ints(7))


# -- bounds ----------------------------------------------------------------------------------------


def test_a_full_infeed_is_an_error_where_nothing_takes_from_it():
    execution_context = xla.ExecutionContext(timeout=0.2, queue_items=2)
    execution_context.infeed(0, 1)
    execution_context.infeed(0, 2)
    execution_context.infeed(1, 3)
    with pytest.raises(xla.DeadlockError, match=r"no room in the infeed of device 0.*holds 2 values of 16 bytes") as e:
        execution_context.infeed(0, 4)
    assert "queue_items" in e.value.hint
    executable = summing(2, execution_context=execution_context)
    same(executable(), ints(3))
    execution_context.infeed(0, 4)


def test_bytes_count_and_one_value_may_be_larger():
    execution_context = xla.ExecutionContext(timeout=0.2, queue_bytes=100)
    execution_context.infeed(0, np.zeros(1000))
    with pytest.raises(xla.DeadlockError, match="its bounds being 100 bytes"):
        execution_context.infeed(0, np.zeros(1, np.int8))
    execution_context.clear()
    execution_context.infeed(0, np.zeros(50, np.int8))
    execution_context.infeed(0, (np.zeros(49, np.int8), b"1"))
    with pytest.raises(xla.DeadlockError, match="2 values of 100 bytes"):
        execution_context.infeed(0, True)


def test_feeding_waits_while_a_program_takes():
    executable = summing(50, execution_context=xla.ExecutionContext(timeout=5, queue_items=1))
    results = []
    thread = threading.Thread(target=lambda: results.append(executable()))
    thread.start()
    for number in range(50):
        executable.execution_context.infeed(0, number)
    thread.join()
    same(results[0], ints(sum(range(50))))


def test_an_outfeed_makes_the_device_wait():
    executable = counting(50, execution_context=xla.ExecutionContext(timeout=5, queue_items=1))
    thread = threading.Thread(target=executable)
    thread.start()
    assert [int(executable.execution_context.outfeed()) for _ in range(50)] == list(range(50))
    thread.join()


@pytest.mark.usefixtures("no_other_thread")
def test_a_full_outfeed_without_a_reader_is_a_deadlock():
    executable = counting(9, execution_context=xla.ExecutionContext(timeout=5, queue_items=3))
    start = time.monotonic()
    with pytest.raises(xla.DeadlockError) as caught:
        executable()
    assert time.monotonic() - start < 2
    assert "waits in outfeed 'outfeed.1'" in str(caught.value)
    assert "for room in its outfeed, which holds 3 values of 12 bytes, its bounds being 3 values" in str(caught.value)
    assert "execution_context.outfeed(device)" in caught.value.hint
    # What it fed before it failed is there.
    assert [int(executable.execution_context.outfeed()) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(xla.DeadlockError, match="is empty"):
        executable.execution_context.outfeed()


def test_host_transfers_are_bounded_too():
    def sends(b, x):
        token = xla.send_to_host(x, xla.create_token(b), 1)
        xla.send_to_host(x + 1, token, 1)
        return x

    executable = program(sends, s32(), execution_context=xla.ExecutionContext(timeout=0.2, queue_items=1))
    with pytest.raises(xla.DeadlockError, match="for room in channel 1 to the host"):
        executable(4)
    same(executable.execution_context.recv_from_device(0, 1), ints(4))
    executable.execution_context.send_to_device(0, 2, 1)
    with pytest.raises(xla.DeadlockError, match="no room in channel 2 to device 0"):
        executable.execution_context.send_to_device(0, 2, 2)


def test_a_wait_of_the_host_ends_when_it_says():
    execution_context = xla.ExecutionContext(timeout=60, queue_items=1)
    idle = threading.Event()
    thread = threading.Thread(target=idle.wait)
    thread.start()
    try:
        with pytest.raises(xla.DeadlockError, match=r"nothing came from the outfeed of device 0 for 0.1 seconds"):
            execution_context.outfeed(timeout=0.1)
        execution_context.infeed(0, 1)
        with pytest.raises(xla.DeadlockError, match=r"was no room in the infeed of device 0 for 0.1 seconds"):
            execution_context.infeed(0, 2, timeout=0.1)
    finally:
        idle.set()
        thread.join()


def test_wrong_bounds_and_devices_are_refused():
    with pytest.raises(xla.ArgumentError, match="queue_items is 0"):
        xla.ExecutionContext(queue_items=0)
    with pytest.raises(xla.ArgumentError, match="queue_bytes is 0"):
        xla.ExecutionContext(queue_bytes=0)
    with pytest.raises(xla.ArgumentError, match="no device -1"):
        xla.ExecutionContext().infeed(-1, 0)
    with pytest.raises(xla.ArgumentError, match="device must be an integer"):
        xla.ExecutionContext().outfeed("first")


# -- order, and nothing --------------------------------------------------------------------------------


def test_the_empty_tuple_is_nothing_to_feed():
    nothing = xla.make_tuple_shape([])
    executable = program(lambda b: (xla.outfeed(xla.infeed(b, nothing)), xla.outfeed(xla.constant(b, 5)))[1])
    executable()
    same(executable.execution_context.outfeed(), ints(5))


def test_tokens_order_feeds():
    def ordered(b):
        token = xla.create_token(b)
        pairs = [xla.infeed_with_token(token, s32())]
        pairs.append(xla.infeed_with_token(xla.get_tuple_element(pairs[0], 1), s32()))
        both = xla.after_all([xla.get_tuple_element(p, 1) for p in pairs])
        xla.outfeed_with_token(xla.get_tuple_element(pairs[1], 0), both)
        return xla.get_tuple_element(pairs[0], 0)

    executable = program(ordered)
    for number in (1, 2):
        executable.execution_context.infeed(0, number)
    same(executable(), ints(1))
    same(executable.execution_context.outfeed(), ints(2))


def test_a_failed_program_leaves_feeds_that_can_be_thrown_away():
    executable = program(lambda b: xla.infeed(b, f32(2)) + xla.infeed(b, f32(2)))
    for value in (floats([1, 2, 3]), floats([4, 5])):
        executable.execution_context.infeed(0, value)
    with pytest.raises(xla.ArgumentError, match=r"got f32\[3\]"):
        executable()
    executable.execution_context.clear()
    for value in (floats([1, 2]), floats([4, 5])):
        executable.execution_context.infeed(0, value)
    same(executable(), floats([5, 7]))
