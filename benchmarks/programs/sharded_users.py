"""JAX programs over eight devices as training and serving code has them: layers in a scan that keeps some products,
experts and tables sent to their devices, pipelines and rings with gradients, caches, and states of optimizers in parts.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax, numpy as jnp
from jax.sharding import PartitionSpec as P

from benchmarks.programs.sharded import GRID, Program, floats, split, words

_ROWS, _COLUMNS = P("x"), P(None, "x")


def _normed(x: Any, scale: Any = 1.0) -> Any:
    return x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale


def _ring(count: int) -> list[tuple[int, int]]:
    return [(i, (i + 1) % count) for i in range(count)]


def _updated(loss: Any, weights: Any, rate: float = 0.1) -> Any:
    value, gradients = jax.value_and_grad(loss)(weights)
    return value, jax.tree.map(lambda w, g: w - rate * g, weights, gradients)


# -- language models ------------------------------------------------------------------------------------


def _causal(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    places = jnp.arange(q.shape[1])
    scores = jnp.where(places[:, None] >= places, scores, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)


def _gpt(weights: Any, tokens: Any) -> Any:
    """The mean negative log-likelihood of the next words; layers are a scan that keeps products without batches."""

    def layer(x: Any, w: Any) -> Any:
        h = _normed(x, w["scale"])
        q, k, v = jnp.split(jnp.einsum("bsd,dhe->bshe", h, w["qkv"]), 3, axis=-1)
        x = split(x + jnp.einsum("bshe,hed->bsd", _causal(q, k, v), w["out"]), "x")
        return split(x + jax.nn.gelu(_normed(x) @ w["up"]) @ w["down"], "x"), None

    x = split(weights["table"][tokens[:, :-1]] + weights["places"], "x")
    kept = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    x, _ = lax.scan(jax.checkpoint(layer, policy=kept), x, weights["layers"])
    scores = jax.nn.log_softmax(_normed(x) @ weights["table"].T)
    return -jnp.take_along_axis(scores, tokens[:, 1:, None], -1).mean()


def _gpt_step(tokens: Any, table: Any, places: Any, scale: Any, qkv: Any, out: Any, up: Any, down: Any) -> Any:
    layers = {"scale": scale, "qkv": qkv, "out": out, "up": up, "down": down}
    return _updated(lambda w: _gpt(w, tokens), {"table": table, "places": places, "layers": layers})


_GPT = (
    words(16, 33, below=128),
    floats(128, 32) / 6,
    floats(32, 32, seed=1) / 6,
    np.ones((3, 32), np.float32),
    floats(3, 32, 4, 24) / 6,
    floats(3, 4, 8, 32) / 6,
    floats(3, 32, 128) / 6,
    floats(3, 128, 32) / 11,
)
_GPT_FULLY = (
    P("x"),
    P("x"),
    P(None, "x"),
    P(None, "x"),
    P(None, "x"),
    P(None, None, None, "x"),
    P(None, "x"),
    P(None, "x"),
)
_GPT_TENSOR = (
    P("x"),
    P("y", "x"),
    P(None, "x"),
    P(),
    P(None, "x", "y"),
    P(None, "y", None, "x"),
    P(None, "x", "y"),
    P(None, "y", "x"),
)


def _blocks_of_words(x: Any, table: Any, labels: Any) -> Any:
    """A loss over a split vocabulary, block by block of the words, so that no more scores are held at a time."""

    def loss(w: Any) -> Any:
        x, table = w

        @jax.checkpoint
        def add(total: Any, block: Any) -> Any:
            rows, names = block
            scores = split(rows @ table.T, None, "x")
            own = jnp.take_along_axis(scores, names[:, None], 1)[:, 0]
            return total + (jax.nn.logsumexp(scores, 1) - own).sum(), None

        return lax.scan(add, 0.0, (x.reshape(4, -1, x.shape[-1]), labels.reshape(4, -1)))[0] / x.shape[0]

    return _updated(loss, (x, table))


def _decoded(cache: Any, words_: Any, table: Any, qkv: Any, out: Any) -> Any:
    """Words written one after the other, with keys and values of earlier ones in a cache."""

    def write(carry: Any) -> Any:
        place, cache, word, written = carry
        x = table[word]
        q, k, v = jnp.split(jnp.einsum("bd,dhe->bhe", _normed(x), qkv), 3, axis=-1)
        cache = tuple(lax.dynamic_update_index_in_dim(c, a, place, 1) for c, a in zip(cache, (k, v), strict=True))
        scores = jnp.einsum("bhe,bshe->bhs", q, cache[0])
        scores = jnp.where(jnp.arange(scores.shape[-1]) <= place, scores, -1e9)
        x = x + jnp.einsum("bhs,bshe,hed->bd", jax.nn.softmax(scores), cache[1], out)
        word = jnp.argmax(_normed(x) @ table.T, -1).astype(jnp.int32)
        return place + 1, cache, word, written.at[:, place].set(word)

    start = jnp.int32(0), (cache[0], cache[1]), words_, jnp.zeros((words_.shape[0], 12), jnp.int32)
    _, cache, _, written = lax.while_loop(lambda carry: carry[0] < 12, write, start)
    return *cache, written


_DECODED = (floats(2, 8, 32, 8, 4) * 0, words(8, below=64), floats(64, 32), floats(32, 8, 12) / 6, floats(8, 4, 32) / 6)


def _pages(q: Any, keys: Any, values: Any, table: Any, lengths: Any) -> Any:
    """Attention over a cache in pages, of which each sequence has its own by a table."""
    k, v = (a[table].reshape(q.shape[0], -1, *a.shape[2:]) for a in (keys, values))
    scores = jnp.einsum("bhd,bkhd->bhk", q, k)
    scores = jnp.where(jnp.arange(k.shape[1]) < lengths[:, None, None], scores, -1e9)
    return jnp.einsum("bhk,bkhd->bhd", jax.nn.softmax(scores), v)


_PAGED = (
    floats(16, 8, 4),
    floats(64, 8, 8, 4),
    floats(64, 8, 8, 4, seed=1),
    words(16, 4, below=64),
    1 + words(16, below=31),
)


# -- experts, tables, rings, pipelines ----------------------------------------------------------------------


def _sent_to_experts(x: Any, gate: Any, up: Any, down: Any) -> Any:
    """Each device has an expert and some rows; rows go to their experts, and back."""

    def part(x: Any, gate: Any, up: Any, down: Any) -> Any:
        scores = jax.nn.softmax(x @ gate)
        best = scores.argmax(-1)
        place = (jnp.cumsum(jax.nn.one_hot(best, gate.shape[1], dtype=jnp.int32), 0) - 1)[jnp.arange(x.shape[0]), best]
        boxes = jnp.zeros((gate.shape[1], *x.shape)).at[best, place].add(x, mode="drop")
        boxes = lax.all_to_all(boxes, "x", 0, 1, tiled=True)
        done = jnp.einsum("ech,ehd->ecd", jax.nn.silu(jnp.einsum("ecd,edh->ech", boxes, up)), down)
        done = lax.all_to_all(done, "x", 1, 0, tiled=True)
        back = done.at[best, place].get(mode="fill", fill_value=0)
        return back * scores.max(-1, keepdims=True)

    return jax.shard_map(part, in_specs=(_ROWS, P(), _ROWS, _ROWS), out_specs=_ROWS)(x, gate, up, down)


def _sent_to_experts_step(x: Any, *weights: Any) -> Any:
    return _updated(lambda w: (_sent_to_experts(x, *w) ** 2).mean(), weights)


def _experts_choose(x: Any, gate: Any, up: Any, down: Any) -> Any:
    """Each expert takes the 16 rows that it likes most, of all devices'."""
    values, rows = lax.top_k(jax.nn.softmax(x @ gate).T, 16)
    done = jnp.einsum("ech,ehd->ecd", jax.nn.relu(jnp.einsum("ecd,edh->ech", x[rows], up)), down)
    return jnp.zeros_like(x).at[rows.reshape(-1)].add((done * values[..., None]).reshape(-1, x.shape[1]))


