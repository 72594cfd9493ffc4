"""Programs in which manual axes stand beside others, and in which what is split late meets itself."""

from __future__ import annotations

from typing import Any

import jax
from jax import lax, numpy as jnp
from jax.sharding import PartitionSpec as P

from benchmarks.programs.sharded import GRID, Program, floats

_CUBE = (2, 2, 2)
_LABELS = ("NHWC", "HWIO", "NHWC")


def _updated(loss: Any, weights: Any) -> Any:
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights))


def _convolved(x: Any, kernel: Any, stride: int = 1) -> Any:
    return lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=_LABELS)


def _attending_images(x: Any, down: Any, queries: Any, up: Any) -> Any:
    """A convolution to half of the rows, whose pixels attend to each other, and one back."""
    h = _convolved(x, down, 2)
    pixels = h.reshape(h.shape[0], -1, h.shape[-1])
    scores = jax.nn.softmax(jnp.einsum("bqc,cd,bkd->bqk", pixels, queries, pixels) / 4)
    h = h + (scores @ pixels).reshape(h.shape)
    return _convolved(jax.image.resize(h, (*x.shape[:3], h.shape[-1]), "nearest"), up)


def _patches_step(weights: Any, x: Any) -> Any:
    """A step of tokens made of patches of split rows, which attend to each other."""

    def loss(weights: Any) -> Any:
        kernel, places, out = weights
        tokens = lax.conv_general_dilated(x, kernel, (4, 4), "VALID", dimension_numbers=_LABELS)
        tokens = tokens.reshape(x.shape[0], -1, kernel.shape[-1]) + places
        tokens = tokens + jax.nn.softmax(tokens @ tokens.swapaxes(1, 2) / 6) @ tokens
        return ((tokens.mean(1) @ out) ** 2).mean()

    return _updated(loss, weights)


def _halos_beside_columns(x: Any) -> Any:
    """Rows get their neighbors by hand in a loop, and columns, which nothing is said of, by a roll."""

    def local(x: Any) -> Any:
        count = lax.axis_size("x")

        def step(x: Any, _: Any) -> Any:
            above = lax.ppermute(x[-1:], "x", [(n, n + 1) for n in range(count - 1)])
            below = lax.ppermute(x[:1], "x", [(n + 1, n) for n in range(count - 1)])
            rows = jnp.concatenate([above, x, below])
            return x + 0.2 * (rows[2:] + rows[:-2] - 2 * x) + 0.1 * (jnp.roll(x, 1, 1) - x), None

        return lax.scan(step, x, None, length=4)[0]

    return jax.shard_map(local, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})(x)


def _attended(q: Any, k: Any, v: Any) -> Any:
    """Attention of the rows of a device to all, which it gathers; heads and batches are split beside that."""
    k, v = (lax.all_gather(a, "x", axis=1, tiled=True) for a in (k, v))
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k)), v)


def _gathered_keys_step(weights: Any, x: Any) -> Any:
    attended = jax.shard_map(_attended, in_specs=(P(None, "x"),) * 3, out_specs=P(None, "x"), axis_names={"x"})

    def loss(weights: Any) -> Any:
        return (attended(*(jnp.einsum("bsd,dhk->bshk", x, w) for w in weights)) ** 2).mean()

    return _updated(loss, weights)


def _sent_rows_step(weights: Any, x: Any) -> Any:
    """Rows that are sent to the experts of other devices, whose weights are split beside that."""

    def local(x: Any, weights: Any) -> Any:
        rows = x.reshape(lax.axis_size("x"), -1, x.shape[-1])
        there = lax.all_to_all(rows, "x", 0, 0, tiled=True)
        made = jax.nn.gelu(jnp.einsum("ecd,df->ecf", there, weights[0]))
        return lax.all_to_all(made, "x", 0, 0, tiled=True).reshape(x.shape)

    mapped = jax.shard_map(local, in_specs=(P("x"), P("x")), out_specs=P("x"), axis_names={"x"})
    return _updated(lambda w: (mapped(x, w) ** 2).mean(), weights)


_PROJECTIONS = tuple(floats(16, 4, 8, seed=n) / 5 for n in range(3))


def _groups_of_heads_step(weights: Any, x: Any) -> Any:
    """Heads over both axes, of which those over the second one share keys and values."""

    def loss(weights: Any) -> Any:
        queries, keys, values = weights
        q = (x @ queries).reshape(*x.shape[:2], 4, 2, 8)
        k, v = ((x @ w).reshape(*x.shape[:2], 4, 8) for w in (keys, values))
        mixed = jnp.einsum("bhgqk,bkhd->bqhgd", jax.nn.softmax(jnp.einsum("bqhgd,bkhd->bhgqk", q, k) / 3), v)
        return (mixed.reshape(*x.shape[:2], 64) ** 2).mean()

    return _updated(loss, weights)


_PATCHES = (floats(4, 4, 3, 32) / 10, floats(64, 32), floats(32, 10))

MIXED: dict[str, Program] = {
    "images that attend, split rows": Program(
        _attending_images,
        (floats(2, 32, 16, 8), floats(3, 3, 8, 16) / 10, floats(16, 16) / 10, floats(3, 3, 16, 8) / 10),
        (P(None, "x"), P(), P(), P()),
    ),
    "patches that attend, split rows, training": Program(
        _patches_step, (_PATCHES, floats(4, 32, 32, 3)), ((P(), P(), P()), P("y", "x")), GRID
    ),
    "groups of heads, split along both axes, training": Program(
        _groups_of_heads_step,
        ((floats(32, 64) / 6, floats(32, 32, seed=1) / 6, floats(32, 32, seed=2) / 6), floats(4, 16, 32)),
        ((P(None, ("x", "y")), P(None, "x"), P(None, "x")), P()),
        GRID,
    ),
    "by hand: halos beside split columns": Program(_halos_beside_columns, (floats(32, 16),), (P("x", "y"),), GRID),
    "by hand: gathered keys beside heads and batches, training": Program(
        _gathered_keys_step, (_PROJECTIONS, floats(4, 16, 16)), ((P(None, "y"),) * 3, P("z", "x")), _CUBE
    ),
    "by hand: experts beside split weights, training": Program(
        _sent_rows_step,
        (floats(4, 16, 16) / 3, floats(64, 16)),
        (P("x", None, "y"), P("x")),
        GRID,
        alone=lambda weights, x: _updated(
            lambda w: (jax.nn.gelu(jnp.einsum("nekd,edf->nekf", x.reshape(4, 4, 4, 16), w)) ** 2).mean(), weights
        ),
    ),
}
