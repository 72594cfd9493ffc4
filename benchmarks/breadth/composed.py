"""Functions of several operations as people write them: segments, masks, images, strings, quantized products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import sparse

from benchmarks.breadth.row import Draw, array, row
from benchmarks.program import Workload

Value = Any


def _below(high: int, *shape: int) -> Draw:
    return lambda rng: rng.integers(0, high, shape).astype(np.int32)


def _positive_definite(*shape: int) -> Draw:
    def draw(rng: np.random.Generator) -> np.ndarray:
        half = rng.standard_normal(shape)
        return (half @ half.swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])).astype(np.float32)

    return draw


def _key(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 1 << 30, 2).astype(np.uint32)


def _attention(queries: Value, keys: Value, values: Value) -> Value:
    scores = jnp.einsum("bqhd,bkhd->bhqk", queries, keys) / np.sqrt(queries.shape[-1])
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1), values)


def _depthwise(images: Value, kernel: Value) -> Value:
    return lax.conv_general_dilated(
        images,
        kernel,
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=images.shape[-1],
    )


def _causal(signals: Value, kernel: Value) -> Value:
    return lax.conv_general_dilated(
        signals, kernel, (1,), [(kernel.shape[0] - 1, 0)], dimension_numbers=("NWC", "WIO", "NWC")
    )


def _grid_sample(image: Value, at: Value) -> Value:
    """An image's values between its pixels: at[..., 0] is the row, at[..., 1] the column, both from -1 to 1."""
    height, width = image.shape[:2]
    y, x = (at[..., 0] + 1) * (height - 1) / 2, (at[..., 1] + 1) * (width - 1) / 2
    y0, x0 = jnp.floor(y).astype(jnp.int32), jnp.floor(x).astype(jnp.int32)
    dy, dx = (y - y0)[..., None], (x - x0)[..., None]

    def pixel(row_: Value, column: Value) -> Value:
        return image[jnp.clip(row_, 0, height - 1), jnp.clip(column, 0, width - 1)]

    above = pixel(y0, x0) * (1 - dx) + pixel(y0, x0 + 1) * dx
    below = pixel(y0 + 1, x0) * (1 - dx) + pixel(y0 + 1, x0 + 1) * dx
    return above * (1 - dy) + below * dy


def _edit_distance(first: Value, second: Value) -> Value:
    """Levenshtein's distance of two strings, row by row."""
    size = second.shape[0]

    def of_row(before: Value, given: Value) -> tuple[Value, None]:
        index, letter = given
        best = jnp.minimum(before[1:] + 1, before[:-1] + (second != letter))
        start = jnp.concatenate([index[None] + 1, best]) - jnp.arange(size + 1)
        return lax.cummin(start) + jnp.arange(size + 1), None

    numbers = jnp.arange(first.shape[0], dtype=jnp.int32)
    return lax.scan(of_row, jnp.arange(size + 1, dtype=jnp.int32), (numbers, first))[0][-1]


def _smith_waterman(first: Value, second: Value) -> Value:
    """The best local alignment, element by element within a row."""

    def of_row(before: Value, letter: Value) -> tuple[Value, Value]:
        def of_element(left: Value, given: Value) -> tuple[Value, Value]:
            up, corner, other = given
            score = jnp.maximum(0, jnp.maximum(corner + jnp.where(other == letter, 3, -3), jnp.maximum(up, left) - 2))
            return score, score

        row_ = lax.scan(of_element, jnp.int32(0), (before[1:], before[:-1], second))[1]
        return jnp.concatenate([jnp.zeros(1, jnp.int32), row_]), row_.max()

    return lax.scan(of_row, jnp.zeros(second.shape[0] + 1, jnp.int32), first)[1].max()


def _recurrence(decay: Value, inputs: Value) -> Value:
    def combine(left: Value, right: Value) -> Value:
        return left[0] * right[0], right[0] * left[1] + right[1]

    return lax.associative_scan(combine, (decay, inputs), axis=0)[1]


