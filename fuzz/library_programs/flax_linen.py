"""Networks of flax.linen."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state

from fuzz.library_programs.registry import program

_TRAINED = "steps of Adam divide by the root of gradients' squares, which enlarges the roundings of small gradients"


class Convolutional(nn.Module):
    """Convolutions, normalization, pooling, dropout."""

    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(8, (3, 3), use_bias=False)(x)
        x = nn.BatchNorm(use_running_average=not train)(x)
        x = nn.relu(x)
        x = nn.max_pool(x, (2, 2), (2, 2))
        x = nn.Conv(16, (3, 3), strides=2, feature_group_count=4)(x)
        x = nn.GroupNorm(4)(nn.gelu(x))
        x = nn.ConvTranspose(6, (2, 2), (2, 2))(x)
        x = nn.avg_pool(x, (2, 2), (2, 2)).reshape(len(x), -1)
        x = nn.Dropout(0.3, deterministic=not train)(x)
        return nn.Dense(10)(x)


@program("flax.linen/cnn_training", tolerance=1e-3, why=_TRAINED)
def cnn_training(key):
    model = Convolutional()
    x = jax.random.normal(key, (8, 16, 16, 3))
    y = jnp.arange(8)
    variables = model.init({"params": key, "dropout": key}, x, True)
    optimizer = optax.adam(1e-2)

    def step(carry, key):
        parameters, statistics, state = carry

        def loss(parameters):
            logits, changed = model.apply(
                {"params": parameters, "batch_stats": statistics},
                x,
                True,
                rngs={"dropout": key},
                mutable=["batch_stats"],
            )
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), changed["batch_stats"]

        (value, statistics), gradient = jax.value_and_grad(loss, has_aux=True)(parameters)
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(parameters, updates), statistics, state), value

    carry = variables["params"], variables["batch_stats"], optimizer.init(variables["params"])
    carry, values = jax.lax.scan(step, carry, jax.random.split(key, 3))
    return values, model.apply({"params": carry[0], "batch_stats": carry[1]}, x, False)


@program("flax.linen/lstm_and_gru")
def lstm_and_gru(key):
    x = jax.random.normal(key, (4, 11, 5))
    lengths = jnp.array([11, 3, 7, 1])
    results = []
    for cell in (nn.LSTMCell(6), nn.GRUCell(6), nn.OptimizedLSTMCell(6), nn.MGUCell(6), nn.SimpleCell(6)):
        model = nn.Bidirectional(nn.RNN(cell), nn.RNN(type(cell)(6)))
        variables = model.init(key, x)

        def loss(v, model=model):
            return (model.apply(v, x, seq_lengths=lengths) ** 2).sum()

        results.append(jax.value_and_grad(loss)(variables))
    return results


@program("flax.linen/conv_lstm")
def conv_lstm(key):
    x = jax.random.normal(key, (2, 5, 6, 6, 3))
    model = nn.RNN(nn.ConvLSTMCell(4, (3, 3)))
    variables = model.init(key, x)
    return jax.value_and_grad(lambda v: (model.apply(v, x) ** 2).mean())(variables)


class Block(nn.Module):
    """One layer of a transformer, as a scan takes it."""

    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x, mask):
        h = nn.LayerNorm(dtype=self.dtype)(x)
        x = x + nn.MultiHeadDotProductAttention(4, dtype=self.dtype)(h, h, mask=mask)
        h = nn.RMSNorm(dtype=self.dtype)(x)
        h = nn.Dense(64, dtype=self.dtype)(h)
        return x + nn.Dense(32, dtype=self.dtype)(nn.swish(h)), None


class Transformer(nn.Module):
    """A language model whose layers are scanned and rematerialized."""

    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(50, 32, dtype=self.dtype)(tokens) + self.param(
            "at", nn.initializers.normal(0.1), (12, 32), self.dtype
        )
        mask = nn.make_causal_mask(tokens, dtype=bool)
        layers = nn.scan(
            nn.remat(Block, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=nn.broadcast,
            length=3,
        )
        x, _ = layers(self.dtype)(x, mask)
        return nn.Dense(50, dtype=self.dtype)(nn.LayerNorm(dtype=self.dtype)(x))


def _language_model(key, dtype):
    model = Transformer(dtype)
    tokens = jax.random.randint(key, (4, 12), 0, 50)
    state = train_state.TrainState.create(
        apply_fn=model.apply,
        params=model.init(key, tokens)["params"],
        tx=optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3)),
    )

    def step(state, _):
        def loss(parameters):
            logits = state.apply_fn({"params": parameters}, tokens)
            return optax.softmax_cross_entropy_with_integer_labels(
                logits[:, :-1].astype(jnp.float32), tokens[:, 1:]
            ).mean()

        value, gradient = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=gradient), value

    state, values = jax.lax.scan(step, state, None, length=4)
    return values, model.apply({"params": state.params}, tokens)


@program("flax.linen/transformer_scan_remat", tolerance=1e-3, why=_TRAINED)
def transformer_scan_remat(key):
    return _language_model(key, jnp.float32)


@program(
    "flax.linen/transformer_bfloat16",
    tolerance=1e-1,
    why="bfloat16 throughout: XLA keeps some of it in float32 where we round, and the other way round",
)
def transformer_bfloat16(key):
    return _language_model(key, jnp.bfloat16)


@program("flax.linen/decoding_with_cache")
def decoding_with_cache(key):
    model = nn.MultiHeadDotProductAttention(2, qkv_features=8, decode=True)
    x = jax.random.normal(key, (2, 9, 8))
    variables = model.init(key, x, x)

    def step(cache, token):
        y, changed = model.apply({"params": variables["params"], "cache": cache}, token, token, mutable=["cache"])
        return changed["cache"], y

    return jax.lax.scan(step, variables["cache"], jnp.moveaxis(x[:, :, None], 1, 0))


class Autoencoder(nn.Module):
    """Variational, with a normal of eight dimensions."""

    @nn.compact
    def __call__(self, x, key):
        h = nn.tanh(nn.Dense(32)(x))
        mean, log = nn.Dense(8)(h), nn.Dense(8)(h)
        z = mean + jnp.exp(0.5 * log) * jax.random.normal(key, mean.shape)
        return nn.Dense(x.shape[-1])(nn.tanh(nn.Dense(32)(z))), mean, log


@program("flax.linen/vae", tolerance=1e-3, why=_TRAINED)
def vae(key):
    x = jax.random.bernoulli(key, 0.4, (16, 30)).astype(jnp.float32)
    model = Autoencoder()
    parameters = model.init(key, x, key)
    optimizer = optax.adam(1e-2)

    def step(carry, key):
        parameters, state = carry

        def loss(parameters):
            y, mean, log = model.apply(parameters, x, key)
            divergence = -0.5 * (1 + log - mean**2 - jnp.exp(log)).sum(-1)
            return (optax.sigmoid_binary_cross_entropy(y, x).sum(-1) + divergence).mean()

        value, gradient = jax.value_and_grad(loss)(parameters)
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(parameters, updates), state), value

    return jax.lax.scan(step, (parameters, optimizer.init(parameters)), jax.random.split(key, 8))[1]


@program("flax.linen/gan_step", tolerance=1e-3, why=_TRAINED)
def gan_step(key):
    generator = nn.Sequential([nn.Dense(16), nn.leaky_relu, nn.Dense(4)])
    critic = nn.Sequential([nn.Dense(16), nn.leaky_relu, nn.Dense(1)])
    real = jax.random.normal(key, (32, 4)) + 2
    g, d = generator.init(key, jnp.ones((1, 3))), critic.init(key, real)
    optimizer = optax.adam(1e-2, b1=0.5)

    def step(carry, key):
        g, d, gs, ds = carry
        noise = jax.random.normal(key, (32, 3))

        def critics(d):
            fake = critic.apply(d, generator.apply(g, noise))
            slope = jax.vmap(jax.grad(lambda x: critic.apply(d, x)[0]))(real)
            penalty = ((jnp.linalg.norm(slope, axis=-1) - 1) ** 2).mean()
            return (nn.softplus(-critic.apply(d, real)) + nn.softplus(fake)).mean() + penalty

        d_loss, gradient = jax.value_and_grad(critics)(d)
        updates, ds = optimizer.update(gradient, ds)
        d = optax.apply_updates(d, updates)
        g_loss, gradient = jax.value_and_grad(
            lambda g: nn.softplus(-critic.apply(d, generator.apply(g, noise))).mean()
        )(g)
        updates, gs = optimizer.update(gradient, gs)
        return (optax.apply_updates(g, updates), d, gs, ds), (d_loss, g_loss)

    return jax.lax.scan(step, (g, d, optimizer.init(g), optimizer.init(d)), jax.random.split(key, 6))[1]


@program("flax.linen/normalizations")
def normalizations(key):
    x = jax.random.normal(key, (4, 6, 6, 8))
    results = []
    for layer in (
        nn.LayerNorm(),
        nn.GroupNorm(2),
        nn.RMSNorm(),
        nn.InstanceNorm(),
        nn.BatchNorm(use_running_average=False),
        nn.WeightNorm(nn.Dense(5)),
        nn.LayerNorm(reduction_axes=(1, 2), feature_axes=-1),
    ):
        variables = layer.init(key, x)

        def loss(x, layer=layer, variables=variables):
            y = layer.apply(variables, x, mutable=["batch_stats"])[0]
            return (jnp.sin(y) * y).sum()

        results.append(jax.value_and_grad(loss)(x))
    return results


@program("flax.linen/layers")
def layers(key):
    x = jax.random.normal(key, (3, 9, 9, 4))
    results = []
    for layer in (
        nn.Conv(6, (3, 3), kernel_dilation=2),
        nn.Conv(6, (3, 3), padding="CIRCULAR"),
        nn.Conv(6, (3, 3), input_dilation=2, padding=1),
        nn.Conv(8, (3, 3), feature_group_count=2, padding="VALID"),
        nn.ConvLocal(3, (2, 2)),
        nn.ConvTranspose(5, (3, 3), (2, 2)),
        nn.Conv(6, (3,), padding="CAUSAL"),
        nn.DenseGeneral((2, 3), axis=(1, -1)),
        nn.Einsum((9, 4, 5), "bhwc,wcd->bhd"),
        nn.PReLU(),
    ):
        variables = layer.init(key, x)

        def loss(v, x, layer=layer):
            return (layer.apply(v, x) ** 2).mean()

        results.append(jax.value_and_grad(loss, (0, 1))(variables, x))
    return results


@program("flax.linen/lifted_and_shared", tolerance=1e-4, why="gradients through some layers")
def lifted_and_shared(key):
    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            tied = nn.map_variables(nn.Dense, "params", lambda p: jax.tree.map(lambda a: a - a.mean(), p), init=True)
            h = tied(x.shape[-1], name="tied")(x)
            h = nn.SelfAttention(num_heads=2, deterministic=True)(h[None])[0]
            self.sow("intermediates", "norm", jnp.linalg.norm(h))
            h = nn.cond(h.sum() > 0, lambda m, h: nn.hard_swish(h), lambda m, h: nn.selu(h), self, h)
            return nn.standardize(h) + nn.WeightNorm(nn.Dense(x.shape[-1]))(x)

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x):
            layers = nn.remat_scan(Block, lengths=(2, 2))
            x = layers()(x)
            y, back = nn.vjp(lambda m, x: m(x), nn.Dense(3), x)
            return y, back(jnp.ones_like(y))[1], nn.BatchApply(nn.Dense(2))(x[None, None])

    x = jax.random.normal(key, (5, 8))
    network = Network()
    variables = network.init(key, x)

    def loss(p):
        y, back, z = network.apply({"params": p}, x)
        return (y**2).mean() + back.sum() * 0.1 + jnp.abs(z).mean()

    return jax.value_and_grad(loss)(variables["params"])
