"""JAX programs over eight devices in which several things meet: meshes of two and three axes, sizes that their axes do
not divide, routes, rings, pipelines, stencils with holes, transforms, tables that are written to, and loops.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax, numpy as jnp
from jax.sharding import PartitionSpec as P

from benchmarks.programs.sharded import GRID, Program, floats, words

_CUBE = (2, 2, 2)
_KEY = np.array([3, 11], np.uint32)


def _routed(x: Any, gate: Any, ups: Any, downs: Any) -> Any:
    """Each token goes to two of eight experts, by masks of places, at most 24 to each."""
    scores = jax.nn.softmax(x @ gate)
    values, chosen = lax.top_k(scores, 2)
    hot = jax.nn.one_hot(chosen, gate.shape[1])
    order = jnp.cumsum(hot.reshape(-1, gate.shape[1]), 0).reshape(hot.shape) * hot - 1
    places = jax.nn.one_hot(order.max(-1).astype(jnp.int32), 24)
    sent = jnp.einsum("tke,tkc->tec", hot, places)
    weights = jnp.einsum("tk,tke,tkc->tec", values, hot, places)
    rows = jnp.einsum("tec,td->ecd", sent, x)
    done = jnp.einsum("ech,ehd->ecd", jax.nn.gelu(jnp.einsum("ecd,edh->ech", rows, ups)), downs)
    return jnp.einsum("tec,ecd->td", weights, done)


def _routed_step(x: Any, gate: Any, ups: Any, downs: Any) -> Any:

    def loss(w: Any) -> Any:
        return (_routed(x, *w) ** 2).mean()

    weights = (gate, ups, downs)
    return tuple(w - 0.1 * g for w, g in zip(weights, jax.grad(loss)(weights), strict=True))


def _sorted_routes(x: Any, gate: Any, ups: Any) -> Any:
    """Tokens in the order of their experts, each of which takes a range of rows; then back in their own order."""
    expert = jnp.argmax(x @ gate, -1)
    order = jnp.argsort(expert, stable=True)
    counts = jnp.bincount(expert, length=gate.shape[1])
    done = lax.ragged_dot(x[order], ups, counts.astype(jnp.int32))
    return jnp.zeros_like(done).at[order].set(done)


def _two_rings(q: Any, k: Any, v: Any) -> Any:
    """Attention whose keys go round a ring, in heads that are split along another axis."""

    def part(q: Any, k: Any, v: Any) -> Any:
        count = lax.axis_size("x")

        def turn(carry: Any, _: Any) -> Any:
            k, v, total, weight, most = carry
            scores = jnp.einsum("qhd,khd->hqk", q, k) / 4
            top = jnp.maximum(most, scores.max(-1))
            shrink, e = jnp.exp(most - top), jnp.exp(scores - top[..., None])
            total = total * shrink.T[..., None] + jnp.einsum("hqk,khd->qhd", e, v)
            k, v = (lax.ppermute(a, "x", [(i, (i + 1) % count) for i in range(count)]) for a in (k, v))
            return (k, v, total, weight * shrink + e.sum(-1), top), None

        start = q[..., 0].T * 0
        done = lax.scan(turn, (k, v, q * 0, start, start - jnp.inf), None, length=count)[0]
        return done[2] / done[3].T[..., None]

    spec = P("x", "y")
    return jax.shard_map(part, in_specs=(spec,) * 3, out_specs=spec)(q, k, v)


def _rolled_pipeline(x: Any, weights: Any) -> Any:
    """Stages side by side in one array that is rolled by one in each step of a scan."""
    stages = weights.shape[0]

    def tick(state: Any, given: Any) -> Any:
        state = jnp.roll(state, 1, 0).at[0].set(given)
        state = jax.vmap(lambda h, w: jnp.tanh(h @ w))(state, weights)
        state = lax.with_sharding_constraint(state, P("x", "y"))
        return state, state[-1]

    given = jnp.concatenate([x, jnp.zeros((stages - 1, *x.shape[1:]), x.dtype)])
    return lax.scan(tick, jnp.zeros((stages, *x.shape[1:]), x.dtype), given)[1][stages - 1 :]


def _rolled_pipeline_step(x: Any, weights: Any) -> Any:
    return jax.grad(lambda w: (_rolled_pipeline(x, w) ** 2).mean())(weights)


def _causal_with_holes(x: Any, kernels: Any) -> Any:
    """Layers of a causal convolution along a split sequence, whose holes double."""
    for layer in range(kernels.shape[0]):
        hole = 2**layer
        moved = lax.conv_general_dilated(
            x, kernels[layer], (1,), [(2 * hole, 0)], rhs_dilation=(hole,), dimension_numbers=("NHC", "HIO", "NHC")
        )
        x = x + jnp.tanh(moved)
    return x


def _causal_with_holes_step(x: Any, kernels: Any) -> Any:
    return jax.grad(lambda k: (_causal_with_holes(x, k) ** 2).mean())(kernels)


def _atrous(x: Any, kernel: Any) -> Any:
    return lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", rhs_dilation=(3, 2), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _atrous_step(x: Any, kernel: Any) -> Any:
    return jax.grad(lambda x, k: (_atrous(x, k) ** 2).mean(), (0, 1))(x, kernel)


def _enlarging(x: Any, kernel: Any) -> Any:
    """A convolution of an image with zeros between its rows and columns."""
    return lax.conv_general_dilated(
        x, kernel, (1, 1), [(2, 1), (2, 1)], lhs_dilation=(2, 2), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _boxes(x: Any) -> Any:
    """Means of squares of 9 by 9, by sums over everything above and to the left."""
    sums = jnp.pad(jnp.cumsum(jnp.cumsum(x, 0), 1), ((1, 0), (1, 0)))
    return (sums[9:, 9:] - sums[:-9, 9:] - sums[9:, :-9] + sums[:-9, :-9]) / 81


def _sorted_there_and_back(x: Any) -> Any:
    order = jnp.argsort(x, axis=0, stable=True)
    ordered = jnp.take_along_axis(x, order, 0)
    return ordered, jnp.take_along_axis(jnp.cumsum(ordered, 0), jnp.argsort(order, axis=0), 0)


def _drawn(key: Any, x: Any) -> Any:
    """Numbers of many distributions in the shape of a split array, some of them by loops that reject."""
    keys = jax.random.split(jax.random.wrap_key_data(key), 5)
    noise = jax.random.truncated_normal(keys[0], -2, 2, x.shape)
    waits = jax.random.exponential(keys[1], x.shape)
    sizes = jax.random.gamma(keys[2], 2.0 + jnp.abs(x[:8]))
    coins = jax.random.bernoulli(keys[3], 0.3, x.shape)
    signs = jax.random.rademacher(keys[4], x.shape).astype(x.dtype)
    return x + noise * signs, jnp.where(coins, waits, 0), sizes


def _chosen_rows(key: Any, x: Any, weights: Any) -> Any:
    """Rows by their weights, and all rows in a random order."""
    one, other = jax.random.split(jax.random.wrap_key_data(key))
    return jax.random.choice(one, x, (24,), p=weights / weights.sum()), jax.random.permutation(other, x)


def _written(table: Any, rows: Any, columns: Any, values: Any) -> Any:
    """A table split both ways, to single elements of which values are added, maxima, minima and products written."""
    return (
        table.at[rows, columns].add(values),
        table.at[rows, columns].max(values),
        table.at[rows].add(values[:, None]),
        table.at[:, columns].multiply(1 + 0.01 * values[None]),
        table.at[rows % 7].set(1.0),
    )


def _features(x: Any, first: Any, second: Any) -> Any:
    labels = ("NHWC", "HWIO", "NHWC")
    h = jax.nn.relu(lax.conv_general_dilated(x, first, (1, 1), "SAME", dimension_numbers=labels))
    return lax.conv_general_dilated(h, second, (2, 2), "SAME", dimension_numbers=labels)


def _features_step(x: Any, first: Any, second: Any) -> Any:
    kernels = (first, second)
    gradients = jax.grad(lambda k: (_features(x, *k) ** 2).mean())(kernels)
    return tuple(k - 0.1 * g for k, g in zip(kernels, gradients, strict=True))


def _grouped(x: Any, kernel: Any) -> Any:
    labels = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=labels, feature_group_count=8)


def _balanced(costs: Any) -> Any:
    """Sinkhorn's iteration until it stands still, in the logarithm, of a matrix split both ways."""

    def go_on(state: Any) -> Any:
        return (state[2] > 1e-3) & (state[3] < 40)

    def step(state: Any) -> Any:
        f, g, _, count = state
        new = -jax.nn.logsumexp(-costs + g[None], 1)
        g = -jax.nn.logsumexp(-costs + new[:, None], 0)
        return new, g, jnp.abs(new - f).max(), count + 1

    rows, columns = costs.shape
    f, g, _, count = lax.while_loop(go_on, step, (jnp.zeros(rows), jnp.zeros(columns), jnp.inf, 0))
    return f, g, count


