"""Programs on devices: asynchronous, in order, all replicas at once, and how they fail."""

import ctypes
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from device_programs import SUM, Held, add, all_reduced, floats, module

import xlakit as xla
from xlakit.cpu.runtime.call import raise_status
from xlakit.cpu.runtime.context import Status
from xlakit.cpu.runtime.host import take_error


@pytest.fixture
def client():
    with xla.Client(devices=3, timeout=20) as made:
        yield made


@pytest.fixture
def x(client):
    return client.buffer_from_host(floats(1, 2, 3, 4))


def test_a_call_returns_before_the_program_ends(client, x):
    held = Held(client)
    result = held.start(x)
    assert not result.is_ready()
    assert "not there yet" in repr(result)
    # What follows on the device comes after it, in order, even where it is all but free.
    later = client.compile(add()).execute([result, x])
    independent = client.compile(add()).execute([x, x])
    assert not later.is_ready()
    assert not independent.is_ready()
    held.end()
    np.testing.assert_array_equal(later, floats(2, 4, 6, 8))
    assert result.is_ready()
    np.testing.assert_array_equal(independent.block_until_ready(), floats(2, 4, 6, 8))


def test_a_light_program_is_done_when_the_call_returns(client, x):
    before = threading.active_count()
    result = client.compile(add(), backend="cpu").execute([x, x])
    assert result.is_ready()
    assert threading.active_count() == before


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_a_chain_of_programs_runs_in_order(client, x, backend):
    step = client.compile(add(), backend=backend)
    held = Held(client)
    total = held.start(x)
    for _ in range(50):
        total = step.execute([total, x])
    held.end()
    np.testing.assert_array_equal(total, 51 * np.asarray(x))


def test_devices_run_side_by_side(client):
    programs = [Held(client, device) for device in range(3)]
    for device, held in zip(client.devices(), programs, strict=True):
        held.start(device.put(floats(1, 1, 1, 1)))
    for held in programs:
        held.end()
    client.synchronize_all_activity()


def test_an_error_comes_out_where_a_result_is_used(client, x):
    held = Held(client, error=ValueError("broken"))
    failed = held.executable.execute([x])
    dependent = client.compile(add()).execute([failed, x])
    elsewhere = dependent.copy_to_device(client.devices()[1])
    held.end()
    for use in (
        failed.block_until_ready,
        lambda: np.asarray(dependent),
        elsewhere.block_until_ready,
        lambda: np.from_dlpack(failed),
        failed.unsafe_buffer_pointer,
        # The same again, for a second caller.
        failed.block_until_ready,
        client.compile(add()).execute([failed, x]).block_until_ready,
    ):
        with pytest.raises(xla.ExecutionError, match="ValueError: broken"):
            use()
    assert failed.is_ready()
    assert "failed" in repr(failed)
    np.testing.assert_array_equal(client.compile(add()).execute([x, x]), floats(2, 4, 6, 8))


def test_an_error_has_the_traceback_of_the_function_that_raised_it(client, x):
    held = Held(client, error=ValueError("broken"))
    held.end()
    failed = held.executable.execute([x])
    lengths = []
    for _ in range(3):
        with pytest.raises(xla.ExecutionError, match="broken") as caught:
            failed.block_until_ready()
        frames = traceback.extract_tb(caught.value.__cause__.__traceback__)
        assert frames[-1].name == "_hold"
        lengths.append(len(caught.traceback))
    assert len(set(lengths)) == 1


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_all_replicas_run_at_once(client, backend):
    program = client.compile(all_reduced(), num_replicas=3, backend=backend)
    assert (program.num_devices, program.num_replicas, program.num_partitions) == (3, 3, 1)
    given = [[device.put(np.full(4, device.id + 1, np.float32))] for device in client.devices()]
    results = program.execute_sharded(given)
    assert [r.device for r in results] == client.devices()
    for result in results:
        np.testing.assert_array_equal(result, floats(6, 6, 6, 6))
    host = program.execute_replicated([[floats(1, 2, 3, 4)]] * 3)
    np.testing.assert_array_equal(host[2], floats(3, 6, 9, 12))


