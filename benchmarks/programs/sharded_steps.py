"""Whole steps of JAX programs over several devices: models in training with their optimizers, solvers, decoding."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax, numpy as jnp
from jax.sharding import PartitionSpec as P

from benchmarks.programs.sharded import GRID, Program, floats, without_axes, words

_ROWS, _COLUMNS = P("x"), P(None, "x")


def _switched(x: Any, gate: Any, ups: Any, downs: Any) -> Any:
    """Two experts for each token, up to a capacity, as einsums of masks; tokens and experts are split alike."""

    def loss(weights: Any) -> Any:
        gate, ups, downs = weights
        odds = jax.nn.softmax(jnp.einsum("gtd,de->gte", x, gate))
        values, chosen = lax.top_k(odds, 2)
        wanted = jax.nn.one_hot(chosen, 8)
        place = (jnp.cumsum(wanted.reshape(8, -1, 8), 1).reshape(wanted.shape) - 1) * wanted
        sent = jnp.einsum("gtke,gtkec->gtec", wanted, jax.nn.one_hot(place, 12) * wanted[..., None])
        combined = jnp.einsum("gtke,gtk->gte", wanted, values)[..., None] * sent
        given = lax.with_sharding_constraint(jnp.einsum("gtec,gtd->egcd", sent, x), _ROWS)
        done = jnp.einsum("egch,ehd->egcd", jax.nn.relu(jnp.einsum("egcd,edh->egch", given, ups)), downs)
        done = lax.with_sharding_constraint(done, _COLUMNS)
        spread = (odds.mean((0, 1)) * wanted.sum(2).mean((0, 1))).sum()
        return (jnp.einsum("gtec,egcd->gtd", combined, done) ** 2).mean() + spread

    gradients = jax.grad(loss)((gate, ups, downs))
    return tuple(w - 0.1 * g for w, g in zip((gate, ups, downs), gradients, strict=True))


def _causal(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4
    kept = jnp.arange(q.shape[1])[:, None] >= jnp.arange(k.shape[1])
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(kept, scores, -1e9)), v)


def _causal_ring(q: Any, k: Any, v: Any) -> Any:
    """Causal attention of a split sequence, keys and values of which go round a ring."""

    def part(q: Any, k: Any, v: Any) -> Any:
        own, length = lax.axis_index("x"), q.shape[1]

        def step(state: Any, number: Any) -> Any:
            k, v, top, total, found = state
            scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4
            begin = (own - number) % 8 * length
            kept = own * length + jnp.arange(length)[:, None] >= begin + jnp.arange(length)
            scores = jnp.where(kept, scores, -1e9)
            highest = jnp.maximum(top, scores.max(-1))
            weights, before = jnp.exp(scores - highest[..., None]), jnp.exp(top - highest)
            total = total * before + weights.sum(-1)
            found = found * before[..., None] + jnp.einsum("bhqk,bkhd->bhqd", weights, v)
            k, v = (lax.ppermute(a, "x", [(p, (p + 1) % 8) for p in range(8)]) for a in (k, v))
            return (k, v, highest, total, found), None

        zeros = lax.pcast(jnp.zeros((q.shape[0], q.shape[2], length)), "x", to="varying")
        state = (k, v, zeros - 1e9, zeros, zeros[..., None] * jnp.zeros(q.shape[3]))
        *_, total, found = lax.scan(jax.checkpoint(step), state, jnp.arange(8))[0]
        return jnp.einsum("bhqd->bqhd", found / total[..., None])

    return jax.shard_map(part, in_specs=(_COLUMNS,) * 3, out_specs=_COLUMNS)(q, k, v)


def _squared(attention: Any) -> Any:
    return jax.grad(lambda *qkv: (attention(*qkv) ** 2).mean(), (0, 1, 2))


def _pipelined(x: Any, weights: Any) -> Any:
    """The loss of stages that send their results on, over parts of a batch."""

    def part(x: Any, weights: Any) -> Any:
        number = lax.axis_index("x")

        def tick(count: Any, state: Any) -> Any:
            held, total = state
            given = lax.dynamic_index_in_dim(x, jnp.minimum(count, 5), 0, keepdims=False)
            held = jax.nn.tanh(jnp.where(number == 0, given, held) @ weights[0])
            total += jnp.where((number == 7) & (count >= 7), (held**2).mean(), 0.0)
            return lax.ppermute(held, "x", [(p, p + 1) for p in range(7)]), total

        zeros = lax.pcast(jnp.zeros(x.shape[1:]), "x", to="varying")
        return lax.psum(lax.fori_loop(0, 13, tick, (zeros, zeros[0, 0]))[1], "x")

    return jax.shard_map(part, in_specs=(P(), _ROWS), out_specs=P())(x, weights)


def _pipelined_alone(x: Any, weights: Any) -> Any:
    done = lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)[0]
    return (done**2).mean((1, 2)).sum()


def _norm(x: Any) -> Any:
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def _block(h: Any, weights: Any) -> Any:
    qkv, out, up, down = weights
    q, k, v = jnp.moveaxis((_norm(h) @ qkv).reshape(*h.shape[:2], 3, 4, -1), 2, 0)
    h = h + _causal(q, k, v).reshape(h.shape) @ out
    return h + jax.nn.silu(_norm(h) @ up) @ down


def _transformer_step(x: Any, *weights: Any) -> Any:
    def loss(weights: Any) -> Any:
        layer = jax.checkpoint(lambda h, w: (_block(h, w), None))
        return (lax.scan(layer, x, weights)[0] ** 2).mean()

    return tuple(w - 0.1 * g for w, g in zip(weights, jax.grad(loss)(weights), strict=True))


def _accumulated(x: Any, up: Any, down: Any) -> Any:
    """Gradients of parts of the batch, summed in a scan, clipped by their norm."""

    def loss(weights: Any, x: Any) -> Any:
        return ((jax.nn.relu(x @ weights[0]) @ weights[1]) ** 2).mean()

    def add(total: Any, x: Any) -> Any:
        return jax.tree.map(jnp.add, total, jax.grad(loss)((up, down), x)), None

    total = lax.scan(add, (jnp.zeros_like(up), jnp.zeros_like(down)), x)[0]
    norm = jnp.sqrt(sum((g * g).sum() for g in total))
    return tuple(w - g / jnp.maximum(norm, 1) for w, g in zip((up, down), total, strict=True))


def _vocabulary_step(h: Any, table: Any, words: Any) -> Any:
    """Smoothed cross entropy with the square of the partition function, along a split vocabulary."""

    def loss(h: Any, table: Any) -> Any:
        logits = h @ table.T
        partition = jax.nn.logsumexp(logits, -1)
        picked = jnp.take_along_axis(logits, words[:, None], -1)[:, 0]
        return (partition - 0.9 * picked - 0.1 * logits.mean(-1) + 1e-4 * partition**2).mean()

    value, gradients = jax.value_and_grad(loss, (0, 1))(h, table)
    return value, gradients, (jnp.argmax(h @ table.T, -1) == words).mean()


def _factored(weights: Any, gradient: Any, rows: Any, columns: Any) -> Any:
    """Adafactor's step: second moments as an outer product, an update whose size is clipped."""
    squares = gradient**2 + 1e-30
    rows, columns = 0.9 * rows + 0.1 * squares.mean(1), 0.9 * columns + 0.1 * squares.mean(0)
    update = gradient * lax.rsqrt(rows / rows.mean())[:, None] * lax.rsqrt(columns)
    update /= jnp.maximum(1.0, jnp.sqrt((update**2).mean()))
    scale = jnp.maximum(1e-3, jnp.sqrt((weights**2).mean()))
    return weights - 0.01 * scale * update, rows, columns


