"""Loops with small bodies: cells of recurrent networks, filters, solvers, searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.breadth.row import array, row
from benchmarks.program import Workload


def _lstm(x: Any, w: Any, u: Any) -> Any:
    def cell(state: Any, x: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(x @ w + h @ u, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    start = jnp.zeros((x.shape[1], u.shape[0]))
    return lax.scan(cell, (start, start), x)[1]


def _gru(x: Any, w: Any, u: Any) -> Any:
    def cell(h: Any, x: Any) -> Any:
        a, b = x @ w, h @ u
        (az, ar, an), (bz, br, bn) = (jnp.split(v, 3, axis=-1) for v in (a, b))
        z, r = jax.nn.sigmoid(az + bz), jax.nn.sigmoid(ar + br)
        n = jnp.tanh(an + r * bn)
        h = (1 - z) * n + z * h
        return h, h

    return lax.scan(cell, jnp.zeros((x.shape[1], u.shape[0])), x)[1]


def _rnn(x: Any, w: Any, u: Any) -> Any:
    def cell(h: Any, x: Any) -> Any:
        h = jnp.tanh(x @ w + h @ u)
        return h, h

    return lax.scan(cell, jnp.zeros((x.shape[1], u.shape[0])), x)[1]


def _newton(x: Any) -> Any:
    return lax.while_loop(lambda s: s[1] < 30, lambda s: (0.5 * (s[0] + x / s[0]), s[1] + 1), (x, 0))[0]


def _collatz(x: Any) -> Any:
    def step(s: Any) -> Any:
        n, count = s
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

    return lax.while_loop(lambda s: s[0] > 1, step, (x, 0))[1]


def _rk4(y: Any) -> Any:
    def f(y: Any) -> Any:
        return jnp.stack([y[1], -jnp.sin(y[0]) - 0.1 * y[1]])

    def step(_: Any, y: Any) -> Any:
        h = 0.01
        a = f(y)
        b = f(y + h / 2 * a)
        c = f(y + h / 2 * b)
        d = f(y + h * c)
        return y + h / 6 * (a + 2 * b + 2 * c + d)

    return lax.fori_loop(0, 500, step, y)


def _kalman(x: Any) -> Any:
    def step(state: Any, z: Any) -> Any:
        mean, p = state
        p = p + 0.01
        gain = p / (p + 0.5)
        mean = mean + gain * (z - mean)
        return (mean, (1 - gain) * p), mean

    return lax.scan(step, (jnp.zeros(x.shape[1:]), jnp.ones(x.shape[1:])), x)[1]


def _viterbi(x: Any, t: Any) -> Any:
    def step(score: Any, x: Any) -> Any:
        all_ = score[:, None] + t
        return jnp.max(all_, axis=0) + x, jnp.argmax(all_, axis=0)

    return lax.scan(step, x[0], x[1:])


def _life(x: Any) -> Any:
    def step(_: Any, x: Any) -> Any:
        n = sum(jnp.roll(x, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
        return ((n == 3) | ((x == 1) & (n == 2))).astype(x.dtype)

    return lax.fori_loop(0, 20, step, x)


def _power_iteration(a: Any, v: Any) -> Any:
    def step(_: Any, v: Any) -> Any:
        v = a @ v
        return v / jnp.linalg.norm(v)

    return lax.fori_loop(0, 50, step, v)


def _gradient_descent(x: Any, y: Any, w: Any) -> Any:
    def loss(w: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ w) - y) ** 2)

    return lax.fori_loop(0, 50, lambda _, w: w - 0.1 * jax.grad(loss)(w), w)


def _conjugate_gradient(a: Any, b: Any) -> Any:
    return jax.scipy.sparse.linalg.cg(lambda v: a @ (a.T @ v) + 3 * v, b, maxiter=30)[0]


def _bisection(x: Any) -> Any:
    def step(_: Any, s: Any) -> Any:
        low, high = s
        middle = (low + high) / 2
        above = middle**3 > x
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    return lax.fori_loop(0, 40, step, (jnp.zeros_like(x), jnp.full_like(x, 10.0)))[0]


_SEQUENCES: dict[str, Callable[..., Any]] = {"lstm": _lstm, "gru": _gru, "rnn": _rnn}
_GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def rows() -> Iterator[Workload]:
    """Each at small and moderate sizes."""
    yield from _sequences()
    yield from _elements()
    yield from _matrices()
    yield from _control()


def _sequences() -> Iterator[Workload]:
    for name, function in _SEQUENCES.items():
        for steps, batch, width in ((50, 1, 16), (50, 8, 32), (100, 32, 64), (30, 64, 128)):
            draws = [
                array("f32", steps, batch, width),
                *[array("f32", width, _GATES[name] * width, low=-0.1, high=0.1)] * 2,
            ]
            text = f"{steps}x{batch}x{width}"
            yield row("loops", f"{name} {text}", function, *draws, tolerance=1000)
            yield row(
                "loops",
                f"{name}_gradient {text}",
                jax.grad(lambda x, w, u, f=function: jnp.sum(f(x, w, u) ** 2), argnums=(1, 2)),
                *draws,
                tolerance=1000,
            )


def _elements() -> Iterator[Workload]:
    for count in (1, 16, 1000, 100_000):
        yield row("loops", f"newton {count}", _newton, array("f32", count, low=1, high=9))
        yield row("loops", f"bisection {count}", _bisection, array("f32", count, low=1, high=9))
        yield row("loops", f"collatz {count}", jax.vmap(_collatz), array("s32", count, low=1, high=99))
        yield row("loops", f"rk4 {count}", jax.vmap(_rk4), array("f32", count, 2), tolerance=1000)
        if count < 10_000:
            yield row("loops", f"kalman {count}", _kalman, array("f32", 200, count), tolerance=100)
            yield row(
                "loops",
                f"scan_sum {count}",
                lambda x: lax.scan(lambda c, v: (c * 0.9 + v,) * 2, jnp.zeros(x.shape[1:]), x)[1],
                array("f32", 500, count),
                tolerance=100,
            )


def _matrices() -> Iterator[Workload]:
    for states in (4, 20, 64):
        yield row("loops", f"viterbi {states}", _viterbi, array("f32", 100, states), array("f32", states, states))
    for side in (16, 128, 512):
        yield row("loops", f"life {side}", _life, array("s32", side, side, low=0, high=1))
        yield row(
            "loops",
            f"power_iteration {side}",
            _power_iteration,
            array("f32", side, side, low=0),
            array("f32", side, low=0),
            tolerance=100,
        )
        yield row(
            "loops",
            f"conjugate_gradient {side}",
            _conjugate_gradient,
            array("f32", side, side, low=0, high=0.1),
            array("f32", side),
            tolerance=1e4,
        )
        yield row(
            "loops",
            f"gradient_descent {side}",
            _gradient_descent,
            array("f32", side, 16),
            array("f32", side),
            array("f32", 16),
            tolerance=100,
        )


def _control() -> Iterator[Workload]:
    yield row("loops", "cond", lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x), array("f32", 1000))
    yield row(
        "loops",
        "switch",
        lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tan, lambda x: x], x),
        array("s32", low=0, high=3),
        array("f32", 1000),
    )
    yield row(
        "loops", "map", lambda x: lax.map(lambda v: jnp.sum(jnp.sort(v)), x), array("f32", 100, 30), tolerance=100
    )
