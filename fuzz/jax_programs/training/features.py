"""Blocks on the last dimension: dense layers, norms, activations, gates, dropout, experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fuzz.jax_programs.training.draft import Apply, Block, Draft, Parameters, Shape, chained

ACTIVATIONS: tuple[Callable[[Any], Any], ...] = (
    jax.nn.gelu,
    lambda x: jax.nn.gelu(x, approximate=False),
    jax.nn.silu,
    jax.nn.relu,
    jax.nn.softplus,
    jnp.tanh,
    jax.nn.leaky_relu,
    jax.nn.elu,
    jax.nn.sigmoid,
    jax.nn.mish,
    jax.nn.hard_swish,
    lambda x: jnp.square(jax.nn.relu(x)),
    jnp.sin,
)


def dense(d: Draft, shape: Shape, width: int = 0) -> Block:
    """A dense layer to ``width`` or a drawn width."""
    width = width or d.width(shape)
    w = d.weight((shape[-1], width), shape[-1])
    b = d.weight((width,)) if d.chance(0.7) else ""
    how = d.rng.randrange(3)
    transposed = d.chance(0.2)
    if transposed:
        w = d.weight((width, shape[-1]), shape[-1])

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        weight = d.cast(p[w]).T if transposed else d.cast(p[w])
        if how == 0:
            y = x @ weight
        elif how == 1:
            y = jnp.einsum("...i,io->...o", x, weight)
        else:
            y = lax.dot_general(x, weight, (((x.ndim - 1,), (0,)), ((), ())))
        return y + d.cast(p[b]) if b else y

    return apply, (*shape[:-1], width)


def norm(d: Draft, shape: Shape) -> Block:
    """Layer, RMS, batch, group or L2 norm, in the type of the values or in 32 bits."""
    how = d.rng.choice(["layer", "layer", "layer", "rms", "rms", "batch", "group", "l2"])
    width = shape[-1]
    groups = next((g for g in (4, 8, 3, 5, 7) if width % g == 0), 1)
    scale = d.weight((width,), center=1.0) if d.chance(0.8) else ""
    bias = d.weight((width,)) if scale and d.chance(0.7) else ""
    fast, wide, eps = d.chance(0.5), d.chance(0.7), d.rng.choice([1e-6, 1e-5, 1e-3])

    def normal(x: Any, axes: tuple[int, ...]) -> Any:
        mean = x.mean(axes, keepdims=True)
        if fast:
            variance = jnp.maximum((x * x).mean(axes, keepdims=True) - mean * mean, 0)
        else:
            variance = jnp.square(x - mean).mean(axes, keepdims=True)
        return (x - mean) * lax.rsqrt(variance + x.dtype.type(max(eps, 1e-3 if x.dtype.itemsize == 2 else 0)))

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        given = x.dtype
        if wide and given.itemsize == 2:
            x = x.astype(jnp.float32)
        if how == "layer":
            y = normal(x, (x.ndim - 1,))
        elif how == "rms":
            y = x * lax.rsqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(1e-3))
        elif how == "batch":
            y = normal(x, tuple(range(x.ndim - 1)))
        elif how == "group":
            parted = x.reshape(*x.shape[:-1], groups, width // groups)
            y = normal(parted, (parted.ndim - 1, *range(1, parted.ndim - 2))).reshape(x.shape)
        else:
            # Rows may be zero, where a square root has no derivative.
            y = x / jnp.sqrt((x * x).sum(-1, keepdims=True) + x.dtype.type(0.01))
        y = y * p[scale].astype(y.dtype) if scale else y
        return (y + p[bias].astype(y.dtype) if bias else y).astype(given)

    return apply, shape


def activation(d: Draft, shape: Shape) -> Block:
    """A function of each element."""
    function = d.rng.choice(ACTIVATIONS)
    return (lambda p, x, key: function(x)), shape


def dropout(d: Draft, shape: Shape) -> Block:
    """Some elements are zero, or whole rows of them."""
    rate, shares = d.rng.choice([0.1, 0.25, 0.5]), d.chance(0.2) and len(shape) > 2

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        if key is None:
            return x
        drawn = (x.shape[0], *(1,) * (x.ndim - 2), x.shape[-1]) if shares else x.shape
        kept = jax.random.bernoulli(jax.random.key(key), 1 - rate, drawn)
        return jnp.where(kept, x / x.dtype.type(1 - rate), jnp.zeros((), x.dtype))

    return apply, shape


def gate(d: Draft, shape: Shape) -> Block:
    """One dense layer times a function of another, as one product or as two, and a third."""
    width, function, split = d.width(shape), d.rng.choice(ACTIVATIONS), d.chance(0.4)
    back, _ = dense(d, (*shape[:-1], width), shape[-1])
    if split:
        both, _ = dense(d, shape, 2 * width)

        def parts(p: Parameters, x: Any, key: Any) -> tuple[Any, Any]:
            first, second = jnp.split(both(p, x, key), 2, axis=-1)
            return first, second
    else:
        one, _ = dense(d, shape, width)
        other, _ = dense(d, shape, width)

        def parts(p: Parameters, x: Any, key: Any) -> tuple[Any, Any]:
            return one(p, x, key), other(p, x, key)

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        first, second = parts(p, x, key)
        return back(p, function(first) * second, key)

    return apply, shape


def experts(d: Draft, shape: Shape) -> Block:
    """A mixture: the best experts of each row, all computed and weighted, or each with rows up to its capacity."""
    count, width, best, dispatched = d.rng.choice([3, 4, 7]), d.width(shape), d.rng.choice([1, 2]), d.chance(0.5)
    router = d.weight((shape[-1], count), shape[-1])
    up = d.weight((count, shape[-1], width), shape[-1])
    down = d.weight((count, width, shape[-1]), width)
    function = d.rng.choice(ACTIVATIONS)

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        rows = x.reshape(-1, x.shape[-1])
        wide = jnp.promote_types(x.dtype, jnp.float32)
        weights = jax.nn.softmax(rows.astype(wide) @ p[router].astype(wide))
        chosen, places = lax.top_k(weights, best)
        if not dispatched:
            mask = jax.nn.one_hot(places, count).sum(1) * weights
            mask = (mask / chosen.sum(-1, keepdims=True)).astype(x.dtype)
            hidden = function(jnp.einsum("ri,eio->ero", rows, d.cast(p[up])))
            return jnp.einsum("ero,eoi,re->ri", hidden, d.cast(p[down]), mask).reshape(x.shape)
        capacity = -(-rows.shape[0] * best // count)
        wanted = jax.nn.one_hot(places, count, dtype=jnp.int32)
        order = (jnp.cumsum(wanted.reshape(-1, count), axis=0) - 1).reshape(wanted.shape)
        slots = jax.nn.one_hot(jnp.where(wanted > 0, order, -1), capacity, dtype=x.dtype)
        sent = slots.sum(1)
        combined = jnp.einsum("rkec,rk->rec", slots, chosen.astype(x.dtype))
        inputs = jnp.einsum("rec,ri->eci", sent, rows)
        outputs = jnp.einsum(
            "eco,eoi->eci", function(jnp.einsum("eci,eio->eco", inputs, d.cast(p[up]))), d.cast(p[down])
        )
        return jnp.einsum("eci,rec->ri", outputs, combined).reshape(x.shape)

    return apply, shape


def low_rank(d: Draft, shape: Shape) -> Block:
    """A dense layer and one of low rank beside it."""
    main, made = dense(d, shape)
    rank = d.rng.choice([2, 4, 5])
    first, second = d.weight((shape[-1], rank), shape[-1]), d.weight((rank, made[-1]), rank)

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        return main(p, x, key) + (x @ d.cast(p[first])) @ d.cast(p[second]) * x.dtype.type(0.5)

    return apply, made


def network(d: Draft, shape: Shape) -> Block:
    """Dense layers, each with a norm, an activation and dropout in some order, and back to the width."""
    parts: list[Apply] = []
    made = shape
    for _ in range(d.rng.choice([1, 1, 2])):
        between = d.rng.sample([norm, activation, dropout], d.rng.choice([1, 2, 3]))
        for block in (dense, *between):
            part, made = block(d, made)
            parts.append(part)
    part, made = dense(d, made, shape[-1])
    parts.append(part)
    if d.chance(0.3):
        parts.append(dropout(d, shape)[0])
    return chained(*parts), shape


def squeeze(d: Draft, shape: Shape) -> Block:
    """All features weighted by a network of their means."""
    narrow = max(shape[-1] // 4, 2)
    down, _ = dense(d, (shape[0], shape[-1]), narrow)
    up, _ = dense(d, (shape[0], narrow), shape[-1])

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        axes = tuple(range(1, x.ndim - 1))
        weights = jax.nn.sigmoid(up(p, jax.nn.relu(down(p, x.mean(axes), key)), key))
        return x * jnp.expand_dims(weights, axes)

    return apply, shape
