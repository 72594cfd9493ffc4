"""JAX programs over eight devices: numerical methods, samplers, simulations and layers, by hand and by the partitioner,
on sizes that the devices divide and on others.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax, numpy as jnp
from jax.sharding import PartitionSpec as P

from benchmarks.programs.sharded import GRID, Program, floats, split, words

_ROWS, _COLUMNS, _BOTH = P("x"), P(None, "x"), P("x", "y")
_CUBE = (2, 2, 2)
_KEY = np.array([5, 23], np.uint32)


# -- linear algebra and transforms ----------------------------------------------------------------------------


def _pencils(x: Any) -> Any:
    """A transform of a cube and back with a filter between, with all-to-alls by hand; two axes are split."""

    def part(x: Any) -> Any:
        x = jnp.fft.fft(x, axis=2)
        x = jnp.fft.fft(lax.all_to_all(x, "y", 2, 1, tiled=True), axis=1)
        x = jnp.fft.fft(lax.all_to_all(x, "x", 1, 0, tiled=True), axis=0)
        x = x / (1 + jnp.arange(x.shape[0])[:, None, None])
        x = lax.all_to_all(jnp.fft.ifft(x, axis=0), "x", 0, 1, tiled=True)
        x = lax.all_to_all(jnp.fft.ifft(x, axis=1), "y", 1, 2, tiled=True)
        return jnp.fft.ifft(x, axis=2).real

    return jax.shard_map(part, in_specs=_BOTH, out_specs=_BOTH)(x)


def _cannon(a: Any, b: Any) -> Any:
    """A product whose operands are sent round the rows and columns of the mesh."""

    def part(a: Any, b: Any) -> Any:
        def add(total: Any, k: Any) -> Any:
            own = jnp.where(lax.axis_index("y") == k % lax.axis_size("y"), a, 0)
            rows = lax.psum(own, "y")
            column = lax.all_gather(b, "x", tiled=True)
            size = rows.shape[1]
            return total + rows @ lax.dynamic_slice_in_dim(column, k * size, size), None

        start = lax.pcast(jnp.zeros((a.shape[0], b.shape[1])), ("x", "y"), to="varying")
        return lax.scan(add, start, jnp.arange(lax.axis_size("y")))[0]

    return jax.shard_map(part, in_specs=(_BOTH, _BOTH), out_specs=_BOTH)(a, b)


def _tall_factors(x: Any) -> Any:
    """The triangular factor of a tall matrix from those of its parts, and the least squares that it solves."""

    def part(x: Any) -> Any:
        own = jnp.linalg.qr(x, mode="r")
        r = jnp.linalg.qr(lax.all_gather(own, "x", tiled=True), mode="r")
        return r * jnp.sign(jnp.diagonal(r))[:, None]

    return jax.shard_map(part, in_specs=_ROWS, out_specs=P(), check_vma=False)(x)


def _lanczos(matrix: Any, start: Any) -> Any:
    """Twelve steps, each orthogonal to all before."""

    def step(basis: Any, k: Any) -> Any:
        v = matrix @ basis[k]
        v = v - basis.T @ (basis @ v)
        v = v - basis.T @ (basis @ v)
        size = jnp.linalg.norm(v)
        return basis.at[k + 1].set(v / size), size

    basis = jnp.zeros((13, start.shape[0])).at[0].set(start / jnp.linalg.norm(start))
    basis, sizes = lax.scan(step, basis, jnp.arange(12))
    return sizes, jnp.einsum("kn,nm,km->k", basis, matrix, basis)


def _newton(x: Any, y: Any, weights: Any) -> Any:
    """A step of Newton's method on a logistic loss, by conjugate gradients with products of the Hessian."""

    def loss(w: Any) -> Any:
        return jnp.logaddexp(0, -y * (x @ w)).mean() + 0.01 * (w**2).sum()

    gradient = jax.grad(loss)(weights)
    step, _ = jax.scipy.sparse.linalg.cg(
        lambda v: jax.jvp(jax.grad(loss), (weights,), (v,))[1], gradient, maxiter=5, tol=0.0
    )
    return weights - step


# -- simulations ------------------------------------------------------------------------------------------


def _uneven_waves(height: Any, speed: Any) -> Any:
    """Waves between walls on a grid that the devices do not divide."""
    height, speed = split(height, "x", "y"), split(speed, "x", "y")

    def step(_: Any, state: Any) -> Any:
        now, before = state
        wide = jnp.pad(now, 1, mode="edge")
        bend = wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[1:-1, :-2] - 4 * now
        return 2 * now - before + 0.1 * speed**2 * bend, now

    return lax.fori_loop(0, 6, step, (height, height))[0]


