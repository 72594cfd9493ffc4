"""Where programs meet Python and files: callbacks, donation, exported programs, references, compiled ahead of time."""

from __future__ import annotations

import contextlib
import io
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from jax.experimental import io_callback, sparse
from jax.extend import core as jax_core

from fuzz.library_programs.registry import program


@program("outside/callbacks_in_loops", jit=False)
def callbacks_in_loops(key):
    seen = []

    def host(x):
        return np.sort(x, axis=-1)

    def note(i, x):
        seen.append((int(i), np.array(x)))
        return np.float32(x.sum())

    shape = jax.ShapeDtypeStruct((6,), jnp.float32)

    @jax.jit
    def f(x):
        def body(c, i):
            y = jax.pure_callback(host, shape, c * jnp.cos(i), vmap_method="sequential")
            s = lax.cond(
                i % 2 == 0, lambda: io_callback(note, jnp.float32(0), i, y, ordered=True), lambda: jnp.float32(0)
            )
            jax.debug.callback(lambda v: None, s)
            return y + s * 0.1, s

        return lax.scan(body, x, jnp.arange(7))

    x = jax.random.normal(key, (6,))
    result = f(x)
    jax.effects_barrier()
    batched = jax.vmap(lambda x: jax.pure_callback(host, shape, x, vmap_method="expand_dims"))(jnp.stack([x, -x]))
    return result, batched, [i for i, _ in seen], np.stack([x for _, x in seen])


@program("outside/prints", jit=False)
def prints(key):
    @jax.jit
    def f(n):
        def body(i, x):
            jax.debug.print("{i} {x}", i=i, x=x, ordered=True)
            return x * 3 + i

        return lax.fori_loop(0, 5, body, n)

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        result = f(jax.random.randint(key, (), 0, 9))
        jax.effects_barrier()
    return result, np.array([int(word) for word in said.getvalue().split()])


@program("outside/donated_in_turns", jit=False)
def donated_in_turns(key):
    @partial(jax.jit, donate_argnums=(0, 1))
    def turn(a, b, i):
        return b.at[i].add(a[i]), a * 0.5 + b[::-1], (a > b).sum()

    a, b = jax.random.normal(key, (2, 64))
    kept, counts = np.array(a), []
    for i in range(12):
        a, b, n = turn(a, b, i)
        counts.append(n)
    grow = jax.jit(lambda s: (jnp.roll(s, 1).at[0].set(s.sum()), s[:3]), donate_argnums=0)
    s = jnp.array(kept)
    for _ in range(5):
        s, head = grow(s)
    return a, b, counts, kept, s, head, [x.is_deleted() for x in (a, b)]


@program("outside/exported", jit=False)
def exported(key):
    def f(x, w):
        y = lax.fori_loop(0, 4, lambda i, c: lax.cond(jnp.abs(c).max() > i, lambda c: c / 2, jnp.sin, c), x @ w)
        return jnp.sort(y, axis=-1), jax.nn.logsumexp(y), jnp.linalg.cholesky(w @ w.T + jnp.eye(5))

    x, w = jax.random.normal(key, (3, 5)), jax.random.normal(key, (5, 5))
    fixed = export.deserialize(export.export(jax.jit(f))(x, w).serialize(vjp_order=1))
    rows = export.symbolic_shape("b, 5")
    some = export.export(jax.jit(lambda x: (x @ x.T).sum(0) + x.shape[0]))(jax.ShapeDtypeStruct(rows, jnp.float32))
    some = export.deserialize(some.serialize())
    gradient = jax.grad(lambda x: fixed.call(x, w)[1])(x)
    return fixed.call(x, w), jax.jit(fixed.call)(x, w), some.call(x), some.call(jnp.tile(x, (4, 1))), gradient


@program("outside/references", jit=False)
def references(key):
    @jax.jit
    def f(x):
        total, history = jax.new_ref(jnp.zeros(4)), jax.new_ref(jnp.zeros((5, 4)))

        def body(i, _):
            total[...] += x * i
            history[i] = jnp.sin(total[...])
            total[1] = history[i, 2]

        lax.fori_loop(0, 5, lambda i, c: body(i, c) or c, 0)
        return jax.freeze(total), jax.freeze(history)

    outer = jax.new_ref(jnp.arange(3.0))

    @jax.jit
    def add(x):
        outer[...] = outer[...] * 2 + x
        return outer[0]

    return f(jax.random.normal(key, (4,))), [add(jnp.float32(i)) for i in range(3)], outer[...]


