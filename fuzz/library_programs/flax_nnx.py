"""Networks of flax.nnx."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from fuzz.library_programs.registry import program

_TRAINED = "steps of Adam divide by the root of gradients' squares, which enlarges the roundings of small gradients"


class Network(nnx.Module):
    """A residual network with normalization and dropout."""

    def __init__(self, rngs):
        self.conv = nnx.Conv(1, 8, (3, 3), use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.drop = nnx.Dropout(0.2, rngs=rngs)
        self.linear = nnx.Linear(8, 4, rngs=rngs)
        self.calls = nnx.Variable(jnp.zeros((), jnp.int32))

    def __call__(self, x):
        self.calls.value += 1
        h = nnx.relu(self.norm(self.conv(x)))
        h = self.drop(h + nnx.avg_pool(h, (3, 3), padding="SAME")).mean((1, 2))
        return self.linear(h)


@program("flax.nnx/training", jit=False, tolerance=1e-3, why=_TRAINED)
def training(key):
    model = Network(nnx.Rngs(key))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"), accuracy=nnx.metrics.Accuracy())
    x, y = jax.random.normal(key, (8, 10, 10, 1)), jnp.arange(8) % 4

    @nnx.jit
    def step(model, optimizer, metrics, x, y):
        def loss(model):
            logits = model(x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), logits

        (value, logits), gradient = nnx.value_and_grad(loss, has_aux=True)(model)
        optimizer.update(model, gradient)
        metrics.update(loss=value, logits=logits, labels=y)
        return value

    values = [step(model, optimizer, metrics, x, y) for _ in range(4)]
    model.eval()
    return values, metrics.compute()["loss"], nnx.jit(lambda model, x: model(x))(model, x), model.calls.value


@program("flax.nnx/scanned_layers", jit=False)
def scanned_layers(key):
    class Layer(nnx.Module):
        def __init__(self, rngs):
            self.linear = nnx.Linear(12, 12, rngs=rngs)
            self.norm = nnx.LayerNorm(12, rngs=rngs)

        def __call__(self, x):
            return x + nnx.gelu(self.linear(self.norm(x)))

    @nnx.split_rngs(splits=4)
    @nnx.vmap(in_axes=(0,), out_axes=0)
    def make(rngs):
        return Layer(rngs)

    layers = make(nnx.Rngs(key))

    @nnx.jit
    def loss(layers, x):
        @nnx.remat
        def one(x, layer):
            return layer(x)

        forward = nnx.scan(one, in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        return (forward(x, layers) ** 2).mean()

    return nnx.to_pure_dict(nnx.state(nnx.grad(loss)(layers, jax.random.normal(key, (5, 12)))))


@program("flax.nnx/attention", jit=False)
def attention(key):
    layer = nnx.MultiHeadAttention(4, 16, decode=False, rngs=nnx.Rngs(key))
    x = jax.random.normal(key, (2, 7, 16))
    mask = nnx.make_causal_mask(jnp.ones((2, 7)))
    value, gradient = nnx.jit(nnx.value_and_grad(lambda m: (m(x, mask=mask) ** 2).sum()))(layer)
    return value, nnx.to_pure_dict(nnx.state(gradient))


@program("flax.nnx/recurrent", jit=False)
def recurrent(key):
    x = jax.random.normal(key, (3, 8, 4))
    results = []
    for cell in (nnx.LSTMCell, nnx.GRUCell, nnx.SimpleCell, nnx.OptimizedLSTMCell):
        rnn = nnx.RNN(cell(4, 6, rngs=nnx.Rngs(key)))
        value, gradient = nnx.jit(nnx.value_and_grad(lambda m: (m(x) ** 2).sum()))(rnn)
        results.append((value, nnx.to_pure_dict(nnx.state(gradient, nnx.Param))))
    return results


@program("flax.nnx/lora_and_embeddings", jit=False)
def lora_and_embeddings(key):
    rngs = nnx.Rngs(key)
    embed = nnx.Embed(20, 8, rngs=rngs)
    lora = nnx.LoRALinear(8, 5, lora_rank=2, rngs=rngs)

    @nnx.jit
    def run(embed, lora, tokens):
        return lora(embed(tokens)), embed.attend(embed(tokens))

    return run(embed, lora, jnp.arange(12).reshape(3, 4))


@program("flax.nnx/functional_split")
def functional_split(key):
    model = nnx.Sequential(nnx.Linear(5, 7, rngs=nnx.Rngs(1)), nnx.tanh, nnx.Linear(7, 3, rngs=nnx.Rngs(2)))
    graph, parameters = nnx.split(model, nnx.Param)
    x = jax.random.normal(key, (6, 5))
    gradient = jax.grad(lambda p: (nnx.merge(graph, p)(x) ** 2).sum())(parameters)
    hessian = jax.jvp(jax.grad(lambda p: (nnx.merge(graph, p)(x) ** 2).sum()), (parameters,), (gradient,))[1]
    return nnx.to_pure_dict(gradient), nnx.to_pure_dict(hessian)


@program(
    "flax.nnx/mixed_precision",
    jit=False,
    tolerance=5e-2,
    why="products of bfloat16, of which a chain of three is compared",
)
def mixed_precision(key):
    rngs = nnx.Rngs(key)
    layers = [nnx.Linear(16, 16, dtype=jnp.bfloat16, param_dtype=jnp.float32, rngs=rngs) for _ in range(3)]
    model = nnx.Sequential(*layers, nnx.LayerNorm(16, dtype=jnp.bfloat16, rngs=rngs))
    x = jax.random.normal(key, (9, 16))
    value, gradient = nnx.jit(nnx.value_and_grad(lambda m: (m(x).astype(jnp.float32) ** 3).mean()))(model)
    return value, nnx.to_pure_dict(nnx.state(gradient))


@program("flax.nnx/vmapped_members_and_state", jit=False)
def vmapped_members_and_state(key):
    class Member(nnx.Module):
        def __init__(self, rngs):
            self.layers = nnx.List([nnx.Linear(5, 5, rngs=rngs) for _ in range(2)])
            self.mean = nnx.BatchStat(jnp.zeros(5))

        def __call__(self, x):
            for layer in self.layers:
                x = nnx.glu(jnp.concatenate([layer(x), x], -1))
            self.mean[...] = 0.9 * self.mean[...] + 0.1 * x.mean(0)
            return x

    @nnx.split_rngs(splits=4)
    @nnx.vmap(in_axes=0, out_axes=0)
    def make(rngs):
        return Member(rngs)

    members = make(nnx.Rngs(key))
    x = jax.random.normal(key, (6, 5))

    @nnx.jit
    def losses(members):
        return nnx.vmap(nnx.value_and_grad(lambda m, x: (m(x) ** 2).mean()), in_axes=(0, None))(members, x)

    first, second = losses(members), losses(members)
    graph, weights, rest = nnx.split(members, nnx.Param, ...)
    flat = nnx.to_flat_state(weights)
    merged = nnx.merge(graph, jax.tree.map(lambda a: a * 0.5, weights), rest)
    return first, second, members.mean[...], len(flat), losses(merged)[0]


@program("flax.nnx/activations_and_pools")
def activations_and_pools(key):
    x = jax.random.normal(key, (2, 8, 8, 3)) * 3
    tokens = x[:, 0, :, 0]
    mask = nnx.combine_masks(nnx.make_attention_mask(tokens > -2, tokens > -2), nnx.make_causal_mask(tokens))
    q = x[:, 0].reshape(2, 8, 1, 3)
    functions = [getattr(nnx, name) for name in ("celu", "hard_sigmoid", "hard_silu", "hard_tanh", "log_sigmoid")]
    functions += [nnx.relu6, nnx.selu, nnx.soft_sign, nnx.standardize]
    return (
        [f(x) for f in functions],
        nnx.min_pool(x, (3, 3), strides=(2, 2), padding="SAME"),
        nnx.max_pool(x, (2, 3)),
        nnx.dot_product_attention(q, q, q, mask=mask),
        jax.grad(lambda x: nnx.max_pool(x, (3, 3), strides=(2, 1)).sum())(x),
    )
