"""JAX programs over several devices that are no models: solvers, stencils, orders and sums along split dimensions,
tables with updates, random numbers, 3, 5, 6 and 7 devices, and meshes with explicit and manual axes.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax, numpy as jnp
from jax.sharding import PartitionSpec as P, reshard

from benchmarks.programs.sharded import GRID, Program, floats, words

_ROWS, _COLUMNS = P("x"), P(None, "x")
_KEY = np.arange(2, dtype=np.uint32)


def _poisson(f: Any) -> Any:
    """Solves Poisson's equation on a torus, by transforms in two dimensions."""
    n, m = f.shape
    waves = jnp.fft.fftfreq(n)[:, None] ** 2 + jnp.fft.rfftfreq(m) ** 2
    spectrum = jnp.fft.rfft2(f) / jnp.where(waves == 0, 1, waves)
    return jnp.fft.irfft2(spectrum.at[0, 0].set(0), (n, m))


def _five_points(u: Any) -> Any:
    p = jnp.pad(u, 1)
    return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u


def _relaxed(f: Any) -> Any:
    """Jacobi's iteration until it changes little."""

    def step(state: Any) -> Any:
        u, _, count = state
        new = u + 0.24 * (_five_points(u) - f)
        return new, jnp.abs(new - u).max(), count + 1

    return lax.while_loop(lambda s: (s[1] > 0.05) & (s[2] < 40), step, (jnp.zeros_like(f), 1.0, 0))


def _conjugate_gradients(f: Any) -> Any:
    def step(state: Any, _: Any) -> Any:
        u, r, p, rr = state
        ap = 0.1 * p - _five_points(p)
        alpha = rr / (p * ap).sum()
        u, r = u + alpha * p, r - alpha * ap
        new = (r * r).sum()
        return (u, r, r + new / rr * p, new), new

    return lax.scan(step, (jnp.zeros_like(f), f, f, (f * f).sum()), None, length=8)


def _waves(u: Any) -> Any:
    """A wave in three dimensions, of which two are split."""

    def step(state: Any, _: Any) -> Any:
        now, before = state
        around = sum(jnp.roll(now, s, d) for d in range(3) for s in (1, -1)) - 6 * now
        return (2 * now - before + 0.1 * around, now), (now**2).sum()

    return lax.scan(step, (u, u), None, length=6)


def _advected(u: Any) -> Any:
    """A shallow layer: fluxes through faces, with walls at two sides."""

    def step(u: Any, _: Any) -> Any:
        h, v = u[..., 0], u[..., 1]
        face = jnp.concatenate([jnp.zeros((1, h.shape[1])), 0.5 * (v[1:] + v[:-1]), jnp.zeros((1, h.shape[1]))])
        slope = jnp.zeros_like(h).at[1:-1].set((h[2:] - h[:-2]) / 2)
        return jnp.stack([h - 0.1 * jnp.diff(face, axis=0), v - 0.1 * slope], -1), None

    return lax.scan(step, u, None, length=6)[0]


def _ranks(x: Any) -> Any:
    """Ranks by sorting and searching, quantiles, and how many are distinct."""
    ordered = jnp.sort(x)
    return jnp.searchsorted(ordered, x), jnp.quantile(x, jnp.linspace(0, 1, 5)), (jnp.diff(ordered) > 0).sum()


def _packed(x: Any) -> Any:
    """The positive ones first, in their order, by cumulative sums and a scatter."""
    kept = x > 0
    place = jnp.where(kept, jnp.cumsum(kept) - 1, x.shape[0])
    return jnp.zeros_like(x).at[place].set(x, mode="drop"), kept.sum()


def _updated(table: Any, rows: Any, values: Any) -> Any:
    """A table that is split by rows: added to, replaced, and the largest kept."""
    return table.at[rows].add(values), table.at[rows].max(values), table.at[rows, 0].set(1.0)


