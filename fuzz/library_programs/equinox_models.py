"""Modules and loops of equinox."""

from __future__ import annotations

import io

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
import optax

from fuzz.library_programs.registry import program


@program("equinox/mlp_training", jit=False, tolerance=1e-3, why="steps of Adam enlarge roundings of small gradients")
def mlp_training(key):
    model = eqx.nn.MLP(3, 1, 16, 2, activation=jax.nn.softplus, key=key)
    optimizer = optax.adam(1e-2)
    state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    x = jax.random.normal(key, (32, 3))

    @eqx.filter_jit
    def step(model, state, x):
        value, gradient = eqx.filter_value_and_grad(lambda m: ((jax.vmap(m)(x)[:, 0] - jnp.sin(x.sum(1))) ** 2).mean())(
            model
        )
        updates, state = optimizer.update(gradient, state, model)
        return eqx.apply_updates(model, updates), state, value

    values = []
    for _ in range(6):
        model, state, value = step(model, state, x)
        values.append(value)
    return values, eqx.filter(model, eqx.is_array)


@program("equinox/cnn", jit=False)
def cnn(key):
    k = jax.random.split(key, 5)
    model = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(1, 4, 3, key=k[0]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.ConvTranspose2d(4, 3, 3, stride=2, key=k[1]),
            eqx.nn.AvgPool2d(3, 2),
            eqx.nn.GroupNorm(1, 3),
            eqx.nn.AdaptiveAvgPool2d((4, 5)),
            eqx.nn.Lambda(jax.nn.elu),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(60, 4, key=k[2]),
        ]
    )
    x = jax.random.normal(k[3], (6, 1, 17, 14))
    return eqx.filter_jit(eqx.filter_value_and_grad(lambda m: (jax.vmap(m)(x) ** 2).sum()))(model)


@program("equinox/batch_norm_state", jit=False)
def batch_norm_state(key):
    class Model(eqx.Module):
        norm: eqx.nn.BatchNorm
        linear: eqx.nn.Linear
        spectral: eqx.nn.SpectralNorm

        def __init__(self, key):
            self.norm = eqx.nn.BatchNorm(6, axis_name="batch", mode="batch")
            self.linear = eqx.nn.Linear(6, 6, key=key)
            self.spectral = eqx.nn.SpectralNorm(eqx.nn.Linear(6, 2, key=key), "weight", key=key)

        def __call__(self, x, state):
            x, state = self.norm(self.linear(x), state)
            return self.spectral(jax.nn.gelu(x), state)

    model, state = eqx.nn.make_with_state(Model)(key)

    @eqx.filter_jit
    def run(model, state, x):
        return jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)

    for n in range(3):
        y, state = run(model, state, jax.random.normal(jax.random.fold_in(key, n), (10, 6)))
    return y, jax.tree.leaves(state)


@program("equinox/gru_and_lstm", jit=False)
def gru_and_lstm(key):
    gru, lstm = eqx.nn.GRUCell(4, 6, key=key), eqx.nn.LSTMCell(4, 6, key=key)

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def loss(cells, x):
        gru, lstm = cells

        def step(carry, x):
            h, c = carry
            return (gru(x, h), lstm(x, c)), h

        (h, c), hs = jax.lax.scan(step, (jnp.zeros(6), (jnp.zeros(6), jnp.zeros(6))), x)
        return (h * c[0]).sum() + (hs**2).mean()

    return loss((gru, lstm), jax.random.normal(key, (15, 4)))


@program("equinox/attention", jit=False)
def attention(key):
    layer = eqx.nn.MultiheadAttention(3, 12, use_query_bias=True, key=key)
    rotary = eqx.nn.RotaryPositionalEmbedding(4)

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def loss(layer, x):
        def turn(q, k, v):
            return jax.vmap(rotary, 1, 1)(q), jax.vmap(rotary, 1, 1)(k), v

        return (layer(x, x, x, mask=jnp.tril(jnp.ones((9, 9), bool)), process_heads=turn) ** 2).sum()

    return loss(layer, jax.random.normal(key, (9, 12)))


@program("equinox/ensemble", jit=False)
def ensemble(key):
    make = eqx.filter_vmap(lambda key: eqx.nn.MLP(2, 3, 8, 1, key=key))
    models = make(jax.random.split(key, 5))

    @eqx.filter_jit
    def run(models, x):
        return eqx.filter_vmap(lambda m, x: m(x), in_axes=(eqx.if_array(0), None))(models, x)

    return run(models, jnp.array([0.3, -0.2]))


@program("equinox/checkpointed_while")
def checkpointed_while(key):
    x = jax.random.uniform(key, (6,), minval=0.5, maxval=1.5)

    def loss(x):
        def condition(c):
            return c[1].sum() < 40

        def body(c):
            n, y, z = c
            return n + 1, y * 1.1 + 0.05 * jnp.sin(z), jnp.where(n % 2 == 0, y, z)

        n, y, z = eqxi.while_loop(condition, body, (0, x, x), max_steps=64, kind="checkpointed")
        return (y * z).sum() + n

    return jax.value_and_grad(loss)(x)


@program("equinox/bounded_while")
def bounded_while(key):
    x = jax.random.uniform(key, (4, 3))

    def one(x):
        def loss(x):
            y = eqxi.while_loop(lambda y: y.sum() < 8, lambda y: y * 1.3 + 0.1, x, max_steps=16, kind="bounded")
            return (y**2).sum()

        return jax.value_and_grad(loss)(x)

    return jax.vmap(one)(x)