def _shortest(distances: Any) -> Any:
    """Shortest ways between all pairs, by the points on the way one after the other."""

    def through(k: Any, d: Any) -> Any:
        return jnp.minimum(d, lax.dynamic_slice_in_dim(d, k, 1, 1) + lax.dynamic_slice_in_dim(d, k, 1, 0))

    return lax.fori_loop(0, distances.shape[0], through, distances)


def _eliminated(matrix: Any, right: Any) -> Any:
    """Gauss' elimination with the largest pivot of a column, of rows that are split."""
    n = matrix.shape[0]

    def step(k: Any, state: Any) -> Any:
        a, b = state
        column = jnp.where(jnp.arange(n) >= k, jnp.abs(a[:, k]), -1)
        rows = jnp.stack([k, jnp.argmax(column).astype(k.dtype)])
        a = a.at[rows].set(a[rows[::-1]])
        b = b.at[rows].set(b[rows[::-1]])
        factors = jnp.where(jnp.arange(n) == k, 0, a[:, k] / a[k, k])
        return a - factors[:, None] * a[k], b - factors[:, None] * b[k]

    a, b = lax.fori_loop(0, n, step, (matrix, right))
    return b / jnp.diagonal(a)[:, None]


def _beams(scores: Any, logits: Any, history: Any) -> Any:
    """A step of beam search over a split vocabulary: the best of all beams and words, and the beams that they go on."""
    total = scores[..., None] + jax.nn.log_softmax(logits)
    best, places = lax.top_k(total.reshape(total.shape[0], -1), scores.shape[1])
    beam, word = jnp.divmod(places, logits.shape[-1])
    kept = jnp.take_along_axis(history, beam[..., None], 1)
    return best, jnp.concatenate([kept, word[..., None]], -1)


