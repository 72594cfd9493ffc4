"""Infeed, outfeed, channels, transfers with the host, domains."""

import threading

import evaluating
import numpy as np
import pytest
from evaluating import build, evaluate, f32, floats, ints, program, refused, s32, same

import xlakit as xla
from xlakit.ops.communication.transfer import Infeed, Outfeed, Recv, RecvDone, Send, SendDone


def test_an_infeed_in_a_loop_reads_each_time():
    def loop(builder):
        def body(state):
            return xla.infeed(state.builder, s32()) + state

        return xla.while_(lambda v: v < 10, body, xla.constant(builder, 0))

    executable = program(loop)
    for value in (3, 4, 5, 6):
        executable.execution_context.infeed(0, value)
    same(executable(), ints(12))


def test_feeds_refuse_nested_tuples_and_wrong_values():
    nested = xla.make_tuple_shape([xla.make_tuple_shape([f32()])])
    with pytest.raises(xla.ShapeError, match="do not nest"):
        program(lambda b: xla.infeed(b, nested))
    refused("do not nest", lambda x: xla.outfeed(xla.tuple_(xla.tuple_(x))), f32())
    executable = program(lambda b: xla.infeed(b, f32(2)))
    executable.execution_context.infeed(0, floats([1, 2, 3]))
    with pytest.raises(xla.ArgumentError, match=r"infeed takes f32\[2\], got f32\[3\]"):
        executable()


