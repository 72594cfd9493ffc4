"""The programs of the walk-through, docs/walkthrough.md, which reads them as dumps."""

import jax
import jax.numpy as jnp


def scores(x, w):
    """Squares of products, as parts of their sum: f32[8,16], f32[16,4] -> f32[8,4]."""
    h = x @ w
    energy = h * h
    return energy / jnp.sum(energy, axis=-1, keepdims=True)


def loss(w, x, y):
    """The mean square of the errors of a logarithm, which is NaN where its operand is negative."""
    h = jnp.tanh(x @ w)
    logits = jnp.log(h)
    return jnp.mean((logits - y) ** 2)


def train_step(w, x, y):
    """The weights after a step of gradient descent: f32[16,4], f32[8,16], f32[8,4] -> f32[16,4]."""
    return w - 0.1 * jax.grad(loss)(w, x, y)


def unroll(x, w):
    """Fifty steps of a recurrent layer: f32[128,128], f32[128,128] -> f32[128,128]."""

    def cell(h, _):
        product = h @ w
        return jnp.tanh(product), None

    return jax.lax.scan(cell, x, None, length=50)[0]


if __name__ == "__main__":
    batch, weights, targets = jnp.ones((8, 16)), jnp.ones((16, 4)), jnp.ones((8, 4))
    square = jnp.ones((128, 128))
    jax.jit(scores)(batch, weights)
    jax.jit(train_step)(weights, batch, targets)
    jax.jit(unroll)(square, square)