def _halos_by_hand(x: Any) -> Any:
    """Stencils of two rows and columns, exchanged in both directions and around, four times."""

    def around(x: Any, axis: str, dim: int) -> Any:
        count = lax.axis_size(axis)
        first, last = lax.slice_in_dim(x, 0, 2, axis=dim), lax.slice_in_dim(x, x.shape[dim] - 2, None, axis=dim)
        before = lax.ppermute(last, axis, [(i, (i + 1) % count) for i in range(count)])
        behind = lax.ppermute(first, axis, [(i, (i - 1) % count) for i in range(count)])
        return jnp.concatenate([before, x, behind], dim)

    def part(x: Any) -> Any:
        def step(x: Any, _: Any) -> Any:
            wide = around(around(x, "x", 0), "y", 1)
            size = [n - 4 for n in wide.shape]
            places = [(i, j) for i in range(5) for j in range(5)]
            total = sum(wide[i : i + size[0], j : j + size[1]] / (1 + (i - 2) ** 2 + (j - 2) ** 2) for i, j in places)
            return jnp.tanh(total / 4), None

        return lax.scan(step, x, length=4)[0]

    return jax.shard_map(part, in_specs=_BOTH, out_specs=_BOTH)(x)


def _particles(places: Any, speeds: Any) -> Any:
    """Charges spread on a grid, a potential by transforms, and forces read where the particles are; two steps."""
    waves = jnp.fft.fftfreq(64) * 2 * jnp.pi
    scale = jnp.where(waves == 0, 0, 1 / jnp.where(waves == 0, 1, waves**2))

    def step(state: Any, _: Any) -> Any:
        places, speeds = state
        low = jnp.floor(places).astype(jnp.int32)
        share = places - low
        grid = jnp.zeros(64).at[low % 64].add(1 - share).at[(low + 1) % 64].add(share)
        field = jnp.fft.ifft(-1j * waves * scale * jnp.fft.fft(grid - grid.mean())).real
        force = field[low % 64] * (1 - share) + field[(low + 1) % 64] * share
        speeds = speeds + 0.01 * force
        return ((places + speeds) % 64, speeds), (speeds**2).sum()

    return lax.scan(step, (places, speeds), length=2)


def _triangle_update(pairs: Any, left: Any, right: Any, gate: Any) -> Any:
    """Products over the third corner of triangles, of pairs that are split by rows."""
    h = (pairs - pairs.mean(-1, keepdims=True)) * lax.rsqrt(pairs.var(-1, keepdims=True) + 1e-5)
    a, b = jax.nn.sigmoid(h @ gate) * (h @ left), jax.nn.sigmoid(h @ gate) * (h @ right)
    out = jnp.einsum("ikc,jkc->ijc", a, b) + jnp.einsum("kic,kjc->ijc", a, b)
    return pairs + out


# -- samplers and learning ----------------------------------------------------------------------------------


def _chains(start: Any, data: Any) -> Any:
    """Hamiltonian Monte Carlo: many chains, of which each accepts by itself."""
    keys = jax.random.split(jax.random.wrap_key_data(jnp.asarray(_KEY)), start.shape[0])

    def energy(q: Any) -> Any:
        return 0.5 * (q**2).sum() + jnp.logaddexp(0, -data @ q).sum()

    def chain(q: Any, key: Any) -> Any:
        def step(q: Any, key: Any) -> Any:
            first, second = jax.random.split(key)
            p = jax.random.normal(first, q.shape)

            def leap(_: Any, state: Any) -> Any:
                q, p = state
                p = p - 0.01 * jax.grad(energy)(q)
                q = q + 0.02 * p
                return q, p - 0.01 * jax.grad(energy)(q)

            new, moved = lax.fori_loop(0, 4, leap, (q, p))
            gain = energy(q) + 0.5 * (p**2).sum() - energy(new) - 0.5 * (moved**2).sum()
            return jnp.where(jnp.log(jax.random.uniform(second)) < gain, new, q), None

        return lax.scan(step, q, jax.random.split(key, 5))[0]

    return jax.vmap(chain)(start, keys)


def _keys_of_devices(x: Any) -> Any:
    """Noise from keys that the rows of each device give, and a shuffle of each device's own rows."""

    def row(x: Any, number: Any) -> Any:
        key = jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(_KEY)), number)
        kept = jax.random.bernoulli(key, 0.8, x.shape)
        return jnp.where(kept, x / 0.8, 0)[jax.random.permutation(key, x.shape[0])]

    def part(x: Any) -> Any:
        first = lax.axis_index("x") * x.shape[0]
        return jax.vmap(row)(x, first + jnp.arange(x.shape[0]))

    return jax.shard_map(part, in_specs=_ROWS, out_specs=_ROWS)(x)


