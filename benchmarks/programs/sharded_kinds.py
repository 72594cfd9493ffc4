"""Kinds of JAX programs over eight devices that :mod:`benchmarks.programs.sharded` lacks: pipelines and experts with
collectives of their own, layers that are gathered as a scan comes to them, decoding, sampling, and operations along
split dimensions at places that are known only when a program runs.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax, numpy as jnp
from jax.sharding import PartitionSpec as P

from benchmarks.programs.sharded import GRID, Program, floats, words

_ROWS, _COLUMNS = P("x"), P(None, "x")
_IMAGES, _KERNEL = floats(2, 64, 64, 8), floats(3, 3, 8, 16) / 8


def _layers_step(x: Any, ups: Any, downs: Any) -> Any:
    """Layers whose weights are split, gathered as the scan comes to them, and again backwards."""

    def loss(weights: Any) -> Any:
        def layer(h: Any, weights: Any) -> Any:
            up, down = weights
            return h + jax.nn.gelu(h @ up) @ down, None

        return (lax.scan(jax.checkpoint(layer), x, weights)[0] ** 2).mean()

    gradients = jax.grad(loss)((ups, downs))
    return tuple(w - 0.1 * g for w, g in zip((ups, downs), gradients, strict=True))


def _strided(x: Any, kernel: Any, stride: int, padding: str, dilation: int = 1) -> Any:
    labels = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), padding, rhs_dilation=(dilation, dilation), dimension_numbers=labels
    )


def _strided_step(x: Any, kernel: Any) -> Any:
    return jax.grad(lambda x, k: (_strided(x, k, 2, "SAME") ** 2).mean(), (0, 1))(x, kernel)


def _sampled_among_most_likely(logits: Any, key: Any) -> Any:
    values, places = lax.top_k(logits, 16)
    chosen = jax.random.categorical(jax.random.wrap_key_data(key), values)
    return jnp.take_along_axis(places, chosen[:, None], 1)


def _nucleus(logits: Any) -> Any:
    """How many of the most likely words have nine tenths of the probability."""
    ordered = -jnp.sort(-jax.nn.softmax(logits), -1)
    return (jnp.cumsum(ordered, -1) < 0.9).sum(-1)


def _decoding(query: Any, keys: Any, values: Any, new: Any, place: Any) -> Any:
    """A step of decoding with a cache that is split along the sequence, which it writes to."""
    keys, values = (lax.dynamic_update_slice_in_dim(c, new, place, 1) for c in (keys, values))
    scores = jnp.einsum("bhd,bshd->bhs", query, keys) / 4
    scores = jnp.where(jnp.arange(keys.shape[1]) <= place, scores, -1e9)
    return jnp.einsum("bhs,bshd->bhd", jax.nn.softmax(scores), values), keys, values


def _multiplied(matrices: Any) -> Any:
    return lax.scan(lambda m, n: (m @ n, m[0]), jnp.eye(3, dtype=matrices.dtype), matrices)


def _recurrence(decay: Any, given: Any) -> Any:
    """A linear recurrence, as state space models have it."""

    def both(a: Any, b: Any) -> Any:
        return a[0] * b[0], b[0] * a[1] + b[1]

    return lax.associative_scan(both, (decay, given))[1]


def _normalized_groups(x: Any) -> Any:
    parts = x.reshape(*x.shape[:-1], 4, -1)
    mean, variance = (f(parts, axis=(1, 2, 4), keepdims=True) for f in (jnp.mean, jnp.var))
    return ((parts - mean) / jnp.sqrt(variance + 1e-5)).reshape(x.shape)


def _batch_statistics(x: Any, scale: Any) -> Any:
    def loss(scale: Any) -> Any:
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        return (jax.nn.relu((x - mean) * lax.rsqrt(variance + 1e-5) * scale) ** 2).mean()

    return scale - jax.grad(loss)(scale)


def _dropped(x: Any, key: Any) -> Any:
    kept = jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, x.shape)
    return jnp.where(kept, x / 0.9, 0) + jax.random.normal(jax.random.wrap_key_data(key), x.shape)


def _distances(rows: Any, centers: Any) -> Any:
    """A step of k-means."""
    nearest = jnp.argmin(((rows[:, None] - centers) ** 2).sum(-1), -1)
    sums = jax.ops.segment_sum(rows, nearest, centers.shape[0])
    counts = jax.ops.segment_sum(jnp.ones(rows.shape[0]), nearest, centers.shape[0])
    return sums / jnp.maximum(counts, 1)[:, None]


def _neighbors(x: Any, sources: Any, targets: Any) -> Any:
    """A layer of a graph network over split edges and nodes."""
    return jax.nn.relu(jax.ops.segment_sum(x[sources], targets, x.shape[0])) + x


def _adapted(x: Any, weights: Any, down: Any, up: Any) -> Any:
    def loss(adapters: Any) -> Any:
        down, up = adapters
        return ((x @ weights + (x @ down) @ up) ** 2).mean()

    return jax.grad(loss)((down, up))


def _trapezoids(u: Any) -> Any:
    return ((u[1:] + u[:-1]) / 2).sum(0), jnp.diff(u, 2, 0), jnp.interp(jnp.linspace(0, 1, 32), u[:, 0], u[:, 1])


_SQUARES = (np.eye(3, dtype=np.float32) + floats(256, 3, 3) / 16).astype(np.float32)
_CACHE = (floats(2, 4, 16), floats(2, 256, 4, 16), floats(2, 256, 4, 16, seed=1), floats(2, 1, 4, 16, seed=2))
_LAYERS = (floats(64, 64), floats(6, 64, 128, seed=1) / 20, floats(6, 128, 64, seed=2) / 20)
_KEY = np.arange(2, dtype=np.uint32)

KINDS: dict[str, Program] = {
    "fully sharded, scan with remat": Program(
        _layers_step, _LAYERS, (_ROWS, P(None, "x"), P(None, "x")), results=(P(None, "x"), P(None, "x"))
    ),
    "convolution, rows, stride 2, valid": Program(
        lambda x, k: _strided(x, k, 2, "VALID"), (_IMAGES, _KERNEL), (_COLUMNS, P())
    ),
    "convolution, rows, dilated": Program(
        lambda x, k: _strided(x, k, 1, "SAME", 2), (_IMAGES, _KERNEL), (_COLUMNS, P())
    ),
    "convolution, rows, stride 2, gradients": Program(_strided_step, (_IMAGES, _KERNEL), (_COLUMNS, P())),
    "sampling among the most likely": Program(_sampled_among_most_likely, (floats(16, 8192), _KEY), (_COLUMNS, P())),
    "nucleus of the most likely": Program(_nucleus, (floats(16, 2048),), (_COLUMNS,)),
    "decoding, split sequence": Program(_decoding, (*_CACHE, np.int32(130)), (P(), _COLUMNS, _COLUMNS, P(), P())),
    "FFT in three dimensions": Program(lambda x: jnp.abs(jnp.fft.fftn(x)), (floats(32, 32, 32),), (P("x", "y"),), GRID),
    "sums of segments, split rows and names": Program(
        lambda x, of: jax.ops.segment_sum(x, of, 64), (floats(4096, 8), words(4096, below=64)), (_ROWS, _ROWS)
    ),
    "order of split columns": Program(lambda x: jnp.argsort(x, 0), (floats(1024, 16),), (_ROWS,)),
    "keys and values sorted along the split": Program(
        lambda k, v: lax.sort((k, v), dimension=0, num_keys=1),
        (words(4096, below=1 << 20), floats(4096)),
        (_ROWS, _ROWS),
    ),
    "uneven layers": Program(
        lambda x, w, v: jnp.tanh(x[:, :100] @ w[:100]) @ v,
        (floats(64, 128), floats(128, 72), floats(72, 40)),
        (_ROWS, P(), P(None, "x")),
    ),
    "uneven statistics": Program(
        lambda x: (x[3:250].mean(0), x[3:250].std(0), jnp.max(x[3:250])), (floats(256, 64),), (_ROWS,)
    ),
    "random numbers and dropout": Program(_dropped, (floats(256, 64), _KEY), (_ROWS, P())),
    "roll by a traced amount": Program(lambda x, n: jnp.roll(x, n, 0), (floats(256, 64), np.int32(5)), (_ROWS, P())),
    "products of small matrices": Program(_multiplied, (_SQUARES,), (_ROWS,)),
    "running products of small matrices": Program(lambda m: lax.associative_scan(jnp.matmul, m), (_SQUARES,), (_ROWS,)),
    "linear recurrence along the split": Program(
        _recurrence, (1 - floats(1024, 16) ** 2 / 16, floats(1024, 16, seed=1)), (_ROWS, _ROWS)
    ),
    "norms of groups, split rows": Program(_normalized_groups, (floats(4, 64, 16, 32),), (_COLUMNS,)),
    "norms of the batch, training": Program(
        _batch_statistics, (floats(8, 32, 16, 16), np.ones(16, np.float32)), (P("x", "y"), P()), GRID
    ),
    "k-means": Program(_distances, (floats(4096, 8), floats(16, 8, seed=1)), (_ROWS, P())),
    "graph layer": Program(
        _neighbors, (floats(512, 16), words(4096, below=512), words(4096, below=512)[::-1].copy()), (P(), _ROWS, _ROWS)
    ),
    "low-rank adapters, training": Program(
        _adapted,
        (floats(64, 256), floats(256, 512) / 16, floats(256, 8) / 16, floats(8, 512)),
        (_ROWS, P(None, "y"), P(), P(None, "y")),
        GRID,
    ),
    "differences and interpolation": Program(_trapezoids, (np.sort(floats(256, 4), 0),), (_ROWS,)),
    "places in a split table": Program(jnp.searchsorted, (np.sort(floats(4096)), floats(64)), (_ROWS, P())),
    "rows at a traced place": Program(
        lambda x, n: lax.dynamic_slice_in_dim(x, n, 32, 0) * 2, (floats(256, 64), np.int32(77)), (_ROWS, P())
    ),
    "histogram": Program(lambda x: jnp.histogram(x, 16, (-2.0, 2.0))[0], (floats(8192),), (_ROWS,)),
    "systems of a split batch": Program(
        lambda a, b: jnp.linalg.solve(a @ a.mT + jnp.eye(8), b), (floats(64, 8, 8), floats(64, 8, 2)), (_ROWS, _ROWS)
    ),
    "scores of triangular blocks": Program(
        lambda q, k: jnp.tril(jnp.einsum("qd,kd->qk", q, k)).sum(-1),
        (floats(256, 32), floats(256, 32, seed=1)),
        (_ROWS, _ROWS),
    ),
}
