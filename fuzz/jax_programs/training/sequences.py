"""Blocks on rows of a sequence: attention, recurrences, convolutions in one dimension."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fuzz.jax_programs.training.draft import Block, Draft, Parameters, Shape
from fuzz.jax_programs.training.features import dense


def _rotated(x: Any) -> Any:
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * (100.0 ** (-jnp.arange(half) / max(half, 1)))
    sine, cosine = (f(angles)[:, None, :].astype(x.dtype) for f in (jnp.sin, jnp.cos))
    first, second = x[..., :half], x[..., half : 2 * half]
    return jnp.concatenate([first * cosine - second * sine, first * sine + second * cosine, x[..., 2 * half :]], -1)


def attention(d: Draft, shape: Shape) -> Block:
    """Attention of several heads, which may share keys and values, with masks and biases that are drawn."""
    _, length, width = shape
    heads, size = d.rng.choice([1, 2, 3, 4]), d.rng.choice([5, 8, 16, 17])
    shared = d.rng.choice([h for h in (1, 2, heads) if heads % h == 0])
    q, _ = dense(d, shape, heads * size)
    k, _ = dense(d, shape, shared * size)
    v, _ = dense(d, shape, shared * size)
    out, _ = dense(d, (*shape[:-1], heads * size), width)
    causal, rotary, alibi, masked = d.chance(0.5), d.chance(0.3), d.chance(0.3), d.chance(0.3)
    normed, capped, dropped, wide = d.chance(0.2), d.chance(0.15), d.chance(0.3), d.chance(0.6)
    window = d.rng.choice([0, 0, 5])

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        batch = x.shape[0]
        queries = q(p, x, key).reshape(batch, length, heads, size)
        keys, values = (f(p, x, key).reshape(batch, length, shared, size) for f in (k, v))
        if normed:
            queries, keys = (
                t * lax.rsqrt((t * t).mean(-1, keepdims=True) + t.dtype.type(1e-3)) for t in (queries, keys)
            )
        if rotary:
            queries, keys = _rotated(queries), _rotated(keys)
        keys, values = (jnp.repeat(t, heads // shared, axis=2) for t in (keys, values))
        scores = jnp.einsum("bqhd,bkhd->bhqk", queries, keys) * x.dtype.type(size**-0.5)
        scores = scores.astype(jnp.float32) if wide and x.dtype.itemsize == 2 else scores
        if capped:
            scores = 5 * jnp.tanh(scores / 5)
        row, column = jnp.arange(length)[:, None], jnp.arange(length)[None, :]
        if alibi:
            slopes = (2.0 ** -jnp.arange(1, heads + 1)).astype(scores.dtype)
            scores = scores - slopes[:, None, None] * jnp.abs(row - column).astype(scores.dtype)
        low = scores.dtype.type(-1e4)
        if causal:
            scores = jnp.where(row >= column, scores, low)
        if window:
            scores = jnp.where(jnp.abs(row - column) < window, scores, low)
        if masked:
            lengths = jnp.arange(batch) % length + 1
            scores = jnp.where((column < lengths[:, None, None])[:, None], scores, low)
        weights = jax.nn.softmax(scores, axis=-1).astype(x.dtype)
        if dropped and key is not None:
            kept = jax.random.bernoulli(jax.random.key(key), 0.8, weights.shape)
            weights = jnp.where(kept, weights / weights.dtype.type(0.8), jnp.zeros((), weights.dtype))
        return out(p, jnp.einsum("bhqk,bkhd->bqhd", weights, values).reshape(batch, length, heads * size), key)

    return apply, shape


def linear_attention(d: Draft, shape: Shape) -> Block:
    """Attention without softmax, over all rows or those so far."""
    size, causal = d.rng.choice([5, 8, 16]), d.chance(0.5)
    q, k, v = (dense(d, shape, size)[0] for _ in range(3))
    out, _ = dense(d, (*shape[:-1], size), shape[-1])

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        queries, keys = (jax.nn.elu(f(p, x, key)) + 1 for f in (q, k))
        values = v(p, x, key)
        if causal:
            sums = jnp.cumsum(jnp.einsum("bld,ble->blde", keys, values), axis=1)
            total = jnp.einsum("bld,bld->bl", queries, jnp.cumsum(keys, axis=1))
            found = jnp.einsum("bld,blde->ble", queries, sums)
        else:
            found = jnp.einsum("bld,bde->ble", queries, jnp.einsum("bld,ble->bde", keys, values))
            total = jnp.einsum("bld,bd->bl", queries, keys.sum(1))
        return out(p, found / (total[..., None] + x.dtype.type(0.1)), key)

    return apply, shape


def recurrence(d: Draft, shape: Shape) -> Block:
    """A GRU, an LSTM, a plain or a linear recurrence, forward or backward, as a scan."""
    kind = d.rng.choice(["gru", "lstm", "plain", "linear"])
    width, gates = shape[-1], {"gru": 3, "lstm": 4, "plain": 1, "linear": 2}[kind]
    inputs, _ = dense(d, shape, gates * width)
    state = d.weight((width, gates * width), 4 * width)
    backward, unroll, saved = d.chance(0.3), d.rng.choice([1, 1, 1, 3]), d.chance(0.2)

    def step(p: Parameters, carry: Any, given: Any) -> tuple[Any, Any]:
        h, c = carry
        inner = h @ d.cast(p[state])
        if kind == "plain":
            h = jnp.tanh(given + inner)
        elif kind == "gru":
            r, z, n = jnp.split(given, 3, -1)
            ri, zi, ni = jnp.split(inner, 3, -1)
            r, z = jax.nn.sigmoid(r + ri), jax.nn.sigmoid(z + zi)
            h = (1 - z) * jnp.tanh(n + r * ni) + z * h
        elif kind == "lstm":
            i, f, g, o = jnp.split(given + inner, 4, -1)
            c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
        else:
            a, b = jnp.split(given, 2, -1)
            h = jax.nn.sigmoid(a) * h + b
        return (h, c), h

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        given = jnp.swapaxes(inputs(p, x, key), 0, 1)
        zero = jnp.zeros((x.shape[0], width), x.dtype)
        body = jax.checkpoint(step) if saved else step
        _, found = lax.scan(lambda c, t: body(p, c, t), (zero, zero), given, reverse=backward, unroll=unroll)
        return jnp.swapaxes(found, 0, 1)

    return apply, shape


def state_space(d: Draft, shape: Shape) -> Block:
    """A linear recurrence of several states of each feature, by an associative scan or a scan, as of late."""
    width, states, parallel = shape[-1], d.rng.choice([2, 4]), d.chance(0.5)
    rate, to, back = d.weight((width, states)), dense(d, shape, states)[0], dense(d, shape, states)[0]
    step, _ = dense(d, shape, width)

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        delta = jax.nn.softplus(step(p, x, key))[..., None]
        decay = jnp.exp(-delta * jnp.exp(d.cast(p[rate])))
        given = delta * x[..., None] * to(p, x, key)[:, :, None, :]
        if parallel:
            _, h = lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (decay, given), axis=1)
        else:

            def one(h: Any, t: Any) -> tuple[Any, Any]:
                h = t[0] * h + t[1]
                return h, h

            _, h = lax.scan(one, jnp.zeros_like(given[:, 0]), (jnp.swapaxes(decay, 0, 1), jnp.swapaxes(given, 0, 1)))
            h = jnp.swapaxes(h, 0, 1)
        return (h * back(p, x, key)[:, :, None, :]).sum(-1)

    return apply, shape


def convolution(d: Draft, shape: Shape) -> Block:
    """A convolution along the rows: strided, dilated, of each feature alone, or causal."""
    _, length, width = shape
    window, dilation = d.rng.choice([1, 3, 4, 5]), d.rng.choice([1, 1, 2])
    alone, causal = d.chance(0.4), d.chance(0.4)
    stride = d.rng.choice([1, 1, 2]) if length > 6 else 1
    made = width if alone else d.width(shape)
    w = d.weight((window, 1 if alone else width, made), window * (1 if alone else width))
    padding: Any = [((window - 1) * dilation, 0)] if causal else "SAME"

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        return lax.conv_general_dilated(
            x,
            d.cast(p[w]),
            (stride,),
            padding,
            rhs_dilation=(dilation,),
            dimension_numbers=("NWC", "WIO", "NWC"),
            feature_group_count=width if alone else 1,
        )

    return apply, (shape[0], -(-length // stride), made)


def rows_mixed(d: Draft, shape: Shape) -> Block:
    """A dense layer over the rows instead of the features, or each row with a part of the one before."""
    layer, _ = dense(d, (shape[0], shape[2], shape[1]), shape[1])
    shifted = d.weight((shape[-1],)) if d.chance(0.5) else ""

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        if shifted:
            before = jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]
            share = d.cast(p[shifted])
            return x * share + before * (1 - share)
        return jnp.swapaxes(layer(p, jnp.swapaxes(x, 1, 2), key), 1, 2)

    return apply, shape
