"""Feeds, host transfers and channels of programs that run on a client's devices."""

import threading
import time

import numpy as np
import pytest
from evaluating import build, floats, ints, same, shape

import xlakit as xla

S32 = shape(xla.S32)
ROW = shape(xla.F32, 4)


@pytest.fixture(params=["interpreter", "cpu"])
def backend(request):
    return request.param


@pytest.fixture
def client():
    with xla.Client(devices=4, timeout=5) as made:
        yield made


def empty(function):
    """A program without parameters."""
    builder = xla.XlaBuilder("program")
    return builder.build(function(builder))


FED = empty(lambda b: xla.infeed(b, ROW))


def test_a_feed_may_come_before_the_call_and_after_it(client, backend):
    device = client.devices()[3]
    fed = client.compile(FED, backend=backend, device_assignment=3)
    device.transfer_to_infeed(floats([1, 2, 3, 4]))
    same(np.asarray(fed.execute([])), floats([1, 2, 3, 4]))
    result = fed.execute([])
    assert not result.is_ready()
    device.transfer_to_infeed(floats([5, 6, 7, 8]))
    same(np.asarray(result), floats([5, 6, 7, 8]))


def test_calls_that_wait_are_fed_in_their_order(client, backend):
    fed = client.compile(FED, backend=backend)
    results = [fed.execute([]) for _ in range(20)]
    for number in range(20):
        client.devices()[0].transfer_to_infeed(np.full(4, number, np.float32))
    assert [float(np.asarray(r)[0]) for r in results] == list(range(20))


def test_replicas_have_the_feeds_of_the_devices_that_they_run_on(client, backend):
    program = empty(lambda b: (xla.outfeed(x := xla.infeed(b, ROW)), xla.all_reduce(x, xla.add))[1])
    executable = client.compile(program, backend=backend, num_replicas=2, device_assignment=[[3], [1]])
    results = executable.execute_sharded([[], []])
    for number in (1, 3):
        client.devices()[number].transfer_to_infeed(np.full(4, number, np.float32))
    for result in results:
        same(np.asarray(result), floats([4, 4, 4, 4]))
    for number in (1, 3):
        same(client.devices()[number].transfer_from_outfeed(), np.full(4, number, np.float32))


def test_an_outfeed_is_read_while_the_program_runs(client, backend):
    program = build(lambda x: xla.while_(lambda v: v > 0, lambda v: (xla.outfeed(v * 2), v - 1)[1], x), S32)
    device = client.devices()[2]
    result = client.compile(program, backend=backend, device_assignment=2).execute([device.put(ints(3))])
    assert [int(device.transfer_from_outfeed()) for _ in range(3)] == [6, 4, 2]
    assert int(np.asarray(result)) == 0


def test_host_transfers_are_those_of_the_device(client, backend):
    def program(builder):
        received = xla.recv_from_host(xla.create_token(builder), S32, 9)
        x = xla.get_tuple_element(received, 0)
        xla.send_to_host(x * 3, xla.get_tuple_element(received, 1), 10)
        return x

    executable = client.compile(empty(program), backend=backend, device_assignment=2)
    result = executable.execute([])
    client.execution_context.send_to_device(2, 9, ints(5))
    assert int(client.execution_context.recv_from_device(2, 10)) == 15
    assert int(np.asarray(result)) == 5


@pytest.mark.usefixtures("no_other_thread")
def test_a_feed_that_cannot_come_or_does_not_fit_is_an_error_of_the_result(client, backend):
    fed = client.compile(FED, backend=backend)
    device = client.devices()[0]
    with pytest.raises(xla.DeadlockError, match=r"waits in infeed 'infeed.1' .* for an infeed of f32\[4\]"):
        np.asarray(fed.execute([]))
    device.transfer_to_infeed(floats([1, 2, 3]))
    with pytest.raises(xla.ArgumentError, match=r"infeed takes f32\[4\], got f32\[3\]"):
        np.asarray(fed.execute([]))
    device.transfer_to_infeed(floats([1, 2, 3, 4]))
    same(np.asarray(fed.execute([])), floats([1, 2, 3, 4]))


def test_closing_stops_who_waits_for_a_feed(backend):
    client = xla.Client(timeout=30)
    over = threading.Event()
    # A thread that could feed it.
    threading.Thread(target=over.wait).start()
    try:
        result = client.compile(FED, backend=backend).execute([])
        client.close(wait=False)
        with pytest.raises(xla.ExecutionError, match="closed before the program had ended"):
            np.asarray(result)
    finally:
        over.set()


def pair(client, backend, sender, receiver):
    sends = build(lambda x: (xla.send(x, 1), x)[1], S32)
    receives = empty(lambda b: xla.recv(b, S32, 1))
    return (
        client.compile(sends, backend=backend, device_assignment=sender),
        client.compile(receives, backend=backend, device_assignment=receiver),
    )


def test_programs_on_two_devices_talk_in_the_order_of_their_calls(client, backend):
    sends, receives = pair(client, backend, 0, 1)
    results = [receives.execute([]) for _ in range(10)]
    for number in range(10):
        sends.execute([client.devices()[0].put(ints(number))])
    assert [int(np.asarray(r)) for r in results] == list(range(10))


def test_two_pairs_on_one_channel_are_an_error(client, backend):
    (sends, first), (_, second) = pair(client, backend, 0, 1), pair(client, backend, 2, 3)
    results = [first.execute([]), second.execute([])]
    # The second caller is refused, and the other one goes on.
    while not any(result.is_ready() for result in results):
        time.sleep(0.001)
    (refused,) = (result for result in results if result.is_ready())
    with pytest.raises(
        xla.ExecutionError, match="'program' and 'program' run at one time, and both receive on channel 1"
    ):
        refused.block_until_ready()
    results.remove(refused)
    sends.execute([client.devices()[0].put(ints(7))])
    assert int(np.asarray(results[0])) == 7