def _experts_choose_step(x: Any, *weights: Any) -> Any:
    return _updated(lambda w: (_experts_choose(x, *w) ** 2).mean(), weights)


_EXPERTS = (floats(64, 16), floats(16, 8), floats(8, 16, 32) / 4, floats(8, 32, 16) / 6)


def _tables(tables: Any, places: Any, x: Any, mix: Any) -> Any:
    """Rows of eight tables, each on its device, sent to the device of each example; then products of all pairs."""

    def part(tables: Any, places: Any, x: Any, mix: Any) -> Any:
        rows = jax.vmap(lambda t, p: t[p].sum(1))(tables, places)
        rows = lax.all_to_all(rows, "x", 1, 0, tiled=True)
        rows = jnp.concatenate([rows, (x @ mix)[None]])
        pairs = jnp.einsum("fbd,gbd->bfg", rows, rows)
        return lax.pmean((pairs**2).mean(), "x")

    specs = (_ROWS, _ROWS, _ROWS, P())
    return jax.shard_map(part, in_specs=specs, out_specs=P())(tables, places, x, mix)


def _tables_step(tables: Any, places: Any, x: Any, mix: Any) -> Any:
    return _updated(lambda w: _tables(w[0], places, x, w[1]), (tables, mix))


def _microbatches(x: Any, weights: Any) -> Any:
    """A stage on each device; microbatches go from one to the next."""

    def part(x: Any, weights: Any) -> Any:
        count, stage = lax.axis_size("x"), lax.axis_index("x")

        @jax.checkpoint
        def tick(carry: Any, time: Any) -> Any:
            held, done = carry
            given = lax.dynamic_index_in_dim(x, jnp.clip(time, 0, x.shape[0] - 1), 0, keepdims=False)
            held = jnp.where(stage == 0, given, held)
            for weight in weights:
                held = jnp.tanh(held @ weight)
            place = time - count + 1
            kept = done.at[jnp.clip(place, 0)].set(held)
            done = jnp.where((stage == count - 1) & (place >= 0), kept, done)
            return (lax.ppermute(held, "x", _ring(count)), done), None

        start = lax.pcast((x[0] * 0, x * 0), "x", to="varying")
        done = lax.scan(tick, start, jnp.arange(x.shape[0] + count - 1))[0][1]
        return lax.psum(jnp.where(stage == count - 1, done, 0), "x")

    return jax.shard_map(part, in_specs=(P(), _ROWS), out_specs=P())(x, weights)