@program("equinox/checkpointed_scan")
def checkpointed_scan(key):
    w = jax.random.normal(key, (5, 5)) / 2

    def loss(w):
        carry, ys = eqxi.scan(
            lambda c, x: (jnp.tanh(w @ c + x), c.sum()),
            jnp.ones(5),
            jnp.arange(20.0) / 20,
            kind="checkpointed",
            checkpoints=4,
        )
        return (carry**2).sum() + ys.sum()

    return jax.value_and_grad(loss)(w)


@program("equinox/error_if", jit=False)
def error_if(key):
    @eqx.filter_jit
    def root(x):
        x = eqx.error_if(x, x < 0, "negative")
        return jnp.sqrt(x)

    good = root(jnp.float32(4))
    try:
        root(jnp.float32(-4)).block_until_ready()
    except Exception as error:
        return good, jnp.int32("negative" in str(error))
    return good, jnp.int32(-1)


@program("equinox/custom_vjp_closure", jit=False)
def custom_vjp_closure(key):
    @eqx.filter_custom_vjp
    def double(x, scale):
        return x * scale

    @double.def_fwd
    def forward(perturbed, x, scale):
        return double(x, scale), scale

    @double.def_bwd
    def backward(saved, g, perturbed, x, scale):
        return g * saved * 7

    return eqx.filter_jit(eqx.filter_value_and_grad(lambda x: double(x, 3.0).sum()))(jax.random.normal(key, (4,)))


@program("equinox/tree_at_and_layers", jit=False)
def tree_at_and_layers(key):
    mlp = eqx.nn.MLP("scalar", "scalar", 8, 2, key=key)
    mlp = eqx.tree_at(lambda m: m.layers[0].weight, mlp, replace_fn=lambda w: w * 2)
    layer, embed = eqx.nn.LayerNorm((3, 4)), eqx.nn.Embedding(7, 3, key=key)
    rms, dropout = eqx.nn.RMSNorm(12), eqx.nn.Dropout(0.5)
    x = jax.random.normal(key, (3, 4))
    run = eqx.filter_jit(lambda f, *a, **k: f(*a, **k))
    slope = eqx.filter_jit(jax.grad(mlp))
    return (
        run(mlp, x[0, 0]),
        slope(x[0, 0]),
        jax.vmap(jax.grad(jax.grad(mlp)))(x[0]),
        run(layer, x),
        run(embed, 3),
        run(rms, x.ravel()),
        run(dropout, x, key=key),
    )


@program("equinox/pools_and_transposed", jit=False)
def pools_and_transposed(key):
    x = jax.random.normal(key, (2, 12, 12, 6))
    n = eqx.nn
    keys = jax.random.split(key, 6)
    layers = (
        n.Conv3d(2, 3, 3, stride=2, padding="SAME", key=keys[0]),
        n.ConvTranspose3d(2, 3, 2, stride=2, key=keys[1]),
        n.AdaptiveAvgPool3d((3, 5, 2)),
        n.AdaptiveMaxPool3d(2),
        n.MaxPool3d(3, stride=2, padding=1, use_ceil=True),
        n.AvgPool3d((2, 3, 2)),
    )
    flat = x[..., 0].reshape(2, 144)
    lines = (
        n.Conv1d(2, 4, 5, dilation=2, key=keys[2]),
        n.ConvTranspose1d(2, 4, 3, stride=3, output_padding=1, key=keys[3]),
        n.MaxPool1d(4, 2),
        n.AdaptiveMaxPool1d(7),
    )

    @eqx.filter_jit
    def run(layer, x):
        value, back = eqx.filter_vjp(lambda layer, x: layer(x), layer, x)
        return value, back(jnp.sin(value))

    return [eqx.filter(run(layer, x), eqx.is_array) for layer in layers], [
        eqx.filter(run(layer, flat), eqx.is_array) for layer in lines
    ]


@program("equinox/filtered_transformations", jit=False, tolerance=1e-4, why="second derivatives of a network")
def filtered_transformations(key):
    mlp = eqx.nn.MLP(3, "scalar", 8, 2, activation=jnp.tanh, key=key)
    x = jax.random.normal(key, (3,))
    tangent = eqx.filter(mlp, eqx.is_inexact_array)

    @eqx.filter_custom_jvp
    def soft(x, *, power):
        return jnp.abs(x) ** power

    @soft.def_jvp
    def _(primals, tangents, *, power):
        (x,), (t,) = primals, tangents
        return soft(x, power=power), power * jnp.sign(x) * t

    closed = eqx.filter_closure_convert(lambda x: mlp(x) * 2, x)
    buffer = io.BytesIO()
    eqx.tree_serialise_leaves(buffer, mlp)
    buffer.seek(0)
    again = eqx.tree_deserialise_leaves(buffer, eqx.tree_at(lambda m: m.layers[0].bias, mlp, jnp.zeros(8)))
    return (
        eqx.filter_hessian(mlp)(x),
        eqx.filter_jacrev(lambda x: x * mlp(x))(x),
        eqx.filter_jvp(lambda m: m(x), (mlp,), (tangent,)),
        eqx.filter_grad(lambda x: soft(x, power=3).sum())(x),
        eqx.filter_checkpoint(mlp)(x),
        closed(x),
        eqx.tree_equal(again, mlp),
        eqx.filter_vmap(eqx.filter_grad(lambda m, x: m(x)), in_axes=(None, 0))(mlp, jnp.stack([x, -x])),
        eqx.filter_pure_callback(np.sort, x, result_shape_dtypes=x),
    )
