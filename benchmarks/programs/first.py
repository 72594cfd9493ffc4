"""Programs of JAX as they begin: what benchmarks.first_second times up to the first result.

Each is a function without arguments that compiles what it likes and gives arrays. They are of the kinds that libraries
are made of: linear algebra, chains of small matrices, many tiny programs, samplers, networks, solvers, physics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

PROGRAMS: Final[dict[str, Callable[[], Any]]] = {}


def _program(function: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS[function.__name__] = function
    return function


def _uniform(*sizes: int, seed: int = 0) -> Any:
    return jnp.asarray(np.random.default_rng(seed).uniform(-1, 1, sizes).astype(np.float32))


@_program
def tiny() -> Any:
    """One operation."""
    return jax.jit(lambda x: x + 1)(1.0)


@_program
def gaussian_process() -> Any:
    """The likelihood's gradient, and predictions, by a Cholesky factor; half of it without jit."""
    x, at = jnp.linspace(0, 10, 64), jnp.linspace(0, 10, 24)
    y = jnp.sin(x) + 0.1 * _uniform(64)

    def covariance(p: Any, a: Any, b: Any) -> Any:
        return jnp.exp(p[0] - ((a[:, None] - b[None]) ** 2) * jnp.exp(p[1]))

    def factor(p: Any) -> Any:
        return jnp.linalg.cholesky(covariance(p, x, x) + jnp.exp(p[2]) * jnp.eye(64))

    def loss(p: Any) -> Any:
        root = factor(p)
        white = jax.scipy.linalg.solve_triangular(root, y, lower=True)
        return 0.5 * white @ white + jnp.log(jnp.diag(root)).sum()

    p, value = jnp.array([0.1, 0.2, -2.0]), jnp.inf
    step = jax.jit(jax.value_and_grad(loss))
    for _ in range(3):
        value, gradient = step(p)
        p = p - 0.01 * gradient
    root, cross = factor(p), covariance(p, at, x)
    mean = cross @ jax.scipy.linalg.cho_solve((root, True), y)
    solved = jax.scipy.linalg.solve_triangular(root, cross.T, lower=True)
    return value, mean, jnp.exp(p[0]) - (solved**2).sum(0)


@_program
def kinematics() -> Any:
    """A robot's arm: the chain of its joints' transforms, its Jacobian, and some steps towards a goal."""
    axes = jnp.asarray(np.eye(3, dtype=np.float32)[[2, 1, 1, 0, 1, 0, 2]])
    offsets = _uniform(7, 3)

    def transform(axis: Any, offset: Any, angle: Any) -> Any:
        x, y, z = axis
        k = jnp.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        rotation = jnp.eye(3) + jnp.sin(angle) * k + (1 - jnp.cos(angle)) * k @ k
        return jnp.eye(4).at[:3, :3].set(rotation).at[:3, 3].set(offset)

    def pose(angles: Any) -> Any:
        at = jnp.eye(4)
        for i in range(7):
            at = at @ transform(axes[i], offsets[i], angles[i])
        return at

    goal = jnp.array([0.5, -0.2, 0.7])
    end = jax.jit(lambda q: pose(q)[:3, 3])
    jacobian = jax.jit(jax.jacfwd(lambda q: pose(q)[:3, 3]))

    @jax.jit
    def step(q: Any) -> Any:
        j = jax.jacfwd(lambda q: pose(q)[:3, 3])(q)
        return q + j.T @ jnp.linalg.solve(j @ j.T + 0.1 * jnp.eye(3), goal - pose(q)[:3, 3])

    q = 0.3 * jnp.ones(7)
    for _ in range(3):
        q = step(q)
    return end(q), jacobian(q), jax.jit(jax.vmap(end))(_uniform(32, 7))


@_program
def proximal_policy() -> Any:
    """A policy's rollout, advantages and updates, with much between them that JAX compiles by itself."""
    key = jax.random.key(0)
    sizes = ((4, 32), (32, 32), (32, 3))
    weights = [
        (jax.random.normal(k, s) / s[0] ** 0.5, jnp.zeros(s[1]))
        for k, s in zip(jax.random.split(key, 3), sizes, strict=True)
    ]

    def network(w: Any, x: Any) -> Any:
        for m, b in w[:-1]:
            x = jnp.tanh(x @ m + b)
        out = x @ w[-1][0] + w[-1][1]
        return out[..., :2], out[..., 2]

    def rollout(w: Any, key: Any) -> Any:
        def act(state: Any, key: Any) -> Any:
            logits, value = network(w, state)
            action = jax.random.categorical(key, logits)
            force = jnp.where(action == 0, -1.0, 1.0)
            after = state + 0.05 * jnp.stack([state[..., 1], force, state[..., 3], -state[..., 2]], -1)
            log = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
            return after, (state, action, log, value, -jnp.abs(after[..., 0]))

        return lax.scan(act, _uniform(16, 4), jax.random.split(key, 20))[1]

    def advantages(values: Any, rewards: Any) -> Any:
        def back(a: Any, vr: Any) -> Any:
            a = vr[1] - vr[0] + 0.95 * a
            return a, a

        return lax.scan(back, jnp.zeros(16), (values, rewards), reverse=True)[1]

    def loss(w: Any, batch: Any) -> Any:
        state, action, old, gain, target = batch
        logits, value = network(w, state)
        log = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
        ratio = jnp.exp(log - old)
        clipped = jnp.minimum(ratio * gain, jnp.clip(ratio, 0.8, 1.2) * gain)
        return ((value - target) ** 2).mean() - clipped.mean()

    update = jax.jit(lambda w, b: jax.tree.map(lambda p, g: p - 0.01 * g, w, jax.grad(loss)(w, b)))
    state, action, log, value, reward = jax.jit(rollout)(weights, jax.random.key(1))
    gain = jax.jit(advantages)(value, reward)
    target = gain + value
    gain = (gain - gain.mean()) / (gain.std() + 1e-6)
    batch = [a.reshape((-1, *a.shape[2:])) for a in (state, action, log, gain, target)]
    order = jax.random.permutation(jax.random.key(2), 320)
    for part in jnp.split(order, 4):
        weights = update(weights, [a[part] for a in batch])
    return weights, reward.sum()