def _microbatches_step(x: Any, weights: Any) -> Any:
    return _updated(lambda w: (_microbatches(x, w) ** 2).mean(), weights)


@jax.custom_vjp
def _ring_part(q: Any, k: Any, v: Any) -> Any:
    return _ring_forward(q, k, v)[0]


def _ring_scores(q: Any, k: Any, turn: Any) -> Any:
    count, own = lax.axis_size("x"), lax.axis_index("x")
    here = own * q.shape[0] + jnp.arange(q.shape[0])
    there = (own - turn) % count * k.shape[0] + jnp.arange(k.shape[0])
    scores = jnp.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
    return jnp.where(here[:, None] >= there, scores, -1e9)


def _ring_forward(q: Any, k: Any, v: Any) -> Any:
    count = lax.axis_size("x")

    def step(carry: Any, turn: Any) -> Any:
        k, v, out, total = carry
        scores = _ring_scores(q, k, turn)
        new = jnp.logaddexp(total, jax.nn.logsumexp(scores, -1))
        own = jnp.einsum("hqk,khd->qhd", jnp.exp(scores - new[..., None]), v)
        out = out * jnp.exp(total - new).T[..., None] + own
        return (*(lax.ppermute(a, "x", _ring(count)) for a in (k, v)), out, new), None

    start = k, v, q * 0, q[..., 0].T * 0 - 1e30
    k, v, out, total = lax.scan(step, start, jnp.arange(count))[0]
    return out, (q, k, v, out, total)


