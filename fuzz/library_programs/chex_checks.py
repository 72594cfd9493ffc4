"""Data classes, assertions and checks: chex, and JAX's checkify and callbacks."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify

from fuzz.library_programs.registry import program


@chex.dataclass
class State:
    """What a loop carries."""

    position: chex.Array
    velocity: chex.Array
    steps: chex.Array


@program("chex/dataclass_in_scan")
def dataclass_in_scan(key):
    def step(state, force):
        chex.assert_shape(force, (3,))
        velocity = state.velocity * 0.9 + force
        new = state.replace(position=state.position + velocity, velocity=velocity, steps=state.steps + 1)
        return new, new.position

    state = State(position=jnp.zeros(3), velocity=jnp.ones(3), steps=jnp.int32(0))
    return jax.lax.scan(step, state, jax.random.normal(key, (20, 3)))


@program("chex/chexify", jit=False)
def chexify(key):
    @chex.chexify
    @jax.jit
    def root(x):
        chex.assert_tree_all_finite(x)
        return jnp.sqrt(x)

    good = root(jnp.arange(4.0))
    try:
        root(jnp.array([1.0, jnp.nan]))
        root.wait_checks()
    except AssertionError:
        return good, jnp.int32(1)
    return good, jnp.int32(0)


@program("chex/variants", jit=False)
def variants(key):
    chex.clear_trace_counter()
    x = jax.random.normal(key, (4,))
    tree = {"a": x, "b": (x, x * 2)}
    chex.assert_trees_all_close(
        jax.jit(lambda t: jax.tree.map(jnp.sin, t))(tree), jax.tree.map(jnp.sin, tree), rtol=1e-5
    )
    traced = jax.jit(chex.assert_max_traces(lambda t: t["a"].sum(), n=1))
    return [traced(jax.tree.map(lambda v, i=i: v + i, tree)) for i in range(3)]


@program("jax/checkify_in_loops", jit=False)
def checkify_in_loops(key):
    def program(x, n):
        def body(i, x):
            checkify.check(x.sum() < 1000, "too large at {i}: {s}", i=i, s=x.sum())
            return x.at[i % 4].multiply(3.0) / (n - i)

        return jax.lax.fori_loop(0, 8, body, x)

    errors = checkify.user_checks | checkify.float_checks | checkify.index_checks
    checked = jax.jit(checkify.checkify(program, errors=errors))
    results = []
    for x, n in ((jnp.ones(4), 20.0), (jnp.ones(4), 3.0), (jnp.full(4, 300.0), 0.5)):
        error, y = checked(x, n)
        results.append((jnp.int32(error.get() is not None), jnp.where(jnp.isfinite(y), y, 0)))
    return results


@program("jax/callbacks", jit=False)
def callbacks(key):
    seen = []

    @jax.jit
    def run(x):
        def body(i, x):
            jax.debug.callback(lambda i, s: seen.append((int(i), float(s))), i, x.sum(), ordered=True)
            y = jax.pure_callback(lambda v: np.sort(v).astype(np.float32), jax.ShapeDtypeStruct((5,), jnp.float32), x)
            return y[::-1] * 1.1

        return jax.lax.fori_loop(0, 4, body, x)

    result = jax.block_until_ready(run(jax.random.normal(key, (5,))))
    jax.effects_barrier()
    return result, np.array(sorted(seen)[:4], np.float32)


@program("jax/io_callback_state", jit=False)
def io_callback_state(key):
    from jax.experimental import io_callback

    total = np.zeros((), np.float32)

    def add(v):
        total[...] += v
        return total.copy()

    @jax.jit
    def run(xs):
        def step(c, x):
            now = io_callback(add, jax.ShapeDtypeStruct((), jnp.float32), x, ordered=True)
            return c + now, now

        return jax.lax.scan(step, jnp.float32(0), xs)

    return run(jnp.arange(6.0))
