"""Programs of the sizes that people have, written in JAX: what the workbench's verbs are tried on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# A function, and its arguments.
Program = tuple[Callable[..., Any], tuple[Any, ...]]
_PROGRAMS: Final[dict[str, Callable[[], Program]]] = {}


def _program(make: Callable[[], Program]) -> Callable[[], Program]:
    _PROGRAMS[make.__name__] = make
    return make


def names() -> tuple[str, ...]:
    """The names of all programs."""
    return tuple(_PROGRAMS)


def program(name: str) -> Program:
    """A program's function and arguments."""
    return _PROGRAMS[name]()


def hlo(name: str) -> bytes:
    """The proto of the HLO module that JAX makes of a program, before any pass."""
    function, arguments = program(name)
    return jax.jit(function).lower(*arguments).compiler_ir("hlo").as_serialized_hlo_module_proto()


def optimized(name: str) -> bytes:
    """The proto of the HLO module that XLA's passes for CPUs make of a program."""
    function, arguments = program(name)
    executable = jax.jit(function).lower(*arguments).compile().runtime_executable()
    return executable.hlo_modules()[0].as_serialized_hlo_module_proto()


def _normal(seed: int, *shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(seed).normal(0, 0.5, shape), jnp.float32)


@_program
def transformer() -> Program:
    """A step of Adam for two blocks of a decoder, with a norm of the gradient."""
    vocabulary, width, heads, length = 40, 16, 2, 12

    def norm(x):
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    def attend(p, x):
        q, k, v = (norm(x) @ p[n] for n in "qkv")
        q, k, v = (y.reshape(*y.shape[:-1], heads, -1).swapaxes(-3, -2) for y in (q, k, v))
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(width // heads)
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
        mixed = (jax.nn.softmax(scores) @ v).swapaxes(-3, -2).reshape(x.shape)
        return mixed @ p["o"]

    def loss(p, tokens):
        x = p["embed"][tokens] + p["position"]
        for block in p["blocks"]:
            x = x + attend(block, x)
            x = x + jax.nn.gelu(norm(x) @ block["up"]) @ block["down"]
        logs = jax.nn.log_softmax(norm(x) @ p["embed"].T)
        return -jnp.take_along_axis(logs[:, :-1], tokens[:, 1:, None], -1).mean()

    def step(p, m, v, tokens):
        value, g = jax.value_and_grad(loss)(p, tokens)
        size = jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(g)))
        g = jax.tree.map(lambda x: x / jnp.maximum(size, 1.0), g)
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
        return jax.tree.map(lambda a, b, c: a - 0.01 * b / (jnp.sqrt(c) + 1e-8), p, m, v), m, v, value

    blocks = [
        {n: _normal(7 * i + j, width, width) for j, n in enumerate("qkvo")}
        | {"up": _normal(7 * i + 5, width, 4 * width), "down": _normal(7 * i + 6, 4 * width, width)}
        for i in range(2)
    ]
    p = {"embed": _normal(90, vocabulary, width), "position": _normal(91, length, width), "blocks": blocks}
    zeros = jax.tree.map(jnp.zeros_like, p)
    tokens = jnp.asarray(np.random.default_rng(3).integers(0, vocabulary, (3, length)), jnp.int32)
    return step, (p, zeros, zeros, tokens)


