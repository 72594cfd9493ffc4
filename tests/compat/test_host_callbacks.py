"""Functions that programs of xla_client call by sends to the host; jaxlib 0.6.0 has no processors that compile them."""

import numpy as np
import pytest

from xlakit.compat import xla_client as xc

ops, S = xc.ops, xc.Shape
TWICE = """HloModule loop

body {
  state = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[2] get-tuple-element(state), index=1
  token = token[] after-all()
  send = (f32[2], u32[], token[]) send(x, token), channel_id=5, is_host_transfer=true
  sent = token[] send-done(send), channel_id=5, is_host_transfer=true
  recv = (f32[2], u32[], token[]) recv(sent), channel_id=6, is_host_transfer=true
  received = (f32[2], token[]) recv-done(recv), channel_id=6, is_host_transfer=true
  y = f32[2] get-tuple-element(received), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT result = (s32[], f32[2]) tuple(next, y)
}

condition {
  state = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  two = s32[] constant(2)
  ROOT more = pred[] compare(i, two), direction=LT
}

ENTRY main {
  x = f32[2] parameter(0)
  zero = s32[] constant(0)
  state = (s32[], f32[2]) tuple(zero, x)
  loop = (s32[], f32[2]) while(state), condition=condition, body=body
  ROOT y = f32[2] get-tuple-element(loop), index=1
}
"""
PAIR = S("f32[2]")


DEVICES = 2


def run(client, function, devices=1):
    callback = client.make_python_callback_from_host_send_and_recv(function, [PAIR], [PAIR], [5], [6], None)
    options = xc.CompileOptions()
    options.num_replicas = devices
    executable = client.compile(TWICE, options, host_callbacks=[callback])
    shards = [client.buffer_from_pyval(np.float32([1, d]), device=client.devices()[d]) for d in range(devices)]
    results = executable.execute_sharded([shards]).disassemble_into_single_device_arrays()
    return [np.asarray(array).tolist() for array in results[0]]


@pytest.mark.parametrize("devices", [1, 2])
def test_a_function_is_called_each_time_that_the_program_sends(client, devices):
    assert run(client, lambda x: (x * 10 + 1,), devices) == [[111.0, 100.0 * d + 11] for d in range(devices)]


def test_what_a_function_raises_ends_the_program(client):
    with pytest.raises(ZeroDivisionError):
        run(client, lambda x: 1 // 0)
    with pytest.raises(xc.XlaRuntimeError, match=r"INVALID_ARGUMENT: a callback gives \['float64\[2\]'\]"):
        run(client, lambda x: np.zeros(2))
    # Nothing is left for the next run.
    assert run(client, lambda x: [x]) == [[1.0, 0.0]]


def test_callbacks_have_a_channel_for_each_array(client):
    with pytest.raises(xc.XlaRuntimeError, match="result_shapes and recv_channel_ids have 1 and 0 entries"):
        client.make_python_callback_from_host_send_and_recv(print, [PAIR], [PAIR], [5], [])
    with pytest.raises(TypeError, match="incompatible function arguments"):
        client.compile(TWICE, host_callbacks=[print])
