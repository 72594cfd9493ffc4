"""JAX's programs on xlakit: what they give is what jaxlib's CPU gives in the same process, and what NumPy says."""

import numpy as np
import pytest


def both(function, *arguments, tolerance=2e-5):
    """Run a function on xlakit and on jaxlib's CPU; the results agree."""
    import jax

    cpu = jax.devices("cpu")[0]
    found = jax.jit(function)(*arguments)
    leaves = jax.tree.leaves(found)
    assert all(device.platform == "xlakit" for leaf in leaves for device in leaf.devices())
    with jax.default_device(cpu):
        expected = jax.jit(function)(*arguments)
    for actual, wanted in zip(leaves, jax.tree.leaves(expected), strict=True):
        assert actual.dtype == wanted.dtype
        if jax.dtypes.issubdtype(actual.dtype, jax.dtypes.prng_key):
            actual, wanted = jax.random.key_data(actual), jax.random.key_data(wanted)
        actual, wanted = np.asarray(actual), np.asarray(wanted)
        if actual.dtype.kind not in "fciub":
            actual, wanted = actual.astype(np.float32), wanted.astype(np.float32)
        np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance)
    return found


def check_the_platform():
    import jax

    assert jax.default_backend() == "xlakit"
    assert [device.id for device in jax.devices()] == [0, 1]
    assert [memory.kind for memory in jax.devices()[0].addressable_memories()] == [
        "device",
        "pinned_host",
        "unpinned_host",
    ]
    assert jax.devices()[1].process_index == 0


def check_arithmetic_gradients_and_vmap():
    import jax
    import jax.numpy as jnp

    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    both(lambda x, y: x + y, x, x)
    both(jax.grad(lambda x: (jnp.tanh(x @ x.T) * jnp.exp(-(x**2).sum())).sum()), x)
    both(jax.vmap(jax.hessian(lambda row: jnp.sin(row).prod())), x)
    both(jax.grad(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum())), x)


def check_control_flow():
    import jax
    from jax import lax

    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    both(lambda x: lax.scan(lambda c, row: (c * 0.5 + row, c), x[0], x), x)
    both(lambda x: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 2), (0, x)), x)
    for number in range(3):
        both(lambda i, x: lax.switch(i, [jax.numpy.sin, jax.numpy.cos, lambda x: -x], x), number, x)
    both(jax.grad(lambda x: lax.fori_loop(0, 3, lambda i, y: y * y[0, 1], x).sum()), x / 12)