@_program
def recurrent() -> Program:
    """The gradient of an LSTM over a sequence."""

    def loss(p, xs):
        def cell(carry, x):
            h, c = carry
            i, f, g, o = jnp.split(x @ p["x"] + h @ p["h"] + p["b"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((xs.shape[1], 8))
        return jnp.sum(lax.scan(cell, (zero, zero), xs)[1] ** 2)

    p = {"x": _normal(0, 5, 32), "h": _normal(1, 8, 32), "b": _normal(2, 32)}
    return jax.value_and_grad(loss), (p, _normal(3, 9, 4, 5))


@_program
def convolutions() -> Program:
    """The gradient of a network with strides, pooling and normalization over batches."""

    def layer(x, w, stride):
        x = lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = (x - x.mean((0, 1, 2))) / jnp.sqrt(x.var((0, 1, 2)) + 1e-5)
        return jax.nn.relu(x)

    def loss(p, x, y):
        for w, stride in zip(p["filters"], (1, 2, 1), strict=True):
            x = layer(x, w, stride)
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        logits = x.reshape(x.shape[0], -1) @ p["out"]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - logits[jnp.arange(len(y)), y])

    filters = [_normal(0, 3, 3, 3, 6), _normal(1, 3, 3, 6, 6), _normal(2, 1, 1, 6, 4)]
    p = {"filters": filters, "out": _normal(3, 2 * 2 * 4, 7)}
    return jax.grad(loss), (p, _normal(4, 5, 8, 8, 3), jnp.arange(5))


@_program
def gaussian_process() -> Program:
    """The gradient of a marginal likelihood: Cholesky and triangular solves."""

    def loss(p, x, y):
        distance = jnp.sum((x[:, None] - x[None]) ** 2, -1)
        covariance = jnp.exp(p["size"] - distance / jnp.exp(p["length"])) + jnp.eye(len(x)) * 0.1
        factor = jnp.linalg.cholesky(covariance)
        solved = jax.scipy.linalg.cho_solve((factor, True), y)
        return 0.5 * y @ solved + jnp.sum(jnp.log(jnp.diagonal(factor)))

    return jax.value_and_grad(loss), (
        {"size": jnp.float32(0.1), "length": jnp.float32(0.3)},
        _normal(0, 14, 3),
        _normal(1, 14),
    )


@_program
def sampler() -> Program:
    """Metropolis's walk: random numbers in a loop."""

    def walk(key, x):
        def step(i, carry):
            key, x, taken = carry
            key, a, b = jax.random.split(key, 3)
            new = x + 0.3 * jax.random.normal(a, x.shape)
            ratio = jnp.sum(x**2 - new**2, -1)
            accept = jnp.log(jax.random.uniform(b, ratio.shape)) < ratio
            return key, jnp.where(accept[:, None], new, x), taken + accept

        return lax.fori_loop(0, 6, step, (key, x, jnp.zeros(x.shape[0], jnp.int32)))[1:]

    return walk, (jax.random.PRNGKey(1), _normal(0, 6, 3))


@_program
def beam_search() -> Program:
    """Beams through a table of transitions: top-k, gathers, and a loop that ends early."""

    def search(table, start):
        def go_on(carry):
            i, _, scores = carry
            return (i < 7) & (scores.max() > -40)

        def body(carry):
            i, paths, scores = carry
            logs = jax.nn.log_softmax(table)[paths[:, i]]
            scores, flat = lax.top_k((scores[:, None] + logs).ravel(), 4)
            paths = paths[flat // table.shape[1]].at[:, i + 1].set(flat % table.shape[1])
            return i + 1, paths, scores

        paths = jnp.zeros((4, 8), jnp.int32).at[:, 0].set(start)
        return lax.while_loop(go_on, body, (0, paths, jnp.arange(4.0)))

    return search, (_normal(0, 11, 11) * 3, jnp.arange(4))


@_program
def graph_network() -> Program:
    """The gradient of messages over the edges of a graph: gathers and scatters."""

    def loss(p, nodes, sources, targets):
        for w in p:
            messages = jnp.tanh(jnp.concatenate([nodes[sources], nodes[targets]], -1) @ w)
            sums = jax.ops.segment_sum(messages, targets, 10)
            most = jax.ops.segment_max(messages, targets, 10)
            nodes = nodes + jnp.where(jnp.isfinite(most), most, 0.0) + sums
        return jnp.sum(nodes**2)

    rng = np.random.default_rng(5)
    edges = [jnp.asarray(rng.integers(0, 10, 25), jnp.int32) for _ in range(2)]
    return jax.grad(loss), ([_normal(0, 8, 4), _normal(1, 8, 4)], _normal(2, 10, 4), *edges)


@_program
def waves() -> Program:
    """Split steps of a Schroedinger equation: Fourier transforms and complex numbers."""

    def run(psi, potential):
        k = jnp.fft.fftfreq(psi.shape[0]) * 6.28

        def step(psi, _):
            psi = jnp.exp(-0.05j * potential) * psi
            psi = jnp.fft.ifft(jnp.exp(-0.05j * k**2) * jnp.fft.fft(psi))
            return psi, jnp.sum(jnp.abs(psi) ** 2)

        psi, norms = lax.scan(step, psi, None, length=4)
        return jnp.abs(psi) ** 2, jnp.angle(psi), norms

    return run, (_normal(0, 32) + 1j * _normal(1, 32), _normal(2, 32))


@_program
def mixed_precision() -> Program:
    """The gradient of a perceptron in bfloat16, with recomputation."""

    @jax.checkpoint
    def block(x, w):
        return jax.nn.silu(x @ w.astype(jnp.bfloat16)) + x

    def loss(weights, x):
        x = x.astype(jnp.bfloat16)
        for w in weights:
            x = block(x, w)
        return jnp.mean(x.astype(jnp.float32) ** 2)

    return jax.value_and_grad(loss), ([_normal(i, 24, 24) for i in range(3)], _normal(9, 6, 24))


@_program
def orbit() -> Program:
    """An integration with steps that adapt: a loop with branches."""

    def run(y, end):
        def slope(y):
            r3 = jnp.sum(y[:2] ** 2) ** 1.5
            return jnp.concatenate([y[2:], -y[:2] / r3])

        def body(carry):
            t, h, y = carry
            k1 = slope(y)
            k2 = slope(y + h / 2 * k1)
            k3 = slope(y + h * (2 * k2 - k1))
            new = y + h / 6 * (k1 + 4 * k2 + k3)
            error = jnp.max(jnp.abs(new - y - h * k2))
            return lax.cond(
                error < 1e-3,
                lambda: (t + h, jnp.minimum(h * 1.5, 0.1), new),
                lambda: (t, h * 0.5, y),
            )

        return lax.while_loop(lambda c: c[0] < end, body, (0.0, 0.1, y))

    return run, (jnp.array([1.0, 0.0, 0.0, 0.9]), 1.0)


@_program
def neighbors() -> Program:
    """The nearest points, a vote of theirs, and ranks: sorts of several operands."""

    def vote(x, labels, queries):
        distance = jnp.sum((queries[:, None] - x[None]) ** 2, -1)
        order = jnp.argsort(distance, -1)[:, :5]
        votes = jax.vmap(lambda own: jnp.bincount(own, length=4))(labels[order])
        median = jnp.median(distance, -1)
        ranks = jnp.argsort(jnp.argsort(queries[:, 0]))
        return jnp.argmax(votes, -1), median, ranks, jnp.cumsum(jnp.sort(distance, -1), -1)

    labels = jnp.asarray(np.random.default_rng(2).integers(0, 4, 20), jnp.int32)
    return vote, (_normal(0, 20, 3), labels, _normal(1, 7, 3))


@_program
def quantized() -> Program:
    """Products of 8-bit and 4-bit integers with scales."""

    def run(x, w, scales):
        size = jnp.max(jnp.abs(x), -1, keepdims=True) / 127
        q = jnp.round(x / size).astype(jnp.int8)
        wide = lax.dot_general(q, w.astype(jnp.int8), (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)
        y = wide.astype(jnp.float32) * size * scales
        return jnp.clip(jnp.round(y), -8, 7).astype(jnp.int4).astype(jnp.int32), y

    w = jnp.asarray(np.random.default_rng(1).integers(-8, 8, (16, 12)), jnp.int4)
    return run, (_normal(0, 6, 16), w, jnp.abs(_normal(2, 12)))