def _viterbi(scores: Any, moves: Any) -> Any:
    """The best states of a split batch of sequences, found forwards and read backwards."""

    def forward(best: Any, score: Any) -> Any:
        ways = best[:, :, None] + moves
        return ways.max(1) + score, ways.argmax(1)

    last, back = lax.scan(forward, scores[:, 0], jnp.moveaxis(scores[:, 1:], 1, 0))

    def backward(state: Any, origin: Any) -> Any:
        state = jnp.take_along_axis(origin, state[:, None], 1)[:, 0]
        return state, state

    end = last.argmax(-1)
    return lax.scan(backward, end, back, reverse=True)[1].T, last.max(-1)


def _bordered(x: Any) -> Any:
    """Rows beyond the borders of an array: reflected, repeated, wrapped around, or those of the border."""
    return tuple(jnp.pad(x, ((2, 3), (1, 2)), mode=m)[:-5, :-3] for m in ("reflect", "symmetric", "wrap", "edge"))


def _sampled_between(image: Any, rows: Any, columns: Any) -> Any:
    return jax.scipy.ndimage.map_coordinates(image, [rows, columns], 1, mode="nearest")


def _triangles(x: Any) -> Any:
    return jnp.tril(x) @ jnp.triu(x), jnp.diagonal(x), jnp.trace(x), jnp.fliplr(x) + jnp.rot90(x), jnp.diff(x, axis=0)


def _pooled_with_holes(x: Any) -> Any:
    """Least values of windows with holes, and means of windows with a stride, of rows and columns that are split."""
    least = lax.reduce_window(x, jnp.inf, lax.min, (1, 3, 3, 1), (1, 1, 1, 1), "SAME", window_dilation=(1, 2, 2, 1))
    sums = lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    return least, sums / 9


def _filtered(decay: Any, given: Any, noise: Any) -> Any:
    """States of a linear system in all steps, from products of small matrices along a split sequence."""

    def both(a: Any, b: Any) -> Any:
        return b[0] @ a[0], (b[0] @ a[1][..., None])[..., 0] + b[1]

    states = lax.associative_scan(both, (decay, given))[1]
    return (states - noise) ** 2


def _nearest(x: Any, points: Any) -> Any:
    """The three nearest points of each row, and the mean of what these rows hold."""
    distances = ((x[:, None] - points[None]) ** 2).sum(-1)
    values, places = lax.top_k(-distances, 3)
    return -values, points[places].mean(1)


