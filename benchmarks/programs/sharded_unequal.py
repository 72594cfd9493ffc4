"""JAX programs on rows that the devices do not divide: operations along the other dimensions, loops, models."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax, numpy as jnp
from jax.sharding import PartitionSpec as P

from benchmarks.programs.sharded import GRID, Program, floats, split, words

_ROWS = P("x")


def _likelihood(x: Any, labels: Any, table: Any) -> Any:
    """The gradient of a classifier's likelihood, of all rows but the last three."""

    def loss(table: Any) -> Any:
        logits = jax.nn.log_softmax(x[:-3] @ table)
        return -jnp.take_along_axis(logits, labels[:-3, None], -1).mean()

    return jax.value_and_grad(loss)(table)


def _deep(x: Any, weights: Any) -> Any:
    def layer(h: Any, w: Any) -> Any:
        return h + jnp.tanh(h @ w), (h**2).mean()

    return lax.scan(layer, x[:-3], weights)


def _deep_step(x: Any, weights: Any) -> Any:
    return jax.grad(lambda w: (_deep(x, w)[0] ** 2).mean())(weights)


def _attention(x: Any, qkv: Any) -> Any:
    """Attention along the second dimension, of a batch that is not divided."""

    def loss(qkv: Any) -> Any:
        q, k, v = jnp.split(x[:-3] @ qkv, 3, -1)
        weights = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k))
        return (jnp.einsum("bqk,bkd->bqd", weights, v) ** 2).mean()

    return jax.value_and_grad(loss)(qkv)


def _convolved(x: Any, kernel: Any) -> Any:
    def loss(kernel: Any) -> Any:
        labels = ("NHWC", "HWIO", "NHWC")
        y = lax.conv_general_dilated(x[:-3], kernel, (1, 1), "SAME", dimension_numbers=labels)
        return (jax.nn.relu(y) ** 2).mean()

    return jax.value_and_grad(loss)(kernel)


def _along_rows(x: Any) -> Any:
    u = x[:-3]
    ordered = jnp.sort(u, -1)
    return ordered.sum(), jnp.cumsum(u, -1)[:, -1].mean(), jnp.argmax(u, -1).sum(), lax.top_k(u, 3)[0].mean()


def _spectra(x: Any) -> Any:
    return jnp.abs(jnp.fft.rfft(x[:-3])).mean(0)


def _concatenated(x: Any, y: Any) -> Any:
    u = jnp.concatenate([x[:-3], 2 * y[:-3]], 1)
    return u.reshape(u.shape[0], 2, -1).max(1).sum(0), jnp.where(u > 0, u, -u).mean()


def _embedded(table: Any, words: Any) -> Any:
    return jax.grad(lambda t: (t[words[:-3]].mean(1) ** 2).sum())(table)


def _recurrent(x: Any, w: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(x + h @ w)
        return h, h.mean()

    u = x[:-3]
    return lax.scan(step, jnp.zeros_like(u[:, 0]), jnp.moveaxis(u, 1, 0))[1]


def _newton(x: Any, y: Any) -> Any:
    """Logistic regression by Newton's method."""
    u, t = x[:-3], y[:-3]

    def step(w: Any, _: Any) -> Any:
        p = jax.nn.sigmoid(u @ w)
        hessian = (u * (p * (1 - p))[:, None]).T @ u + jnp.eye(u.shape[1])
        return w - jnp.linalg.solve(hessian, u.T @ (p - t) + w), None

    return lax.scan(step, jnp.zeros(x.shape[1]), None, length=4)[0]


def _covariance(x: Any) -> Any:
    u = x[:-3] - x[:-3].mean(0)
    return u.T @ u / u.shape[0], u.std(0)


def _odd_layers_step(x: Any, up: Any, down: Any) -> Any:
    """Rows and hidden features in unequal parts."""
    x = split(x, "x")

    def loss(weights: Any) -> Any:
        scores = jnp.tanh(x @ weights[0]) @ weights[1]
        return (jax.nn.logsumexp(scores, -1) - scores[:, 0]).mean()

    return jax.value_and_grad(loss)((split(up, None, "y"), split(down, "y")))


UNEQUAL: dict[str, Program] = {
    "unequal rows: classifier, training": Program(
        _likelihood, (floats(64, 32), words(64, below=40), floats(32, 40)), (_ROWS, _ROWS, P())
    ),
    "unequal rows: layers in a loop": Program(_deep, (floats(64, 32), floats(4, 32, 32) / 6), (_ROWS, P())),
    "unequal rows: layers in a loop, training": Program(
        _deep_step, (floats(64, 32), floats(4, 32, 32) / 6), (_ROWS, P())
    ),
    "unequal rows: layers in a loop, split both ways, training": Program(
        _deep_step, (floats(64, 32), floats(4, 32, 32) / 6), (_ROWS, P(None, None, "y")), GRID
    ),
    "unequal rows: attention, training": Program(_attention, (floats(64, 8, 16), floats(16, 48) / 4), (_ROWS, P())),
    "unequal rows: convolution, training": Program(
        _convolved, (floats(64, 8, 8, 4), floats(3, 3, 4, 8) / 6), (_ROWS, P())
    ),
    "unequal rows: orders along the others": Program(_along_rows, (floats(64, 96),), (_ROWS,)),
    "unequal rows: spectra": Program(_spectra, (floats(64, 64),), (_ROWS,)),
    "unequal rows: concatenated": Program(_concatenated, (floats(64, 32), floats(64, 32, seed=1)), (_ROWS, _ROWS)),
    "unequal rows: embedding, training": Program(_embedded, (floats(512, 16), words(64, 8, below=512)), (P(), _ROWS)),
    "unequal rows: recurrence": Program(_recurrent, (floats(64, 6, 32), floats(32, 32) / 6), (_ROWS, P())),
    "unequal rows: Newton's method": Program(
        _newton, (floats(64, 12), (floats(64) > 0).astype(np.float32)), (_ROWS, _ROWS)
    ),
    "unequal rows and features, training": Program(
        _odd_layers_step, (floats(30, 17), floats(17, 21) / 4, floats(21, 10) / 4), (P(), P(), P()), GRID
    ),
    "unequal rows: covariance": Program(_covariance, (floats(64, 24),), (_ROWS,)),
}
