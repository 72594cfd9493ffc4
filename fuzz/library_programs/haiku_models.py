"""Networks of haiku."""

from __future__ import annotations

import haiku as hk
import jax
import jax.numpy as jnp

from fuzz.library_programs.registry import program


def _gradient(forward, key, *arguments):
    network = hk.transform_with_state(forward)
    parameters, state = network.init(key, *arguments)

    def loss(parameters):
        y, new = network.apply(parameters, state, key, *arguments)
        return sum((leaf.astype(jnp.float32) ** 2).mean() for leaf in jax.tree.leaves(y)), new

    return jax.value_and_grad(loss, has_aux=True)(parameters)


@program("haiku/convolutional", tolerance=5e-4, why="gradients through batch normalization cancel")
def convolutional(key):
    def forward(x):
        x = hk.Conv2D(8, 3, rate=2, with_bias=False)(x)
        x = jax.nn.relu(hk.BatchNorm(True, True, 0.9)(x, True))
        x = hk.MaxPool(2, 2, "SAME")(x)
        x = hk.DepthwiseConv2D(2, 3)(x)
        x = hk.SeparableDepthwiseConv2D(1, 3)(x) if hasattr(hk, "SeparableDepthwiseConv2D") else x
        x = hk.Conv2DTranspose(4, 3, 2)(x)
        x = hk.GroupNorm(2)(x)
        return hk.nets.MLP([16, 3], activation=jnp.tanh)(x.mean((1, 2)), 0.2, hk.next_rng_key())

    return _gradient(forward, key, jax.random.normal(key, (4, 12, 10, 3)))


@program("haiku/recurrent")
def recurrent(key):
    def forward(x):
        core = hk.DeepRNN([hk.LSTM(6), jnp.tanh, hk.GRU(5), hk.VanillaRNN(4)])
        return hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))

    return _gradient(forward, key, jax.random.normal(key, (9, 3, 4)))


@program("haiku/attention")
def attention(key):
    def forward(tokens):
        x = hk.Embed(11, 12)(tokens)
        for _ in range(2):
            h = hk.LayerNorm(-1, True, True)(x)
            x = x + hk.MultiHeadAttention(3, 4, w_init=hk.initializers.VarianceScaling(1.0), model_size=12)(h, h, h)
            x = x + hk.Linear(12)(jax.nn.gelu(hk.Linear(24)(hk.RMSNorm(-1)(x))))
        return x

    return _gradient(forward, key, jax.random.randint(key, (2, 7), 0, 11))


@program("haiku/layer_stack_and_remat")
def layer_stack_and_remat(key):
    def forward(x):
        @hk.experimental.layer_stack(5)
        @hk.remat
        def stack(x):
            return x + jnp.tanh(hk.Linear(8)(x))

        return stack(x)

    return _gradient(forward, key, jax.random.normal(key, (3, 8)))


@program("haiku/scan_and_cond")
def scan_and_cond(key):
    def forward(x):
        layer = hk.Linear(6)

        def step(h, i):
            turned = jnp.tanh(layer(h))
            h = jax.lax.cond(i % 2 == 0, lambda h: turned, lambda h: h * 0.9, h)
            return h, h.sum()

        return hk.scan(step, x, jnp.arange(7))

    return _gradient(forward, key, jax.random.normal(key, (2, 6)))


@program("haiku/mobile_net", tolerance=2e-3, why="some layers of convolution and batch normalization in float32")
def mobile_net(key):
    network = hk.transform_with_state(
        lambda x: hk.nets.MobileNetV1(strides=(1, 2), channels=(8, 16), num_classes=5)(x, True)
    )
    x = jax.random.normal(key, (2, 16, 16, 3))
    parameters, state = network.init(key, x)
    return network.apply(parameters, state, key, x)[0]


@program(
    "haiku/vector_quantizer",
    tolerance=1e-3,
    why="distances to codes decide, and moving averages divide by small counts",
)
def vector_quantizer(key):
    def forward(x):
        found = hk.nets.VectorQuantizerEMA(4, 8, 0.25, 0.9)(x, True)
        return found["quantize"], found["loss"], found["perplexity"]

    return _gradient(forward, key, jax.random.normal(key, (20, 4)))


@program("haiku/mixed_precision", tolerance=5e-2, why="products of bfloat16")
def mixed_precision(key):
    import jmp

    policy = jmp.get_policy("params=float32,compute=bfloat16,output=float32")
    with hk.mixed_precision.push_policy(hk.nets.MLP, policy):
        return _gradient(lambda x: hk.nets.MLP([16, 16, 4])(x) * 1.0, key, jax.random.normal(key, (6, 8)))


@program("haiku/states_and_lifting", tolerance=1e-4, why="gradients through a recurrent network")
def states_and_lifting(key):
    def model(x):
        core = hk.deep_rnn_with_skip_connections([hk.LSTM(5), hk.VanillaRNN(4)])
        out, state = hk.static_unroll(core, x, core.initial_state(2))
        count = hk.get_state("count", (), jnp.int32, init=jnp.zeros)
        hk.set_state("count", count + 1)
        average = hk.ExponentialMovingAverage(0.9)(out.mean())
        lifted = hk.lift(hk.without_apply_rng(hk.transform(hk.nets.MLP([4, 2]))).init, name="inner")(
            hk.next_rng_key(), out
        )
        conv = hk.Conv1DLSTM((6,), 3, 3)
        wide, _ = hk.dynamic_unroll(conv, x[:, :, :6, None], conv.initial_state(2))
        flat = hk.Flatten()(wide[-1])
        with hk.name_scope("end"):
            out = hk.Bias()(hk.BatchApply(hk.Linear(3, w_init=hk.initializers.Orthogonal()))(out))
        noise = jnp.stack([jax.random.uniform(k) for k in hk.next_rng_keys(3)])
        return out.mean() + average + flat.std() + sum(v.sum() for v in jax.tree.leaves(lifted)), noise, state

    x = jax.random.normal(key, (4, 2, 6))
    f = hk.transform_with_state(model)
    p, s = f.init(key, x)

    def loss(p, s):
        (value, noise, _), s = f.apply(p, s, key, x)
        return value, (noise, s)

    return jax.value_and_grad(loss, has_aux=True)(p, s)
