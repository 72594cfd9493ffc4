"""JAX calls functions that a program registers with ``jax.ffi``, through the typed interface."""

from ffi_frames import doubled, handler

# Handlers must stay as long as programs may call them.
_kept = []


def check_a_handler_registered_for_the_platform():
    import jax
    import jax.numpy as jnp
    import pytest

    from xlakit.execution.calls.ffi.interface import new_error

    def fail_at_seven(frame, given, made, found):
        if int(found["offset"]) == 7:
            return new_error(3, "no sevens")
        made[0][...] = 2 * given[0] + found["offset"]
        return None

    platform = jax.devices()[0].platform
    handlers = {
        "twice": handler(lambda frame, given, made, found: doubled(given, made)),
        "moved": handler(fail_at_seven),
    }
    for name, function in handlers.items():
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(function), platform=platform)

    def call(name, x, **attributes):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.ffi.ffi_call(name, shape, vmap_method="broadcast_all")(x, **attributes)

    x = jnp.arange(6, dtype=jnp.int32).reshape(2, 3)
    assert jax.jit(lambda x: call("twice", x) + x)(x).tolist() == (3 * x).tolist()
    assert jax.vmap(lambda x: call("twice", x))(x).tolist() == (2 * x).tolist()
    repeated = jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda _, x: call("twice", x), x))
    assert repeated(x).tolist() == (32 * x).tolist()
    assert call("moved", x, offset=jnp.int32(1).item()).tolist() == (2 * x + 1).tolist()
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"INVALID_ARGUMENT: .*no sevens"):
        call("moved", x, offset=7)
    _kept.append(handlers)


def test_as_cpu(as_cpu):
    as_cpu(check_a_handler_registered_for_the_platform)


def test_as_a_platform_of_its_own(on_xlakit):
    on_xlakit(check_a_handler_registered_for_the_platform)
