"""Donated buffers: their memory is used again, and they can be used no more."""

import numpy as np
import pytest
from device_programs import Held, add, floats, module

import xlakit as xla

ALIAS = ", input_output_alias={ {}: (0, {}, may-alias) }"
DOUBLE = "  a = f32[1000000] parameter(0)\n  ROOT r = f32[1000000] add(a, a)"


@pytest.fixture
def client():
    with xla.Client(devices=2) as made:
        yield made


@pytest.fixture
def x(client):
    return client.buffer_from_host(floats(1, 2, 3, 4))


@pytest.fixture
def y(client):
    return client.buffer_from_host(floats(1, 1, 1, 1))


def test_a_donated_buffer_becomes_the_result(client, x, y):
    program = client.compile(add(header=ALIAS), backend="cpu")
    address = x.unsafe_buffer_pointer()
    result = program.execute([x, y])
    assert result.unsafe_buffer_pointer() == address
    assert x.is_deleted()
    assert not y.is_deleted()
    # Its owner is the result now, which can be donated in its turn.
    for _ in range(3):
        result = program.execute([result, y])
    assert result.unsafe_buffer_pointer() == address
    np.testing.assert_array_equal(result, floats(5, 6, 7, 8))


def test_the_same_for_programs_that_run_later(client):
    program = client.compile(module(DOUBLE, ALIAS), backend="cpu")
    held = client.buffer_from_host(np.ones(1_000_000, np.float32))
    address = held.unsafe_buffer_pointer()
    for _ in range(20):
        held = program.execute([held])
    assert held.unsafe_buffer_pointer() == address
    assert (np.asarray(held) == 2.0**20).all()


def test_a_buffer_that_is_still_to_come_can_be_donated(client, x, y):
    program = client.compile(add(header=ALIAS), backend="cpu")
    held = Held(client)
    pending = held.start(x)
    result = program.execute([pending, y])
    assert pending.is_deleted()
    with pytest.raises(xla.DeletedBufferError, match="donated"):
        pending.block_until_ready()
    held.end()
    np.testing.assert_array_equal(result, floats(2, 3, 4, 5))


def test_the_error_names_the_buffer_its_donor_and_the_place(client, x, y):
    step = client.compile(add("step", ALIAS))
    first = client.compile(add("first")).execute([x, y])
    step.execute([first, y])
    for use in (lambda: np.asarray(first), first.block_until_ready, lambda: step.execute([y, first])):
        with pytest.raises(xla.DeletedBufferError) as caught:
            use()
        message = str(caught.value)
        assert (
            "the buffer f32[4] on device 0 (the result of 'first') was donated to parameter 0 'a' of 'step'" in message
        )
        assert "test_buffer_donation.py:" in message
        assert "go on with the program's results" in message
    # The failed call has taken nothing.
    assert not y.is_deleted()
    assert "donated" in repr(first)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_the_call_may_say_what_is_donated(client, x, y, backend):
    program = client.compile(add(header=ALIAS), backend=backend)
    np.testing.assert_array_equal(program.execute([x, y], donate=()), floats(2, 3, 4, 5))
    assert not x.is_deleted()
    # Without an alias there is nothing to compute in it; it is gone all the same.
    plain = client.compile(add(), backend=backend)
    np.testing.assert_array_equal(plain.execute([x, y], donate=[1]), floats(2, 3, 4, 5))
    assert (x.is_deleted(), y.is_deleted()) == (False, True)
    with pytest.raises(xla.ArgumentError, match="2 is not the number of one of the 2 parameters"):
        plain.execute([x, x], donate=[2])


def test_a_buffer_that_is_donated_is_given_once(client, x, y):
    program = client.compile(add(header=ALIAS))
    with pytest.raises(xla.ArgumentError, match=r"donated to parameter 0 'a' of 'add', and given to parameter 1 'b'"):
        program.execute([x, x])
    with pytest.raises(xla.ArgumentError, match=r"donated to parameter 1 'b' of 'add', and given to parameter 0 'a'"):
        program.execute([x, x], donate=[1])
    assert not x.is_deleted()
    np.testing.assert_array_equal(program.execute([x, x], donate=()), floats(2, 4, 6, 8))


def test_what_others_see_of_a_donated_buffer_does_not_change(client, x, y):
    program = client.compile(add(header=ALIAS), backend="cpu")
    address = x.unsafe_buffer_pointer()
    view = np.asarray(x)[1:]
    alias = y.copy_to_device(y.device)
    result = program.execute([x, y])
    assert result.unsafe_buffer_pointer() != address
    np.testing.assert_array_equal(view, floats(2, 3, 4))
    # Another name of the buffer, and a tensor in its memory.
    program.execute([y, result], donate=[0])
    np.testing.assert_array_equal(alias, floats(1, 1, 1, 1))
    tensor = np.from_dlpack(result)
    program.execute([result, alias])
    np.testing.assert_array_equal(tensor, floats(2, 3, 4, 5))


def test_a_program_that_still_reads_a_donated_buffer_reads_what_was_there(client):
    values = np.arange(1_000_000, dtype=np.float32)
    buffer = client.buffer_from_host(values)
    held = Held(client, device=1)
    held.start(client.devices()[1].put(floats(0, 0, 0, 0)))
    copy = buffer.copy_to_device(client.devices()[1])
    doubled = client.compile(module(DOUBLE, ALIAS), backend="cpu").execute([buffer]).block_until_ready()
    held.end()
    np.testing.assert_array_equal(copy, values)
    np.testing.assert_array_equal(doubled, 2 * values)


def test_an_array_of_the_host_is_never_written_to(client, y):
    values = floats(1, 2, 3, 4)
    buffer = client.buffer_from_host(values, host_buffer_semantics="zero_copy")
    result = client.compile(add(header=ALIAS)).execute([buffer, y])
    assert buffer.is_deleted()
    np.testing.assert_array_equal(values, floats(1, 2, 3, 4))
    np.testing.assert_array_equal(result, floats(2, 3, 4, 5))


def test_a_donated_tuple_and_devices_that_donate_each(client):
    body = (
        "  t = (f32[4], f32[4]) parameter(0)\n  a = f32[4] get-tuple-element(t), index=0\n"
        "  b = f32[4] get-tuple-element(t), index=1\n  s = f32[4] add(a, b)\n"
        "  ROOT r = (f32[4]) tuple(s)"
    )
    header = ", input_output_alias={ {0}: (0, {1}) }"
    program = client.compile(module(body, header), num_replicas=2, backend="cpu")
    given = [d.put((floats(1, 2, 3, 4), np.full(4, d.id, np.float32))) for d in client.devices()]
    addresses = [pair[1].unsafe_buffer_pointer() for pair in given]
    results = program.execute_sharded([[pair] for pair in given])
    for number, (result,) in enumerate(results):
        np.testing.assert_array_equal(result, floats(1, 2, 3, 4) + number)
    assert [result.unsafe_buffer_pointer() for (result,) in results] == addresses
    assert all(buffer.is_deleted() for pair in given for buffer in pair)
