"""The state and the values of configuration that JAX's dispatch keeps. What is expected is what jaxlib 0.6.0 gives."""

import threading

import numpy as np
import pytest

from xlakit.compat import xla_client as xc

jax_jit, config = xc._xla.jax_jit, xc._xla.config


def in_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_threads_have_states_of_their_own():
    called = []
    jax_jit.set_thread_local_state_initialization_callback(lambda: called.append(jax_jit.thread_local_state()))
    try:
        jax_jit.global_state().enable_x64 = True
        assert in_thread(jax_jit.get_enable_x64)
        assert len(called) == 1
        jax_jit.thread_local_state().enable_x64 = False
        assert not jax_jit.get_enable_x64()
        assert jax_jit.swap_thread_local_state_disable_jit(True) is None
        assert jax_jit.swap_thread_local_state_disable_jit(None) is True
        with pytest.raises(TypeError, match="enable_x64"):
            jax_jit.global_state().enable_x64 = 1
    finally:
        jax_jit.set_thread_local_state_initialization_callback(lambda: None)
        jax_jit.global_state().enable_x64 = jax_jit.thread_local_state().enable_x64 = None


@pytest.mark.parametrize(
    ("value", "narrow", "wide", "weak"),
    [(1, "int32", "int64", True), (True, "bool", "bool", True), (np.float64(1), "float32", "float64", False)],
)
def test_types_of_arguments(value, narrow, wide, weak):
    for enabled, name in ((False, narrow), (True, wide)):
        found = jax_jit._ArgSignatureOfValue(value, enabled)
        assert (found.dtype, found.shape, found.weak_type) == (np.dtype(name), (), weak)


def test_what_is_no_argument():
    with pytest.raises(xc.XlaRuntimeError, match="INVALID_ARGUMENT"):
        jax_jit._ArgSignatureOfValue([1], False)
    assert jax_jit._is_float0(np.zeros(2, np.dtype([("float0", np.void, 0)])))
    assert not jax_jit._is_float0(np.zeros(2))


def test_configuration_of_threads():
    value = config.Config(5)
    assert (value.value, value.get_local()) == (5, config.unset)
    value.set_local(7)
    assert (value.value, value.swap_local(8), value.get_global(), in_thread(lambda: value.value)) == (7, 7, 5, 5)
    value.set_local(config.unset)
    value.set_global(6)
    assert value.value == 6
    with pytest.raises(TypeError):
        config.Config()


def test_methods_that_programs_replace():
    class Ours(xc.ArrayImpl):
        __slots__ = ()

    methods = {
        "__array__": lambda self: self._single_device_array_to_np_array_did_copy()[0],
        "copy_to_host_async": lambda self: self._copy_single_device_array_to_host_async(),
        "device": lambda self: self._sharding._device,
    }
    for name, method in methods.items():
        setattr(Ours, name, method)
    client = xc.make_cpu_client(num_devices=1)
    part = client.buffer_from_pyval(np.arange(3))
    made = Ours(part, xc.SingleDeviceSharding(client.devices()[0]), [part], False)
    made.copy_to_host_async()
    assert (np.asarray(made).tolist(), len(made), made.device()) == ([0, 1, 2], 3, client.devices()[0])