def test_partitions(client):
    body = "  p = u32[] partition-id()\n  r = u32[] replica-id()\n  ROOT t = (u32[], u32[]) tuple(r, p)"
    program = client.compile(module(body), num_replicas=1, num_partitions=3)
    assert program.device_assignment == [[0, 1, 2]]
    assert [tuple(int(v) for v in row) for row in program.execute_replicated([[]] * 3)] == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_a_replica_that_waits_for_its_turn_is_no_deadlock(backend):
    with xla.Client(devices=2, timeout=0.1) as client:
        held = Held(client, device=1)
        held.start(client.devices()[1].put(floats(0, 0, 0, 0)))
        given = [[device.put(floats(1, 2, 3, 4))] for device in client.devices()]
        results = client.compile(all_reduced(), num_replicas=2, backend=backend).execute_sharded(given)
        time.sleep(0.4)
        assert not results[0].is_ready()
        held.end()
        np.testing.assert_array_equal(results[1], floats(2, 4, 6, 8))


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_a_deadlock_ends_and_so_does_what_waits_behind_it(client, backend):
    # Replica 0 alone reaches the all-reduce.
    body = (
        "  a = f32[4] parameter(0)\n  r = u32[] replica-id()\n  z = u32[] constant(0)\n"
        "  c = pred[] compare(r, z), direction=EQ\n"
        "  ROOT v = f32[4] conditional(c, a, a), true_computation=meet, false_computation=pass"
    )
    extra = (
        SUM
        + "\nmeet {\n  b = f32[4] parameter(0)\n  ROOT m = f32[4] all-reduce(b), replica_groups={}, to_apply=sum\n}\n"
        "pass {\n  ROOT o = f32[4] parameter(0)\n}"
    )
    stuck = client.compile(module(body, extra=extra), num_replicas=2, backend=backend)
    given = [[device.put(floats(1, 2, 3, 4))] for device in client.devices()[:2]]
    results = stuck.execute_sharded(given)
    after = client.compile(all_reduced(), num_replicas=2, backend=backend).execute_sharded(given)
    for result in results:
        with pytest.raises(xla.DeadlockError, match=r"replica 0 .*waits in all-reduce"):
            result.block_until_ready()
    np.testing.assert_array_equal(after[0], floats(2, 4, 6, 8))


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_a_feed_that_never_comes_does_not_hold_up_the_device_for_ever(backend):
    with xla.Client(devices=2, timeout=0.5) as client:
        body = "  t = token[] after-all()\n  i = (f32[4], token[]) infeed(t)\n"
        body += "  ROOT v = f32[4] get-tuple-element(i), index=0"
        starving = client.compile(module(body), device_assignment=[1])
        reduced = client.compile(all_reduced(), num_replicas=2, backend=backend)
        given = [[device.put(floats(1, 2, 3, 4))] for device in client.devices()]
        starved = starving.execute([])
        behind = reduced.execute_sharded(given)
        with pytest.raises(xla.DeadlockError, match=r"waits in infeed(.|\n)*waits for its turn on device 1"):
            starved.block_until_ready()
        for result in behind:
            np.testing.assert_array_equal(result, floats(2, 4, 6, 8))
        np.testing.assert_array_equal(client.compile(add()).execute([given[0][0]] * 2), floats(2, 4, 6, 8))


def test_an_error_on_one_device_is_that_of_all_results(client):
    def maybe(a):
        if a[0] == 2:
            raise ValueError("broken")
        return a

    body = '  a = f32[4] parameter(0)\n  ROOT r = f32[4] custom-call(a), custom_call_target="maybe"'
    program = client.compile(module(body), num_replicas=3, custom_calls={"maybe": maybe})
    results = program.execute_sharded([[d.put(np.full(4, d.id + 1, np.float32))] for d in client.devices()])
    for result in results:
        with pytest.raises(xla.ExecutionError, match="broken") as caught:
            result.block_until_ready()
        assert "raised on device 1 (replica 1)" in caught.value.__notes__
    assert np.asarray(program.execute_sharded([[d.put(floats(0, 0, 0, 0))] for d in client.devices()])[2]).sum() == 0


def test_tuples_go_in_and_out_as_tuples(client, x):
    body = (
        "  t = (f32[4], (f32[4], f32[])) parameter(0)\n  a = f32[4] get-tuple-element(t), index=0\n"
        "  u = (f32[4], f32[]) get-tuple-element(t), index=1\n  n = f32[4] negate(a)\n"
        "  e = () tuple()\n  ROOT r = ((f32[4], f32[]), (), f32[4]) tuple(u, e, n)"
    )
    program = client.compile(module(body))
    given = client.buffer_from_host((floats(1, 2, 3, 4), (floats(5, 6, 7, 8), np.float32(9))))
    (first, scalar), empty, negated = program.execute([given])
    assert empty == ()
    assert float(np.asarray(scalar)) == 9
    np.testing.assert_array_equal(first, floats(5, 6, 7, 8))
    np.testing.assert_array_equal(negated, floats(-1, -2, -3, -4))
    with pytest.raises(xla.ArgumentError, match=r"takes \(f32\[4\], \(f32\[4\], f32\[\]\)\), got a tuple of 1"):
        program.execute([(x,)])


