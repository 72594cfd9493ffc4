"""Clients: their devices, threads, end, forks and signals."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from device_programs import Held, add, all_reduced, endless, floats, module

import xlakit as xla


def device_threads():
    return [t for t in threading.enumerate() if t.name.startswith("xlakit-device-")]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    gc.collect()
    deadline = time.monotonic() + 5
    while device_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not device_threads()


def test_devices():
    with xla.Client(devices=3) as client:
        assert client.device_count() == client.local_device_count() == 3
        assert [d.id for d in client.devices()] == [0, 1, 2]
        device = client.devices()[1]
        assert (device.client, device.process_index, device.platform, str(device)) == (client, 0, "cpu", "cpu:1")
        assert client.get_default_device_assignment(1, 2) == [client.devices()[:2]]
        assert client.get_default_device_assignment(3) == [[d] for d in client.devices()]
        with pytest.raises(xla.ArgumentError, match=r"need 4 devices, the client has 3.*\n.*Client\(devices=4\)"):
            client.get_default_device_assignment(2, 2)


def test_the_environment_says_how_many_devices(monkeypatch):
    monkeypatch.setenv("XLAKIT_DEVICES", "4")
    assert xla.Client().device_count() == 4
    assert xla.Client(devices=2).device_count() == 2
    monkeypatch.setenv("XLAKIT_DEVICES", "many")
    with pytest.raises(xla.ArgumentError, match="XLAKIT_DEVICES is 'many'"):
        xla.Client()
    monkeypatch.delenv("XLAKIT_DEVICES")
    assert xla.Client().device_count() == 1


@pytest.mark.parametrize(
    ("count", "error"), [(0, xla.ArgumentError), (5000, xla.ResourceError), ("2", xla.ArgumentError)]
)
def test_numbers_of_devices_that_cannot_be(count, error):
    with pytest.raises(error, match="devices"):
        xla.Client(devices=count)


@pytest.mark.parametrize(
    ("assignment", "match"),
    [
        ([[0], [0]], "names a device twice"),
        ([[0], [7]], r"names 7, the client has devices 0 \.\. 2"),
        ([0], "has 1 devices in the form"),
        ([[0, 1]], "the program has 2 replicas of 1 partitions"),
    ],
)
def test_device_assignments_that_cannot_be(assignment, match):
    with xla.Client(devices=3) as client, pytest.raises(xla.ArgumentError, match=match):
        client.compile(all_reduced(), num_replicas=2, device_assignment=assignment)


def test_a_program_runs_on_the_devices_it_is_assigned():
    with xla.Client(devices=3) as client:
        zero, _, two = client.devices()
        program = client.compile(all_reduced(), num_replicas=2, device_assignment=[two, zero], backend="interpreter")
        assert program.device_assignment == [[2], [0]]
        assert program.local_devices() == [two, zero]
        first, second = program.execute_sharded([[two.put(floats(1, 2, 3, 4))], [zero.put(floats(0, 0, 0, 1))]])
        assert (first.device, second.device) == (two, zero)
        np.testing.assert_array_equal(first, floats(1, 2, 3, 5))
        np.testing.assert_array_equal(second, floats(1, 2, 3, 5))


def test_feeds_are_those_of_the_device():
    program = module(
        "  t = token[] after-all()\n  i = (f32[4], token[]) infeed(t)\n  v = f32[4] get-tuple-element(i), index=0\n"
        "  o = token[] outfeed(v, t), outfeed_shape=f32[4]\n  ROOT r = f32[4] negate(v)"
    )
    with xla.Client(devices=2) as client:
        device = client.devices()[1]
        loaded = client.compile(program, device_assignment=[1])
        result = loaded.execute([])
        assert not result.is_ready()
        device.transfer_to_infeed(floats(1, 2, 3, 4))
        np.testing.assert_array_equal(device.transfer_from_outfeed(), floats(1, 2, 3, 4))
        np.testing.assert_array_equal(result, floats(-1, -2, -3, -4))


def test_a_closed_client_takes_nothing_and_keeps_its_buffers():
    client = xla.Client()
    buffer = client.buffer_from_host(floats(1, 2, 3, 4))
    program = client.compile(add())
    with client:
        held = Held(client)
        last = held.start(buffer)
        held.end()
    assert client.is_closed
    # What had been called came to its end.
    np.testing.assert_array_equal(last, buffer)
    for act in (
        lambda: program.execute([buffer, buffer]),
        lambda: client.buffer_from_host(1.0),
        lambda: client.compile(add()),
        lambda: buffer.copy_to_device(client.devices()[0]),
    ):
        with pytest.raises(xla.ExecutionError, match="the client is closed"):
            act()
    client.close()


def test_closing_stops_what_runs_and_what_waits():
    client = xla.Client()
    x = client.buffer_from_host(floats(1, 2, 3, 4))
    results = [client.compile(endless(), backend="cpu").execute([x])]
    results.append(client.compile(add()).execute([results[0], x]))
    time.sleep(0.05)
    assert not any(r.is_ready() for r in results)
    client.close(wait=False)
    for result in results:
        with pytest.raises(xla.ExecutionError, match="the client was closed"):
            result.block_until_ready()


def test_at_the_end_of_the_process_programs_stop_and_handlers_go_on():
    code = """
