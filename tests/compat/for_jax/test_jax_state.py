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


def parsed(positional, named=(), names=(), numbers=(), static_names=()):
    pytest.importorskip("jaxlib")
    registry = xc._xla.PyTreeRegistry()
    return jax_jit.parse_arguments(positional, named, names, numbers, static_names, registry)


@pytest.mark.parametrize(
    ("arguments", "leaves", "static", "static_names", "names", "trees"),
    [
        (([1, (2, 3)],), [1, 2, 3], [], [], [], ["*", "(*, *)"]),
        (([1, 2, 3], [4, 5], ("b", "a"), [-1, -5, 7], ["b", "z"]), [1, 2, 5], [3, 4], ["b"], ["a"], ["*"] * 3),
        (([1, 2, 3], [4, 5], ("b", "a"), [2, 0]), [2, 5, 4], [1, 3], [], ["a", "b"], ["*"] * 3),
        (([1, 2], [3, 4, 5], ("c", "a", "b"), [], ["c", "a"]), [1, 2, 5], [4, 3], ["a", "c"], ["b"], ["*"] * 3),
        (([[], None], [], ("unused",), [0]), [], [[]], [], [], ["None"]),
        ((("a", "b"), ({"q": 1},), ("k",), (0,)), ["b", 1], ["a"], [], ["k"], ["*", "{'q': *}"]),
    ],
)
def test_arguments_are_parsed(arguments, leaves, static, static_names, names, trees):
    signature, found = parsed(*arguments)
    assert (found, signature.static_args, signature.static_arg_names) == (leaves, static, static_names)
    assert signature.dynamic_arg_names == names
    assert [str(tree) for tree in signature.dynamic_arg_treedefs] == [f"PyTreeDef({tree})" for tree in trees]


def test_signatures_of_calls_are_keys():
    class Apart:
        __hash__ = None

        def __eq__(self, other):
            raise RuntimeError("not to be compared")

    signature, _ = parsed(["x", 1.5], [5], ("w",), [0], ["w"])
    assert signature == parsed(["x", 2.5], [5], ("w",), [0], ["w"])[0]
    assert hash(signature) == hash(parsed(["x", 2.5], [5], ("w",), [0], ["w"])[0])
    assert repr(signature) == (
        "static args (positional + keyword): [x,5], static arg keyword names: [w], "
        "dynamic arg signatures (positional + keyword): []dynamic arg shardings: [PyTreeDef(*)]"
    )
    # Equal numbers of two types are compiled apart.
    assert parsed([1], numbers=[0])[0] != parsed([True], numbers=[0])[0]
    assert parsed([1], [2], ("a",))[0] != parsed([1], [2], ("b",))[0]
    apart = parsed([Apart()], numbers=[0])[0]
    for wrong in (lambda: hash(apart), lambda: apart == parsed([Apart()], numbers=[0])[0]):
        with pytest.raises(ValueError, match="static arguments"):
            wrong()
    for wrong in (
        lambda: signature == 3,
        jax_jit.ArgumentSignature,
        lambda: parsed(3),
        lambda: parsed([1], [2], ["a"]),
    ):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(xc.XlaRuntimeError, match="INVALID_ARGUMENT: 1 keyword arguments have 0 names"):
        parsed([1], [2])


def test_levels_of_guards_have_types():
    state = xc._xla.guard_lib.thread_local_state()
    assert state.device_to_host is None
    try:
        # Members of enumerations have numbers, as in all of jaxlib's bindings.
        state.device_to_host = 3
        assert state.device_to_host is xc._xla.guard_lib.TransferGuardLevel(3)
        for name, value in (("explicit_device_get", 3), ("device_to_host", "allow")):
            with pytest.raises(TypeError):
                setattr(state, name, value)
    finally:
        state.device_to_host = None
    with pytest.raises(TypeError, match="no constructor"):
        xc._xla.guard_lib.GuardState()


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