def test_tokens_are_buffers_without_values(client, x):
    body = "  t = token[] parameter(0)\n  a = f32[4] parameter(1)\n  ROOT r = (token[], f32[4]) tuple(t, a)"
    program = client.compile(module(body))
    token, values = program.execute([None, x])
    assert token.block_until_ready() is token
    with pytest.raises(xla.ArgumentError, match="a token holds no values"):
        np.asarray(token)
    token, values = program.execute([token, values])
    np.testing.assert_array_equal(values, x)
    assert program.execute_replicated([[None, floats(0, 0, 0, 0)]])[0][0] is None


def test_bounded_dimensions(client):
    body = "  a = f32[<=4] parameter(0)\n  ROOT r = f32[<=4] negate(a)"
    program = client.compile(module(body))
    result = program.execute([client.buffer_from_host(floats(1, 2))])
    assert str(result.shape) == "f32[<=4]{0}"
    np.testing.assert_array_equal(result, floats(-1, -2))
    np.testing.assert_array_equal(program.execute([result]), floats(1, 2))
    with pytest.raises(xla.ArgumentError, match="f32"):
        np.asarray(program.execute([client.buffer_from_host(floats(1, 2, 3, 4, 5))]))


def test_arguments_that_do_not_fit(client, x):
    program = client.compile(add())
    other = xla.Client()
    for arguments, match in (
        ([x], "'?add'? takes 2 arguments, got 1"),
        (x, "'add' takes 2 arguments, got a Buffer"),
        ([x, floats(1, 2, 3, 4)], r"parameter 1 'b' of 'add' takes a buffer, got f32\[4\].*\n.*device.put"),
        (
            [x, client.buffer_from_host(np.zeros(3, np.float32))],
            r"parameter 1 'b' of 'add' takes f32\[4\], got f32\[3\]",
        ),
        ([client.buffer_from_host(np.zeros(4, np.int32)), x], r"takes f32\[4\], got s32\[4\]"),
        ([x, x.copy_to_device(client.devices()[2])], r"on device 2 .*which reads it on device 0\n.*copy_to_device"),
        ([x, other.buffer_from_host(floats(1, 2, 3, 4))], "is of another client"),
    ):
        with pytest.raises(xla.ArgumentError, match=match):
            program.execute(arguments)
    sharded = client.compile(all_reduced(), num_replicas=2)
    with pytest.raises(xla.ArgumentError, match="runs on 2 devices, got arguments for 1"):
        sharded.execute_sharded([[x]])
    with pytest.raises(xla.ArgumentError, match="runs on 2 devices"):
        sharded.execute([x])
    assert program.execute([x, x]).is_ready()


def test_a_custom_call_cannot_wait_for_its_own_device(client, x):
    step = client.compile(add())

    def wait(a):
        return np.asarray(step.execute([x, x]))

    body = '  a = f32[4] parameter(0)\n  ROOT r = f32[4] custom-call(a), custom_call_target="wait"'
    waiting = client.compile(module(body), custom_calls={"wait": wait}).execute([x])
    with pytest.raises(
        xla.ExecutionError, match="device 0 waits for 'add', which can only run when the device is free"
    ):
        waiting.block_until_ready()


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_threads_that_call_at_the_same_time(client, x, backend):
    step = client.compile(add())
    reduced = client.compile(all_reduced(), num_replicas=3, backend=backend)
    given = [[device.put(floats(1, 2, 3, 4))] for device in client.devices()]
    faults = []

    def work():
        try:
            for _ in range(20):
                total = step.execute([x, x])
                results = reduced.execute_sharded(given)
                np.testing.assert_array_equal(step.execute([total, x]), floats(3, 6, 9, 12))
                np.testing.assert_array_equal(results[1], floats(3, 6, 9, 12))
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not faults


def test_the_limit_of_threads_is_the_callers(client):
    seen = []

    def look(a):
        seen.append(xla.thread_count())
        return a

    body = '  a = f32[4] parameter(0)\n  ROOT r = f32[4] custom-call(a), custom_call_target="look"'
    program = client.compile(module(body), custom_calls={"look": look}, backend="cpu")
    x = client.buffer_from_host(floats(1, 2, 3, 4))
    for count in (1, 3):
        with xla.threads(count):
            program.execute([x]).block_until_ready()
    assert seen == [1, 3]


