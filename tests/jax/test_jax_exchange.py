"""JAX on xlakit with others: arrays through DLPack, programs in files, programs as text, errors with their places."""

import os
import pickle
from unittest import mock

import numpy as np
import pytest

from xlakit.target import levels


def check_arrays_for_other_libraries():
    import jax
    import jax.numpy as jnp

    x = jnp.arange(12.0).reshape(3, 4) + 0
    view = np.from_dlpack(x)
    assert view.ctypes.data == x.unsafe_buffer_pointer()
    assert not view.flags.writeable
    # What others read does not change when the array is donated.
    y = jax.jit(lambda x: x * 2, donate_argnums=0)(x)
    assert x.is_deleted()
    assert (view[1, 0], float(y[1, 0])) == (4, 8)
    copy = np.from_dlpack(y, copy=True)
    assert copy.ctypes.data != y.unsafe_buffer_pointer()
    try:
        y.__dlpack__(dl_device=(2, 0), max_version=(1, 0))
    except (BufferError, ValueError) as error:
        assert "device" in str(error)
    else:
        raise AssertionError("it went to CUDA")
    on_cpu = jax.device_put(y, jax.devices("cpu")[0])
    for array in (y, on_cpu):
        np.testing.assert_array_equal(np.from_dlpack(array, device="cpu"), view * 2)


def check_older_readers_of_dlpack():
    import jax.numpy as jnp

    from xlakit.runtime.dlpack import imported

    class Older:
        """It knows no versions, and so nothing of memory that is read-only."""

        def __init__(self, array):
            self._array = array

        def __dlpack__(self, stream=None):
            return self._array.__dlpack__(stream=stream)

        def __dlpack_device__(self):
            return self._array.__dlpack_device__()

    for values in (np.float32([1, 2]), np.zeros((0, 3), np.int32), np.array(True)):
        x = jnp.array(values)
        np.testing.assert_array_equal(imported(Older(x)), values)
    x = jnp.ones(7, jnp.bfloat16)
    read = imported(Older(x))
    assert (read.dtype, read.ctypes.data) == (jnp.bfloat16, x.unsafe_buffer_pointer())


def check_arrays_of_other_libraries():
    import jax

    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    array = jax.dlpack.from_dlpack(source)
    assert array.devices() == {jax.devices()[0]}
    assert array.unsafe_buffer_pointer() == source.ctypes.data
    for view in (source.T, source[:, ::2], source[::-1]):
        np.testing.assert_array_equal(jax.dlpack.from_dlpack(view) + 1, view + 1)
        try:
            jax.dlpack.from_dlpack(view, copy=False)
        except ValueError as error:
            assert "copy is False" in str(error)
        else:
            raise AssertionError("it was not copied")
    copied = jax.numpy.from_dlpack(source, copy=True)
    source[:] = 0
    assert float(copied[1, 2]) == 5


def check_arrays_of_xlakit():
    import jax

    import xlakit

    with xlakit.Client() as client:
        device = client.devices()[0]
        buffer = device.put(np.float32([1, 2, 3]))
        array = jax.dlpack.from_dlpack(buffer)
        assert array.unsafe_buffer_pointer() == buffer.unsafe_buffer_pointer()
        assert device.from_dlpack(array).unsafe_buffer_pointer() == array.unsafe_buffer_pointer()
        assert (array + 1).tolist() == [2, 3, 4]


def written():
    import jax
    import jax.numpy as jnp
    from jax.experimental import serialize_executable

    def step(x, y):
        return {"product": jnp.tanh(x @ y), "next": x + 1}

    x, y = np.ones((3, 4), np.float32), np.ones((4, 3), np.float32)
    compiled = jax.jit(step, donate_argnums=0).lower(x, y).compile()
    try:
        callback = jax.jit(lambda x: jax.pure_callback(np.sin, x, x)).lower(x).compile()
        serialize_executable.serialize(callback)
    except Exception as error:
        refusal = str(error)
    return pickle.dumps(serialize_executable.serialize(compiled)), refusal


def written_for(level):
    with mock.patch.dict(os.environ, XLAKIT_CPU=level):
        return written()[0]


def read_where_it_cannot_run(data):
    import jax
    from jax.experimental import serialize_executable

    from xlakit import target

    jax.numpy.ones(3).block_until_ready()
    with mock.patch.object(target, "host", lambda: target.Processor("older", ())):
        try:
            serialize_executable.deserialize_and_load(
                *pickle.loads(data), backend="xlakit", execution_devices=jax.devices()[:1]
            )
        except Exception as error:
            return str(error)
    return ""


