"""A perceptron that learns to read digits, in plain JAX.

``JAX_PLATFORMS=xlakit python examples/jax/digits.py`` runs it on xlakit; without the variable it runs where JAX likes.
"""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

SIZES = (64, 128, 64, 10)
EPOCHS, BATCH, RATE, MOMENTUM = 30, 64, 0.1, 0.9


def initial_parameters(key):
    keys = jax.random.split(key, len(SIZES) - 1)
    return [
        (jax.random.normal(k, (n, m)) * jnp.sqrt(2 / n), jnp.zeros(m))
        for k, n, m in zip(keys, SIZES[:-1], SIZES[1:], strict=True)
    ]


def logits(parameters, x):
    *hidden, (weights, bias) = parameters
    for w, b in hidden:
        x = jax.nn.relu(x @ w + b)
    return x @ weights + bias


def loss(parameters, x, labels):
    scores = jax.nn.log_softmax(logits(parameters, x))
    return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))


@jax.jit
def epoch(parameters, velocity, x, labels, key):
    """One pass over the examples, in an order of its own."""
    order = jax.random.permutation(key, len(x))[: len(x) // BATCH * BATCH].reshape(-1, BATCH)

    def step(state, rows):
        parameters, velocity = state
        value, gradient = jax.value_and_grad(loss)(parameters, x[rows], labels[rows])
        velocity = jax.tree.map(lambda v, g: MOMENTUM * v - RATE * g, velocity, gradient)
        return (jax.tree.map(jnp.add, parameters, velocity), velocity), value

    (parameters, velocity), losses = jax.lax.scan(step, (parameters, velocity), order)
    return parameters, velocity, losses.mean()


@jax.jit
def accuracy(parameters, x, labels):
    return jnp.mean(logits(parameters, x).argmax(axis=1) == labels)


def train(epochs):
    """Learn from 1400 digits; gives the mean loss of each epoch, and the share of the others that it then knows."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.data))
    x, labels = np.float32(digits.data[order] / 16), digits.target[order]
    seen, unseen = slice(0, 1400), slice(1400, None)
    key = jax.random.key(0)
    parameters = initial_parameters(key)
    velocity = jax.tree.map(jnp.zeros_like, parameters)
    losses = []
    for _ in range(epochs):
        key, this = jax.random.split(key)
        parameters, velocity, mean = epoch(parameters, velocity, x[seen], labels[seen], this)
        losses.append(mean)
    return losses, accuracy(parameters, x[unseen], labels[unseen])


def main():
    losses, right = train(EPOCHS)
    for number in range(10, EPOCHS + 1, 10):
        print(f"epoch {number}: loss {losses[number - 1]:.4f}")
    print(f"right on {right:.1%} of what it has not seen, on {jax.default_backend()}")


if __name__ == "__main__":
    main()