def _advantages(rewards: Any, values: Any, ends: Any, logits: Any, actions: Any) -> Any:
    """Generalized advantages backwards in time, and a clipped loss with its gradient."""

    def back(carry: Any, given: Any) -> Any:
        reward, value, following, end = given
        delta = reward + 0.99 * following * (1 - end) - value
        carry = delta + 0.95 * 0.99 * (1 - end) * carry
        return carry, carry

    _, found = lax.scan(back, jnp.zeros(rewards.shape[1]), (rewards, values[:-1], values[1:], ends), reverse=True)
    found = (found - found.mean()) / (found.std() + 1e-6)

    def loss(logits: Any) -> Any:
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), actions[..., None], -1)[..., 0]
        ratio = jnp.exp(chosen - lax.stop_gradient(chosen) + 0.1 * found)
        return -jnp.minimum(ratio * found, jnp.clip(ratio, 0.8, 1.2) * found).mean()

    return jax.value_and_grad(loss)(logits)


def _evolved(weights: Any, x: Any, y: Any) -> Any:
    """Many models side by side, each with its own noise; the change is the mean of noise by how good it was."""
    noise = split(jax.random.normal(jax.random.wrap_key_data(jnp.asarray(_KEY)), (32, *weights.shape)), "x")

    def score(own: Any) -> Any:
        return -((jnp.tanh(x @ own) - y) ** 2).mean()

    scores = jax.vmap(lambda n: score(weights + 0.1 * n))(noise)
    ranks = jnp.argsort(jnp.argsort(scores)) / 31 - 0.5
    return weights + 0.1 * jnp.einsum("n,nij->ij", ranks, noise), scores


def _attention_of_edges(nodes: Any, sources: Any, targets: Any, mix: Any) -> Any:
    """A layer of graph attention, with a softmax over the edges of each node; edges are split."""

    def layer(nodes: Any, mix: Any) -> Any:
        h = nodes @ mix
        scores = jax.nn.leaky_relu((h[sources] * h[targets]).sum(-1))
        top = jax.ops.segment_max(scores, targets, nodes.shape[0])
        e = jnp.exp(scores - top[targets])
        total = jax.ops.segment_sum(e, targets, nodes.shape[0])
        return jax.ops.segment_sum(e[:, None] * h[sources], targets, nodes.shape[0]) / (total[:, None] + 1e-9)

    value, gradient = jax.value_and_grad(lambda m: (layer(layer(nodes, m), m) ** 2).mean())(mix)
    return value, gradient