@program("outside/ahead_of_time", jit=False)
def ahead_of_time(key):
    @partial(jax.jit, static_argnames=("n", "mode"), inline=True)
    def f(x, *, n, mode="sum"):
        return getattr(jnp, mode)(jnp.stack([x**i for i in range(n)]), axis=0)

    x = jax.random.normal(key, (7,))
    compiled = f.lower(x, n=4).compile()
    shapes = jax.eval_shape(partial(f, n=3), x)
    memory = compiled.memory_analysis()
    jaxpr = jax.make_jaxpr(partial(f, n=2))(x)
    host = jax.device_get(compiled(x))
    return (
        compiled(x),
        f(x, n=3, mode="max"),
        shapes.shape[0],
        jax.jit(jax_core.jaxpr_as_fun(jaxpr))(x),
        host,
        memory.argument_size_in_bytes,
    )


@program("outside/ragged_and_grouped")
def ragged_and_grouped(key):
    x, w = jax.random.normal(key, (20, 6)), jax.random.normal(key, (4, 6, 5))
    sizes = jnp.array([3, 0, 9, 8])
    lengths = jnp.array([5, 2])
    q, k, v = jax.random.normal(key, (3, 2, 8, 2, 4))
    return (
        lax.ragged_dot(x, w, sizes),
        jax.grad(lambda x, w: (lax.ragged_dot(x, w, sizes) ** 2).sum(), (0, 1))(x, w),
        jax.nn.dot_product_attention(q, k, v, is_causal=True),
        jax.nn.dot_product_attention(q, k, v, key_value_seq_lengths=lengths),
        jax.nn.one_hot(jnp.array([3, -1, 7]), 5),
        lax.approx_max_k(x, 3, recall_target=1.0),
        lax.conv_general_dilated_patches(
            x.reshape(1, 20, 6, 1), (3, 2), (2, 1), "VALID", dimension_numbers=("NHWC", "OIHW", "NHWC")
        ),
        lax.conv_transpose(x[None], w[:, :, :3], (2,), "SAME", dimension_numbers=("NHC", "HIO", "NHC")),
        lax.conv_general_dilated(
            x.reshape(2, 10, 6), w[:3, :3, :4], (1,), [(2, 1)], (2,), (1,), ("NHC", "HIO", "NHC"), 2
        ),
    )


@program("outside/sparse_systems", tolerance=1e-3, why="an iteration that stops at a residual")
def sparse_systems(key):
    dense = jnp.where(jax.random.uniform(key, (24, 24)) < 0.2, jax.random.normal(key, (24, 24)), 0)
    m = sparse.BCOO.fromdense(dense, nse=160)
    batched = sparse.bcoo_fromdense(jnp.stack([dense, dense.T]), nse=160, n_batch=1)
    x = jax.random.normal(key, (24, 3))
    f = sparse.sparsify(lambda m, x: jnp.sin(x).T @ (m @ x) + (m * 2).sum(0)[:3])
    spd = sparse.sparsify(lambda m, v: m @ (m.T @ v) + 5 * v)
    return (
        m @ x, m.T @ x, x.T @ m, (m @ m.T).todense(), batched @ x, f(m, x),
        sparse.bcoo_reduce_sum(m, axes=(1,)).todense(), m.sum_duplicates(nse=200).data,
        sparse.bcoo_slice(m, start_indices=(2, 3), limit_indices=(20, 9)).todense(),
        jax.scipy.sparse.linalg.cg(lambda v: spd(m, v), x[:, 0], tol=1e-6)[0],
        sparse.bcoo_transpose(m, permutation=(1, 0)).todense(), sparse.grad(lambda m: (m @ x).sum())(m).data,
        sparse.bcoo_concatenate([m, m], dimension=0).todense(), jax.jit(lambda m: m.todense())(m),
        sparse.BCSR.from_bcoo(m) @ x, sparse.bcoo_multiply_dense(m, x[:, :1]), sparse.empty((3, 4)).todense(),
        sparse.eye(4).todense(),
    )  # fmt: skip
