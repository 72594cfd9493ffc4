"""Operations of modules of JAX that are imported after JAX has begun: sparse systems, checkify's checks, buffers."""

import numpy as np
import pytest
from test_jax_programs import both


def check_sparse_systems():
    import jax
    from jax.experimental.sparse.linalg import spsolve

    starts = np.array([0, 2, 4, 5], np.int32)
    columns = np.array([0, 2, 0, 1, 2], np.int32)
    values = np.array([4, 3, -1, 3, 5], np.float32)
    right = np.array([7, 1, 10], np.float32)
    x = both(lambda values, right: spsolve(values, columns, starts, right), values, right)
    np.testing.assert_allclose(x, [0.25, 1.25 / 3, 2], rtol=1e-6)
    # In any order, and an element in two parts.
    parts = np.array([1, 4, 2, 3, -1, 5], np.float32), np.array([2, 0, 2, 1, 0, 2]), np.array([0, 3, 5, 6])
    np.testing.assert_allclose(jax.jit(spsolve)(*parts, right), x, rtol=1e-6)
    both(jax.grad(lambda right: (spsolve(values, columns, starts, right) ** 2).sum()), right)
    assert np.isnan(jax.jit(spsolve)(values * np.float32([1, 1, 1, 1, 0]), columns, starts, right)).all()


def check_checks():
    import jax
    import jax.numpy as jnp
    from jax.experimental import checkify

    def log(x):
        checkify.check(x > 0, "{} has no logarithm", x)
        return jnp.log(x)

    error, _ = jax.jit(checkify.checkify(log))(-1.0)
    assert "-1.0 has no logarithm" in error.get()
    # Checks for debugging say nothing unless asked.
    both(lambda x: (checkify.debug_check(x > 0, "no"), x + 1)[1], np.float32(-1))
    with pytest.raises(ValueError, match="not functionalized"):
        jax.jit(log)(1.0)


def check_arrays_that_may_not_be_copied():
    import jax.numpy as jnp

    x = np.arange(3, dtype=np.float32)
    assert jnp.asarray(x, copy=False).tolist() == [0, 1, 2]


def check_functions_that_write_into_buffers():
    import jax
    import jax.numpy as jnp
    from jax.experimental.buffer_callback import ExecutionStage, buffer_callback

    def scale(context, out, x, *, by):
        assert context.stage == ExecutionStage.EXECUTE
        with pytest.raises(jax.errors.JaxRuntimeError, match="GPU"):
            _ = context.stream
        assert (x.shape, x.ndim, x.dtype, x.writeable, out["once"].writeable) == ((2, 3), 2, np.float32, False, True)
        assert not np.asarray(x).flags.writeable
        np.asarray(out["once"])[...] = np.asarray(x) * by["factor"]
        np.asarray(out["twice"])[...] = np.from_dlpack(x) * 2 * np.array(by["factor"], np.float64)

    def add_one(context, out, x):
        assert np.asarray(out).ctypes.data == np.asarray(x).ctypes.data
        np.asarray(out)[...] += 1

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    like = jax.ShapeDtypeStruct.like(x)
    scaled = jax.jit(lambda x: buffer_callback(scale, {"once": like, "twice": like})(x, by={"factor": jnp.float32(3)}))(
        x
    )
    assert np.asarray(scaled["once"]).tolist() == (x * 3).tolist()
    assert np.asarray(scaled["twice"]).tolist() == (x * 6).tolist()
    # The argument is what it was, although the result begins in its place.
    both(lambda x: (buffer_callback(add_one, like, input_output_aliases={0: 0})(x), x), x)
    row = jax.ShapeDtypeStruct((3,), np.float32)
    both(jax.vmap(buffer_callback(add_one, row, input_output_aliases={0: 0}, vmap_method="sequential")), x)
    called = []
    tell = buffer_callback(lambda context, out, x: called.append(float(np.asarray(x))), (), has_side_effect=True)
    jax.jit(lambda x: (tell(x), x)[1])(3.0)
    assert called == [3.0]
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"gives nothing back[^$]*test_jax_deferred_rules.py"):
        jax.jit(buffer_callback(lambda context, out, x: 1, like))(x)


def test_on_xlakit(check, on_xlakit):
    on_xlakit(check)
