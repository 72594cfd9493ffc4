"""Keras models on its JAX backend: layers, losses, optimizers, and a few steps of ``fit``."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "jax"  # read when keras is imported

import jax
import keras
import numpy as np
from keras import layers, ops

from fuzz.library_programs.registry import program

_STEPS = "six steps of training"


def _arrays(key, *shapes):
    return [
        np.asarray(jax.random.normal(k, s)) for k, s in zip(jax.random.split(key, len(shapes)), shapes, strict=True)
    ]


def _fitted(model, x, y, loss="mse", optimizer="adam", metrics=("mae",)):
    model.compile(optimizer=optimizer, loss=loss, metrics=list(metrics))
    history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False, validation_split=0.25)
    return history.history, model.predict(x[:16], verbose=0)


@program("keras/dense_fit", tolerance=2e-3, why=_STEPS, jit=False)
def dense_fit(key):
    keras.utils.set_random_seed(1)
    x, y = _arrays(key, (64, 10), (64, 3))
    model = keras.Sequential(
        [layers.Dense(32, "gelu"), layers.BatchNormalization(), layers.Dropout(0.3), layers.LayerNormalization()]
    )
    model.add(layers.Dense(3))
    return _fitted(model, x, y, optimizer=keras.optimizers.AdamW(1e-3, clipnorm=1.0))


@program("keras/convolutions_fit", tolerance=2e-3, why=_STEPS, jit=False)
def convolutions_fit(key):
    keras.utils.set_random_seed(2)
    x, y = _arrays(key, (48, 12, 12, 3), (48, 3))
    chosen = [
        layers.Conv2D(8, 3, padding="same", activation="relu"),
        layers.MaxPooling2D(),
        layers.SeparableConv2D(8, 3),
        layers.GroupNormalization(4),
        layers.Conv2DTranspose(4, 3, 2),
        layers.UpSampling2D(2, interpolation="bilinear"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(3, "softmax"),
    ]
    return _fitted(keras.Sequential(chosen), x, y.argmax(1), "sparse_categorical_crossentropy", "sgd", ["accuracy"])


@program("keras/recurrent_fit", tolerance=2e-3, why=_STEPS, jit=False)
def recurrent_fit(key):
    keras.utils.set_random_seed(3)
    x, y = _arrays(key, (48, 9, 5), (48, 3))
    chosen = [
        layers.Masking(),
        layers.Bidirectional(layers.GRU(6, return_sequences=True)),
        layers.TimeDistributed(layers.Dense(4, "tanh")),
        layers.LSTM(5),
        layers.Dense(3),
    ]
    return _fitted(keras.Sequential(chosen), x, y, optimizer="nadam")


@program("keras/attention_fit", tolerance=2e-3, why=_STEPS, jit=False)
def attention_fit(key):
    keras.utils.set_random_seed(4)
    numbers, y = _arrays(key, (48, 12), (48, 3))
    tokens = (abs(numbers) * 20).astype(np.int32) % 50
    given = layers.Input((12,))
    embedded = layers.Embedding(50, 16)(given)
    attended = layers.MultiHeadAttention(2, 8)(embedded, embedded, use_causal_mask=True)
    grouped = layers.GroupQueryAttention(8, 4, 2)(attended, attended)
    hidden = layers.LayerNormalization()(layers.Add()([embedded, attended, grouped]))
    model = keras.Model(given, layers.Dense(3)(layers.GlobalMaxPooling1D()(hidden)))
    return _fitted(model, tokens, y, optimizer="lion")


@program("keras/half_precision_fit", tolerance=2e-2, why="the model computes in float16", jit=False)
def half_precision_fit(key):
    keras.utils.set_random_seed(5)
    x, y = _arrays(key, (48, 16), (48, 3))
    model = keras.Sequential([layers.Dense(32, "relu", dtype="mixed_float16"), layers.Dense(3)])
    return _fitted(model, x, y, optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01)))


@program("keras/operations", tolerance=1e-3, why="factorizations")
def operations(key):
    a, q = jax.random.normal(key, (4, 6)), jax.random.normal(jax.random.fold_in(key, 1), (5, 5))
    image = jax.random.normal(jax.random.fold_in(key, 2), (2, 9, 7, 3))
    signal = ops.stft(a.reshape(1, -1), 8, 4, 8)
    return (
        ops.segment_sum(a[:, 0], np.array([0, 0, 1, 2]), 3),
        ops.top_k(a, 3)[0],
        ops.erfinv(ops.tanh(a)),
        abs(ops.qr(q)[1]),
        ops.svd(q)[1],
        ops.eigh(q + q.T)[0],
        ops.solve(q, q[:, :2]),
        signal,
        ops.istft(signal, 8, 4, 8),
        ops.image.resize(image, (5, 8), "bicubic"),
        ops.image.affine_transform(image, np.array(2 * [[1, 0.1, 0, 0, 1, 0.2, 0, 0]], np.float32)),
        ops.image.extract_patches(image, 3, 2),
        ops.associative_scan(lambda p, s: p * s, a),
        ops.while_loop(lambda i, c: i < 7, lambda i, c: (i + 1, c * 0.9), (0, a))[1],
        ops.quantile(a, 0.3, 1),
        keras.random.beta((4,), 2.0, 3.0, seed=1),
        keras.random.truncated_normal((5,), seed=6),
    )