def test_the_entry_takes_addresses(client, x):
    program = client.compile(add(), backend="cpu")
    function, context = program.native_entry
    call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 3)(function)
    result = np.zeros(4, np.float32)
    address = x.unsafe_buffer_pointer()
    assert call(context, (ctypes.c_void_p * 2)(address, address), (ctypes.c_void_p * 1)(result.ctypes.data)) == 0
    np.testing.assert_array_equal(result, floats(2, 4, 6, 8))
    assert client.compile(add(), backend="interpreter").native_entry is None


def test_the_entry_of_several_devices_takes_the_arrays_of_one_after_the_other(client):
    program = client.compile(all_reduced(), num_replicas=3, backend="cpu")
    function, context = program.native_entry
    call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 3)(function)
    given = np.arange(12, dtype=np.float32).reshape(3, 4)
    for _ in range(5):
        made = np.zeros((3, 4), np.float32)
        rows = [(ctypes.c_void_p * 3)(*[row.ctypes.data for row in array]) for array in (given, made)]
        assert call(context, *rows) == 0
        np.testing.assert_array_equal(made, [given.sum(0)] * 3)


def test_the_entry_of_several_devices_tells_why_none_can_go_on(client):
    body = """
      a = f32[4] parameter(0)
      id = u32[] replica-id()
      one = u32[] constant(1)
      c = pred[] compare(id, one), direction=LT
      ROOT r = f32[4] conditional(c, a, a), true_computation=meets, false_computation=passes
    """
    meets = "meets {\n  x = f32[4] parameter(0)\n  ROOT y = f32[4] all-reduce(x), replica_groups={}, to_apply=sum\n}\n"
    passes = "passes {\n  ROOT x = f32[4] parameter(0)\n}\n"
    program = client.compile(module(body, extra=SUM + meets + passes), num_replicas=3, backend="cpu")
    function, context = program.native_entry
    call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 3)(function)
    given, made = (np.zeros((3, 4), np.float32) for _ in range(2))
    rows = [(ctypes.c_void_p * 3)(*[row.ctypes.data for row in array]) for array in (given, made)]
    for _ in range(2):
        assert call(context, *rows) == Status.RAISED
        error = take_error()
        assert isinstance(error, xla.DeadlockError)
        assert "replica 0 of m waits in all-reduce 'y' for replica 1; replica 2" in str(error)


CHECKED = """
HloModule checked
right {
  ROOT x = f32[4] parameter(0)
}
wrong {
  x = f32[4] parameter(0)
  ROOT r = f32[4] custom-call(x), custom_call_target="check", metadata={source_file="model.py" source_line=7}
}
ENTRY main {
  x = f32[4] parameter(0)
  is_wrong = pred[] parameter(1)
  ROOT r = f32[4] conditional(is_wrong, x, x), true_computation=wrong, false_computation=right
}
"""


def test_custom_calls_begin_a_run_where_native_code_makes_them(client, x):
    seen = []

    def check(values):
        seen.append(threading.get_ident())
        if values[0] < 0:
            raise ValueError("it is negative")
        return values + 1

    program = client.compile(xla.HloModule.from_text(CHECKED), custom_calls={"check": check}, backend="cpu")
    function, context = program.native_entry
    call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 3)(function)

    def run(values, is_wrong):
        result, flag = np.zeros(4, np.float32), np.array(is_wrong)
        given = (ctypes.c_void_p * 2)(values.ctypes.data, flag.ctypes.data)
        status = call(context, given, (ctypes.c_void_p * 1)(result.ctypes.data))
        if status:
            raise_status(status)
        return result.tolist()

    assert run(floats(1, 2, 3, 4), False) == [1, 2, 3, 4] and not seen
    assert run(floats(1, 2, 3, 4), True) == [2, 3, 4, 5]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run, floats(0, 0, 0, 0), True).result() == [1, 1, 1, 1]
    with pytest.raises(xla.ExecutionError, match="it is negative") as caught:
        run(floats(-1, 0, 0, 0), True)
    assert "model.py:7" in str(caught.value)
    assert run(floats(5, 6, 7, 8), True) == [6, 7, 8, 9]
    assert len(set(seen)) == 2


def test_steps_that_know_of_each_other_need_a_run(client):
    text = """
HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  after = token[] after-all()
  fed = (f32[4], token[]) infeed(after)
  y = f32[4] get-tuple-element(fed), index=0
  ROOT r = f32[4] add(x, y)
}
"""
    assert client.compile(xla.HloModule.from_text(text), backend="cpu").native_entry is None