def read(data, damaged):
    import jax
    from jax.experimental import serialize_executable

    program, *trees = pickle.loads(data)
    if damaged:
        place = program.index(b"xlakit program") + 60
        program = program[:place] + bytes([program[place] ^ 1]) + program[place + 1 :]
    compiled = serialize_executable.deserialize_and_load(
        program, *trees, backend="xlakit", execution_devices=jax.devices()[:1]
    )
    x = jax.device_put(np.ones((3, 4), np.float32))
    result = compiled(x, np.ones((4, 3), np.float32))
    return x.is_deleted(), float(result["product"][1, 1]), float(result["next"][2, 3]), compiled.as_text()


def test_programs_in_files(on_xlakit):
    data, refusal = on_xlakit(written)
    assert "calls a Python function" in refusal
    is_deleted, product, following, text = on_xlakit(read, data, False)
    assert is_deleted
    assert (product, following) == (pytest.approx(np.tanh(4)), 2)
    assert "dot(" in text
    with pytest.raises(Exception, match="checksum is wrong"):
        on_xlakit(read, data, True)


def check_text_is_that_of_the_optimized_program():
    import jax
    import jax.numpy as jnp

    x = np.ones((8, 16), np.float32)
    text = jax.jit(lambda x: jnp.tanh(x * 2) + x.sum() * 0).lower(x).compile().as_text()
    assert " fusion(" in text
    # Random keys bring operations of the partitioner into what JAX writes.
    drawn = jax.jit(lambda key: jax.random.normal(key, (64,))).lower(jax.random.key(0)).compile()
    assert "ENTRY" in drawn.as_text()
    with jax.default_device(jax.devices("cpu")[0]):
        assert "ENTRY" in jax.jit(lambda x: x + 1).lower(1.0).compile().as_text()


def told(function, *arguments):
    """What JAX says about a program that does not compile or run."""
    import jax

    try:
        jax.block_until_ready(jax.jit(function)(*arguments))
    except Exception as error:
        return str(error)
    raise AssertionError("it ran")


def check_errors_name_operation_and_line():
    import jax
    import jax.numpy as jnp
    from jax import lax

    x = np.ones((2, 3), np.float32)

    def call(name, x):
        return jax.ffi.ffi_call(name, jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    def nowhere(x):
        return call("there_is_none", x)

    line = told.__code__.co_firstlineno  # any line of this file will do as a lower bound
    programs = (
        (lambda x: lax.scan(lambda c, _: (call("there_is_none", jnp.sin(c)), None), x, length=3)[0], "custom-call"),
        (lambda x: lax.cond(x[0, 0] > 0, nowhere, lambda y: y, x), "custom-call"),
        (jax.grad(jax.checkpoint(lambda y: (nowhere(lax.stop_gradient(y)) * y).sum())), "custom-call"),
        (lambda x: jnp.broadcast_to(x[0, 0], (1 << 20, 1 << 20)), "broadcast"),
    )
    for program, opcode in programs:
        text = told(program, x)
        assert f"{opcode} '" in text, text
        assert "operands: f32[" in text, text
        place = text.partition("test_jax_exchange.py:")[2]
        assert int(place.partition(":")[0]) > line, text


def check_errors_of_running_programs_name_the_operation():
    import jax

    def fails(_):
        raise KeyError("no such lamp")

    shape = jax.ShapeDtypeStruct((), np.float32)
    text = told(lambda x: jax.pure_callback(fails, shape, x) + 1, np.float32(1))
    assert "custom-call 'pure_callback" in text
    assert "no such lamp" in text
    assert "test_jax_exchange.py" in text
    # The function's own frames, not those of this package that call it.
    assert "custom_calls.py" not in text


def check_other_threads_go_on_while_a_program_runs():
    import threading
    import time

    import jax
    from jax import lax

    def turns(x):
        return lax.while_loop(lambda s: s[0] < 30_000_000, lambda s: (s[0] + 1, s[1] * 3 + 1), (0, x))[1]

    program = jax.jit(turns).lower(np.int32(1)).compile()
    thread = threading.Thread(target=program, args=(np.int32(1),))
    thread.start()
    count = 0
    while thread.is_alive():
        count += 1
        time.sleep(0)
    # One or two, if the program kept Python for itself.
    assert count > 20


def test_exchange(check, on_xlakit):
    on_xlakit(check)


@pytest.mark.skipif("XLAKIT_VECTOR_BYTES" in os.environ, reason="the level may have no vectors of that width")
def test_programs_in_files_keep_their_level(on_xlakit):
    level = levels()[0]
    data = on_xlakit(written_for, level)
    assert on_xlakit(read, data, False)[0]
    assert f"cannot run code for {level}" in on_xlakit(read_where_it_cannot_run, data)