def _pairs(x: Any, i: Any, j: Any) -> Any:
    return x[i, j], jnp.take_along_axis(x[:128], j[:, None], 1), x[i].sum(0)


def _random(x: Any, key: Any) -> Any:
    keys = jax.random.split(jax.random.wrap_key_data(key), 4)

    def step(x: Any, key: Any) -> Any:
        noise = jax.random.normal(key, x.shape)
        return jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x + 0.1 * noise, 0), noise[0, 0]

    shuffled = jax.random.permutation(keys[0], x.shape[0])
    return *lax.scan(step, x, keys), x[shuffled], jax.random.gumbel(keys[1], x.shape) + x


def _network(x: Any, up: Any, down: Any) -> Any:
    """A step of training on sizes that no number of devices divides."""

    def loss(weights: Any) -> Any:
        h = jax.nn.relu(x[:-1] @ weights[0])
        return ((_normalized(h) @ weights[1]) ** 2).mean()

    return tuple(w - 0.1 * g for w, g in zip((up, down), jax.grad(loss)((up, down)), strict=True))


def _normalized(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def _moved(x: Any) -> Any:
    """Stencils, sums, orders and reversals of unequal parts."""
    u = x[1:-2]
    inner = jnp.pad(u, ((1, 1), (0, 0)))
    return inner[2:] - inner[:-2], jnp.cumsum(u, 0), jnp.sort(u, 0), u[::-1], u.T @ u, jnp.argmax(u, 0)


def _image(x: Any) -> Any:
    labels = ("NHWC", "HWIO", "NHWC")
    kernel = jnp.ones((3, 3, x.shape[-1], 4)) / 9
    y = lax.conv_general_dilated(x[:, :-2], kernel, (2, 1), "SAME", dimension_numbers=labels)
    return lax.reduce_window(y, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")


def _least_squares(a: Any, b: Any) -> Any:
    """Of many rows and few columns: by normal equations and by QR of parts."""
    by_sums = jnp.linalg.solve(a.T @ a, a.T @ b)
    parts = jnp.linalg.qr(a.reshape(8, -1, a.shape[1]), "r").reshape(-1, a.shape[1])
    return by_sums, jnp.abs(jnp.linalg.qr(parts, "r"))


def _sinkhorn(costs: Any) -> Any:
    def step(state: Any, _: Any) -> Any:
        f, g = state
        f = -jax.nn.logsumexp(g - costs, 1)
        return (f, -jax.nn.logsumexp(f[:, None] - costs, 0)), None

    zeros = jnp.zeros(costs.shape[0]), jnp.zeros(costs.shape[1])
    f, g = lax.scan(step, zeros, None, length=5)[0]
    return jnp.exp(f[:, None] + g - costs), f, g


def _enlarged(x: Any) -> Any:
    n, h, w, c = x.shape
    return jax.image.resize(x, (n, 2 * h, 2 * w, c), "bilinear"), jax.image.resize(x, (n, h // 2, w, c), "nearest")


def _ranked_pages(sources: Any, targets: Any) -> Any:
    """PageRank over split edges."""
    degrees = jnp.maximum(jax.ops.segment_sum(jnp.ones(sources.shape), sources, 512), 1)

    def step(rank: Any, _: Any) -> Any:
        return 0.15 / 512 + 0.85 * jax.ops.segment_sum((rank / degrees)[sources], targets, 512), None

    return lax.scan(step, jnp.full(512, 1 / 512), None, length=6)[0]


def _state_space(x: Any, decay: Any, gate: Any) -> Any:
    """A gated linear recurrence in chunks, whose last states are scanned."""
    chunks = (x * jax.nn.sigmoid(gate)).reshape(16, -1, x.shape[-1])
    powers = decay ** jnp.arange(chunks.shape[1])[:, None]
    within = jnp.stack([(chunks[:, : t + 1] * powers[: t + 1][::-1]).sum(1) for t in range(chunks.shape[1])], 1)

    def carry(state: Any, last: Any) -> Any:
        return state * decay ** chunks.shape[1] + last, state

    before = lax.scan(carry, jnp.zeros_like(x[0]), within[:, -1])[1]
    return (within + before[:, None] * decay * powers).reshape(x.shape)


def _partly_manual(x: Any, up: Any, down: Any) -> Any:
    """One axis by hand, whose results are summed; the other one by the partitioner."""

    def part(x: Any, up: Any, down: Any) -> Any:
        h = jax.nn.relu(x @ up)
        return lax.psum(h @ down, "y")

    sharded = jax.shard_map(part, in_specs=(P(), P(None, "y"), P("y")), out_specs=P(), axis_names={"y"})
    return _normalized(sharded(x, up, down))


def _nested_manual(x: Any, w: Any) -> Any:
    """A shard_map in another one, each over one axis."""

    def outer(x: Any, w: Any) -> Any:
        def inner(x: Any, w: Any) -> Any:
            return lax.psum(x @ w, "y")

        total = jax.shard_map(inner, in_specs=(P(None, "y"), P("y")), out_specs=P(), axis_names={"y"})(x, w)
        return lax.all_gather(total, "x", tiled=True)[::2] + lax.psum(total, "x").mean()

    return jax.shard_map(outer, in_specs=(P("x"), P()), out_specs=P("x"), axis_names={"x"}, check_vma=False)(x, w)


def _nested_alone(x: Any, w: Any) -> Any:
    total = (x @ w).reshape(4, -1, w.shape[1])
    rows = total.reshape(-1, w.shape[1])[::2]
    return jnp.tile(rows, (4, 1)) + total.sum(0).mean()


def _explicit(x: Any, up: Any, down: Any) -> Any:
    """Types say how arrays are split."""
    h = jnp.tanh(jnp.einsum("bd,dh->bh", x, up))
    y = jnp.einsum("bh,hd->bd", h, down, out_sharding=P("x", None))
    whole = reshard(y, P(None, "x"))
    return whole.reshape(4, -1, whole.shape[1]), jnp.cumsum(reshard(y, P(None, "y")), 0), y.sum(0)


def _explicit_alone(x: Any, up: Any, down: Any) -> Any:
    y = jnp.tanh(x @ up) @ down
    return y.reshape(4, -1, y.shape[1]), jnp.cumsum(y, 0), y.sum(0)


def _explicit_step(x: Any, up: Any, down: Any) -> Any:
    def loss(weights: Any) -> Any:
        h = jax.nn.gelu(x @ weights[0])
        return (jnp.einsum("bh,hd->bd", h, weights[1], out_sharding=P("x", None)) ** 2).mean()

    return tuple(w - 0.1 * g for w, g in zip((up, down), jax.grad(loss)((up, down)), strict=True))


def _explicit_step_alone(x: Any, up: Any, down: Any) -> Any:
    def loss(weights: Any) -> Any:
        return ((jax.nn.gelu(x @ weights[0]) @ weights[1]) ** 2).mean()

    return tuple(w - 0.1 * g for w, g in zip((up, down), jax.grad(loss)((up, down)), strict=True))


_LAYER = (floats(64, 32), floats(32, 128) / 6, floats(128, 32) / 12)

NUMERICS: dict[str, Program] = {
    "Poisson's equation by transforms": Program(_poisson, (floats(64, 64),), (P("x", "y"),), GRID),
    "Jacobi's iteration in a while loop": Program(_relaxed, (floats(64, 64),), (P("x", "y"),), GRID),
    "conjugate gradients": Program(_conjugate_gradients, (floats(64, 64),), (_ROWS,)),
    "waves in three dimensions": Program(_waves, (floats(16, 16, 16),), (P("x", "y"),), GRID),
    "fluxes between walls": Program(_advected, (floats(128, 32, 2),), (_ROWS,)),
    "ranks and quantiles": Program(_ranks, (np.round(floats(2048), 2),), (_ROWS,)),
    "packed to the front": Program(_packed, (floats(4096),), (_ROWS,)),
    "updates of a split table": Program(
        _updated, (floats(1024, 16), np.unique(words(256))[:192], floats(192, 16)), (_ROWS, P(), P())
    ),
    "updates of a split table, split updates": Program(
        _updated, (floats(1024, 16), np.unique(words(256))[:192], floats(192, 16)), (_ROWS, _ROWS, _ROWS)
    ),
    "elements by pairs of places": Program(
        _pairs, (floats(256, 64), words(128, below=256), words(128, below=64)), (P("x", "y"), P(), P()), GRID
    ),
    "random numbers in a loop, shuffled rows": Program(_random, (floats(256, 32), _KEY), (_ROWS, P())),
    "training over 3 devices": Program(
        _network, (floats(48, 20), floats(20, 40), floats(40, 10)), (_ROWS, P(), P()), (3,)
    ),
    "training, split features of 3 devices": Program(
        _network, (floats(47, 20), floats(20, 39), floats(39, 10)), (P(), _COLUMNS, _ROWS), (3,)
    ),
    "training over 5 devices": Program(
        _network, (floats(45, 20), floats(20, 40), floats(40, 10)), (_ROWS, P(), P()), (5,)
    ),
    "training over 3 and 2 devices": Program(
        _network, (floats(51, 20), floats(20, 38), floats(38, 10)), (_ROWS, P(None, "y"), P("y")), (3, 2)
    ),
    "training over 7 devices": Program(
        _network, (floats(49, 20), floats(20, 42), floats(42, 10)), (_ROWS, P(), P()), (7,)
    ),
    "unequal parts of 3 devices": Program(_moved, (floats(48, 12),), (_ROWS,), (3,)),
    "unequal parts of 5 devices": Program(_moved, (floats(65, 10),), (_ROWS,), (5,)),
    "unequal parts of 6 devices": Program(_moved, (floats(60, 12),), (_ROWS,), (6,)),
    "unequal parts of 7 devices": Program(_moved, (floats(91, 14),), (_ROWS,), (7,)),
    "images of unequal parts": Program(_image, (floats(2, 50, 16, 4),), (_COLUMNS,), (5,)),
    "least squares of many rows": Program(_least_squares, (floats(1024, 8), floats(1024)), (_ROWS, _ROWS)),
    "optimal transport": Program(_sinkhorn, (np.abs(floats(64, 128)),), (P("x", "y"),), GRID),
    "images enlarged, split rows": Program(_enlarged, (floats(2, 32, 16, 4),), (_COLUMNS,)),
    "ranks of pages, split edges": Program(
        _ranked_pages, (words(4096, below=512), words(4096, below=512)[::-1].copy()), (_ROWS, _ROWS)
    ),
    "recurrence in chunks": Program(
        _state_space, (floats(128, 16), np.full(16, 0.9, np.float32), floats(128, 16, seed=1)), (_ROWS, P(), _ROWS)
    ),
    "one axis by hand": Program(
        _partly_manual,
        _LAYER,
        (_ROWS, P(None, "y"), P("y")),
        GRID,
        alone=lambda x, up, down: _normalized(jax.nn.relu(x @ up) @ down),
    ),
    "one axis by hand in another one": Program(
        _nested_manual, (floats(64, 32), floats(32, 16)), (P("x", "y"), P("y")), GRID, alone=_nested_alone
    ),
    "explicit axes": Program(
        _explicit, _LAYER, (P("x", None), P(None, "y"), P("y", None)), GRID, alone=_explicit_alone, explicit=True
    ),
    "explicit axes, training": Program(
        _explicit_step,
        _LAYER,
        (P("x", None), P(None, "y"), P("y", None)),
        GRID,
        alone=_explicit_step_alone,
        explicit=True,
    ),
}
