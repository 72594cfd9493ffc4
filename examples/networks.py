"""Neural networks in plain JAX: forward, gradient and training steps."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from registry import bf16, f32, program, s32


def dense(x, w):
    """A matrix product scaled by the size of its sums, so that weights of variance 1 keep values near 1."""
    return x @ w * w.shape[0] ** -0.5


# -- a perceptron --------------------------------------------------------------------------------

MLP = [{"w": f32(64, 128), "b": f32(128)}, {"w": f32(128, 64), "b": f32(64)}, {"w": f32(64, 10), "b": f32(10)}]


def mlp(layers, x):
    for layer in layers[:-1]:
        x = jax.nn.relu(dense(x, layer["w"]) + layer["b"])
    return dense(x, layers[-1]["w"]) + layers[-1]["b"]


def cross_entropy(logits, labels):
    chosen = jax.nn.one_hot(labels, logits.shape[-1]) * jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.sum(chosen, axis=-1))


def sgd(parameters, gradients, rate=0.01):
    return jax.tree.map(lambda p, g: p - rate * g, parameters, gradients)


@program(MLP, f32(32, 64), s32(32))
def mlp_train_step(layers, x, labels):
    loss, gradients = jax.value_and_grad(lambda layers: cross_entropy(mlp(layers, x), labels))(layers)
    return loss, sgd(layers, gradients)


# -- a transformer -------------------------------------------------------------------------------


def block_shapes(width, inner):
    return {
        "qkv": f32(width, 3 * width),
        "out": f32(width, width),
        "up": f32(width, inner),
        "up_bias": f32(inner),
        "down": f32(inner, width),
        "down_bias": f32(width),
        "scale1": f32(width),
        "shift1": f32(width),
        "scale2": f32(width),
        "shift2": f32(width),
    }


def layer_norm(x, scale, shift):
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), axis=-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift


def attention(q, k, v):
    """Causal attention on [batch, heads, time, depth]."""
    scores = jnp.einsum("bhtd,bhsd->bhts", q, k) / jnp.sqrt(q.shape[-1]).astype(q.dtype)
    causal = jnp.tril(jnp.ones(scores.shape[-2:], dtype=bool))
    scores = jnp.where(causal, scores, jnp.asarray(-1e9, scores.dtype))
    return jnp.einsum("bhts,bhsd->bhtd", jax.nn.softmax(scores), v)


def transformer_block(p, x, heads=4):
    batch, time, width = x.shape
    qkv = dense(layer_norm(x, p["scale1"], p["shift1"]), p["qkv"])
    q, k, v = jnp.moveaxis(qkv.reshape(batch, time, 3, heads, width // heads), (2, 3), (0, 2))
    mixed = jnp.moveaxis(attention(q, k, v), 1, 2).reshape(batch, time, width)
    x = x + dense(mixed, p["out"])
    hidden = jax.nn.gelu(dense(layer_norm(x, p["scale2"], p["shift2"]), p["up"]) + p["up_bias"])
    return x + dense(hidden, p["down"]) + p["down_bias"]


@program(block_shapes(64, 256), f32(2, 32, 64))
def transformer_block_grad(parameters, x):
    return jax.value_and_grad(lambda p, x: jnp.mean(jnp.square(transformer_block(p, x))), argnums=(0, 1))(parameters, x)


LANGUAGE_MODEL = {
    "embedding": f32(100, 64),
    "positions": f32(32, 64),
    "blocks": [block_shapes(64, 256)] * 4,
    "scale": f32(64),
    "shift": f32(64),
}


@program(LANGUAGE_MODEL, s32(2, 32), s32(2, 32))
def transformer_grad_4_layers(parameters, tokens, targets):
    def loss(p):
        x = p["embedding"][tokens] + p["positions"]
        for block in p["blocks"]:
            x = transformer_block(block, x)
        return cross_entropy(dense(layer_norm(x, p["scale"], p["shift"]), p["embedding"].T), targets)

    return jax.value_and_grad(loss)(parameters)


@program(bf16(2, 4, 16, 32), bf16(2, 4, 16, 32), bf16(2, 4, 16, 32))
def mixed_precision(q, k, v):
    """Attention in bf16 with its gradient, the softmax and the loss in f32."""

    def loss(q, k, v):
        scores = jnp.einsum("bhtd,bhsd->bhts", q, k, preferred_element_type=jnp.float32) * q.shape[-1] ** -0.5
        weights = jax.nn.softmax(scores).astype(v.dtype)
        return jnp.mean(jnp.square(jnp.einsum("bhts,bhsd->bhtd", weights, v).astype(jnp.float32)))

    return jax.value_and_grad(loss, argnums=(0, 1, 2))(q, k, v)


# -- images --------------------------------------------------------------------------------------

CNN = {
    "conv1": f32(3, 3, 1, 8),
    "conv2": f32(3, 3, 8, 16),
    "depthwise": f32(3, 3, 1, 16),
    "dense": f32(256, 10),
    "bias": f32(10),
}


def convolve(x, kernel, stride=1, groups=1):
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def max_pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def classify(p, images):
    x = max_pool(jax.nn.relu(convolve(images, p["conv1"])))
    x = jax.nn.relu(convolve(x, p["conv2"], stride=2))
    x = jax.nn.silu(convolve(x, p["depthwise"], groups=16))
    return dense(x.reshape(x.shape[0], -1), p["dense"]) + p["bias"]


@program(CNN, f32(4, 16, 16, 1))
def cnn(parameters, images):
    return jax.nn.softmax(classify(parameters, images))


@program(CNN, f32(4, 16, 16, 1), s32(4))
def cnn_train_step(parameters, images, labels):
    loss, gradients = jax.value_and_grad(lambda p: cross_entropy(classify(p, images), labels))(parameters)
    return loss, sgd(parameters, gradients)


NORM = {"scale": f32(8), "offset": f32(8)}
STATISTICS = {"mean": f32(8), "variance": f32(8)}


@program(NORM, STATISTICS, f32(4, 6, 6, 8))
def batch_norm(parameters, statistics, x):
    """A training step of batch normalization: output, running statistics, gradients."""

    def normalize(p, x):
        mean, variance = jnp.mean(x, axis=(0, 1, 2)), jnp.var(x, axis=(0, 1, 2))
        y = (x - mean) * jax.lax.rsqrt(variance + 1e-3) * p["scale"] + p["offset"]
        return jnp.mean(y**3), (y, {"mean": mean, "variance": variance})

    (_, (y, batch)), gradients = jax.value_and_grad(normalize, argnums=(0, 1), has_aux=True)(parameters, x)
    running = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, statistics, batch)
    return y, running, gradients


# -- sequences -----------------------------------------------------------------------------------

LSTM = {"w": f32(48, 128), "b": f32(128)}


@program(LSTM, f32(12, 4, 16))
def scan(parameters, sequence):
    """An LSTM over [time, batch, features] with lax.scan, and its gradient."""

    def step(p, carry, x):
        hidden, cell = carry
        i, f, g, o = jnp.split(dense(jnp.concatenate([x, hidden], axis=-1), p["w"]) + p["b"], 4, axis=-1)
        cell = jax.nn.sigmoid(f + 1) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (hidden, cell), hidden

    def loss(p):
        start = (jnp.zeros((4, 32)), jnp.zeros((4, 32)))
        (hidden, _), outputs = jax.lax.scan(lambda carry, x: step(p, carry, x), start, sequence)
        return jnp.mean(hidden**2), outputs

    return jax.value_and_grad(loss, has_aux=True)(parameters)
