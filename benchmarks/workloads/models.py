"""Whole models: a step of training, a gradient, an inference."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.program import Array, Program, integers, normal, workload
from benchmarks.workloads.convolution import channels_first, kernel_first
from benchmarks.workloads.loops import lstm, lstm_parameters, torch_lstm

_RATE = 0.01


def _cross_entropy(logits: Any, labels: Any) -> Any:
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=-1, mode="clip")
    return -picked.mean()


def _torch_cross_entropy(t: Any, logits: Any, labels: Any) -> Any:
    return t.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


def _jax_step(loss: Any) -> Any:
    """One step of gradient descent: loss(parameters, *data) as a function of parameters, giving new ones."""

    def step(count: int, *arguments: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(list(arguments[:count]), *arguments[count:])
        return value, *(p - _RATE * g for p, g in zip(arguments[:count], slopes, strict=True))

    return step


def _torch_step(t: Any, loss: Any, parameters: Any, *data: Any) -> Any:
    value = loss(t, parameters, *data)
    slopes = t.autograd.grad(value, parameters)
    with t.no_grad():
        return value.detach(), *(p - _RATE * g for p, g in zip(parameters, slopes, strict=True))


def _dense(rng: np.random.Generator, inputs: int, outputs: int) -> list[Array]:
    return [normal(rng, inputs, outputs, scale=inputs**-0.5), normal(rng, outputs, scale=0.1)]


def _mlp_loss(p: Any, x: Any, labels: Any) -> Any:
    for weight, bias in zip(p[:-2:2], p[1:-2:2], strict=True):
        x = jnp.maximum(x @ weight + bias, 0)
    return _cross_entropy(x @ p[-2] + p[-1], labels)


def _torch_mlp_loss(t: Any, p: Any, x: Any, labels: Any) -> Any:
    for weight, bias in zip(p[:-2:2], p[1:-2:2], strict=True):
        x = t.relu(t.addmm(bias, x, weight))
    return _torch_cross_entropy(t, t.addmm(p[-1], x, p[-2]), labels)


def _long_labels(t: Any, *tensors: Any) -> list[Any]:
    """PyTorch's cross entropy reads int64; the labels come last."""
    return [*tensors[:-1], tensors[-1].long()]


@workload("models", full={"batch": 256, "hidden": 1024}, quick={"batch": 5, "hidden": 16})
def mlp_training_step(rng: np.random.Generator, batch: int, hidden: int) -> Program:
    """Three dense layers, cross entropy, gradient descent."""
    parameters = [*_dense(rng, 784, hidden), *_dense(rng, hidden, hidden), *_dense(rng, hidden, 10)]
    count = len(parameters)
    return Program(
        [*parameters, normal(rng, batch, 784), integers(rng, batch, below=10)],
        jax=lambda *a: _jax_step(_mlp_loss)(count, *a),
        torch=lambda t, *a: _torch_step(t, _torch_mlp_loss, a[:count], *a[count:]),
        torch_arguments=_long_labels,
        gradients=range(count),
        tolerance=4,
    )


# One layer of the transformer: query-key-value, output, and the two of the feed-forward network; two norms.
_LAYER = 8


def _transformer_parameters(rng: np.random.Generator, layers: int, size: int, vocabulary: int) -> list[Array]:
    one = np.ones(size, np.float32)
    parameters = [normal(rng, vocabulary, size, scale=0.3)]
    for _ in range(layers):
        parameters += [one, normal(rng, size, 3 * size, scale=size**-0.5), normal(rng, size, size, scale=size**-0.5)]
        parameters += [one, *_dense(rng, size, 4 * size), *_dense(rng, 4 * size, size)]
    return parameters