@_program
def sampler() -> Any:
    """Hamiltonian Monte Carlo of a regression: trees of leapfrog steps are while loops in a scan."""
    x, y = _uniform(50, 3), (_uniform(50, seed=1) > 0).astype(jnp.float32)

    def potential(w: Any) -> Any:
        z = x @ w[:3] + w[3]
        return (jax.nn.softplus(z) - y * z).sum() + 0.5 * (w * w).sum()

    def leapfrog(c: Any) -> Any:
        q, p, start, count = c
        p = p - 0.05 * jax.grad(potential)(q)
        q = q + 0.1 * p
        return q, p - 0.05 * jax.grad(potential)(q), start, count + 1

    def turning(c: Any) -> Any:
        q, p, start, count = c
        return ((q - start) @ p >= 0) & (count < 30)

    def draw(q: Any, key: Any) -> Any:
        one, two = jax.random.split(key)
        p = jax.random.normal(one, q.shape)
        after, momentum, _, count = lax.while_loop(turning, leapfrog, (q, p, q, 0))
        gain = potential(q) + 0.5 * p @ p - potential(after) - 0.5 * momentum @ momentum
        taken = jnp.log(jax.random.uniform(two)) < gain
        return jnp.where(taken, after, q), (q, count)

    @jax.jit
    def run(key: Any) -> Any:
        return lax.scan(draw, jnp.zeros(4), jax.random.split(key, 50))[1]

    samples, counts = run(jax.random.key(0))
    return samples.mean(0), samples.std(0), counts.sum()