def _ring_backward(kept: Any, given: Any) -> Any:
    q, k, v, out, total = kept
    count = lax.axis_size("x")
    rows = (out * given).sum(-1).T

    def step(carry: Any, turn: Any) -> Any:
        k, v, dk, dv, dq = carry
        shares = jnp.exp(_ring_scores(q, k, turn) - total[..., None])
        change = shares * (jnp.einsum("qhd,khd->hqk", given, v) - rows[..., None]) / q.shape[-1] ** 0.5
        dq = dq + jnp.einsum("hqk,khd->qhd", change, k)
        dk = dk + jnp.einsum("hqk,qhd->khd", change, q)
        dv = dv + jnp.einsum("hqk,qhd->khd", shares, given)
        return (*(lax.ppermute(a, "x", _ring(count)) for a in (k, v, dk, dv)), dq), None

    _, _, dk, dv, dq = lax.scan(step, (k, v, k * 0, v * 0, q * 0), jnp.arange(count))[0]
    return dq, dk, dv


_ring_part.defvjp(_ring_forward, _ring_backward)


def _ring_step(q: Any, k: Any, v: Any) -> Any:

    def loss(w: Any) -> Any:
        return (jax.shard_map(_ring_part, in_specs=(_ROWS,) * 3, out_specs=_ROWS)(*w) ** 2).mean()

    return _updated(loss, (q, k, v))


def _pairs_in_a_ring(images: Any, texts: Any) -> Any:
    """A sigmoid loss of all pairs of images and texts, where the texts go round."""

    def part(images: Any, texts: Any) -> Any:
        count = lax.axis_size("x")

        def turn(texts: Any, number: Any) -> Any:
            own = (number == 0) * jnp.eye(images.shape[0])
            loss = -jax.nn.log_sigmoid((2 * own - 1) * (images @ texts.T - 1)).sum()
            return lax.ppermute(texts, "x", _ring(count)), loss

        return lax.pmean(lax.scan(turn, texts, jnp.arange(count))[1].sum() / images.shape[0], "x")

    return _updated(lambda w: jax.shard_map(part, in_specs=(_ROWS, _ROWS), out_specs=P())(*w), (images, texts))


# -- optimizers ---------------------------------------------------------------------------------------------


def _zero_by_hand(up: Any, down: Any, states: Any, x: Any) -> Any:
    """Whole weights; each device has its part of the optimizer's states and updates its part of the weights."""

    def part(weights: Any, states: Any, x: Any) -> Any:
        weights = lax.pcast(weights, "x", to="varying")
        loss, gradients = jax.value_and_grad(lambda w: ((jax.nn.gelu(x @ w[0]) @ w[1]) ** 2).mean())(weights)
        gradients = jax.tree.map(lambda g: lax.psum_scatter(g, "x", tiled=True) / lax.axis_size("x"), gradients)
        norm = jnp.sqrt(lax.psum(sum((g**2).sum() for g in gradients), "x"))
        gradients = jax.tree.map(lambda g: g / jnp.maximum(norm, 1), gradients)
        states = jax.tree.map(lambda s, g: 0.9 * s + g, states, tuple(gradients))
        own = [
            lax.dynamic_slice_in_dim(w, lax.axis_index("x") * s.shape[0], s.shape[0])
            for w, s in zip(weights, states, strict=True)
        ]
        new = [lax.all_gather(w - 0.01 * s, "x", tiled=True) for w, s in zip(own, states, strict=True)]
        return lax.pmean(loss, "x"), new, states

    return jax.shard_map(part, in_specs=(P(), _ROWS, _ROWS), out_specs=(P(), P(), _ROWS), check_vma=False)(
        [up, down], states, x
    )


def _own_steps(weights: Any, x: Any, y: Any) -> Any:
    """What four steps change."""

    def step(w: Any, batch: Any) -> Any:
        return w - 0.05 * jax.grad(lambda w: ((jnp.tanh(batch[0] @ w) - batch[1]) ** 2).mean())(w), None

    return lax.scan(step, weights, (x.reshape(4, -1, x.shape[-1]), y.reshape(4, -1, y.shape[-1])))[0] - weights


def _local_steps(weights: Any, x: Any, y: Any) -> Any:
    """Four steps of each device on its own rows, then the mean of the changes."""

    def part(weights: Any, x: Any, y: Any) -> Any:
        change = _own_steps(lax.pcast(weights, "x", to="varying"), x, y)
        return weights + 0.7 * lax.pmean(change, "x")

    return jax.shard_map(part, in_specs=(P(), _ROWS, _ROWS), out_specs=P())(weights, x, y)