def _pi(key: Value, count: int) -> Value:
    points = jax.random.uniform(key, (count, 2))
    return 4 * jnp.mean(jnp.sum(points**2, axis=1) < 1)


def _option(key: Value, paths: int, steps: int) -> Value:
    """The mean price of an Asian option over drawn paths."""
    drawn = jax.random.normal(key, (paths, steps)) * 0.02 + 0.0001
    prices = 100 * jnp.exp(jnp.cumsum(drawn, axis=1))
    return jnp.maximum(prices.mean(axis=1) - 100, 0).mean()


def _walk(key: Value, walkers: int, steps: int) -> Value:
    """Metropolis walkers in a well, with draws in each step."""

    def step(state: Value, key: Value) -> tuple[Value, Value]:
        moved, accepted = jax.random.split(key)
        proposal = state + jax.random.normal(moved, state.shape)
        below = jax.random.uniform(accepted, state.shape) < jnp.exp(0.5 * (state**2 - proposal**2))
        state = jnp.where(below, proposal, state)
        return state, state.mean()

    return lax.scan(step, jnp.zeros(walkers), jax.random.split(key, steps))[1]


def _sparse_times(data: Value, indices: Value, vector: Value, shape: tuple[int, int]) -> Value:
    return sparse.BCOO((data, indices), shape=shape) @ vector


