"""Models of language and images as papers have them, small: training steps and decoders, in JAX alone."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from fuzz.library_programs.registry import program

_WORDS, _WIDTH, _HEADS, _GROUPS, _LAYERS = 97, 32, 4, 2, 2
_HEAD = _WIDTH // _HEADS


def _weights(key, rows, columns):
    return jax.random.normal(key, (rows, columns)) / math.sqrt(rows)


def _trained(loss, weights, batches, rate=0.05):
    """The losses of steps with momentum, and how large the weights are then."""

    def step(state, batch):
        weights, momentum = state
        value, gradients = jax.value_and_grad(loss)(weights, batch)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
        return (jax.tree.map(lambda w, m: w - rate * m, weights, momentum), momentum), value

    (weights, _), losses = lax.scan(step, (weights, jax.tree.map(jnp.zeros_like, weights)), batches)
    return losses, jax.tree.map(jnp.linalg.norm, weights)


# -- a transformer with rotary positions, whose heads share keys ------------------------------------


def _rotated(x, positions):
    half = x.shape[-1] // 2
    angles = positions[:, None, None] * 10000.0 ** (-jnp.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    sine, cosine = jnp.sin(angles), jnp.cos(angles)
    return jnp.concatenate([a * cosine - b * sine, a * sine + b * cosine], -1)


def _scaled(x):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def _attend(q, k, v, mask):
    k, v = (jnp.repeat(x, _HEADS // _GROUPS, 1) for x in (k, v))
    scores = jnp.einsum("qhd,khd->hqk", q, k) / math.sqrt(_HEAD)
    scores = jnp.where(mask, scores, -1e30)
    return jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores), v).reshape(len(q), _WIDTH)


def _transformer(key):
    sizes = {"q": _WIDTH, "k": _GROUPS * _HEAD, "v": _GROUPS * _HEAD, "o": _WIDTH, "gate": 64, "up": 64}
    keys = jax.random.split(key, (_LAYERS, len(sizes) + 1))
    layers = [{n: _weights(k[i], _WIDTH, s) for i, (n, s) in enumerate(sizes.items())} for k in keys]
    for layer, k in zip(layers, keys, strict=True):
        layer["down"] = _weights(k[-1], 64, _WIDTH)
    return {"words": _weights(key, _WORDS, _WIDTH), "layers": jax.tree.map(lambda *x: jnp.stack(x), *layers)}


def _layer(x, w, positions, remember):
    h = _scaled(x)
    q, k, v = ((h @ w[name]).reshape(len(x), -1, _HEAD) for name in "qkv")
    k, v, mask = remember(_rotated(k, positions), v)
    x = x + _attend(_rotated(q, positions), k, v, mask) @ w["o"]
    h = _scaled(x)
    return x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]


def _logits(weights, text):
    positions = jnp.arange(len(text))
    mask = positions[:, None] >= positions
    layer = lambda x, w: (_layer(x, w, positions, lambda k, v: (k, v, mask)), None)  # noqa: E731
    x, _ = lax.scan(jax.checkpoint(layer), weights["words"][text], weights["layers"])
    return _scaled(x) @ weights["words"].T


@program("models/transformer_of_short_texts")
def transformer_of_short_texts(key):
    """Sixteen words, so that a row of scores is as long as a vector of some processor."""
    texts = jax.random.randint(key, (3, 5, 16), 0, _WORDS)

    def loss(weights, batch):
        scores = jax.nn.log_softmax(jax.vmap(lambda text: _logits(weights, text))(batch)[:, :-1])
        return -jnp.mean(jnp.take_along_axis(scores, batch[:, 1:, None], -1))

    return _trained(loss, _transformer(key), texts)


@program("models/sampling_with_cache")
def sampling_with_cache(key):
    """One word after the other from those that have nine tenths of the probability, keys and values in a cache."""
    weights, length = _transformer(key), 24

    def step(state, key):
        keys, values, word, time = state

        def layer(x, inputs):
            w, keys, values = inputs

            def remember(k, v):
                kept = [lax.dynamic_update_slice(c, new, (time, 0, 0)) for c, new in ((keys, k), (values, v))]
                caches.extend(kept)
                return *kept, jnp.arange(length) <= time

            caches: list[jax.Array] = []
            return _layer(x, w, time[None], remember), tuple(caches)

        x, (keys, values) = lax.scan(layer, weights["words"][word][None], (weights["layers"], keys, values))
        logits = 3 * (_scaled(x) @ weights["words"].T)[0]
        falling = jnp.sort(logits)[::-1]
        least = falling[jnp.sum(jnp.cumsum(jax.nn.softmax(falling)) < 0.9)]
        word = jax.random.categorical(key, jnp.where(logits < least, -jnp.inf, logits))
        return (keys, values, word, time + 1), (word, jax.nn.logsumexp(logits))

    cache = jnp.zeros((_LAYERS, length, _GROUPS, _HEAD))
    start = (cache, cache, jnp.int32(3), jnp.int32(0))
    return lax.scan(step, start, jax.random.split(key, length))[1]


@program("models/beam_search")
def beam_search(key):
    """The most probable texts; those that have ended go on with nothing."""
    weights, beams, length = _transformer(key), 5, 12

    def step(state, time):
        texts, scores, ended = state
        logits = jax.vmap(lambda text: lax.dynamic_index_in_dim(_logits(weights, text), time, 0, keepdims=False))(texts)
        each = jax.nn.log_softmax(2 * logits)
        each = jnp.where(ended[:, None], jnp.where(jnp.arange(_WORDS) == 0, 0.0, -jnp.inf), each)
        scores, found = lax.top_k((scores[:, None] + each).reshape(-1), beams)
        parents, words = found // _WORDS, found % _WORDS
        texts = texts[parents].at[:, time + 1].set(words)
        return (texts, scores, ended[parents] | (words == 0)), parents

    start = (jnp.ones((beams, length), int), jnp.where(jnp.arange(beams) == 0, 0.0, -1e9), jnp.zeros(beams, bool))
    return lax.scan(step, start, jnp.arange(length - 1))


# -- other models ----------------------------------------------------------------------------------


@program("models/selective_state_space")
def selective_state_space(key):
    """A state space whose steps depend on its input, by an associative scan and its gradient."""
    # Of these sizes, LLVM's vectorizer once went through the branches of one fusion for longer than anyone waits.
    length, width, states = 64, 32, 8
    keys = jax.random.split(key, 6)
    names = {"b": states, "c": states, "step": width, "o": width}
    weights = {n: _weights(k, width, s) for k, (n, s) in zip(keys, names.items(), strict=False)}
    weights["a"] = jnp.log(jnp.tile(jnp.arange(1.0, states + 1), (width, 1)))

    def model(w, x):
        step = jax.nn.softplus(x @ w["step"])
        decay = jnp.exp(step[..., None] * -jnp.exp(w["a"]))
        given = step[..., None] * (x @ w["b"])[:, None] * x[..., None]
        _, h = lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (decay, given))
        return jnp.einsum("tds,ts->td", h, x @ w["c"]) @ w["o"]

    def loss(w, batch):
        return jnp.mean((jax.vmap(lambda x: model(w, x))(batch)[:, :-1] - batch[:, 1:]) ** 2)

    return _trained(loss, weights, jax.random.normal(keys[5], (3, 3, length, width)), 0.01)


@program("models/experts_with_capacity")
def experts_with_capacity(key):
    """Each word goes to the two best experts, as far as there is room with them."""
    experts, width, words, room = 8, 16, 64, 20
    keys = jax.random.split(key, 4)
    shapes = {"router": (width, experts), "up": (experts, width, 32), "down": (experts, 32, width)}
    weights = {n: jax.random.normal(k, s) * 0.2 for k, (n, s) in zip(keys, shapes.items(), strict=False)}

    def loss(w, x):
        shares = jax.nn.softmax(x @ w["router"])
        gates, chosen = lax.top_k(shares, 2)
        chosen = chosen.reshape(-1)
        is_here = jax.nn.one_hot(chosen, experts, dtype=jnp.int32)
        rank = ((jnp.cumsum(is_here, 0) - 1) * is_here).sum(-1)
        slot = jnp.where(rank < room, chosen * room + rank, experts * room)
        sent = jnp.zeros((experts * room, width)).at[slot].set(jnp.repeat(x, 2, 0), mode="drop")
        h = jax.nn.relu(jnp.einsum("ecd,edf->ecf", sent.reshape(experts, room, width), w["up"]))
        made = jnp.einsum("ecf,efd->ecd", h, w["down"]).reshape(-1, width)
        back = made.at[slot].get(mode="fill", fill_value=0).reshape(words, 2, width)
        y = jnp.sum(back * (gates / gates.sum(-1, keepdims=True))[..., None], 1)
        return jnp.mean((y - jnp.sin(x)) ** 2) + jnp.sum(shares.mean(0) * is_here.mean(0)) * 0.1

    return _trained(loss, weights, jax.random.normal(keys[3], (4, words, width)), 0.1)


@program("models/critic_with_gradient_penalty")
def critic_with_gradient_penalty(key):
    """The gradient of a gradient through convolutions with strides."""
    keys = jax.random.split(key, 5)
    weights = [
        jax.random.normal(k, s) * 0.1 for k, s in zip(keys, ((3, 3, 3, 8), (3, 3, 8, 16), (256, 1)), strict=False)
    ]

    def critic(w, x):
        for kernel in w[:2]:
            x = lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.nn.leaky_relu(x, 0.2)
        return (x.reshape(len(x), -1) @ w[2])[:, 0]

    def loss(w, batch):
        real, made, mixture = batch
        slopes = jax.grad(lambda x: critic(w, x).sum())(mixture * real + (1 - mixture) * made)
        penalty = jnp.mean((jnp.sqrt(jnp.sum(slopes**2, (1, 2, 3)) + 1e-8) - 1) ** 2)
        return critic(w, made).mean() - critic(w, real).mean() + 10 * penalty

    images = jax.random.normal(keys[3], (2, 3, 4, 16, 16, 3))
    return _trained(loss, weights, (*images, jax.random.uniform(keys[4], (3, 4, 1, 1, 1))), 0.01)


@program("models/low_rank_on_four_bits")
def low_rank_on_four_bits(key):
    """Weights of four bits, two in a byte and scaled in groups, and what is trained beside them."""
    rows, columns, group, rank = 64, 48, 16, 4
    keys = jax.random.split(key, 3)
    weights = jax.random.normal(keys[0], (rows, columns))
    grouped = weights.reshape(rows // group, group, columns)
    scales = jnp.max(jnp.abs(grouped), 1, keepdims=True) / 7
    whole = jnp.round(grouped / scales).astype(jnp.int8).reshape(rows // 2, 2, columns).astype(jnp.uint8)
    packed = (whole[:, 0] & 15) | (whole[:, 1] << 4)

    def unpacked(packed):
        bits = jnp.stack([packed & 15, packed >> 4], 1).astype(jnp.int8)
        signed = jnp.where(bits > 7, bits - 16, bits).astype(jnp.float32)
        return (signed.reshape(grouped.shape) * scales).reshape(rows, columns)

    def loss(adapter, x):
        a, b = adapter
        return jnp.mean((x @ unpacked(packed) + (x @ a) @ b - x @ weights) ** 2)

    adapter = (_weights(keys[1], rows, rank), jnp.zeros((rank, columns)))
    return _trained(loss, adapter, jax.random.normal(keys[2], (4, 16, rows))), packed, unpacked(packed)