import atexit

@atexit.register
def late():
    try:
        running.block_until_ready()
    except xla.ExecutionError as error:
        print(error)
    # The call has ended when it returns: nothing runs on behind the last handler.
    try:
        print([result.is_ready() for result in reduced.execute_sharded([[x], [z]])])
    except xla.ResourceError as error:
        print(error.rule)
    print(np.asarray(client.compile(add()).execute([x, x])))

import numpy as np
import xlakit as xla
from device_programs import add, all_reduced, endless, floats
client = xla.Client(devices=2)
x = client.buffer_from_host(floats(1, 2, 3, 4))
z = client.buffer_from_host(floats(1, 2, 3, 4), client.devices()[1])
reduced = client.compile(all_reduced(), num_replicas=2)
running = client.compile(endless(), backend="cpu").execute([x])
assert not running.is_ready()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    several = "[True, True]"
    if sys.version_info[:2] == (3, 12):
        several = "there is no thread for device 1: can't create new thread at interpreter shutdown"
    assert (done.stdout, done.stderr) == (f"the process ended before the program had\n{several}\n[2. 4. 6. 8.]\n", "")


def test_a_client_that_nobody_holds_ends_its_threads():
    client = xla.Client(devices=2)
    buffer = client.devices()[1].put(np.zeros(1 << 20, np.float32)).copy_to_device(client.devices()[0])
    buffer.block_until_ready()
    assert device_threads()
    gone = weakref.ref(client)
    del client
    gc.collect()
    # Its buffer needs it.
    assert gone() is not None
    del buffer
    # The thread that copied it drops its references to it after it has made it ready.
    deadline = time.monotonic() + 5
    while gone() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.001)
    assert gone() is None


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="no /proc")
def test_a_thousand_replicas_come_and_go_without_a_trace():
    program = all_reduced()
    ones = [[np.ones(4, np.float32)]] * 20

    def start_and_stop():
        with xla.Client(devices=20) as client:
            results = client.compile(program, num_replicas=20, backend="interpreter").execute_replicated(ones)
            assert results[19][0] == 20

    start_and_stop()
    gc.collect()
    descriptors, memory = len(os.listdir("/proc/self/fd")), resident_bytes()
    for _ in range(50):
        start_and_stop()
        assert not device_threads()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    assert resident_bytes() < memory + (16 << 20)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_after_fork_has_the_buffers_and_idle_devices():
    with xla.Client(devices=2) as client:
        x = client.buffer_from_host(floats(1, 2, 3, 4))
        held = Held(client)
        pending = held.start(x)
        child = os.fork()
        if not child:
            code = 1
            with contextlib.suppress(BaseException):
                code = check_child(client, x, pending)
            os._exit(code)
        _, status = os.waitpid(child, 0)
        held.end()
        np.testing.assert_array_equal(pending, x)
        assert os.waitstatus_to_exitcode(status) == 0


def check_child(client, x, pending):
    try:
        pending.block_until_ready()
    except xla.ExecutionError as error:
        if "forked" not in str(error):
            return 2
    zero, one = client.devices()
    if np.asarray(client.compile(add()).execute([x, x]))[3] != 8:
        return 3
    reduced = client.compile(all_reduced(), num_replicas=2, backend="interpreter")
    result = reduced.execute_sharded([[x], [x.copy_to_device(one)]])[1]
    return 0 if np.asarray(result)[3] == 8 and zero.id == 0 else 4


def test_ctrl_c_ends_waiting_and_leaves_the_client_usable():
    with xla.Client() as client:
        x = client.buffer_from_host(floats(1, 2, 3, 4))
        held = Held(client)
        result = held.start(x)
        timer = threading.Timer(0.1, signal.raise_signal, (signal.SIGINT,))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            result.block_until_ready()
        timer.join()
        assert not result.is_ready()
        held.end()
        np.testing.assert_array_equal(result, x)


def test_a_program_without_results_tells_its_error_to_who_waits_for_the_device():
    def fail():
        raise ValueError("no")

    program = module(
        '  c = () custom-call(), custom_call_target="fail", custom_call_has_side_effect=true\n  ROOT r = () tuple()'
    )
    with xla.Client() as client:
        loaded = client.compile(program, custom_calls={"fail": fail})
        assert loaded.execute([]) == ()
        with pytest.raises(xla.ExecutionError, match="ValueError: no"):
            client.devices()[0].synchronize_all_activity()
        client.synchronize_all_activity()