def _windows_moved(x: Any, qkv: Any) -> Any:
    """Attention in windows of four by four, which are moved by two; rows of images are split."""
    x = jnp.roll(x, (-2, -2), (1, 2))
    n, h, w, c = x.shape
    parts = x.reshape(n, h // 4, 4, w // 4, 4, c).transpose(0, 1, 3, 2, 4, 5).reshape(n, h // 4, w // 4, 16, c)
    q, k, v = jnp.split(parts @ qkv, 3, -1)
    done = jax.nn.softmax(jnp.einsum("nhwqc,nhwkc->nhwqk", q, k) / c**0.5) @ v
    done = done.reshape(n, h // 4, w // 4, 4, 4, c).transpose(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
    return jnp.roll(done, (2, 2), (1, 2))


def _state_space(x: Any, decay: Any, b: Any, c: Any) -> Any:
    """A state space layer in chunks of a split sequence: products inside of chunks, states between them."""
    n, s, d = x.shape
    chunks = lambda a: a.reshape(n, s // 16, 16, *a.shape[2:])  # noqa: E731
    x, a, b, c = map(chunks, (x, -jax.nn.softplus(decay), b, c))
    sums = jnp.cumsum(a, 2)
    gaps = sums[:, :, :, None] - sums[:, :, None]
    inside = jnp.where(jnp.tril(jnp.ones((16, 16), bool)), jnp.exp(gaps), 0)
    own = jnp.einsum("ncts,nctk,ncsk,ncsd->nctd", inside, c, b, x)
    states = jnp.einsum("ncs,ncsk,ncsd->nckd", jnp.exp(sums[:, :, -1:] - sums), b, x)

    def move(state: Any, given: Any) -> Any:
        shrink, new = given
        return state * shrink[:, None, None] + new, state

    ends = jnp.moveaxis(jnp.exp(sums[:, :, -1]), 1, 0), jnp.moveaxis(states, 1, 0)
    _, before = lax.scan(move, jnp.zeros_like(states[:, 0]), ends)
    return (own + jnp.einsum("nct,nctk,cnkd->nctd", jnp.exp(sums), c, before)).reshape(n, s, d)


def _masked_batch(x: Any, y: Any, weights: Any, rows: Any) -> Any:
    """A batch that is filled up to a size that the devices divide; rows that fill it count nothing."""
    kept = jnp.arange(x.shape[0]) < rows

    def loss(w: Any) -> Any:
        scores = jax.nn.log_softmax(jnp.tanh(x @ w[0]) @ w[1])
        own = jnp.take_along_axis(scores, y[:, None], 1)[:, 0]
        return -jnp.where(kept, own, 0).sum() / kept.sum()

    value, gradients = jax.value_and_grad(loss)(weights)
    return value, [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]


def _distinct(x: Any, names: Any) -> Any:
    """Distinct names with their counts, places of values between them, and the median of each eighth."""
    found, counts = jnp.unique(names, return_counts=True, size=24, fill_value=99)
    between = jnp.searchsorted(jnp.sort(x), jnp.linspace(-2, 2, 16))
    return found, counts, between, jnp.median(x.reshape(8, -1), 1), jnp.digitize(x, jnp.linspace(-1, 1, 9))


METHODS: dict[str, Program] = {
    "pencils of a cube, by hand": Program(_pencils, (floats(16, 16, 8),), (_BOTH,), GRID),
    "products sent round rows and columns": Program(
        _cannon, (floats(32, 32), floats(32, 32, seed=1)), (_BOTH,) * 2, GRID
    ),
    "factors of a tall matrix, by hand": Program(_tall_factors, (floats(256, 8),), (_ROWS,)),
    "Lanczos, split rows": Program(_lanczos, (floats(64, 64) + floats(64, 64).T, floats(64)), (_ROWS, P())),
    "Newton with products of the Hessian": Program(
        _newton, (floats(128, 24), np.sign(floats(128)), floats(24) / 5), (_ROWS, _ROWS, P())
    ),
    "waves on an uneven grid": Program(_uneven_waves, (floats(30, 51), np.abs(floats(30, 51))), (P(), P()), GRID),
    "stencils of two rows, by hand": Program(_halos_by_hand, (floats(32, 16),), (_BOTH,), GRID),
    "particles in cells": Program(_particles, (np.abs(floats(512)) * 20, floats(512) / 9), (_ROWS, _ROWS)),
    "triangles of pairs, split rows": Program(
        _triangle_update,
        (floats(32, 32, 8), floats(8, 8), floats(8, 8, seed=1), floats(8, 8, seed=2)),
        (_ROWS, P(), P(), P()),
    ),
    "triangles of pairs, both ways": Program(
        _triangle_update,
        (floats(32, 32, 8), floats(8, 8), floats(8, 8, seed=1), floats(8, 8, seed=2)),
        (_BOTH, P(), P(), P()),
        GRID,
    ),
    "Monte Carlo, split chains": Program(_chains, (floats(32, 6) / 9, floats(40, 6)), (_ROWS, P())),
    "keys of rows, by hand": Program(_keys_of_devices, (floats(32, 24),), (_ROWS,)),
    "advantages and a clipped loss": Program(
        _advantages,
        (
            floats(20, 32),
            floats(21, 32),
            (floats(20, 32) > 1).astype(np.float32),
            floats(20, 32, 6),
            words(20, 32, below=6),
        ),
        (_COLUMNS,) * 5,
    ),
    "evolution, split models": Program(_evolved, (floats(12, 6) / 4, floats(40, 12), floats(40, 6)), (P(),) * 3),
    "attention of split edges": Program(
        _attention_of_edges,
        (floats(40, 12), words(256, below=40), words(2, 256, below=40)[1], floats(12, 12) / 4),
        (P(), _ROWS, _ROWS, P()),
    ),
    "attention of split edges and nodes": Program(
        _attention_of_edges,
        (floats(40, 12), words(256, below=40), words(2, 256, below=40)[1], floats(12, 12) / 4),
        (_ROWS, _ROWS, _ROWS, P()),
    ),
    "windows that are moved, split rows": Program(
        _windows_moved, (floats(2, 32, 16, 8), floats(8, 24) / 3), (_COLUMNS, P())
    ),
    "state space in chunks, split sequence": Program(
        _state_space,
        (floats(2, 128, 8), floats(2, 128, seed=1), floats(2, 128, 4, seed=2), floats(2, 128, 4, seed=3)),
        (_COLUMNS,) * 4,
    ),
    "a batch filled up": Program(
        _masked_batch,
        (floats(32, 16), words(32, below=10), [floats(16, 24) / 4, floats(24, 10) / 5], np.int32(27)),
        (_ROWS, _ROWS, P(), P()),
    ),
    "distinct names and places": Program(_distinct, (floats(256), words(256, below=20)), (_ROWS, _ROWS)),
}
