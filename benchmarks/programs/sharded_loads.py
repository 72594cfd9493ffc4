"""JAX programs over eight devices: training along three axes, with states split otherwise, tables, and decoding."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax, numpy as jnp
from jax.sharding import PartitionSpec as P

from benchmarks.programs.sharded import GRID, Program, floats, split, words

_ROWS, _COLUMNS, _BOTH = P("x"), P(None, "x"), P("x", "y")
_CUBE = (2, 2, 2)


def _norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def _heads(x: Any, qkv: Any, out: Any) -> Any:
    q, k, v = jnp.einsum("btd,cdhk->cbthk", x, qkv)
    weights = jax.nn.softmax(jnp.einsum("bqhk,bshk->bhqs", q, k) / math.sqrt(q.shape[-1]))
    return jnp.einsum("bhqs,bshk,hkd->bqd", weights, v, out)


# -- training -------------------------------------------------------------------------------------------------


def _layer(x: Any, w: Any) -> Any:
    x = x + _heads(_norm(x), w["qkv"], w["out"])
    return x + jax.nn.gelu(_norm(x) @ w["up"]) @ w["down"]


def _layers(number: int, model: int, hidden: int) -> dict[str, Any]:
    heads, size = 4, model // 4
    return {
        "qkv": floats(number, 3, model, heads, size) / 6,
        "out": floats(number, heads, size, model) / 6,
        "up": floats(number, model, hidden) / 6,
        "down": floats(number, hidden, model) / 9,
    }


_TENSOR_SPECS = {
    "qkv": P("z", None, None, "y"),
    "out": P("z", "y"),
    "up": P("z", None, "y"),
    "down": P("z", "y"),
}


def _three_ways(x: Any, weights: Any, *, by_hand: bool = True) -> Any:
    """A step of layers split over batch, heads and stages; a stage sends its microbatch on by a permutation."""

    def stages(w: Any, batches: Any) -> Any:
        count = lax.axis_size("z")
        here = lax.axis_index("z")
        layers = jax.tree.map(lambda a: a[0], w)

        def tick(carried: Any, number: Any) -> Any:
            given = jnp.where(here == 0, batches[jnp.minimum(number, batches.shape[0] - 1)], carried)
            done = _layer(given, layers)
            return lax.ppermute(done, "z", [(i, i + 1) for i in range(count - 1)]), done

        start = lax.pcast(jnp.zeros_like(batches[0]), ("z",), to="varying")
        _, done = lax.scan(tick, start, jnp.arange(batches.shape[0] + count - 1))
        last = jnp.where(here == count - 1, done[count - 1 :], 0)
        return lax.psum(last, "z")

    def alone(w: Any, batches: Any) -> Any:
        for number in range(w["up"].shape[0]):
            batches = jax.vmap(lambda b, number=number: _layer(b, jax.tree.map(lambda a: a[number], w)))(batches)
        return batches

    def loss(w: Any) -> Any:
        if by_hand:
            run = jax.shard_map(stages, in_specs=(P("z"), P()), out_specs=P(), axis_names={"z"})
        else:
            run = alone
        return (run(w, x) ** 2).mean()

    value, gradients = jax.value_and_grad(loss)(weights)
    return value, jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)


def _split_states(words: Any, table: Any, first: Any, second: Any, head: Any) -> Any:
    """Adam on an embedding, whose moments are split along features while the table is along words."""

    def loss(w: Any) -> Any:
        scores = _norm(w[0][words].mean(1)) @ w[1]
        return -(jax.nn.log_softmax(scores)[:, 0]).mean()

    gradients = jax.grad(loss)((table, head))
    m = 0.9 * first + 0.1 * gradients[0]
    v = 0.99 * second + 0.01 * gradients[0] ** 2
    return table - 0.1 * m / (jnp.sqrt(v) + 1e-3), m, v, head - 0.1 * gradients[1]


def _remat_layers(x: Any, weights: Any) -> Any:
    """Layers whose weights are split along both axes, gathered in a scan that keeps only what it must."""

    @partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable)
    def one(h: Any, w: Any) -> Any:
        w = jax.tree.map(split, w)
        return split(_layer(h, w), ("x", "y")), None

    def loss(w: Any) -> Any:
        return (lax.scan(one, x, w)[0] ** 2).mean()

    gradients = jax.grad(loss)(weights)
    norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(gradients)))
    return jax.tree.map(lambda w, g: w - 0.1 * g * jnp.minimum(1, 1 / norm), weights, gradients)


def _sequence_norms(x: Any, up: Any, down: Any, scale: Any) -> Any:
    """Norms and dropout on a split sequence, products on split features."""

    def loss(w: Any) -> Any:
        up, down, scale = w
        h = x
        for key in range(2):
            y = split(_norm(h) * scale, "x", "y")
            y = split(jax.nn.silu(y @ up), "x", None, "y")
            y = split(y @ down, "x", "y")
            h = h + jnp.where(jax.random.bernoulli(jax.random.key(key), 0.9, y.shape), y / 0.9, 0)
        return (h**2).mean()

    return jax.grad(loss)((up, down, scale))


def _vocabulary_by_hand(h: Any, table: Any, words: Any) -> Any:
    """Cross entropy with the vocabulary split, by hand: largest and sum over the parts, and its gradients."""

    def part(h: Any, table: Any, words: Any) -> Any:
        scores = h @ table.T
        top = lax.pmax(lax.stop_gradient(scores).max(-1), "x")
        total = lax.psum(jnp.exp(scores - top[:, None]).sum(-1), "x")
        own = words - lax.axis_index("x") * table.shape[0]
        there = (own >= 0) & (own < table.shape[0])
        picked = jnp.take_along_axis(scores, jnp.clip(own, 0, table.shape[0] - 1)[:, None], 1)[:, 0]
        said = lax.psum(jnp.where(there, picked, 0), "x")
        return (jnp.log(total) + top - said).mean()

    run = jax.shard_map(part, in_specs=(P(), _ROWS, P()), out_specs=P())
    return jax.value_and_grad(run, argnums=(0, 1))(h, table, words)


def _ranking(tables: Any, names: Any, dense: Any, bottom: Any, top: Any) -> Any:
    """Recommendation: each device has some tables for all rows, then all features for some rows."""

    def loss(w: Any) -> Any:
        tables, bottom, top = w
        found = jax.vmap(lambda t, n: t[n], in_axes=(0, 1), out_axes=1)(tables, names)
        found = split(found, "x")
        mine = jax.nn.relu(split(dense, "x") @ bottom)
        every = jnp.concatenate([mine[:, None], found], 1)
        pairs = jnp.einsum("bif,bjf->bij", every, every)
        rows, columns = np.triu_indices(every.shape[1], 1)
        return jax.nn.softplus(jnp.concatenate([mine, pairs[:, rows, columns]], 1) @ top).mean()

    return jax.grad(loss)((tables, bottom, top))


def _pairs_of_words(center: Any, context: Any, wrong: Any, left: Any, right: Any) -> Any:
    """Two split tables trained on pairs and on wrong pairs."""

    def loss(w: Any) -> Any:
        left, right = w
        near = (left[center] * right[context]).sum(-1)
        far = jnp.einsum("bf,bkf->bk", left[center], right[wrong])
        return jax.nn.softplus(-near).mean() + jax.nn.softplus(far).mean()

    gradients = jax.grad(loss)((left, right))
    return left - gradients[0], right - gradients[1]


def _alignments(scores: Any, labels: Any) -> Any:
    """The likelihood of labels under all alignments (CTC), and its gradient."""

    def loss(scores: Any) -> Any:
        logs = jax.nn.log_softmax(scores)
        count = labels.shape[1]
        wide = jnp.zeros((labels.shape[0], 2 * count + 1), labels.dtype).at[:, 1::2].set(labels)
        skips = (wide[:, 2:] != wide[:, :-2]) & (wide[:, 2:] != 0)
        skips = jnp.pad(skips, ((0, 0), (2, 0)))
        start = jnp.full(wide.shape, -1e5).at[:, 0].set(0.0)

        def step(alpha: Any, now: Any) -> Any:
            one = jnp.pad(alpha[:, :-1], ((0, 0), (1, 0)), constant_values=-1e5)
            two = jnp.pad(alpha[:, :-2], ((0, 0), (2, 0)), constant_values=-1e5)
            alpha = jnp.logaddexp(jnp.logaddexp(alpha, one), jnp.where(skips, two, -1e5))
            return alpha + jnp.take_along_axis(now, wide, 1), None

        alpha, _ = lax.scan(step, start, logs.transpose(1, 0, 2))
        return -jnp.logaddexp(alpha[:, -1], alpha[:, -2]).mean()

    return jax.value_and_grad(loss)(scores)


def _neural_ode(x: Any, first: Any, second: Any) -> Any:
    """Gradients through steps of Runge and Kutta."""

    def loss(w: Any) -> Any:
        def f(y: Any) -> Any:
            return jnp.tanh(y @ w[0]) @ w[1]

        def step(y: Any, _: Any) -> Any:
            a = f(y)
            b = f(y + 0.05 * a)
            c = f(y + 0.05 * b)
            d = f(y + 0.1 * c)
            return y + 0.1 / 6 * (a + 2 * b + 2 * c + d), None

        return (lax.scan(step, x, length=8)[0] ** 2).mean()

    return jax.grad(loss)((first, second))


# -- decoding ---------------------------------------------------------------------------------------------------


def _decoded(x: Any, cache: Any, place: Any, weights: Any) -> Any:
    """Words written one after the other; one head of keys and values for all, in a cache along the sequence."""
    query, key, value, out = weights

    def step(state: Any, number: Any) -> Any:
        h, keys, values = state
        at = place + number
        keys = lax.dynamic_update_slice(keys, (h @ key)[:, None], (0, at, 0))
        values = lax.dynamic_update_slice(values, (h @ value)[:, None], (0, at, 0))
        q = jnp.einsum("bd,dhk->bhk", h, query)
        scores = jnp.einsum("bhk,bsk->bhs", q, keys)
        scores = jnp.where(jnp.arange(keys.shape[1]) <= at, scores, -1e9)
        seen = jnp.einsum("bhs,bsk,hkd->bd", jax.nn.softmax(scores), values, out)
        return (jnp.tanh(h + seen), keys, values), seen

    (_, keys, values), seen = lax.scan(step, (x, *cache), jnp.arange(4))
    return seen, keys, values


def _verified(guessed: Any, drafts: Any, scores: Any) -> Any:
    """How many of the guessed words are accepted, and the word after them."""
    likely = jax.nn.softmax(scores)
    mine = jnp.take_along_axis(likely[:, :-1], guessed[..., None], 2)[..., 0]
    ratio = jnp.minimum(1, mine / drafts)
    accepted = jnp.cumprod(ratio > 0.3, axis=1).sum(1)
    following = jnp.take_along_axis(scores, accepted[:, None, None], 1)[:, 0].argmax(-1)
    return accepted, following


def _best_of_both(scores: Any, features: Any) -> Any:
    """The best columns of each row, whose features are looked up."""
    best, places = lax.top_k(scores, 6)
    return jnp.einsum("rk,rkf->rf", jax.nn.softmax(best), features[places]), places


_WEIGHTS = _layers(4, 32, 64)
_BOTH_AXES = {
    "qkv": P(None, None, ("x", "y")),
    "out": P(None, None, None, ("x", "y")),
    "up": P(None, ("x", "y")),
    "down": P(None, ("x", "y")),
}

LOADS: dict[str, Program] = {
    "batch, heads and stages, training": Program(
        _three_ways,
        (floats(4, 4, 8, 32), _layers(2, 32, 64)),
        (P(None, "x"), _TENSOR_SPECS),
        _CUBE,
        alone=partial(_three_ways, by_hand=False),
    ),
    "a table of split rows, moments of split columns": Program(
        _split_states,
        (
            words(64, 6, below=256),
            floats(256, 32),
            floats(256, 32, seed=1) / 9,
            np.abs(floats(256, 32, seed=2)),
            floats(32, 8),
        ),
        (_ROWS, _ROWS, _COLUMNS, _COLUMNS, P()),
        results=(_ROWS, _COLUMNS, _COLUMNS, P()),
    ),
    "layers split both ways, what is kept chosen": Program(
        _remat_layers, (floats(16, 8, 32), _WEIGHTS), (P(("x", "y")), _BOTH_AXES), GRID, results=_BOTH_AXES
    ),
    "norms of a split sequence, training": Program(
        _sequence_norms,
        (floats(8, 16, 32), floats(32, 64) / 6, floats(64, 32) / 8, floats(32)),
        (_BOTH, P(None, "y"), P("y"), P()),
        GRID,
    ),
    "cross entropy of a split vocabulary, by hand, training": Program(
        _vocabulary_by_hand, (floats(32, 16), floats(256, 16), words(32, below=256)), (P(), _ROWS, P())
    ),
    "tables on devices, rows afterwards, training": Program(
        _ranking,
        (floats(8, 64, 16), words(64, 8, below=64), floats(64, 12), floats(12, 16) / 4, floats(52, 1) / 7),
        (_ROWS, P(), _ROWS, P(), P()),
    ),
    "pairs of words in two tables, training": Program(
        _pairs_of_words,
        (
            words(64, below=256),
            words(2, 64, below=256)[1],
            words(64, 4, below=256),
            floats(256, 16),
            floats(256, 16, seed=1),
        ),
        (_ROWS, _ROWS, _ROWS, _ROWS, _ROWS),
    ),
    "alignments of labels, split batch": Program(
        _alignments, (floats(16, 20, 12), 1 + words(16, 6, below=11)), (_ROWS, _ROWS)
    ),
    "alignments of labels, split classes": Program(
        _alignments, (floats(16, 20, 16), 1 + words(16, 6, below=15)), (P(None, None, "x"), P())
    ),
    "a differential equation, training": Program(
        _neural_ode, (floats(64, 16), floats(16, 48) / 4, floats(48, 16) / 7), (_ROWS, P(None, "y"), P("y")), GRID
    ),
    "words written, one head of keys, split sequence": Program(
        _decoded,
        (
            floats(4, 32),
            (floats(4, 64, 16), floats(4, 64, 16, seed=1)),
            np.int32(30),
            (floats(32, 8, 16) / 6, floats(32, 16) / 6, floats(32, 16, seed=1) / 6, floats(8, 16, 32) / 11),
        ),
        (P(), _COLUMNS, P(), P()),
    ),
    "words written, one head of keys, split batch and sequence": Program(
        _decoded,
        (
            floats(4, 32),
            (floats(4, 64, 16), floats(4, 64, 16, seed=1)),
            np.int32(30),
            (floats(32, 8, 16) / 6, floats(32, 16) / 6, floats(32, 16, seed=1) / 6, floats(8, 16, 32) / 11),
        ),
        (P("x"), P("x", "y"), P(), P()),
        GRID,
    ),
    "guessed words verified, split batch": Program(
        _verified, (words(16, 5, below=64), np.abs(floats(16, 5)) / 9, floats(16, 6, 64)), (_ROWS, _ROWS, _ROWS)
    ),
    "guessed words verified, split vocabulary": Program(
        _verified,
        (words(16, 5, below=64), np.abs(floats(16, 5)) / 9, floats(16, 6, 64)),
        (P(), P(), P(None, None, "x")),
    ),
    "best columns, split both ways": Program(_best_of_both, (floats(32, 64), floats(64, 12)), (_BOTH, P("y")), GRID),
}
