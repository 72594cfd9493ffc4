"""Reinforcement learning, training loops and derivatives of derivatives, without a library of networks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fuzz.library_programs.registry import program

_TRAINED = "steps of Adam divide by the root of gradients' squares, which enlarges the roundings of small gradients"


def _dense(key, *sizes):
    keys = jax.random.split(key, len(sizes))
    return [
        (jax.random.normal(k, (m, n)) / jnp.sqrt(m), jnp.zeros(n))
        for k, m, n in zip(keys, sizes, sizes[1:], strict=False)
    ]


def _apply(layers, x):
    for w, b in layers[:-1]:
        x = jnp.tanh(x @ w + b)
    return x @ layers[-1][0] + layers[-1][1]


def _cart_pole(state, action):
    x, v, a, w = state
    force = jnp.where(action == 1, 10.0, -10.0)
    sine, cosine = jnp.sin(a), jnp.cos(a)
    push = (force + 0.05 * w**2 * sine) / 1.1
    turn = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
    new = jnp.stack([x + 0.02 * v, v + 0.02 * (push - 0.05 * turn * cosine / 1.1), a + 0.02 * w, w + 0.02 * turn])
    done = (jnp.abs(new[0]) > 2.4) | (jnp.abs(new[2]) > 0.21)
    return jnp.where(done, jnp.zeros(4), new), 1.0, done


@program("training/ppo", tolerance=1e-3, why=_TRAINED)
def ppo(key):
    policy, critic = _dense(key, 4, 16, 2), _dense(key, 4, 16, 1)
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3))

    def iteration(carry, key):
        networks, state, env = carry

        def act(env, key):
            logits = _apply(networks[0], env)
            action = jax.random.categorical(key, logits)
            value = _apply(networks[1], env)[:, 0]
            log = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
            new, reward, done = jax.vmap(_cart_pole)(env, action)
            return new, (env, action, value, log, reward, done)

        env, (seen, actions, values, logs, rewards, dones) = lax.scan(act, env, jax.random.split(key, 20))
        last = _apply(networks[1], env)[:, 0]

        def advantage(carry, t):
            gain, following = carry
            reward, value, done = t
            delta = reward + 0.99 * following * (1 - done) - value
            gain = delta + 0.99 * 0.95 * (1 - done) * gain
            return (gain, value), gain

        _, gains = lax.scan(advantage, (jnp.zeros(6), last), (rewards, values, dones.astype(jnp.float32)), reverse=True)
        targets = gains + values

        def loss(networks, rows):
            s, a, old, g, target = jax.tree.map(
                lambda v: v.reshape(120, *v.shape[2:])[rows], (seen, actions, logs, gains, targets)
            )
            g = (g - g.mean()) / (g.std() + 1e-6)
            logits = jax.nn.log_softmax(_apply(networks[0], s))
            ratio = jnp.exp(jnp.take_along_axis(logits, a[:, None], 1)[:, 0] - old)
            surrogate = jnp.minimum(ratio * g, jnp.clip(ratio, 0.8, 1.2) * g).mean()
            entropy = -(jnp.exp(logits) * logits).sum(1).mean()
            return ((_apply(networks[1], s)[:, 0] - target) ** 2).mean() * 0.5 - surrogate - 0.01 * entropy

        def epoch(c, key):
            def batch(c, rows):
                networks, state = c
                value, g = jax.value_and_grad(loss)(networks, rows)
                updates, state = optimizer.update(g, state)
                return (optax.apply_updates(networks, updates), state), value

            return lax.scan(batch, c, jax.random.permutation(key, 120).reshape(4, 30))

        (networks, state), losses = lax.scan(epoch, (networks, state), jax.random.split(key, 2))
        return (networks, state, env), (losses, dones.sum())

    networks = (policy, critic)
    env = 0.05 * jax.random.normal(key, (6, 4))
    return lax.scan(iteration, (networks, optimizer.init(networks), env), jax.random.split(key, 2))[1][0]


@program("training/value_iteration")
def value_iteration(key):
    p = jax.nn.softmax(jax.random.normal(key, (3, 12, 12)))
    r = jax.random.normal(jax.random.fold_in(key, 1), (12, 3))

    def body(c):
        v, _, n = c
        q = r + 0.9 * jnp.einsum("ast,t->sa", p, v)
        return q.max(1), jnp.abs(q.max(1) - v).max(), n + 1

    v, _, n = lax.while_loop(lambda c: (c[1] > 1e-3) & (c[2] < 500), body, (jnp.zeros(12), jnp.float32(1), 0))
    return v, n


@program("training/q_learning")
def q_learning(key):
    def step(c, key):
        q, s = c
        k1, k2, k3 = jax.random.split(key, 3)
        a = jnp.where(jax.random.uniform(k1) < 0.2, jax.random.randint(k2, (), 0, 3), q[s].argmax())
        new = (s + a + jax.random.bernoulli(k3)) % 7
        reward = jnp.where(new == 0, 1.0, 0.0)
        q = q.at[s, a].add(0.1 * (reward + 0.9 * q[new].max() - q[s, a]))
        return (q, new), reward

    return lax.scan(step, (jnp.zeros((7, 3)), 0), jax.random.split(key, 400))


@program("training/maml", tolerance=1e-3, why="derivatives through three steps of gradients")
def maml(key):
    network = _dense(key, 1, 16, 16, 1)
    x = jax.random.uniform(key, (5, 10, 1)) * 6 - 3
    phase = jnp.linspace(0, 3, 5)[:, None, None]

    def loss(network, x, y):
        return ((_apply(network, x) - y) ** 2).mean()

    def task(network, x, y):
        def step(network, _):
            return jax.tree.map(lambda p, g: p - 0.05 * g, network, jax.grad(loss)(network, x, y)), None

        return loss(lax.scan(step, network, None, length=3)[0], x, y)

    return jax.value_and_grad(lambda n: jax.vmap(task, (None, 0, 0))(n, x, jnp.sin(x + phase)).mean())(network)


@program("training/physics_informed", tolerance=1e-3, why=_TRAINED)
def physics_informed(key):
    network = _dense(key, 2, 16, 16, 1)
    x = jax.random.uniform(key, (20, 2))

    def u(network, p):
        return _apply(network, p)[0]

    def residual(network, p):
        g, h = jax.grad(u, 1)(network, p), jax.hessian(u, 1)(network, p)
        return g[0] + u(network, p) * g[1] - 0.1 * h[1, 1]

    optimizer = optax.adam(1e-2)

    def step(c, _):
        network, state = c
        value, g = jax.value_and_grad(
            lambda n: (jax.vmap(residual, (None, 0))(n, x) ** 2).mean() + (u(n, jnp.ones(2)) - 1) ** 2
        )(network)
        updates, state = optimizer.update(g, state)
        return (optax.apply_updates(network, updates), state), value

    return lax.scan(step, (network, optimizer.init(network)), None, length=5)[1]


@program("training/diffusion_step", tolerance=1e-3, why=_TRAINED)
def diffusion_step(key):
    network = _dense(key, 3, 32, 2)
    betas = jnp.linspace(1e-4, 0.2, 20)
    alphas = jnp.cumprod(1 - betas)
    x = jax.random.normal(key, (32, 2)) * jnp.array([1.0, 0.2])

    def loss(network, key):
        k1, k2 = jax.random.split(key)
        t = jax.random.randint(k1, (32,), 0, 20)
        e = jax.random.normal(k2, x.shape)
        a = alphas[t][:, None]
        noisy = jnp.sqrt(a) * x + jnp.sqrt(1 - a) * e
        return ((_apply(network, jnp.concatenate([noisy, t[:, None] / 20], 1)) - e) ** 2).mean()

    value, g = jax.value_and_grad(loss)(network, key)

    def back(x, t):
        e = _apply(network, jnp.concatenate([x, jnp.full((32, 1), t / 20)], 1))
        x = (x - betas[t] / jnp.sqrt(1 - alphas[t]) * e) / jnp.sqrt(1 - betas[t])
        noise = jax.random.normal(jax.random.fold_in(key, t), x.shape)
        return x + jnp.where(t > 0, jnp.sqrt(betas[t]), 0) * noise, None

    return value, g, lax.scan(back, jax.random.normal(key, (32, 2)), jnp.arange(19, -1, -1))[0]


@program("training/loss_scaling", tolerance=2e-2, why="products of float16")
def loss_scaling(key):
    network = jax.tree.map(lambda v: v, _dense(key, 6, 16, 3))
    x = jax.random.normal(key, (24, 6), jnp.float16)

    def step(c, _):
        network, scale, good = c

        def loss(network):
            half = jax.tree.map(lambda v: v.astype(jnp.float16), network)
            return (_apply(half, x).astype(jnp.float32) ** 2).mean() * scale

        g = jax.tree.map(lambda v: v / scale, jax.grad(loss)(network))
        finite = jnp.all(jnp.array([jnp.isfinite(v).all() for v in jax.tree.leaves(g)]))
        network = jax.tree.map(lambda p, g: jnp.where(finite, p - 0.1 * g, p), network, g)
        good = jnp.where(finite, good + 1, 0)
        scale = jnp.where(finite, jnp.where(good % 3 == 0, scale * 2, scale), scale / 2)
        return (network, scale, good), (scale, finite)

    return lax.scan(step, (network, jnp.float32(1024), 0), None, length=12)


@program("training/evolution_strategy", tolerance=1e-3, why="order of nearly equal fitnesses decides weights")
def evolution_strategy(key):
    def generation(c, key):
        mean, sigma = c
        noise = jax.random.normal(key, (20, 5))
        fitness = -((mean + sigma * noise - jnp.arange(5.0)) ** 2).sum(1)
        ranks = fitness.argsort().argsort()
        w = jnp.where(ranks >= 10, 1.0, 0.0) / 10
        return (mean + sigma * w @ noise, sigma * 0.97), fitness.max()

    return lax.scan(generation, (jnp.zeros(5), jnp.float32(1)), jax.random.split(key, 40))