def _local_steps_alone(weights: Any, x: Any, y: Any) -> Any:
    parts = (a.reshape(8, -1, a.shape[-1]) for a in (x, y))
    return weights + 0.7 * jax.vmap(_own_steps, (None, 0, 0))(weights, *parts).mean(0)


def _shampoo(weights: Any, left: Any, right: Any, x: Any) -> Any:
    """Preconditioned by roots of the sums of outer products, for a stack of matrices that is split."""
    gradient = jax.grad(lambda w: (jnp.einsum("bi,nij->nbj", x, w) ** 2).mean())(weights)
    left = left + jnp.einsum("nij,nkj->nik", gradient, gradient)
    right = right + jnp.einsum("nij,nik->njk", gradient, gradient)

    def root(m: Any) -> Any:
        values, vectors = jnp.linalg.eigh(m + 1e-2 * jnp.eye(m.shape[-1]))
        return jnp.einsum("nij,nj,nkj->nik", vectors, values**-0.25, vectors)

    return weights - 0.01 * root(left) @ gradient @ root(right), left, right


USERS: dict[str, Program] = {
    "GPT in a scan, fully sharded, training": Program(_gpt_step, _GPT, _GPT_FULLY),
    "GPT in a scan, data and tensor, training": Program(_gpt_step, _GPT, _GPT_TENSOR, GRID),
    "loss of a split vocabulary in blocks, training": Program(
        _blocks_of_words, (floats(64, 32), floats(256, 32), words(64, below=256)), (P(), _ROWS, P())
    ),
    "cache, split heads": Program(_decoded, _DECODED, (P(None, None, None, "x"), P(), _ROWS, _COLUMNS, _ROWS)),
    "cache, split sequence": Program(_decoded, _DECODED, (P(None, None, "x"), P(), _ROWS, P(), P())),
    "cache, split batch and heads": Program(
        _decoded, _DECODED, (P(None, "x", None, "y"), P("x"), P(), P(None, "y"), P("y")), GRID
    ),
    "pages of a cache, split pages": Program(_pages, _PAGED, (P(), _ROWS, _ROWS, P(), P())),
    "pages of a cache, split batch and heads": Program(
        _pages, _PAGED, (P("x", "y"), P(None, None, "y"), P(None, None, "y"), P("x"), P("x")), GRID
    ),
    "rows sent to experts, training": Program(_sent_to_experts_step, _EXPERTS, (_ROWS, P(), _ROWS, _ROWS)),
    "experts choose rows, training": Program(_experts_choose_step, _EXPERTS, (_ROWS, P(), _ROWS, _ROWS)),
    "a table on each device, training": Program(
        _tables_step,
        (floats(8, 64, 8), words(8, 32, 3, below=64), floats(32, 16), floats(16, 8)),
        (_ROWS, _ROWS, _ROWS, P()),
    ),
    "pipeline of microbatches, training": Program(
        _microbatches_step, (floats(6, 4, 16), floats(8, 16, 16) / 4), (P(), _ROWS)
    ),
    "ring attention with its own gradient, training": Program(
        _ring_step, (floats(64, 4, 8), floats(64, 4, 8, seed=1), floats(64, 4, 8, seed=2)), (_ROWS,) * 3
    ),
    "pairs in a ring, training": Program(_pairs_in_a_ring, (floats(32, 16), floats(32, 16, seed=1)), (_ROWS, _ROWS)),
    "states in parts, by hand": Program(
        _zero_by_hand,
        (floats(32, 64) / 6, floats(64, 32) / 8, (floats(32, 64, seed=1), floats(64, 32, seed=1)), floats(64, 32)),
        (P(), P(), _ROWS, _ROWS),
    ),
    "steps of each device, then the mean": Program(
        _local_steps,
        (floats(16, 8) / 4, floats(128, 16), floats(128, 8)),
        (P(), _ROWS, _ROWS),
        alone=_local_steps_alone,
    ),
    "Shampoo, split stack": Program(
        _shampoo,
        (floats(8, 12, 6), np.zeros((8, 12, 12), np.float32), np.zeros((8, 6, 6), np.float32), floats(16, 12)),
        (_ROWS, _ROWS, _ROWS, P()),
    ),
}
