"""A small transformer that learns to write the text beside it, letter by letter, in plain JAX.

``JAX_PLATFORMS=xlakit python examples/jax/language_model.py`` runs it on xlakit; without the variable it runs where JAX
likes. ``--steps`` says how long it learns.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

TEXT = Path(__file__).with_name("lighthouse.txt").read_text(encoding="utf-8")
LETTERS = sorted(set(TEXT))
LENGTH, WIDTH, HEADS, BLOCKS, BATCH, RATE = 64, 64, 4, 2, 16, 3e-3


def initial_parameters(key):
    keys = iter(jax.random.split(key, 4 * BLOCKS + 3))

    def matrix(*shape):
        return jax.random.normal(next(keys), shape) * shape[0] ** -0.5

    blocks = [
        {
            "qkv": matrix(WIDTH, 3 * WIDTH),
            "out": matrix(WIDTH, WIDTH),
            "up": matrix(WIDTH, 4 * WIDTH),
            "down": matrix(4 * WIDTH, WIDTH),
        }
        for _ in range(BLOCKS)
    ]
    return {
        "letters": matrix(len(LETTERS), WIDTH),
        "places": matrix(LENGTH, WIDTH) * 0.1,
        "blocks": blocks,
        "head": matrix(WIDTH, len(LETTERS)),
    }


def normalized(x):
    centered = x - x.mean(axis=-1, keepdims=True)
    return centered * jax.lax.rsqrt((centered**2).mean(axis=-1, keepdims=True) + 1e-5)


def attention(block, x):
    length = x.shape[0]
    q, k, v = jnp.moveaxis((x @ block["qkv"]).reshape(length, 3, HEADS, -1), 1, 0)
    scores = jnp.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    return jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores), v).reshape(length, WIDTH) @ block["out"]


def scores_of(parameters, letters):
    """For each place of a text of numbers, how likely which letter follows."""
    x = parameters["letters"][letters] + parameters["places"][: len(letters)]
    for block in parameters["blocks"]:
        x = x + attention(block, normalized(x))
        x = x + jax.nn.gelu(normalized(x) @ block["up"]) @ block["down"]
    return normalized(x) @ parameters["head"]


def loss(parameters, texts):
    scores = jax.nn.log_softmax(jax.vmap(scores_of, in_axes=(None, 0))(parameters, texts[:, :-1]))
    return -jnp.mean(jnp.take_along_axis(scores, texts[:, 1:, None], axis=-1))


@jax.jit
def step(state, key, number, corpus):
    """One step of Adam on texts from chance places."""
    parameters, mean, square = state
    starts = jax.random.randint(key, (BATCH,), 0, len(corpus) - LENGTH)
    texts = corpus[starts[:, None] + jnp.arange(LENGTH + 1)]
    value, gradient = jax.value_and_grad(loss)(parameters, texts)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
    square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, square, gradient)
    scale = RATE * jnp.sqrt(1 - 0.99**number) / (1 - 0.9**number)
    parameters = jax.tree.map(lambda p, m, s: p - scale * m / (jnp.sqrt(s) + 1e-8), parameters, mean, square)
    return (parameters, mean, square), value


@jax.jit
def written(parameters, start, key):
    """The start, and what the model thinks follows it."""

    def letter(place, state):
        text, key = state
        key, this = jax.random.split(key)
        scores = scores_of(parameters, text)[place]
        return text.at[place + 1].set(jax.random.categorical(this, 2 * scores)), key

    text = jnp.zeros(LENGTH, jnp.int32).at[: len(start)].set(start)
    return jax.lax.fori_loop(len(start) - 1, LENGTH - 1, letter, (text, key))[0]


def train(steps, report=None):
    """Learn for so many steps; gives the parameters and the loss of each step."""
    corpus = jnp.array([LETTERS.index(letter) for letter in TEXT])
    key = jax.random.key(0)
    parameters = initial_parameters(key)
    nothing = jax.tree.map(jnp.zeros_like, parameters)
    state, losses = (parameters, nothing, nothing), []
    for number in range(1, steps + 1):
        key, this = jax.random.split(key)
        state, value = step(state, this, number, corpus)
        losses.append(value)
        if report is not None and number % report == 0:
            print(f"step {number}: loss {value:.3f}")
    return state[0], np.array(losses)


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    begin = time.perf_counter()
    parameters, _ = train(options.steps, report=50)
    seconds = time.perf_counter() - begin
    start = jnp.array([LETTERS.index(letter) for letter in "The keeper "])
    text = written(parameters, start, jax.random.key(1))
    print("".join(LETTERS[int(number)] for number in text))
    print(f"{options.steps} steps in {seconds:.1f} s on {jax.default_backend()}")


if __name__ == "__main__":
    main()