def check_library():
    import jax
    import jax.numpy as jnp
    from jax import lax

    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    both(lambda x: (jnp.sort(x, axis=0), jnp.argsort(x), lax.top_k(x, 3)), x)
    many = np.random.default_rng(1).permutation(np.round(np.linspace(-3, 3, 300), 2)).reshape(3, 100)
    both(lambda x: (jnp.argsort(-x)[:, :5], jnp.argsort(x, descending=True)[:, :5], jnp.sort(x)[:, -3:]), many // 1)
    both(lambda x: (lax.approx_max_k(x, 4), lax.approx_min_k(x, 4)), many.astype(np.float32))
    both(lambda x: (jnp.fft.fft(x), jnp.fft.irfft(jnp.fft.rfft(x))), x)
    both(lambda x: lax.conv_general_dilated(x[None, None], x[None, None, :3, :3], (1, 2), "SAME"), x)
    both(lambda x: (jnp.cumsum(x, 1), jnp.median(x), jnp.where(x > 0, x, 0).astype(jnp.bfloat16)), x)
    both(lambda x: x[jnp.array([2, 0])].at[:, 1].add(3), x)
    both(lambda x: (jax.scipy.special.gammaln(x + 9), jax.scipy.special.erfinv(x / 9)), x)


def check_random_numbers():
    import jax

    def draw(seed):
        key = jax.random.key(seed)
        return jax.random.normal(key, (5,)), jax.random.randint(key, (5,), 0, 99), jax.random.permutation(key, 9)

    both(draw, 7)
    both(lambda seed: jax.random.bits(jax.random.key(seed, impl="rbg"), (5,)), 7)


def check_types():
    import jax.numpy as jnp

    x = np.arange(-6, 6, dtype=np.float32)
    for name in ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int4", "uint8", "int8", "complex64", "bool"):
        if name == "uint8":
            x = np.abs(x)
        both(lambda x, name=name: x.astype(getattr(jnp, name)), x)
    both(lambda x: (x.astype(jnp.int4) + 1).astype(jnp.int32), np.arange(-4, 4))
    assert np.asarray(jnp.arange(-4, 4).astype(jnp.int4)).astype(int).tolist() == list(range(-4, 4))


def check_64_bits():
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        both(lambda x: (jnp.sin(x), x.astype(np.int64) << 40, x + 1j), np.linspace(0, 9, 7), tolerance=1e-14)


def check_linear_algebra():
    import jax
    import jax.numpy as jnp

    random = np.random.default_rng(0)
    a = random.standard_normal((2, 4, 4)).astype(np.float32)
    positive = a @ a.mT + 4 * np.eye(4, dtype=np.float32)
    both(lambda p: (jnp.linalg.cholesky(p), jnp.linalg.inv(p), jnp.linalg.slogdet(p)), positive, tolerance=1e-4)
    for matrix in (a, a + 1j * a.mT):
        x = np.asarray(jnp.linalg.solve(matrix, matrix[..., :2]))
        np.testing.assert_allclose(matrix @ x, matrix[..., :2], atol=1e-3)
        q, r = map(np.asarray, jnp.linalg.qr(matrix))
        np.testing.assert_allclose(q @ r, matrix, atol=1e-4)
        u, s, vt = map(np.asarray, jnp.linalg.svd(matrix[:, :3], full_matrices=False))
        np.testing.assert_allclose((u * s[:, None]) @ vt, matrix[:, :3], atol=1e-4)
        values, vectors = map(np.asarray, jnp.linalg.eig(matrix))
        np.testing.assert_allclose(matrix @ vectors, vectors * values[:, None], atol=1e-3)
        form, turns = map(np.asarray, jax.scipy.linalg.schur(matrix[0]))
        np.testing.assert_allclose(turns @ form @ turns.conj().T, matrix[0], atol=1e-4)
        hermitian = matrix + np.conj(matrix.mT)
        values, vectors = map(np.asarray, jnp.linalg.eigh(hermitian))
        np.testing.assert_allclose(hermitian @ vectors, vectors * values[:, None], atol=1e-3)
    assert np.isnan(np.asarray(jnp.linalg.eigh(np.full((2, 2), np.nan, np.float32))[0])).all()
    both(jax.grad(lambda p: jnp.linalg.svd(p, compute_uv=False).sum()), positive, tolerance=1e-3)


def check_donation():
    import jax
    import jax.numpy as jnp

    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.ones(1000) + 0
    address = x.unsafe_buffer_pointer()
    y = step(x)
    assert x.is_deleted()
    assert y.unsafe_buffer_pointer() == address
    # NumPy reads the memory: what it sees does not change.
    seen = np.asarray(y)
    z = step(y)
    assert seen[0] == 2
    assert float(z[0]) == 3
    try:
        step(x)
    except (RuntimeError, ValueError) as error:
        assert "deleted" in str(error)
    else:
        raise AssertionError("a donated array was taken")


def check_arrays_from_and_to_the_host():
    import jax
    import jax.numpy as jnp

    source = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    for view in (source, source[:, ::2], source.T, source[::-1], source[:0], source[0, 0, 0]):
        np.testing.assert_array_equal(np.asarray(jax.device_put(view)), view)
    changed = source.copy()
    array = jnp.array(changed)
    changed[:] = 0
    assert float(array[1, 2, 3]) == 23
    other = jax.device_put(array, jax.devices()[1])
    assert (other + 1).devices() == {jax.devices()[1]}
    assert not np.asarray(other).flags.writeable


def check_ahead_of_time():
    import jax
    import jax.numpy as jnp

    lowered = jax.jit(lambda x: jnp.tanh(x @ x.T)).lower(np.ones((2, 3), np.float32))
    assert lowered.cost_analysis() == {"flops": 24, "transcendentals": 4, "bytes accessed": 144}
    compiled = lowered.compile()
    assert "dot(" in compiled.as_text()

    def inner(x):
        return jnp.tanh(x)

    def outer(x):
        with jax.named_scope("layer"):
            return jax.jit(inner)(x)

    assert '/layer/jit(inner)/tanh"' in jax.jit(outer).lower(np.float32(1)).compile().as_text()
    assert compiled.cost_analysis()["flops"] >= 2 * 2 * 2 * 3
    memory = compiled.memory_analysis()
    assert (memory.argument_size_in_bytes, memory.output_size_in_bytes) == (24, 16)
    assert memory.host_temp_size_in_bytes == 0
    np.testing.assert_allclose(compiled(np.ones((2, 3), np.float32)), np.tanh(3), rtol=1e-6)


def check_callbacks():
    import jax
    from jax.experimental import io_callback

    x = np.arange(3, dtype=np.float32)
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    result = jax.jit(lambda x: jax.pure_callback(np.sin, shape, x) * 2)(x)
    np.testing.assert_allclose(result, 2 * np.sin(x), rtol=1e-6)

    def factorized(a):
        # Programs that need Python, on xlakit, while one runs.
        return jax.device_get(jax.numpy.linalg.qr(jax.device_put(a, jax.devices()[0]))[1])

    square = np.eye(3, dtype=np.float32) * 2
    shape = jax.ShapeDtypeStruct(square.shape, square.dtype)
    inside = jax.jit(lambda a: jax.numpy.abs(jax.pure_callback(factorized, shape, a)))(square)
    np.testing.assert_allclose(inside, square, atol=1e-6)
    seen = []
    note = jax.jit(
        lambda x: [io_callback(lambda v, i=i: seen.append((i, int(v))), None, x, ordered=True) for i in (0, 1)]
    )
    note(5)
    note(6)
    jax.effects_barrier()
    assert seen == [(0, 5), (1, 5), (0, 6), (1, 6)]
    jax.jit(lambda x: jax.debug.callback(seen.append, x))(7)
    jax.effects_barrier()
    assert int(seen[-1]) == 7
    keep = jax.jit(lambda x: jax.debug.callback(seen.append, x))
    for number in range(4):
        keep(np.full(1000, number, np.float32))
    assert [float(kept.sum()) for kept in seen[-4:]] == [0, 1000, 2000, 3000]


def check_errors_of_callbacks():
    import jax

    def fails(_):
        raise ValueError("out of cheese")

    shape = jax.ShapeDtypeStruct((), np.float32)
    try:
        jax.jit(lambda x: jax.pure_callback(fails, shape, x))(1.0).block_until_ready()
    except Exception as error:
        assert "out of cheese" in str(error)
    else:
        raise AssertionError("the error of the callback did not arrive")
    # The next program runs as ever.
    assert float(jax.jit(lambda x: x + 1)(1.0)) == 2


def check_what_is_not_supported_says_where():
    import jax

    try:
        jax.jit(jax.ffi.ffi_call("unknown", jax.ShapeDtypeStruct((2,), np.float32)))(np.ones(2, np.float32))
    except Exception as error:
        text = str(error)
    assert "no custom call is registered as 'unknown'" in text
    assert "test_jax_programs.py" in text
    assert "f32[2]" in text


def check_interrupts():
    import os
    import signal
    import threading

    import jax
    from jax import lax

    endless = jax.jit(lambda x: lax.while_loop(lambda s: s[0] >= 0, lambda s: ((s[0] + 1) % 1000, s[1] * 2), (0, x)))
    x = np.ones(8, np.float32)
    endless = endless.lower(x).compile()
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        endless(x)[1].block_until_ready()
        np.arange(3).sum()
    timer.join()
    assert float(jax.jit(lambda x: x + 1)(1.0)) == 2

    def handler(number, frame):
        raise TimeoutError(f"signal {number}")

    # The exception of a handler is raised as it is, where the program was called.
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    with pytest.raises(TimeoutError, match=f"signal {int(signal.SIGALRM)}"):
        endless(x)[1].block_until_ready()
        np.arange(3).sum()
    signal.signal(signal.SIGALRM, before)
    assert float(jax.jit(lambda x: x + 1)(1.0)) == 2


def check_interrupts_of_callbacks():
    import signal
    import time

    import jax

    def handler(number, frame):
        raise TimeoutError(f"signal {number}")

    def sleeps(x):
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        for _ in range(1000):
            time.sleep(0.01)
        return x

    shape = jax.ShapeDtypeStruct((), np.float32)
    program = jax.jit(lambda x: jax.pure_callback(sleeps, shape, x)).lower(1.0).compile()
    before = signal.signal(signal.SIGALRM, handler)
    with pytest.raises(TimeoutError, match=f"signal {int(signal.SIGALRM)}"):
        program(1.0).block_until_ready()
        np.arange(3).sum()
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        program(1.0).block_until_ready()
        np.arange(3).sum()
    signal.signal(signal.SIGALRM, before)
    assert float(jax.jit(lambda x: x + 1)(1.0)) == 2


def check_pmap():
    import jax
    from jax import lax

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    result, index = jax.pmap(lambda x, w: (x * w + lax.psum(x, "i"), lax.axis_index("i")), "i", in_axes=(0, None))(x, 2)
    np.testing.assert_array_equal(result, x * 2 + x.sum(0))
    assert index.tolist() == [0, 1]
    assert {shard.device.id for shard in result.addressable_shards} == {0, 1}


def check_the_language_model_learns_as_elsewhere():
    import sys
    from pathlib import Path

    import jax

    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "jax"))
    import language_model

    language_model.BLOCKS, language_model.BATCH = 1, 4
    # As one program: compiling one for each shape would take longer than all else.
    language_model.initial_parameters = jax.jit(language_model.initial_parameters)
    _, losses = language_model.train(3)
    with jax.default_device(jax.devices("cpu")[0]):
        _, expected = language_model.train(3)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert losses[2] < losses[0]


def check_memory_is_given_back():
    import gc

    import jax

    from xlakit.cpu.runtime import runtime

    def in_use():
        return runtime().call("xlakit_memory_held") - runtime().call("xlakit_memory_cached")

    step = jax.jit(lambda x: x * 2 + 1)
    x = step(np.ones(1 << 20, np.float32))
    gc.collect()
    before = in_use()
    for _ in range(20):
        x = step(x)
        np.asarray(x)
    gc.collect()
    assert in_use() <= before + (8 << 20)


def check_programs_are_forgotten():
    import gc

    import jax

    from xlakit.jax import plugin

    state, _ = plugin._registered["xlakit"]
    for number in range(3):
        jax.jit(lambda x, number=number: x + number + 0.125)(1.0)
    jax.clear_caches()
    gc.collect()
    jax.jit(lambda x: x - 1)(1.0)
    few = len(state.programs)
    jax.clear_caches()
    gc.collect()
    jax.jit(lambda x: x - 2)(1.0)
    assert len(state.programs) <= few


def test_on_xlakit(check, on_xlakit):
    on_xlakit(check)