@_program
def convolutions() -> Any:
    """A small network of convolutions in training."""
    keys = jax.random.split(jax.random.key(0), 4)
    weights = {
        "a": jax.random.normal(keys[0], (3, 3, 1, 8)) / 3,
        "b": jax.random.normal(keys[1], (3, 3, 8, 16)) / 8,
        "c": jax.random.normal(keys[2], (7 * 7 * 16, 10)) / 28,
    }
    x, label = _uniform(8, 28, 28, 1), jnp.arange(8)

    def network(w: Any, x: Any) -> Any:
        for name in "ab":
            x = jax.nn.relu(
                lax.conv_general_dilated(x, w[name], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            )
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return x.reshape(len(x), -1) @ w["c"]

    def loss(w: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(network(w, x)), label[:, None], 1).mean()

    @jax.jit
    def step(w: Any, m: Any) -> Any:
        value, g = jax.value_and_grad(loss)(w)
        m = jax.tree.map(lambda m, g: 0.9 * m + g, m, g)
        return jax.tree.map(lambda w, m: w - 0.01 * m, w, m), m, value

    moments, value = jax.tree.map(jnp.zeros_like, weights), jnp.inf
    for _ in range(2):
        weights, moments, value = step(weights, moments)
    return value


@_program
def differential_equation() -> Any:
    """An adaptive Runge-Kutta solver of a small neural equation: a while loop of small arrays, and a gradient."""
    keys = jax.random.split(jax.random.key(0), 2)
    weights = jax.random.normal(keys[0], (2, 16)) / 2, jax.random.normal(keys[1], (16, 2)) / 4

    def field(w: Any, y: Any) -> Any:
        return jnp.tanh(y @ w[0]) @ w[1]

    def pair(w: Any, y: Any, h: Any) -> Any:
        k1 = field(w, y)
        k2 = field(w, y + h * k1 / 2)
        k3 = field(w, y + h * 3 * k2 / 4)
        after = y + h * (2 * k1 + 3 * k2 + 4 * k3) / 9
        k4 = field(w, after)
        return after, after - (y + h * (7 * k1 / 24 + k2 / 4 + k3 / 3 + k4 / 8))

    @jax.jit
    def solve(w: Any, y: Any) -> Any:
        def body(c: Any) -> Any:
            t, h, y, count = c
            after, error = pair(w, y, h)
            size = jnp.sqrt((error**2).mean()) / 1e-4
            kept = size < 1
            h = jnp.minimum(h * jnp.clip(0.9 * size ** (-1 / 3), 0.2, 5.0), 1.0)
            return jnp.where(kept, t + h, t), h, jnp.where(kept, after, y), count + 1

        return lax.while_loop(lambda c: (c[0] < 5) & (c[3] < 1000), body, (0.0, jnp.float32(0.1), y, 0))

    @jax.jit
    def learned(w: Any, y: Any) -> Any:
        def loss(w: Any) -> Any:
            return (lax.scan(lambda y, _: (pair(w, y, 0.1)[0], None), y, None, length=20)[0] ** 2).sum()

        return jax.tree.map(lambda w, g: w - 0.1 * g, w, jax.grad(loss)(w))

    y = _uniform(8, 2)
    weights = learned(weights, y)
    return solve(weights, y)


def _transformer(layers: int, scanned: bool) -> Any:
    width, heads = 32, 4
    names = {
        "q": (width, width),
        "k": (width, width),
        "v": (width, width),
        "o": (width, width),
        "u": (width, 64),
        "d": (64, width),
    }
    rng = np.random.default_rng(0)
    weights: Any = [
        {n: jnp.asarray(rng.normal(size=s).astype(np.float32) / 6) for n, s in names.items()} for _ in range(layers)
    ]
    x = _uniform(4, 16, width)
    mask = jnp.tril(jnp.ones((16, 16), bool))

    def normal(x: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)

    def block(x: Any, w: Any) -> Any:
        n = normal(x)
        q, k, v = ((n @ w[m]).reshape(4, 16, heads, -1) for m in "qkv")
        scores = jnp.where(mask, jnp.einsum("bqhd,bkhd->bhqk", q, k) / 3, -1e9)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(x.shape) @ w["o"]
        return x + jax.nn.gelu(normal(x) @ w["u"]) @ w["d"]

    def loss(w: Any) -> Any:
        if scanned:
            return (lax.scan(lambda x, w: (jax.checkpoint(block)(x, w), None), x, w)[0] ** 2).mean()
        y = x
        for of_layer in w:
            y = block(y, of_layer)
        return (y**2).mean()

    if scanned:
        weights = jax.tree.map(lambda *w: jnp.stack(w), *weights)
    return jax.jit(jax.value_and_grad(loss))(weights)[0]


@_program
def transformer_scan() -> Any:
    """A transformer's gradient, its layers in a scan."""
    return _transformer(8, scanned=True)


@_program
def transformer_unrolled() -> Any:
    """A transformer's gradient, each of its layers written out."""
    return _transformer(12, scanned=False)


@_program
def layers() -> Any:
    """The gradient of 24 layers written out."""
    weights = [_uniform(32, 32, seed=i) / 4 for i in range(24)]

    def loss(w: Any) -> Any:
        x = jnp.ones((8, 32))
        for m in w:
            x = jnp.tanh(x @ m) + x
        return (x * x).mean()

    return jax.jit(jax.grad(loss))(weights)


@_program
def physics() -> Any:
    """A chain of bodies under gravity: contacts and limits of many small arrays, a batch of them, in a scan."""
    masses, lengths = 1 + _uniform(6) ** 2, 0.5 + _uniform(6, seed=1) ** 2

    def positions(q: Any) -> Any:
        angles = jnp.cumsum(q)
        return jnp.cumsum(lengths[:, None] * jnp.stack([jnp.sin(angles), -jnp.cos(angles)], -1), 0)

    def energy(q: Any) -> Any:
        return 9.8 * (masses * positions(q)[:, 1]).sum()

    def forces(q: Any, v: Any) -> Any:
        at = positions(q)
        jacobian = jax.jacfwd(positions)(q)
        depth = jnp.maximum(-1.5 - at[:, 1], 0)
        push = jnp.stack([jnp.zeros(6), 100 * depth], -1)
        limits = 10 * (jnp.maximum(q - 1, 0) - jnp.maximum(-1 - q, 0))
        return jnp.einsum("bci,bc->i", jacobian, push) - jax.grad(energy)(q) - limits - 0.1 * v, jacobian

    def step(c: Any, _: Any) -> Any:
        q, v = c
        force, jacobian = forces(q, v)
        inertia = jnp.einsum("bci,b,bcj->ij", jacobian, masses, jacobian) + 0.01 * jnp.eye(6)
        root = jnp.linalg.cholesky(inertia)
        acceleration = jax.scipy.linalg.cho_solve((root, True), force)

        def settle(i: Any, a: Any) -> Any:
            return a + 0.1 * (force - inertia @ a) / jnp.diag(inertia)

        v = v + 0.01 * lax.fori_loop(0, 4, settle, acceleration)
        return (q + 0.01 * v, v), positions(q)[-1]

    run = jax.jit(jax.vmap(lambda q: lax.scan(step, (q, jnp.zeros(6)), None, length=20)))
    return run(_uniform(16, 6))