def _orthogonalized(weights: Any, gradient: Any, momentum: Any) -> Any:
    """Muon's step: Newton-Schulz iterations on momenta of matrices."""
    momentum = 0.95 * momentum + gradient
    x = momentum / (jnp.linalg.norm(momentum, axis=(-2, -1), keepdims=True) + 1e-7)

    def iteration(_: Any, x: Any) -> Any:
        a = x @ x.mT
        return 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x

    return weights - 0.02 * lax.fori_loop(0, 5, iteration, x), momentum


def _conv(x: Any, kernel: Any, stride: int = 1) -> Any:
    labels = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=labels)


def _hourglass(x: Any, kernels: Any) -> Any:
    """A U-Net of two levels."""
    first, down, inner, up, last = kernels
    high = jax.nn.relu(_conv(x, first))
    low = jax.nn.relu(_conv(jax.nn.relu(_conv(high, down, 2)), inner))
    grown = lax.conv_transpose(low, up, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return _conv(jnp.concatenate([high, grown], -1), last)


def _hourglass_step(x: Any, *kernels: Any) -> Any:
    gradients = jax.grad(lambda k: ((_hourglass(x, k) - x[..., :1]) ** 2).mean())(kernels)
    return tuple(k - 0.1 * g for k, g in zip(kernels, gradients, strict=True))


def _contrastive(images: Any, texts: Any, first: Any, second: Any) -> Any:
    def loss(weights: Any) -> Any:
        a, b = (h / jnp.linalg.norm(h, axis=-1, keepdims=True) for h in (images @ weights[0], texts @ weights[1]))
        logits = 10 * a @ b.T
        own = jnp.diagonal(logits)
        return (jax.nn.logsumexp(logits, 0) + jax.nn.logsumexp(logits, 1) - 2 * own).mean()

    return jax.value_and_grad(loss)((first, second))


def _lstm(x: Any, inputs: Any, hidden: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(x @ inputs + h @ hidden, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((x.shape[1], hidden.shape[0]))
    return lax.scan(step, (zeros, zeros), x)[1]


def _lstm_step(x: Any, inputs: Any, hidden: Any) -> Any:
    return jax.grad(lambda w: (_lstm(x, *w) ** 2).mean())((inputs, hidden))


def _written(prompt: Any, table: Any, keys: Any, values: Any, out: Any) -> Any:
    """Words, each the most likely one, with a cache that a loop writes to."""

    def step(state: Any, place: Any) -> Any:
        word, kept, given = state
        h = table[word]
        kept = lax.dynamic_update_index_in_dim(kept, h @ keys, place, 1)
        given = lax.dynamic_update_index_in_dim(given, h @ values, place, 1)
        scores = jnp.einsum("bd,bsd->bs", h @ keys, kept)
        scores = jnp.where(jnp.arange(16) <= place, scores, -1e9)
        h = h + jnp.einsum("bs,bsd->bd", jax.nn.softmax(scores), given) @ out
        word = jnp.argmax(h @ table.T, -1)
        return (word, kept, given), word

    zeros = jnp.zeros((prompt.shape[0], 16, keys.shape[1]))
    return lax.scan(step, (prompt, zeros, zeros), jnp.arange(16))[1]


def _grouped_heads(q: Any, k: Any, v: Any) -> Any:
    """A split sequence whose attention is split by heads: all-to-alls there and back."""
    q, k, v = (lax.with_sharding_constraint(a, P(None, None, "x")) for a in (q, k, v))
    return lax.with_sharding_constraint(_causal(q, k, v), _COLUMNS)


def _windowed(q: Any, k: Any, v: Any) -> Any:
    """Attention in a window: blocks of a sequence see their own keys and those of the block before."""
    q, k, v = (a.reshape(a.shape[0], 16, -1, *a.shape[2:]) for a in (q, k, v))
    k, v = (jnp.concatenate([jnp.roll(a, 1, 1).at[:, 0].set(0), a], 2) for a in (k, v))
    scores = jnp.einsum("bnqhd,bnkhd->bnhqk", q, k) / 4
    return jnp.einsum("bnhqk,bnkhd->bnqhd", jax.nn.softmax(scores), v)


_HEADS = tuple(floats(2, 64, 8, 16, seed=s) for s in range(3))
_BLOCKS = (
    floats(3, 64, 192, seed=1) / 8,
    floats(3, 64, 64, seed=2) / 8,
    floats(3, 64, 256, seed=3) / 8,
    floats(3, 256, 64, seed=4) / 16,
)
_KERNELS = (
    floats(3, 3, 4, 8) / 6,
    floats(3, 3, 8, 16) / 8,
    floats(3, 3, 16, 16) / 12,
    floats(2, 2, 16, 8) / 8,
    floats(3, 3, 16, 1) / 12,
)
_MATRICES = tuple(floats(4, 64, 128, seed=s) for s in range(3))
_SPLIT_BLOCKS = (P(None, "x", "y"), P(None, "y", "x"), P(None, "x", "y"), P(None, "y", "x"))

STEPS: dict[str, Program] = {
    "experts, two for each token, training": Program(
        _switched,
        (floats(8, 32, 16), floats(16, 8), floats(8, 16, 32) / 4, floats(8, 32, 16) / 6),
        (_ROWS, P(), _ROWS, _ROWS),
        alone=without_axes(_switched),
    ),
    "causal ring attention, training": Program(
        _squared(_causal_ring), _HEADS, (_COLUMNS,) * 3, alone=_squared(_causal)
    ),
    "pipeline, training": Program(
        jax.value_and_grad(_pipelined, 1),
        (floats(6, 4, 32), floats(8, 32, 32) / 6),
        (P(), _ROWS),
        alone=jax.value_and_grad(_pipelined_alone, 1),
    ),
    "transformer, fully sharded, training": Program(
        _transformer_step, (floats(8, 16, 64), *_BLOCKS), (_ROWS, *[_COLUMNS] * 4), results=(_COLUMNS,) * 4
    ),
    "transformer, sharded both ways, training": Program(
        _transformer_step, (floats(8, 16, 64), *_BLOCKS), (_ROWS, *_SPLIT_BLOCKS), GRID, results=_SPLIT_BLOCKS
    ),
    "transformer, tensor parallel, training": Program(
        _transformer_step,
        (floats(8, 16, 64), *_BLOCKS),
        (_ROWS, P(None, None, "y"), P(None, "y"), P(None, None, "y"), P(None, "y")),
        GRID,
    ),
    "accumulated gradients": Program(
        _accumulated, (floats(4, 64, 32), floats(32, 128) / 6, floats(128, 32) / 12), (_COLUMNS, P(), P())
    ),
    "accumulated gradients, fully sharded": Program(
        _accumulated,
        (floats(4, 64, 32), floats(32, 128) / 6, floats(128, 32) / 12),
        (_COLUMNS, _ROWS, _ROWS),
        results=(_ROWS, _ROWS),
    ),
    "vocabulary parallel likelihood, training": Program(
        _vocabulary_step, (floats(64, 32), floats(2048, 32), words(64, below=2048)), (_ROWS, P("y"), _ROWS), GRID
    ),
    "Adafactor, split both ways": Program(
        _factored,
        (floats(256, 128), floats(256, 128, seed=1), np.ones(256, np.float32), np.ones(128, np.float32)),
        (P("x", "y"), P("x", "y"), P("x"), P("y")),
        GRID,
    ),
    "Muon, split matrices": Program(_orthogonalized, _MATRICES, (P(None, None, "x"),) * 3),
    "Muon, split rows": Program(_orthogonalized, _MATRICES, (P(None, "x"),) * 3),
    "Muon, split both ways": Program(_orthogonalized, _MATRICES, (P(None, "x", "y"),) * 3, GRID),
    "U-Net, split rows": Program(_hourglass_step, (floats(2, 64, 32, 4), *_KERNELS), (_COLUMNS, *[P()] * 5)),
    "U-Net, split rows and columns": Program(
        lambda x, *k: _hourglass(x, k), (floats(2, 64, 32, 4), *_KERNELS), (P(None, "x", "y"), *[P()] * 5), GRID
    ),
    "contrastive likelihood, training": Program(
        _contrastive, (floats(64, 32), floats(64, 48), floats(32, 16), floats(48, 16)), (_ROWS, _ROWS, P(), P())
    ),
    "LSTM, split batch, training": Program(
        _lstm_step, (floats(12, 32, 16), floats(16, 128) / 4, floats(32, 128) / 6), (_COLUMNS, P(), P())
    ),
    "LSTM, split features": Program(
        _lstm, (floats(12, 32, 16), floats(16, 128) / 4, floats(32, 128) / 6), (P(), _COLUMNS, _COLUMNS)
    ),
    "words written, tensor parallel": Program(
        _written,
        (words(8, below=256), floats(256, 32), floats(32, 32) / 6, floats(32, 32, seed=1) / 6, floats(32, 32) / 8),
        (P(), _ROWS, _COLUMNS, _COLUMNS, _ROWS),
    ),
    "attention by heads of a split sequence": Program(
        _grouped_heads, _HEADS, (_COLUMNS,) * 3, alone=without_axes(_grouped_heads)
    ),
    "windowed attention, split sequence": Program(_windowed, _HEADS, (_COLUMNS,) * 3),
}