def _nonzero_indices(height: int, width: int, count: int) -> Draw:
    def draw(rng: np.random.Generator) -> np.ndarray:
        flat = np.sort(rng.choice(height * width, count, replace=False))
        return np.stack([flat // width, flat % width], axis=1).astype(np.int32)

    return draw


def _int8_product(inputs: Value, weights: Value, scale: Value) -> Value:
    return inputs @ (weights.astype(jnp.float32) * scale)


def _quantized(inputs: Value, weights: Value, scale: Value) -> Value:
    """Rows are quantized to bytes, multiplied as integers, and scaled back."""
    largest = jnp.abs(inputs).max(axis=1, keepdims=True) / 127
    rounded = jnp.round(inputs / largest).astype(jnp.int8)
    return jnp.dot(rounded, weights, preferred_element_type=jnp.int32).astype(jnp.float32) * largest * scale


def _windows(series: Value, width: int) -> Value:
    """Means and deviations of a series in moving windows."""
    at = jnp.arange(series.shape[-1] - width + 1)[:, None] + jnp.arange(width)[None]
    taken = series[..., at]
    return taken.mean(axis=-1), taken.std(axis=-1)


def _fft_convolution(signals: Value, kernel: Value) -> Value:
    size = signals.shape[-1] + kernel.shape[-1] - 1
    length = 1 << (size - 1).bit_length()
    return jnp.fft.irfft(jnp.fft.rfft(signals, length) * jnp.fft.rfft(kernel, length), length)[..., :size]


def _bags(table: Value, words: Value, weights: Value) -> Value:
    return jnp.einsum("bwd,bw->bd", table[words], weights)


def _inverse3(matrices: Value) -> Value:
    a, b, c = matrices[..., 0, :], matrices[..., 1, :], matrices[..., 2, :]
    rows_ = jnp.stack([jnp.cross(b, c), jnp.cross(c, a), jnp.cross(a, b)], axis=-1)
    return rows_ / jnp.sum(a * jnp.cross(b, c), axis=-1)[..., None, None]


def _rotated(quaternions: Value, points: Value) -> Value:
    w, u = quaternions[..., :1], quaternions[..., 1:]
    turn = 2 * jnp.cross(u, points)
    return points + w * turn + jnp.cross(u, turn)


def _chain4(matrices: Value) -> Value:
    """The running products of 4x4 transforms along a chain of joints."""
    return lax.scan(
        lambda pose, m: ((pose @ m), (pose @ m)), jnp.broadcast_to(jnp.eye(4), matrices.shape[1:]), matrices
    )[1]


def _chain_of_bf16(x: Value) -> Value:
    y = jax.nn.silu(x) * 0.5 + jnp.tanh(x)
    return jnp.where(y > 0, y, y * jnp.bfloat16(0.1)) + jnp.abs(x)


def _masked_mean(x: Value, lengths: Value) -> Value:
    mask = jnp.arange(x.shape[1])[None] < lengths[:, None]
    return jnp.where(mask[..., None], x, 0).sum(axis=1) / lengths[:, None]


def _pairwise(points: Value) -> Value:
    delta = points[:, None] - points[None]
    return jnp.exp(-0.5 * (delta**2).sum(axis=-1))


def _top_p(logits: Value) -> Value:
    """Nucleus filtering of logits."""
    order = jnp.argsort(-logits, axis=-1)
    chance = jax.nn.softmax(jnp.take_along_axis(logits, order, axis=-1), axis=-1)
    kept = jnp.cumsum(chance, axis=-1) - chance < 0.9
    return jnp.where(jnp.take_along_axis(kept, jnp.argsort(order, axis=-1), axis=-1), logits, -jnp.inf)


def _rotary(x: Value) -> Value:
    """Rotary positions of (batch, length, heads, width)."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 10000.0 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles)[None, :, None], jnp.sin(angles)[None, :, None]
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _life(board: Value) -> Value:
    def step(_: Value, board: Value) -> Value:
        near = sum(jnp.roll(board, (y, x), (0, 1)) for y in (-1, 0, 1) for x in (-1, 0, 1) if (y, x) != (0, 0))
        return ((near == 3) | ((near == 2) & (board == 1))).astype(board.dtype)

    return lax.fori_loop(0, 10, step, board)


def _viterbi(scores: Value, emitted: Value) -> Value:
    def step(best: Value, given: Value) -> tuple[Value, Value]:
        all_ = best[:, None] + scores
        return all_.max(axis=0) + given, all_.argmax(axis=0)

    best, back = lax.scan(step, emitted[0], emitted[1:])
    return lax.scan(lambda s, b: (b[s], b[s]), best.argmax(), back, reverse=True)[1]


def _k_means(points: Value, centers: Value) -> Value:
    distances = (points**2).sum(1)[:, None] - 2 * points @ centers.T + (centers**2).sum(1)
    near = distances.argmin(axis=1)
    counts = jax.ops.segment_sum(jnp.ones(len(points)), near, len(centers))
    return jax.ops.segment_sum(points, near, len(centers)) / jnp.maximum(counts, 1)[:, None]


def _ordering(size: str, n: int) -> Iterator[tuple[str, Callable[..., Any], tuple[Draw, ...]]]:
    many, wide = 64 * n, 16 * n
    yield "argsort_rows", lambda x: jnp.argsort(x, axis=-1), (array("f32", many, 16),)
    yield "top_k_rows", lambda x: lax.top_k(x, 8), (array("f32", 16 * n, 200),)
    yield "top_p", _top_p, (array("f32", n, 1000),)
    yield "median_rows", lambda x: jnp.median(x, axis=-1), (array("f32", 16 * n, 101),)
    yield (
        "searchsorted",
        jnp.searchsorted,
        (lambda r: np.sort(r.random(wide)).astype("f"), array("f32", many, low=0, high=1)),
    )
    yield "unique_sized", lambda x: jnp.unique(x, size=100, fill_value=-1), (_below(100, many),)
    yield "viterbi", _viterbi, (array("f32", 16, 16), array("f32", 32 * n, 16))
    yield "edit_distance", _edit_distance, (_below(4, 32 * n), _below(4, 32 * n))
    yield "smith_waterman", _smith_waterman, (_below(4, 16 * n), _below(4, 16 * n))


def _indexing(size: str, n: int) -> Iterator[tuple[str, Callable[..., Any], tuple[Draw, ...]]]:
    many = 256 * n
    yield "segment_sum", lambda x, i: jax.ops.segment_sum(x, i, 50), (array("f32", many, 8), _below(50, many))
    yield "segment_softmax", _segment_softmax, (array("f32", many), _below(n, many))
    yield "one_hot_product", lambda i, t: jax.nn.one_hot(i, 64) @ t, (_below(64, many), array("f32", 64, 32))
    yield "histogram", lambda i: jnp.zeros(256, jnp.int32).at[i].add(1), (_below(256, 8 * many),)
    yield "histogram_floats", lambda x: jnp.histogram(x, 64, (-3, 3))[0], (array("f32", 4 * many),)
    yield "embedding", lambda t, i: t[i] * 8.0, (array("f32", 1000, 64), _below(1000, n, 32))
    yield "bags", _bags, (array("f32", 1000, 64), _below(1000, 4 * n, 16), array("f32", 4 * n, 16))
    yield "grid_sample", _grid_sample, (array("f32", 16 * n, 32, 3), array("f32", 16 * n, 32, 2, low=-1, high=1))
    yield "windows", lambda x: _windows(x, 20), (array("f32", 64 * n),)
    yield "k_means", _k_means, (array("f32", many, 8), array("f32", 20, 8))
    side = 32 * n
    yield (
        "sparse_times",
        lambda d, i, v: _sparse_times(d, i, v, (side, side)),
        (array("f32", 8 * side), _nonzero_indices(side, side, 8 * side), array("f32", side)),
    )
    yield "roll", lambda x: jnp.roll(x, 5, 0) + jnp.roll(x, -3, 1), (array("f32", 8 * n, 130),)
    yield (
        "tril",
        lambda x: jnp.tril(x) + jnp.triu(x, 3) * 2,
        (array("f32", 4, 8 * n, 8 * n),) if n < 100 else (array("f32", 1024, 1024),),
    )
    yield "transpose_0213", lambda x: x.transpose(0, 2, 1, 3) + 1, (array("f32", n, 32, 4, 16),)
    yield "transpose_3120", lambda x: x.transpose(3, 1, 2, 0) * 2, (array("f32", 4, 8, n, 24),)
    yield "life", _life, (_below(2, 8 * n, 64),)


def _segment_softmax(x: Value, at: Value) -> Value:
    count = x.shape[0] // 256
    high = jax.ops.segment_max(x, at, count)
    weights = jnp.exp(x - high[at])
    return weights / jax.ops.segment_sum(weights, at, count)[at]


def _products(size: str, n: int) -> Iterator[tuple[str, Callable[..., Any], tuple[Draw, ...]]]:
    many = 64 * n
    yield "solve_4", jnp.linalg.solve, (_positive_definite(many, 4, 4), array("f32", many, 4, 1))
    yield "cholesky_6", jnp.linalg.cholesky, (_positive_definite(8 * n, 6, 6),)
    yield "solve_16", jnp.linalg.solve, (_positive_definite(4 * n, 16, 16), array("f32", 4 * n, 16, 2))
    yield "det_3", jnp.linalg.det, (array("f32", many, 3, 3),)
    yield "inverse_3", _inverse3, (_positive_definite(many, 3, 3),)
    yield "products_3", jnp.matmul, (array("f32", many, 3, 3), array("f32", many, 3, 3))
    yield "products_4", jnp.matmul, (array("f32", many, 4, 4), array("f32", many, 4, 4))
    yield (
        "points_4",
        lambda m, p: jnp.einsum("nij,nkj->nki", m, p),
        (array("f32", many, 4, 4), array("f32", many, 5, 4)),
    )
    yield "chain_4", _chain4, (array("f32", 20, 8 * n, 4, 4, low=-0.5, high=0.5),)
    yield "rotated", _rotated, (array("f32", many, 4), array("f32", many, 3))
    yield "pairwise", _pairwise, (array("f32", 10 * min(n, 100), 3),)
    yield "attention", _attention, tuple(array("f32", 2, 4 * min(n, 200), 4, 16) for _ in range(3))
    yield "rotary", _rotary, (array("f32", 2, 4 * n, 4, 32),)
    yield "causal_conv", _causal, (array("f32", 2, 16 * n, 32), array("f32", 4, 32, 32))
    yield "depthwise_nhwc", _depthwise, (array("f32", 1, 4 * n, 32, 32), array("f32", 3, 3, 1, 32))
    yield (
        "int8_weights",
        _int8_product,
        (array("f32", 2 * n, 128), array("s8", 128, 256, low=-127, high=127), array("f32", 256)),
    )
    yield (
        "int8_row",
        _int8_product,
        (array("f32", 1, 64 * min(n, 64)), array("s8", 64 * min(n, 64), 512, low=-127, high=127), array("f32", 512)),
    )
    yield (
        "quantized",
        _quantized,
        (array("f32", 2 * n, 128), array("s8", 128, 256, low=-127, high=127), array("f32", 256)),
    )
    yield "fft_convolution", _fft_convolution, (array("f32", n, 400), array("f32", 31))
    yield "resize", lambda x: jax.image.resize(x, (1, 8 * n, 64, 3), "bilinear"), (array("f32", 1, 4 * n, 32, 3),)
    yield "resize_down", lambda x: jax.image.resize(x, (1, 2 * n, 16, 3), "bilinear"), (array("f32", 1, 4 * n, 32, 3),)


def _elementwise(size: str, n: int) -> Iterator[tuple[str, Callable[..., Any], tuple[Draw, ...]]]:
    many = 512 * n
    yield "bf16_chain", _chain_of_bf16, (array("bf16", 4 * many),)
    yield (
        "bf16_layer_norm",
        lambda x: (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-3),
        (array("bf16", 8 * n, 256),),
    )
    yield "softmax_axis_0", lambda x: jax.nn.softmax(x, axis=0), (array("f32", 16 * n, 40),)
    yield "softmax_axis_1_of_3", lambda x: jax.nn.softmax(x, axis=1), (array("f32", n, 50, 12),)
    yield "cumulative_logsumexp", lambda x: lax.cumlogsumexp(x, axis=1), (array("f32", 4 * n, 200),)
    yield "cumsum_axis_0", lambda x: jnp.cumsum(x, axis=0), (array("f32", 16 * n, 40),)
    yield "recurrence", _recurrence, (array("f32", 32 * n, 16, low=0.5, high=1), array("f32", 32 * n, 16))
    yield (
        "masked_mean",
        _masked_mean,
        (array("f32", 4 * n, 50, 16), lambda r: r.integers(1, 50, 4 * n).astype(np.int32)),
    )
    yield "pi", lambda key: _pi(key, 256 * n), (_key,)
    yield "option", lambda key: _option(key, 16 * n, 50), (_key,)
    yield "walk", lambda key: _walk(key, n, 100), (_key,)
    yield "shuffle", lambda key: jax.random.permutation(key, 64 * n), (_key,)
    yield "categorical", jax.random.categorical, (_key, array("f32", 4 * n, 50))
    yield (
        "dropout_gelu",
        lambda key, x: jnp.where(jax.random.bernoulli(key, 0.9, x.shape), jax.nn.gelu(x), 0),
        (_key, array("f32", many)),
    )


_SIZES = {"small": 4, "medium": 64, "large": 1024}


def rows() -> Iterator[Workload]:
    """Each at three sizes."""
    for size, n in _SIZES.items():
        for part in (_ordering, _indexing, _products, _elementwise):
            for name, function, arguments in part(size, n):
                if n > 100 and name in ("edit_distance", "smith_waterman", "viterbi"):
                    continue
                yield row("composed", f"{name} {size}", function, *arguments, tolerance=1000.0)