def _rms_norm(x: Any, scale: Any) -> Any:
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def _transformer_loss(p: Any, heads: int, tokens: Any, labels: Any) -> Any:
    batch, length = tokens.shape
    size = p[0].shape[1]
    x = p[0].at[tokens].get(mode="clip")
    future = jnp.arange(length)[:, None] < jnp.arange(length)[None, :]
    for i in range(1, len(p), _LAYER):
        norm1, qkv, output, norm2, up, up_bias, down, down_bias = p[i : i + _LAYER]
        split = (_rms_norm(x, norm1) @ qkv).reshape(batch, length, 3, heads, size // heads)
        query, key, value = jnp.moveaxis(split, (2, 3), (0, 2))
        scores = jnp.einsum("bhqd,bhkd->bhqk", query, key) * (size // heads) ** -0.5
        weights = jax.nn.softmax(jnp.where(future, -jnp.inf, scores), axis=-1)
        attended = jnp.einsum("bhqk,bhkd->bqhd", weights, value).reshape(batch, length, size)
        x = x + attended @ output
        x = x + jax.nn.gelu(_rms_norm(x, norm2) @ up + up_bias) @ down + down_bias
    return _cross_entropy(x @ p[0].T, labels)


def _torch_transformer_loss(t: Any, p: Any, heads: int, tokens: Any, labels: Any) -> Any:
    f = t.nn.functional
    batch, length = tokens.shape
    size = p[0].shape[1]
    x = f.embedding(tokens, p[0])
    for i in range(1, len(p), _LAYER):
        norm1, qkv, output, norm2, up, up_bias, down, down_bias = p[i : i + _LAYER]
        split = (f.rms_norm(x, (size,), norm1, 1e-5) @ qkv).reshape(batch, length, 3, heads, size // heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        attended = f.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + attended.transpose(1, 2).reshape(batch, length, size) @ output
        inner = f.gelu(f.rms_norm(x, (size,), norm2, 1e-5) @ up + up_bias, approximate="tanh")
        x = x + inner @ down + down_bias
    return _torch_cross_entropy(t, x @ p[0].t(), labels)


@workload(
    "models",
    full={"layers": 4, "batch": 4, "length": 128, "size": 256, "heads": 4, "vocabulary": 1024},
    quick={"layers": 2, "batch": 2, "length": 8, "size": 16, "heads": 2, "vocabulary": 20},
)
def transformer_gradient(
    rng: np.random.Generator, layers: int, batch: int, length: int, size: int, heads: int, vocabulary: int
) -> Program:
    """A causal transformer's loss and its gradient with respect to all parameters."""
    parameters = _transformer_parameters(rng, layers, size, vocabulary)
    count = len(parameters)

    def gradient(*a: Any) -> Any:
        value, slopes = jax.value_and_grad(_transformer_loss)(list(a[:count]), heads, *a[count:])
        return value, *slopes

    def with_torch(t: Any, *a: Any) -> Any:
        value = _torch_transformer_loss(t, a[:count], heads, *a[count:])
        return value.detach(), *t.autograd.grad(value, a[:count])

    return Program(
        [*parameters, integers(rng, batch, length, below=vocabulary), integers(rng, batch, length, below=vocabulary)],
        jax=gradient,
        torch=with_torch,
        torch_arguments=_long_labels,
        gradients=range(count),
        tolerance=20,
    )


def _cnn_parameters(rng: np.random.Generator, channels: int) -> list[Array]:
    """Three 3x3 convolutions, each followed by a smaller image, and a dense layer."""
    sizes = [3, channels, 2 * channels, 4 * channels]
    kernels = [normal(rng, 3, 3, i, o, scale=(4.5 * i) ** -0.5) for i, o in pairwise(sizes)]
    return [*kernels, *_dense(rng, sizes[-1], 10)]


def _cnn(p: Any, images: Any) -> Any:
    x = images
    for kernel in p[:3]:
        x = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = lax.reduce_window(jnp.maximum(x, 0), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.mean((1, 2)) @ p[3] + p[4]


def _torch_cnn(t: Any, p: Any, images: Any) -> Any:
    x = images
    for kernel in p[:3]:
        x = t.nn.functional.max_pool2d(t.relu(t.nn.functional.conv2d(x, kernel, padding=1)), 2)
    return t.addmm(p[4], x.mean((2, 3)), p[3])


def _torch_cnn_arguments(t: Any, *a: Any) -> list[Any]:
    kernels = [kernel_first(t, kernel) for kernel in a[:3]]
    return [*kernels, *a[3:5], channels_first(a[5]), *(labels.long() for labels in a[6:])]


_CNN = {"batch": 32, "size": 32, "channels": 32}
_SMALL_CNN = {"batch": 2, "size": 8, "channels": 4}


@workload("models", full=_CNN, quick=_SMALL_CNN)
def cnn_inference(rng: np.random.Generator, batch: int, size: int, channels: int) -> Program:
    """A small network of convolutions."""
    return Program(
        [*_cnn_parameters(rng, channels), normal(rng, batch, size, size, 3)],
        jax=lambda *a: _cnn(a[:5], a[5]),
        torch=lambda t, *a: _torch_cnn(t, a[:5], a[5]),
        torch_arguments=_torch_cnn_arguments,
        tolerance=4,
    )


@workload("models", full=_CNN, quick=_SMALL_CNN)
def cnn_training_step(rng: np.random.Generator, batch: int, size: int, channels: int) -> Program:
    """The same network, cross entropy, gradient descent."""

    def loss(p: Any, images: Any, labels: Any) -> Any:
        return _cross_entropy(_cnn(p, images), labels)

    def torch_loss(t: Any, p: Any, images: Any, labels: Any) -> Any:
        return _torch_cross_entropy(t, _torch_cnn(t, p, images), labels)

    def with_torch(t: Any, *a: Any) -> Any:
        value, *new = _torch_step(t, torch_loss, a[:5], *a[5:])
        return value, *(kernel.permute(2, 3, 1, 0) for kernel in new[:3]), *new[3:]

    return Program(
        [*_cnn_parameters(rng, channels), normal(rng, batch, size, size, 3), integers(rng, batch, below=10)],
        jax=lambda *a: _jax_step(loss)(5, *a),
        torch=with_torch,
        torch_arguments=_torch_cnn_arguments,
        gradients=range(5),
        tolerance=4,
    )


@workload(
    "models",
    full={"steps": 64, "batch": 32, "hidden": 256},
    quick={"steps": 4, "batch": 2, "hidden": 8},
)
def lstm_training_step(rng: np.random.Generator, steps: int, batch: int, hidden: int) -> Program:
    """A recurrent layer that classifies sequences, cross entropy, gradient descent."""
    parameters = [*lstm_parameters(rng, hidden, hidden), *_dense(rng, hidden, 10)]

    def loss(p: Any, x: Any, labels: Any) -> Any:
        return _cross_entropy(lstm(x, *p[:3])[-1] @ p[3] + p[4], labels)

    def torch_loss(t: Any, p: Any, x: Any, labels: Any) -> Any:
        return _torch_cross_entropy(t, torch_lstm(t, x, *p[:3])[-1] @ p[3] + p[4], labels)

    return Program(
        [*parameters, normal(rng, steps, batch, hidden), integers(rng, batch, below=10)],
        jax=lambda *a: _jax_step(loss)(5, *a),
        torch=lambda t, *a: _torch_step(t, torch_loss, a[:5], *a[5:]),
        torch_arguments=_long_labels,
        gradients=range(5),
        tolerance=4,
    )