def _quantized(x: Any, weights: Any) -> Any:
    """A product of whole numbers, with scales of rows and columns that are found first."""
    left, right = jnp.abs(x).max(-1, keepdims=True) / 127, jnp.abs(weights).max(0, keepdims=True) / 127
    a, b = jnp.round(x / left).astype(jnp.int8), jnp.round(weights / right).astype(jnp.int8)
    return lax.dot(a, b, preferred_element_type=jnp.int32).astype(jnp.float32) * left * right


def _halves_step(x: Any, up: Any, down: Any) -> Any:
    """A step in bfloat16 with weights in float32."""

    def loss(weights: Any) -> Any:
        up, down = (w.astype(jnp.bfloat16) for w in weights)
        return (jax.nn.silu(x.astype(jnp.bfloat16) @ up) @ down).astype(jnp.float32).mean()

    return jax.tree.map(lambda w, g: w - 0.1 * g, (up, down), jax.grad(loss)((up, down)))


def _found(x: Any, wanted: Any) -> Any:
    """Places of numbers in a split array that is sorted first, and numbers between them."""
    ordered = jnp.sort(x)
    return jnp.searchsorted(ordered, wanted), jnp.interp(wanted, ordered, jnp.cumsum(ordered))


def _without_zeros(x: Any) -> Any:
    return jnp.nonzero(x > 1, size=32, fill_value=-1)[0], jnp.unique((x * 2).astype(jnp.int32), size=12, fill_value=99)


def _cells(x: Any) -> Any:
    """What particles in cells of a box get from those in the 26 cells around theirs."""
    total = jnp.zeros_like(x)
    for a in (-1, 0, 1):
        for b in (-1, 0, 1):
            for c in (-1, 0, 1):
                other = jnp.roll(x, (a, b, c), (0, 1, 2))
                total = total + (other - x) / (1 + (other - x) ** 2)
    return total


_IMAGE, _KERNEL = floats(2, 48, 32, 4), floats(3, 3, 4, 4) / 6
_STEP_ROWS = tuple(floats(n, m, seed=s) / 8 for n, m, s in ((64, 128, 1), (128, 64, 2)))

