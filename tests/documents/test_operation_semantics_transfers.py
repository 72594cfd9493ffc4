"""Infeed, Send, Recv and CustomCall of the document "Operation semantics": what leaves and enters a program."""

import ctypes

import evaluating
import numpy as np
import pytest
from helpers import build, evaluate, f32, floats, infer, ints, s32, same

import xlakit as xla


def compiled(function, *shapes, **options):
    return evaluating.compiled(build(function, *shapes), **options)


# -- Infeed ---------------------------------------------------------------------------------------


def test_infeed_reads_the_next_value():
    executable = compiled(lambda b: (xla.infeed(b, f32(2)), xla.infeed(b, s32())))
    executable.execution_context.infeed(0, floats([1, 2]))
    executable.execution_context.infeed(0, ints(3))
    same(executable(), (floats([1, 2]), ints(3)))


def test_infeeds_of_two_loops_are_in_the_order_of_the_loops():
    def program(init_value):
        result1 = xla.while_(lambda s: s > 0, lambda s: xla.infeed(s.builder, s32()), init_value)
        result2 = xla.while_(lambda s: s >= 0, lambda s: xla.infeed(s.builder, s32()), result1)
        return result1, result2

    executable = compiled(program, s32())
    for value in [4, 2, 0, 7, 5, -1, 99]:
        executable.execution_context.infeed(0, ints(value))
    same(executable(ints(1)), (ints(0), ints(-1)))
    # The 99 is still there for the next run.
    executable.execution_context.infeed(0, ints(-3))
    same(executable(ints(0)), (ints(0), ints(-3)))


def test_infeed_of_a_tuple():
    executable = compiled(lambda b: xla.infeed(b, xla.make_tuple_shape([f32(2), s32(1)])))
    executable.execution_context.infeed(0, (floats([1, 2]), [3]))
    same(executable(), (floats([1, 2]), ints([3])))


def test_infeed_of_an_empty_tuple_reads_nothing():
    executable = compiled(lambda b: (xla.infeed(b, xla.make_tuple_shape([])), xla.infeed(b, s32())))
    executable.execution_context.infeed(0, ints(3))
    same(executable(), ((), ints(3)))


# -- Send and Recv --------------------------------------------------------------------------------


def test_send_and_recv_between_two_computations():
    execution_context = xla.ExecutionContext()

    def sender(x):
        xla.send(x * 2, 1)
        return x

    first = compiled(sender, f32(2), execution_context=execution_context)
    second = compiled(lambda y: xla.recv(y.builder, f32(2), 1) + y, f32(2), execution_context=execution_context)
    results = xla.run_together((first, [floats([1, 2])]), (second, [floats([10, 20])]))
    same(tuple(results), (floats([1, 2]), floats([12, 24])))


def test_two_computations_that_answer_each_other():
    execution_context = xla.ExecutionContext()

    def asks(x):
        xla.send(x, 1)
        return xla.recv(x.builder, s32(), 2)

    def answers(builder):
        question = xla.recv(builder, s32(), 1)
        xla.send(question * 10, 2)
        return question

    first, second = (
        compiled(asks, s32(), execution_context=execution_context),
        compiled(answers, execution_context=execution_context),
    )
    same(tuple(xla.run_together((first, [ints(4)]), (second, []))), (ints(40), ints(4)))


def test_channels_in_a_circle_deadlock():
    execution_context = xla.ExecutionContext(timeout=0.2)

    def program(mine, other):
        def body(builder):
            received = xla.recv(builder, s32(), other)
            xla.send(received, mine)
            return received

        return body

    first, second = (
        compiled(program(1, 2), execution_context=execution_context),
        compiled(program(2, 1), execution_context=execution_context),
    )
    with pytest.raises(xla.DeadlockError):
        xla.run_together((first, []), (second, []))


def test_send_gives_no_data_and_recv_the_declared_shape():
    assert infer(lambda x: xla.send(x, 1), f32(2)).is_token
    assert infer(lambda b: xla.recv(b, f32(3), 1)).compatible(f32(3).without_layout())


def test_send_and_recv_are_two_instructions_each():
    text = build(lambda x: (xla.recv(x.builder, f32(2), 2), xla.send(x, 1)), f32(2)).to_text()
    for opcode in ("send(", "send-done(", "recv(", "recv-done("):
        assert f" {opcode}" in text
    # The contexts: the data or its buffer, a request of U32, and a token.
    assert text.count("(f32[2]{0}, u32[], token[])") >= 2


# -- CustomCall -----------------------------------------------------------------------------------

X, Y = floats([1, 2]), floats([[10, 20, 30], [40, 50, 60]])


def call_myfunc(target):
    return lambda x, y: xla.custom_call(x.builder, target, [x, y], f32(3, 3))


def expected_z():
    z = np.zeros((3, 3), np.float32)
    z[0, 0] = X[1] + Y[1, 0]
    return z


def test_custom_call_of_a_python_function():
    def myfunc(x, y):
        same((x, y), (X, Y))
        z = np.zeros((3, 3), np.float32)
        z[0, 0] = x[1] + y[1, 0]
        return z

    xla.register_custom_call("documents.myfunc", myfunc)
    same(evaluate(call_myfunc("documents.myfunc"), X, Y), expected_z())


def test_custom_call_of_a_c_function():
    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
    def myfunc(out, inputs):
        x = (ctypes.c_float * 2).from_address(inputs[0])
        y = ((ctypes.c_float * 3) * 2).from_address(inputs[1])
        z = ((ctypes.c_float * 3) * 3).from_address(out)
        seen.extend([list(x), *(list(row) for row in y)])
        z[0][0] = x[1] + y[1][0]

    seen = []
    xla.register_c_custom_call("documents.c_myfunc", myfunc)
    same(evaluate(call_myfunc("documents.c_myfunc"), X, Y), expected_z())
    assert seen == [[1, 2], [10, 20, 30], [40, 50, 60]]


def test_the_signature_is_the_same_for_any_number_of_arguments():
    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
    def seven(out, inputs):
        ctypes.c_int32.from_address(out).value = 7

    xla.register_c_custom_call("documents.seven", seven)
    same(evaluate(lambda b: xla.custom_call(b, "documents.seven", [], s32())), ints(7))