NEGATIVE = {
    "send": lambda x: xla.send(x, -1),
    "send_to_host": lambda x: xla.send_to_host(x, xla.create_token(x.builder), -1),
    "recv": lambda x: xla.recv(x.builder, f32(), -1),
    "recv_from_host": lambda x: xla.recv_from_host(xla.create_token(x.builder), f32(), -1),
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_channels_are_not_negative(name):
    # A serialized module would have none, and the two ends of the channel would not meet.
    refused("channel_id must be at least 0, is -1", NEGATIVE[name], f32())


@pytest.mark.parametrize("end", ["send-done", "recv-done"])
def test_the_ends_of_transfers_have_no_negative_channels_either(end):
    text = build(lambda x: (xla.send(x, 3), xla.recv(x.builder, f32(), 3)), f32()).to_module().to_text()
    lines = [line.replace("channel_id=3", "channel_id=-3") if f" {end}(" in line else line for line in text.split("\n")]
    with pytest.raises(xla.ShapeError, match=f"{end} .*: channel_id must be at least 0, is -3"):
        xla.HloModule.from_text("\n".join(lines)).verify()


def test_tokens_are_not_received():
    token = xla.Shape(xla.PrimitiveType.TOKEN)
    refused("a token cannot be received", lambda x: xla.recv(x.builder, token, 1), f32())


def test_an_infeed_comes_from_another_thread_while_the_program_waits():
    executable = program(lambda b: xla.infeed(b, s32()))
    feeder = threading.Timer(0.05, executable.execution_context.infeed, (0, 5))
    feeder.start()
    same(executable(), ints(5))
    feeder.join()


def test_the_host_may_change_its_array_after_the_infeed():
    executable = program(lambda b: xla.infeed(b, f32(2)))
    array = floats([1, 2])
    executable.execution_context.infeed(0, array)
    array[:] = 9
    same(executable(), floats([1, 2]))


def test_each_device_has_its_own_feeds():
    executable = program(lambda b: (x := xla.infeed(b, s32()), xla.outfeed(x + 1))[0], num_replicas=2)
    executable.execution_context.infeed(0, 10)
    executable.execution_context.infeed(1, 20)
    assert [int(v) for v in executable()] == [10, 20]
    assert int(executable.execution_context.outfeed(1)) == 21
    assert int(executable.execution_context.outfeed(0)) == 11


def test_outfeed_gives_arrays_and_tuples_in_order():
    def feed(x):
        token = xla.outfeed(x)
        xla.outfeed_with_token(xla.tuple_(x, x), token)
        return x

    executable = evaluating.compiled(build(feed, s32(2)))
    executable(ints([1, 2]))
    same(executable.execution_context.outfeed(0), ints([1, 2]))
    first, second = executable.execution_context.outfeed(0)
    same(first, ints([1, 2]))
    same(second, ints([1, 2]))


def test_outfeed_shape_must_be_that_of_the_value():
    refused("outfeed_shape", lambda x: xla.outfeed(x, f32(3)), f32(2))
    refused("must be a token", lambda x: x.builder.append(Outfeed(), [x, x]), f32())
    refused("must be a token", lambda x: x.builder.append(Infeed(), [x], f32()), f32())


def test_infeed_with_token_gives_value_and_token():
    executable = program(lambda b: xla.infeed_with_token(xla.create_token(b), s32()))
    executable.execution_context.infeed(0, 3)
    value, token = executable()
    same(value, ints(3))
    assert token is None


# -- channels --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_other_thread")
def test_a_send_is_over_when_its_recv_has_begun():
    execution_context = xla.ExecutionContext(timeout=2)
    sender = program(lambda b, x: (xla.send(x, 3), x)[1], s32(), execution_context=execution_context)
    receiver = program(lambda b: xla.recv(b, s32(), 3), execution_context=execution_context)
    with pytest.raises(xla.DeadlockError, match=r"waits in send-done 'send-done.1' .* for a recv on channel 3"):
        sender(1)
    # Nothing is left of the program that failed.
    _, result = xla.run_together((sender, [2]), (receiver, []))
    same(result, ints(2))


def test_values_of_one_channel_come_in_their_order():
    execution_context = xla.ExecutionContext()
    sender = program(
        lambda b, x: (xla.send(x, 3), xla.send(x + 1, 3), x)[2], s32(), execution_context=execution_context
    )
    receiver = program(
        lambda b: xla.tuple_(xla.recv(b, s32(), 3), xla.recv(b, s32(), 3)), execution_context=execution_context
    )
    same(xla.run_together((receiver, []), (sender, [5]))[0], (ints(5), ints(6)))


def test_replicas_send_to_each_other_by_branches():
    def either(x):
        return xla.conditional(
            xla.eq(xla.replica_id(x.builder), 0),
            x,
            lambda v: (xla.send(v, 1), v)[1],
            x,
            lambda v: xla.recv(v.builder, v.shape, 1),
        )

    executable = evaluating.compiled(build(either, s32()), num_replicas=2)
    assert [int(r) for r in executable.execute_replicated([[5], [6]])] == [5, 5]


def test_without_pairs_each_device_receives_from_the_device_of_its_number():
    execution_context = xla.ExecutionContext()

    def numbered(b, x):
        return xla.send(x + xla.convert_element_type(xla.replica_id(b), xla.S32), 1)

    sender = program(numbered, s32(), num_replicas=3, execution_context=execution_context)
    receiver = program(lambda b: xla.recv(b, s32(), 1), num_replicas=3, execution_context=execution_context)
    _, received = xla.run_together((sender, [1]), (receiver, []))
    assert [int(r) for r in received] == [1, 2, 3]


def test_source_target_pairs_say_who_sends_to_whom():
    pairs = {"_xla_send_recv_source_target_pairs": "{{0,1},{1,2}}"}

    def shift(builder, x):
        token = xla.create_token(builder)
        with builder.frontend_attributes(pairs):
            xla.send_with_token(x, token, 4)
            return xla.recv_with_token(token, x.shape, 4)

    executable = program(shift, s32(), num_replicas=3)
    assert [int(value) for value, _ in executable.execute_replicated([[7], [8], [9]])] == [0, 7, 8]


def test_recv_may_begin_before_the_send_of_the_same_device():
    def all_gather(builder, x):
        token = xla.create_token(builder)
        room = xla.make_tuple_shape([x.shape, xla.make_shape(xla.U32), xla.create_token(builder).shape])
        context = builder.append(Recv(channel_id=2), [token], room)
        builder.append(SendDone(channel_id=2), [builder.append(Send(channel_id=2), [x, token])])
        return xla.get_tuple_element(builder.append(RecvDone(channel_id=2), [context]), 0)

    same(program(all_gather, f32(2))(floats([1, 2])), floats([1, 2]))


def test_a_value_of_another_shape_is_an_error():
    execution_context = xla.ExecutionContext()
    sender = program(lambda b, x: (xla.send(x, 3), x)[1], f32(3), execution_context=execution_context)
    receiver = program(lambda b: xla.recv(b, f32(2), 3), execution_context=execution_context)
    with pytest.raises(xla.ArgumentError, match=r"channel 3 takes f32\[2\], got f32\[3\]"):
        xla.run_together((sender, [floats([1, 2, 3])]), (receiver, []))


def test_host_transfers():
    def both(builder, x):
        token = xla.send_to_host(x * 2, xla.create_token(builder), 1)
        return xla.get_tuple_element(xla.recv_from_host(token, s32(), 2), 0)

    executable = program(both, s32())
    executable.execution_context.send_to_device(0, 2, 40)
    same(executable(4), ints(40))
    same(executable.execution_context.recv_from_device(0, 1), ints(8))


def test_the_host_answers_a_running_program():
    def both(builder, x):
        token = xla.send_to_host(x * 2, xla.create_token(builder), 1)
        return xla.get_tuple_element(xla.recv_from_host(token, s32(), 2), 0)

    executable = program(both, s32())
    execution_context = executable.execution_context
    answer = threading.Thread(
        target=lambda: execution_context.send_to_device(0, 2, execution_context.recv_from_device(0, 1) + np.int32(1))
    )
    answer.start()
    same(executable(4), ints(9))
    answer.join()


def test_done_needs_a_context():
    refused("takes the context", lambda x: x.builder.append(RecvDone(), [x]), f32())
    refused("token cannot be sent", lambda x: xla.send(xla.create_token(x.builder), 1), f32())


def test_a_domain_is_its_operand():
    same(evaluate(lambda x: xla.domain(x, None, None), floats([1])), floats([1]))
