"""JAX programs over eight devices, and how their arguments are split: what :mod:`benchmarks.sharded_bytes` compiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax, numpy as jnp
from jax.sharding import PartitionSpec as P

# The axes of a mesh: "x" alone, or "x" and "y"; there are some with "z", too.
LINE, GRID = (8,), (4, 2)


@dataclass(frozen=True)
class Program:
    """A function, its arguments, how each is split, and how the results are where that is said.

    mesh: the sizes of its axes. alone: what gives the results on one device, of functions that name axes of the mesh.
    explicit: whether the types of arrays say how they are split. devices: their order in the mesh, if another one.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    specs: tuple[Any, ...]
    mesh: tuple[int, ...] = LINE
    results: Any = None
    alone: Callable[..., Any] | None = None
    explicit: bool = False
    devices: tuple[int, ...] | None = None


def floats(*dims: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Normally distributed numbers."""
    return np.random.default_rng([seed, *dims]).normal(size=dims).astype(np.float32)


def words(*dims: int, below: int = 1024) -> np.ndarray[Any, Any]:
    """Whole numbers from 0 on."""
    return np.random.default_rng([below, *dims]).integers(0, below, dims).astype(np.int32)


def split(x: Any, *spec: Any) -> Any:
    """A value that is split along these axes."""
    return lax.with_sharding_constraint(x, P(*spec))


def _layer() -> tuple[Any, ...]:
    return floats(64, 128), floats(128, 512, seed=1) / 11, floats(512, 128, seed=2) / 22


def _mlp(x: Any, up: Any, down: Any) -> Any:
    return jax.nn.relu(x @ up) @ down


def _step(x: Any, up: Any, down: Any) -> Any:

    def loss(w: Any) -> Any:
        return (_mlp(x, *w) ** 2).mean()

    value, gradients = jax.value_and_grad(loss)((up, down))
    return value, *(w - 0.1 * g for w, g in zip((up, down), gradients, strict=True))


def _deep(x: Any, ups: Any, downs: Any) -> Any:
    return lax.scan(lambda h, w: (h + _mlp(h, *w), None), x, (ups, downs))[0]


def _deep_step(x: Any, ups: Any, downs: Any) -> Any:
    gradients = jax.grad(lambda w: (_deep(x, *w) ** 2).mean())((ups, downs))
    return tuple(w - 0.1 * g for w, g in zip((ups, downs), gradients, strict=True))


def _attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)


def _layer_norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def _likelihood(logits: Any, words: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), words[..., None], -1).mean()


def _language_model(words: Any, table: Any, up: Any, down: Any) -> Any:
    def loss(weights: Any) -> Any:
        table, up, down = weights
        h = table[words]
        return _likelihood(_layer_norm(h + _mlp(h, up, down)) @ table.T, words)

    gradients = jax.grad(loss)((table, up, down))
    return tuple(w - 0.1 * g for w, g in zip((table, up, down), gradients, strict=True))


def _experts(x: Any, ups: Any, downs: Any) -> Any:
    """Experts on tokens that are sorted to them already."""
    return jnp.einsum("ech,ehd->ecd", jax.nn.relu(jnp.einsum("ecd,edh->ech", x, ups)), downs)


def _routed(x: Any, gate: Any, ups: Any, downs: Any) -> Any:
    chosen = jax.nn.one_hot(jnp.argmax(x @ gate, -1), 8)
    given = jnp.einsum("td,te->etd", x, chosen)
    return jnp.einsum("etd,te->td", _experts(given, ups, downs), chosen)


def _pipeline(x: Any, weights: Any) -> Any:
    """Stages on their devices, whose state moves to the next one by a roll."""

    def tick(state: Any, given: Any) -> Any:
        state = jnp.roll(state, 1, 0).at[0].set(given)
        state = jnp.tanh(jnp.einsum("sbd,sde->sbe", state, weights))
        return state, state[-1]

    return lax.scan(tick, jnp.zeros((8, *x.shape[1:]), x.dtype), x)[1]


def _convolved(x: Any, kernel: Any, stride: int = 1, padding: str = "SAME") -> Any:
    return lax.conv_general_dilated(x, kernel, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _pooled(x: Any) -> Any:
    return lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _smoothed(x: Any) -> Any:
    return lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")


def _convolution_step(x: Any, kernel: Any) -> Any:
    return kernel - 0.1 * jax.grad(lambda k: (_convolved(x, k) ** 2).mean())(kernel)


def _laplace(u: Any) -> Any:
    return jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u


def _heat(u: Any) -> Any:
    return lax.scan(lambda u, _: (u + 0.1 * _laplace(u), None), u, None, length=10)[0]


def _edges(u: Any) -> Any:
    """A stencil inside of the array, whose border stays."""
    inside = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
    return u.at[1:-1, 1:-1].add(0.1 * inside)


def _differences(u: Any) -> Any:
    return jnp.pad(u[1:] - u[:-1], ((0, 1), (0, 0)))


def _padded(u: Any) -> Any:
    p = jnp.pad(u, ((1, 1), (0, 0)))
    return p[2:] - p[:-2]


def _lookup_step(table: Any, words: Any) -> Any:
    return table - 0.1 * jax.grad(lambda t: (t[words] ** 2).sum())(table)


def _ring_attention(q: Any, k: Any, v: Any) -> Any:
    """Keys and values go round a ring, while sums of exponentials are kept."""

    def part(q: Any, k: Any, v: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            k, v, top, total, found = state
            scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4
            highest = jnp.maximum(top, scores.max(-1))
            weights, before = jnp.exp(scores - highest[..., None]), jnp.exp(top - highest)
            total = total * before + weights.sum(-1)
            found = found * before[..., None] + jnp.einsum("bhqk,bkhd->bhqd", weights, v)
            k, v = (lax.ppermute(a, "x", [(p, (p + 1) % 8) for p in range(8)]) for a in (k, v))
            return (k, v, highest, total, found), None

        sizes = (q.shape[0], q.shape[2], q.shape[1])
        zeros = lax.pcast(jnp.zeros(sizes), "x", to="varying")
        state = (k, v, zeros - np.inf, zeros, zeros[..., None] * jnp.zeros(q.shape[3]))
        *_, total, found = lax.scan(step, state, None, length=8)[0]
        return jnp.einsum("bhqd->bqhd", found / total[..., None])

    spec = P(None, "x")
    return jax.shard_map(part, in_specs=(spec,) * 3, out_specs=spec)(q, k, v)


def _exchanged_experts(x: Any, gate: Any, ups: Any, downs: Any) -> Any:
    """Tokens in parts, whose rows for an expert go to its device and back, all at once."""
    chosen = jax.nn.one_hot(jnp.argmax(x @ gate, -1), 8)
    place = jnp.cumsum(chosen.reshape(8, 32, 8), 1) * chosen.reshape(8, 32, 8)
    sent = jax.nn.one_hot(place - 1, 32)
    given = jnp.einsum("ptec,ptd->pecd", sent, x.reshape(8, 32, -1))
    given = lax.with_sharding_constraint(given, P(None, "x"))
    done = jnp.einsum("pech,ehd->pecd", jax.nn.relu(jnp.einsum("pecd,edh->pech", given, ups)), downs)
    done = lax.with_sharding_constraint(done, P("x"))
    return jnp.einsum("ptec,pecd->ptd", sent, done).reshape(x.shape)


def without_axes(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose constraints say nothing."""

    def alone(*arguments: Any) -> Any:
        given, lax.with_sharding_constraint = lax.with_sharding_constraint, lambda x, _: x
        try:
            return function(*arguments)
        finally:
            lax.with_sharding_constraint = given

    return alone


def _sequence_block(x: Any, up: Any, down: Any) -> Any:
    """Norms on parts of the sequence, products on parts of the features."""
    h = lax.with_sharding_constraint(_layer_norm(x), P())
    return x + lax.with_sharding_constraint(_mlp(h, up, down), P("x"))


def _sequence_step(x: Any, up: Any, down: Any) -> Any:
    gradients = jax.grad(lambda w: (_sequence_block(x, *w) ** 2).mean())((up, down))
    return tuple(w - 0.1 * g for w, g in zip((up, down), gradients, strict=True))


def _inner_heat(u: Any) -> Any:
    """A stencil inside of an array with a margin, 250 of 256 rows, kept in a loop."""

    def step(u: Any, _: Any) -> Any:
        p = jnp.pad(u, ((1, 1), (0, 0)))
        return u + 0.1 * (p[2:] + p[:-2] - 2 * u), None

    return lax.scan(step, u[3:-3], None, length=10)[0].sum()


def _pooled_step(x: Any) -> Any:

    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, -np.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    return jax.grad(lambda x: (pooled(x) ** 2).sum())(x)


def _forces(points: Any) -> Any:
    apart = points[:, None] - points[None]
    return (apart / ((apart * apart).sum(-1, keepdims=True) + 0.1) ** 1.5).sum(1)


def _sampled(logits: Any, key: Any) -> Any:
    return jax.random.categorical(jax.random.wrap_key_data(key), logits)


_IMAGES, _KERNEL = floats(4, 64, 64, 8), floats(3, 3, 8, 8) / 8
_DEEP = (floats(64, 64), floats(4, 64, 128, seed=1) / 20, floats(4, 128, 64, seed=2) / 20)
_HEADS = tuple(floats(8, 64, 8, 16, seed=s) for s in range(3))
_ROWS = P("x")
_LM = (words(16, 32), floats(1024, 64), floats(64, 256, seed=1) / 8, floats(256, 64, seed=2) / 16)

PROGRAMS: dict[str, Program] = {
    "data parallel, forward": Program(_mlp, _layer(), (_ROWS, P(), P())),
    "data parallel, training": Program(_step, _layer(), (_ROWS, P(), P())),
    "data parallel, four layers, training": Program(_deep_step, _DEEP, (_ROWS, P(), P())),
    "tensor parallel, forward": Program(_mlp, _layer(), (P(), P(None, "x"), P("x"))),
    "tensor parallel, training": Program(_step, _layer(), (P(), P(None, "x"), P("x"))),
    "tensor parallel, four layers": Program(_deep, _DEEP, (P(), P(None, None, "x"), P(None, "x"))),
    "tensor parallel, four layers, training": Program(_deep_step, _DEEP, (P(), P(None, None, "x"), P(None, "x"))),
    "fully sharded, forward": Program(_mlp, _layer(), (_ROWS, P("x"), P("x"))),
    "fully sharded, training": Program(_step, _layer(), (_ROWS, P("x"), P("x")), results=(P(), P("x"), P("x"))),
    "data and tensor, training": Program(_step, _layer(), (_ROWS, P(None, "y"), P("y")), GRID),
    "data and tensor, four layers": Program(_deep, _DEEP, (_ROWS, P(None, None, "y"), P(None, "y")), GRID),
    "attention, heads": Program(_attention, _HEADS, (P(None, None, "x"),) * 3),
    "attention, batch": Program(_attention, _HEADS, (P("x"),) * 3),
    "attention, sequence": Program(_attention, _HEADS, (P(None, "x"), P(), P())),
    "attention, sequence, all": Program(_attention, _HEADS, (P(None, "x"),) * 3),
    "layer norm, features": Program(_layer_norm, (floats(64, 256),), (P(None, "x"),)),
    "softmax along the split": Program(jax.nn.softmax, (floats(64, 1024),), (P(None, "x"),)),
    "embedding, split vocabulary": Program(lambda t, i: t[i], (floats(1024, 64), words(16, 8)), (P("x"), P())),
    "embedding, split vocabulary and words": Program(
        lambda t, i: t[i], (floats(1024, 64), words(16, 8)), (P("y"), P("x")), GRID
    ),
    "embedding, split features": Program(lambda t, i: t[i], (floats(1024, 64), words(16, 8)), (P(None, "x"), P())),
    "embedding, split vocabulary, training": Program(_lookup_step, (floats(1024, 64), words(16, 8)), (P("x"), P())),
    "likelihood, split vocabulary": Program(
        _likelihood, (floats(64, 1536), words(64, below=1536)), (P(None, "x"), P())
    ),
    "likelihood, split batch": Program(_likelihood, (floats(64, 1536), words(64, below=1536)), (P("x"), P("x"))),
    "likelihood, gradient, split vocabulary": Program(
        jax.grad(_likelihood), (floats(64, 1536), words(64, below=1536)), (P(None, "x"), P())
    ),
    "language model, data, training": Program(_language_model, _LM, (P("x"), P(), P(), P())),
    "language model, tensor, training": Program(_language_model, _LM, (P("x"), P("y"), P(None, "y"), P("y")), GRID),
    "experts": Program(_experts, (floats(8, 16, 32), floats(8, 32, 64), floats(8, 64, 32)), (P("x"), P("x"), P("x"))),
    "experts, routed": Program(
        _routed, (floats(64, 32), floats(32, 8), floats(8, 32, 64), floats(8, 64, 32)), (P(), P(), P("x"), P("x"))
    ),
    "pipeline": Program(_pipeline, (floats(12, 4, 32), floats(8, 32, 32) / 6), (P(), P("x"))),
    "convolution, batch": Program(_convolved, (floats(8, 32, 32, 8), _KERNEL), (P("x"), P())),
    "convolution, rows": Program(_convolved, (_IMAGES, _KERNEL), (P(None, "x"), P())),
    "convolution, rows, stride 2": Program(lambda x, k: _convolved(x, k, 2), (_IMAGES, _KERNEL), (P(None, "x"), P())),
    "convolution, rows and columns": Program(_convolved, (_IMAGES, _KERNEL), (P(None, "x", "y"), P()), GRID),
    "convolution, rows, training": Program(_convolution_step, (_IMAGES, _KERNEL), (P(None, "x"), P())),
    "pooling, rows": Program(_pooled, (_IMAGES,), (P(None, "x"),)),
    "smoothing, rows": Program(_smoothed, (_IMAGES,), (P(None, "x"),)),
    "roll": Program(lambda x: jnp.roll(x, 1, 0), (floats(256, 256),), (P("x"),)),
    "heat by rolls, rows": Program(_heat, (floats(256, 256),), (P("x"),)),
    "heat by rolls, rows and columns": Program(_heat, (floats(256, 256),), (P("x", "y"),), GRID),
    "stencil inside": Program(_edges, (floats(256, 256),), (P("x"),)),
    "differences": Program(_differences, (floats(256, 64),), (P("x"),)),
    "stencil of a padded array": Program(_padded, (floats(256, 64),), (P("x"),)),
    "concatenated along the split": Program(
        lambda x, y: jnp.concatenate([x, y]) * 2, (floats(256, 64), floats(256, 64, seed=1)), (P("x"), P("x"))
    ),
    "cumulative sum along the split": Program(lambda x: jnp.cumsum(x, 0), (floats(1024, 64),), (P("x"),)),
    "sort along the split": Program(lambda x: jnp.sort(x, 0), (floats(4096, 4),), (P("x"),)),
    "top 8 along the split": Program(lambda x: lax.top_k(x, 8), (floats(4, 8192),), (P(None, "x"),)),
    "argmax along the split": Program(lambda x: jnp.argmax(x, -1), (floats(16, 8192),), (P(None, "x"),)),
    "FFT along the split": Program(lambda x: jnp.abs(jnp.fft.fft(x)), (floats(64, 256),), (P(None, "x"),)),
    "FFT in two dimensions": Program(lambda x: jnp.abs(jnp.fft.fft2(x)), (floats(64, 64),), (P("x"),)),
    "transpose": Program(lambda x: x.T * 2, (floats(256, 256),), (P("x"),), results=P("x")),
    "uneven, element by element": Program(lambda x: jnp.tanh(x[:250]) * 2, (floats(256, 64),), (P("x"),)),
    "uneven, in a loop": Program(_inner_heat, (floats(256, 64),), (P("x"),)),
    "max pooling with margins, gradient": Program(_pooled_step, (_IMAGES,), (P(None, "x"),)),
    "running maximum, backwards": Program(lambda x: lax.cummax(x, 0, reverse=True), (floats(1024, 64),), (P("x"),)),
    "running log of sums": Program(lambda x: lax.cumlogsumexp(x, 0), (floats(1024, 64),), (P("x"),)),
    "associative scan along the split": Program(
        lambda x: lax.associative_scan(jnp.multiply, x), (1 + floats(1024, 64) / 64,), (P("x"),)
    ),
    "cumulative sum of an uneven part": Program(lambda x: jnp.cumsum(x[:1001], 0), (floats(1024, 64),), (P("x"),)),
    "argmin of all": Program(jnp.argmin, (floats(64, 8192),), (P("x"),)),
    "sampling, split vocabulary": Program(
        _sampled, (floats(16, 8192), np.arange(2, dtype=np.uint32)), (P(None, "x"), P())
    ),
    "forces between all pairs": Program(_forces, (floats(512, 3),), (P("x"),)),
    "top 8 of rows": Program(lambda x: lax.top_k(x, 8), (floats(64, 1024),), (P("x"),)),
    "sorted rows along the split": Program(jnp.sort, (floats(64, 1024),), (P(None, "x"),)),
    "order of rows along the split": Program(jnp.argsort, (floats(64, 1024),), (P(None, "x"),)),
    "median along the split": Program(lambda x: jnp.median(x, -1), (floats(64, 1024),), (P(None, "x"),)),
    "Fourier filter along the split": Program(
        lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * jnp.arange(129), n=256), (floats(64, 256),), (P(None, "x"),)
    ),
    "ring attention": Program(_ring_attention, _HEADS, (P(None, "x"),) * 3, alone=_attention),
    "sequence parallel": Program(
        _sequence_block, _layer(), (_ROWS, P(None, "x"), P("x")), alone=without_axes(_sequence_block)
    ),
    "sequence parallel, training": Program(
        _sequence_step, _layer(), (_ROWS, P(None, "x"), P("x")), alone=without_axes(_sequence_step)
    ),
    "experts, exchanged": Program(
        _exchanged_experts,
        (floats(256, 32), floats(32, 8), floats(8, 32, 64), floats(8, 64, 32)),
        (P("x"), P(), P("x"), P("x")),
        alone=without_axes(_exchanged_experts),
    ),
    "fully sharded, four layers, training": Program(
        _deep_step, _DEEP, (_ROWS, P(None, "x"), P(None, "x")), results=(P(None, "x"), P(None, "x"))
    ),
    "split layers in a loop, training": Program(
        _deep_step, _DEEP, (_ROWS, P("y"), P("y")), GRID, results=(P("y"), P("y"))
    ),
    "largest of segments, split rows": Program(
        lambda x, of: jax.ops.segment_max(x, of, 16), (floats(4096, 8), words(4096, below=16)), (P("x"), P("x"))
    ),
    "product with the transpose, summed": Program(
        lambda x: jnp.einsum("ij,ji->", x, x), (floats(256, 256),), (P("x", "y"),), GRID
    ),
    "counts of words, split words": Program(lambda w: jnp.zeros(1024).at[w].add(1), (words(4096),), (P("x"),)),
}
