"""Eight devices: pmap, shard_map, arrays that are split by their shardings."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

from fuzz.library_programs.registry import program


def _mesh(*shape, kind=AxisType.Auto):
    names = ("x", "y", "z")[: len(shape)]
    return jax.make_mesh(shape, names, axis_types=(kind,) * len(shape))


@program("many_devices/pmap_training", jit=False)
def pmap_training(key):
    w = jax.random.normal(key, (6, 3))
    x, y = jax.random.normal(key, (8, 5, 6)), jnp.ones((8, 5, 3))

    @partial(jax.pmap, axis_name="batch", in_axes=(None, 0, 0), out_axes=(None, 0))
    def step(w, x, y):
        loss, gradient = jax.value_and_grad(lambda w: ((jnp.tanh(x @ w) - y) ** 2).mean())(w)
        return w - 0.1 * lax.pmean(gradient, "batch"), (loss, lax.axis_index("batch"))

    for _ in range(3):
        w, found = step(w, x, y)
    nested = jax.pmap(jax.vmap(lambda v: v / lax.psum(v.sum(), ("i", "j")), axis_name="j"), axis_name="i")
    return w, found, nested(jnp.abs(x[:, :, 0])), jax.pmap(jnp.sort)(x[..., 0])


@program("many_devices/collectives", jit=False)
def collectives(key):
    x = jax.random.normal(key, (8, 16, 4))
    ring = [(i, (i + 3) % 8) for i in range(8)]

    def each(x):
        i = lax.axis_index("i")
        return (
            lax.psum(x, "i"), lax.pmax(x, "i"), lax.pmin(i, "i"), lax.all_gather(x, "i", axis=1, tiled=True),
            lax.ppermute(x, "i", ring), lax.psum_scatter(x, "i", tiled=True),
            lax.all_to_all(x, "i", 0, 1, tiled=True),
            lax.psum(x, "i", axis_index_groups=[[0, 3, 5, 6], [1, 2, 4, 7]]), lax.psum((x > 0), "i"),
            lax.ppermute(x.astype(jnp.bfloat16), "i", ring[:4]), lax.pshuffle(x, "i", [7, 6, 5, 4, 3, 2, 1, 0]),
            lax.fori_loop(0, i + 2, lambda _, c: c * 0.5 + 1, x[0]), lax.cond(i % 2 == 0, jnp.sin, jnp.cos, x[:2]),
        )  # fmt: skip

    return jax.pmap(each, axis_name="i")(x)


@program("many_devices/ring_attention")
def ring_attention(key):
    q, k, v = jax.random.normal(key, (3, 32, 8))

    @partial(jax.shard_map, mesh=_mesh(8), in_specs=P("x"), out_specs=P("x"))
    def attend(q, k, v):
        def step(c, _):
            k, v, total, weight, top = c
            scores = q @ k.T
            larger = jnp.maximum(top, scores.max(-1))
            p, keep = jnp.exp(scores - larger[:, None]), jnp.exp(top - larger)
            total, weight = total * keep[:, None] + p @ v, weight * keep + p.sum(-1)
            k, v = (lax.ppermute(a, "x", [(i, (i + 1) % 8) for i in range(8)]) for a in (k, v))
            return (k, v, total, weight, larger), larger.sum()

        start = (k, v, jnp.zeros_like(q), jnp.zeros_like(q[:, 0]), jnp.full_like(q[:, 0], -1e9))
        (_, _, total, weight, _), _ = lax.scan(step, start, None, length=8)
        return total / weight[:, None]

    def loss(q, k, v):
        return (attend(q, k, v) ** 2).mean()

    return attend(q, k, v), jax.nn.softmax(q @ k.T) @ v, jax.grad(loss, (0, 1, 2))(q, k, v)


@program("many_devices/halo_exchange")
def halo_exchange(key):
    field = jax.random.normal(key, (32, 24))

    @partial(jax.shard_map, mesh=_mesh(4, 2), in_specs=P("x", "y"), out_specs=(P("x", "y"), P()))
    def diffuse(u):
        def neighbors(u, axis, name):
            n = lax.axis_size(name)
            ahead = [(i, (i + 1) % n) for i in range(n)]
            last, first = lax.slice_in_dim(u, u.shape[axis] - 1, None, axis=axis), lax.slice_in_dim(u, 0, 1, axis=axis)
            up, down = lax.ppermute(last, name, ahead), lax.ppermute(first, name, [(b, a) for a, b in ahead])
            wide = jnp.concatenate([up, u, down], axis)
            return lax.slice_in_dim(wide, 0, u.shape[axis], axis=axis), lax.slice_in_dim(wide, 2, None, axis=axis)

        def step(c):
            u, n, _ = c
            a, b = neighbors(u, 0, "x")
            left, right = neighbors(u, 1, "y")
            new = 0.2 * (a + b + left + right + u)
            return new, n + 1, lax.pmax(jnp.abs(new - u).max(), ("x", "y"))

        u, n, _ = lax.while_loop(lambda c: (c[2] > 0.05) & (c[1] < 50), step, (u, 0, jnp.float32(9)))
        return u, lax.pmax(lax.pcast(n, ("x", "y"), to="varying"), ("x", "y"))

    return diffuse(field)


@program("many_devices/partitioned_training", jit=False, tolerance=1e-4, why="gradients summed over devices")
def partitioned_training(key):
    mesh = _mesh(2, 4)
    shardings = {"a": P(None, "y"), "b": P("y", None), "c": P("y")}
    keys = jax.random.split(key, 3)
    p = {"a": jax.random.normal(keys[0], (16, 32)), "b": jax.random.normal(keys[1], (32, 8)), "c": jnp.zeros(32)}
    p = {name: jax.device_put(v, NamedSharding(mesh, shardings[name])) for name, v in p.items()}
    x = jax.device_put(jax.random.normal(keys[2], (12, 16)), NamedSharding(mesh, P("x")))

    def loss(p, x):
        h = jax.nn.gelu(x @ p["a"] + p["c"])
        h = lax.with_sharding_constraint(h, NamedSharding(mesh, P("x", "y")))
        y = h @ p["b"]
        return jnp.square(y - y.mean(0)).mean() + jnp.sort(y, axis=0)[0].sum()

    @partial(jax.jit, donate_argnums=0)
    def step(p, x):
        value, gradient = jax.value_and_grad(loss)(p, x)
        return jax.tree.map(lambda a, g: a - 0.05 * g, p, gradient), value

    values = []
    for _ in range(3):
        p, value = step(p, x)
        values.append(value)
    return p, values, [str(p[n].sharding.spec) == str(s) for n, s in shardings.items()]


@program("many_devices/split_arrays", jit=False)
def split_arrays(key):
    mesh = _mesh(4, 2)
    rows, both = NamedSharding(mesh, P("x")), NamedSharding(mesh, P("x", "y"))
    whole = jax.random.normal(key, (16, 12))
    a, b = jax.device_put(whole, rows), jax.device_put(whole, both)
    numbers = np.arange(64.0, dtype=np.float32).reshape(16, 4)
    made = jax.make_array_from_callback((16, 4), both, lambda where: numbers[where])
    again = jax.device_put(b, NamedSharding(mesh, P("y", "x")))
    parts = np.array([shard.data.shape for shard in again.addressable_shards])
    fft = jax.jit(lambda a: jnp.abs(jnp.fft.fft2(a)), out_shardings=both)
    scanned = jax.jit(lambda a: lax.scan(lambda c, r: (c * 0.5 + r, c.max()), a[0], a))
    return (
        a + b, a @ b.T, jnp.sort(b, axis=0), jnp.cumsum(a, 0), b[3:11, ::2],
        b.at[jnp.array([1, 9])].add(made[:2, :1]), made.sum(0), again * 2, parts, fft(a), scanned(b),
        jnp.concatenate([a, b])[::3], jnp.argmax(b, 1), b.reshape(8, 24).mean(1), jax.nn.softmax(b),
        jnp.take(a, jnp.array([15, 0, 7]), axis=0), jnp.roll(b, 5, 0), jnp.pad(b, ((1, 2), (0, 3))),
        jax.vmap(jnp.outer)(a, b)[2], lax.top_k(b, 3),
        lax.reduce_window(b, -jnp.inf, lax.max, (3, 3), (1, 2), "SAME"), jnp.linalg.norm(b),
        jax.random.normal(key, (16, 4), out_sharding=None) + made,
    )  # fmt: skip


@program("many_devices/explicit_axes", jit=False)
def explicit_axes(key):
    mesh = _mesh(2, 4, kind=AxisType.Explicit)
    with jax.set_mesh(mesh):
        x = jax.device_put(jax.random.normal(key, (8, 16)), NamedSharding(mesh, P("x", "y")))
        w = jax.device_put(jnp.ones((16, 12)) / 7, NamedSharding(mesh, P("y", None)))

        @jax.jit
        def f(x, w):
            h = jnp.einsum("ij,jk->ik", jax.sharding.reshard(x, P("x", None)), jax.sharding.reshard(w, P(None, "y")))
            return jnp.tanh(h), jax.sharding.reshard(h, P(None, "y")).sum(0)

        found = f(x, w)
        gradient = jax.jit(jax.grad(lambda w, x: (f(x, w)[0] ** 2).sum()))(w, x)
        return jax.device_get((found, gradient)), [str(jax.typeof(v).sharding.spec) for v in found] == ["", ""]


@program("many_devices/pipeline_and_experts")
def pipeline_and_experts(key):
    mesh = _mesh(8)
    weights = jax.random.normal(key, (8, 6, 6)) / 2
    tokens = jax.random.normal(key, (64, 6))

    @partial(jax.shard_map, mesh=mesh, in_specs=(P("x"), P("x")), out_specs=P("x"))
    def experts(w, t):
        sent = lax.all_to_all(t.reshape(8, 1, 6), "x", 0, 0)
        return lax.all_to_all(jnp.tanh(sent @ w[0]), "x", 0, 0).reshape(8, 6)

    @partial(jax.shard_map, mesh=mesh, in_specs=(P("x"), P()), out_specs=P(), check_vma=False)
    def pipeline(w, batches):
        i = lax.axis_index("x")

        def tick(state, n):
            fed = jnp.where(i == 0, batches[jnp.clip(n, 0, 3)], state)
            done = jnp.tanh(fed @ w[0])
            return lax.ppermute(done, "x", [(k, (k + 1) % 8) for k in range(8)]), jnp.where(i == 7, done, 0)

        _, out = lax.scan(tick, jnp.zeros_like(batches[0]), jnp.arange(11))
        return lax.psum(out[7:], "x")

    batches = tokens.reshape(4, 16, 6)
    gradient = jax.grad(lambda w: (experts(w, tokens) ** 2).sum())(weights)
    return experts(weights, tokens), gradient, pipeline(weights, batches)