WIDER: dict[str, Program] = {
    "two of eight experts": Program(
        _routed,
        (floats(64, 32), floats(32, 8, seed=1), floats(8, 32, 64, seed=2) / 6, floats(8, 64, 32, seed=3) / 8),
        (P("x"), P(), P("x"), P("x")),
    ),
    "two of eight experts, data and experts, training": Program(
        _routed_step,
        (floats(64, 32), floats(32, 8, seed=1), floats(8, 32, 64, seed=2) / 6, floats(8, 64, 32, seed=3) / 8),
        (P("y"), P(), P("x"), P("x")),
        GRID,
    ),
    "experts in sorted order": Program(
        _sorted_routes, (floats(64, 32), floats(32, 8, seed=1), floats(8, 32, 32, seed=2) / 6), (P("x"), P(), P())
    ),
    "ring attention beside split heads": Program(
        _two_rings,
        tuple(floats(64, 4, 16, seed=s) for s in range(3)),
        (P("x", "y"),) * 3,
        GRID,
    ),
    "rolled pipeline": Program(
        _rolled_pipeline, (floats(6, 16, 32), floats(4, 32, 32) / 5), (P(None, "y"), P("x")), GRID
    ),
    "rolled pipeline, training": Program(
        _rolled_pipeline_step, (floats(6, 16, 32), floats(4, 32, 32) / 5), (P(None, "y"), P("x")), GRID
    ),
    "causal convolutions with holes, split sequence": Program(
        _causal_with_holes, (floats(2, 256, 16), floats(4, 3, 16, 16) / 7), (P(None, "x"), P())
    ),
    "causal convolutions with holes, training": Program(
        _causal_with_holes_step, (floats(2, 256, 16), floats(4, 3, 16, 16) / 7), (P(None, "x"), P())
    ),
    "convolution with holes, rows and columns": Program(_atrous, (_IMAGE, _KERNEL), (P(None, "x", "y"), P()), GRID),
    "convolution with holes, gradients": Program(_atrous_step, (_IMAGE, _KERNEL), (P(None, "x", "y"), P()), GRID),
    "convolution between zeros, rows and columns": Program(
        _enlarging, (_IMAGE, floats(4, 4, 4, 4) / 8), (P(None, "x", "y"), P()), GRID
    ),
    "means of boxes by running sums": Program(_boxes, (floats(64, 64),), (P("x", "y"),), GRID),
    "sorted there and back, both ways": Program(_sorted_there_and_back, (floats(64, 16),), (P("x", "y"),), GRID),
    "distributions of split shapes": Program(_drawn, (_KEY, floats(64, 32)), (P(), P("x", "y")), GRID),
    "rows chosen and shuffled": Program(
        _chosen_rows, (_KEY, floats(64, 16), np.abs(floats(64))), (P(), P("x"), P("x"))
    ),
    "a table split both ways, written": Program(
        _written,
        (floats(64, 32), words(40, below=64), words(40, below=32), floats(40)),
        (P("x", "y"), P("x"), P("x"), P("x")),
        GRID,
    ),
    "convolutions, split batch and features, training": Program(
        _features_step,
        (floats(8, 16, 16, 8), floats(3, 3, 8, 16) / 8, floats(3, 3, 16, 8, seed=1) / 12),
        (P("x"), P(None, None, None, "y"), P(None, None, "y")),
        GRID,
    ),
    "groups of features, split": Program(
        _grouped, (floats(4, 16, 16, 32), floats(3, 3, 4, 64) / 6), (P(None, None, None, "x"), P(None, None, None, "x"))
    ),
    "balanced until it stands still, both ways": Program(_balanced, (floats(40, 32),), (P("x", "y"),), GRID),
    "balanced, uneven": Program(_balanced, (floats(37, 29),), (P(),), GRID),
    "shortest ways, both ways": Program(_shortest, (np.abs(floats(32, 32)),), (P("x", "y"),), GRID),
    "elimination, split rows": Program(
        _eliminated, (floats(32, 32) + 6 * np.eye(32, dtype=np.float32), floats(32, 4)), (P("x"), P("x"))
    ),
    "beams, split vocabulary": Program(
        _beams, (floats(8, 4), floats(8, 4, 64), words(8, 4, 5)), (P("x"), P("x", None, "y"), P("x")), GRID
    ),
    "best states, split batch": Program(_viterbi, (floats(16, 20, 6), floats(6, 6)), (P("x"), P())),
    "best states, split states": Program(
        _viterbi, (floats(16, 20, 8), floats(8, 8)), (P("x", None, "y"), P(None, "y")), GRID
    ),
    "borders": Program(_bordered, (floats(64, 32),), (P("x", "y"),), GRID),
    "images between places": Program(
        _sampled_between,
        (floats(64, 32), np.abs(floats(64, 32, seed=1)) * 20, np.abs(floats(64, 32, seed=2)) * 10),
        (P("x"), P("x"), P("x")),
    ),
    "triangles, both ways": Program(_triangles, (floats(32, 32),), (P("x", "y"),), GRID),
    "pooling with holes, rows and columns": Program(_pooled_with_holes, (_IMAGE,), (P(None, "x", "y"),), GRID),
    "filter of small matrices, split sequence": Program(
        _filtered, (floats(64, 3, 3) / 3, floats(64, 3), floats(64, 3, seed=1)), (P("x"),) * 3
    ),
    "nearest points, both split": Program(_nearest, (floats(32, 8), floats(64, 8, seed=1)), (P("x"), P("y")), GRID),
    "whole numbers with scales, contracted": Program(
        _quantized, (floats(32, 64), floats(64, 48)), (P(None, "x"), P("x"))
    ),
    "half precision, data and tensor, training": Program(
        _halves_step, (floats(32, 64), *_STEP_ROWS), (P("x"), P(None, "y"), P("y")), GRID
    ),
    "places in a split sorted array": Program(_found, (floats(256), floats(64, seed=1)), (P("x"), P("x"))),
    "without zeros": Program(_without_zeros, (floats(256),), (P("x"),)),
    "cells around, three axes": Program(_cells, (floats(8, 8, 8, 4),), (P("x", "y", "z"),), _CUBE),
    "spectrum of a cube, three axes": Program(
        lambda x: jnp.abs(jnp.fft.fftn(x)), (floats(16, 8, 8),), (P("x", "y", "z"),), _CUBE
    ),
    "largest of rows over two of three axes": Program(
        lambda x: lax.top_k(x, 5), (floats(16, 64),), (P("y", ("x", "z")),), _CUBE
    ),
    "running sums over three axes": Program(
        lambda x: jnp.cumsum(jnp.cumsum(x, 0), 1), (floats(16, 16, 8),), (P("x", "y", "z"),), _CUBE
    ),
    "sorted over two of three axes": Program(lambda x: jnp.sort(x, 1), (floats(8, 64),), (P("z", ("x", "y")),), _CUBE),
}
