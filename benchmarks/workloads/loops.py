"""Loops that run on the device: nothing may be paid for each step but the step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.program import Program, normal, uniform, workload


@workload("loops", full={"steps": 100_000}, quick={"steps": 100})
def tiny_while(rng: np.random.Generator, steps: int) -> Program:
    """A scalar, many times over."""
    return Program(
        [np.asarray(rng.random(), np.float32)],
        jax=lambda x: lax.while_loop(lambda s: s[0] < steps, lambda s: (s[0] + 1, s[1] * 0.999 + 0.001), (0, x))[1],
    )


def lstm_parameters(rng: np.random.Generator, inputs: int, hidden: int) -> list[Any]:
    """Kernels [4H, inputs] and [4H, H], and a bias [4H]; the gates are input, forget, cell, output."""
    return [
        normal(rng, 4 * hidden, inputs, scale=inputs**-0.5),
        normal(rng, 4 * hidden, hidden, scale=hidden**-0.5),
        normal(rng, 4 * hidden, scale=0.1),
    ]


def lstm(x: Any, kernel: Any, recurrent: Any, bias: Any) -> Any:
    """The hidden states [T, B, H] of a sequence [T, B, inputs]."""
    hidden = recurrent.shape[1]
    start = jnp.zeros((x.shape[1], hidden), x.dtype)

    def step(state: Any, given: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(given + h @ recurrent.T, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (start, start), x @ kernel.T + bias)[1]


def torch_lstm(t: Any, x: Any, kernel: Any, recurrent: Any, bias: Any) -> Any:
    """The same by PyTorch's own."""
    start = t.zeros(1, x.shape[1], recurrent.shape[1])
    weights = [kernel, recurrent, bias, t.zeros_like(bias)]
    return t.lstm(x, (start, start), weights, True, 1, 0.0, False, False, False)[0]


@workload(
    "loops",
    full={"steps": 128, "batch": 32, "hidden": 256},
    quick={"steps": 5, "batch": 2, "hidden": 8},
)
def lstm_scan(rng: np.random.Generator, steps: int, batch: int, hidden: int) -> Program:
    """A recurrent layer."""
    return Program(
        [normal(rng, steps, batch, hidden), *lstm_parameters(rng, hidden, hidden)],
        jax=lstm,
        torch=torch_lstm,
        tolerance=4,
    )


@workload("loops", full={"n": 512, "steps": 100}, quick={"n": 12, "steps": 5})
def jacobi(rng: np.random.Generator, n: int, steps: int) -> Program:
    """The Laplace equation on a grid whose border is given."""

    def relax(_: Any, grid: Any) -> Any:
        inner = 0.25 * (grid[:-2, 1:-1] + grid[2:, 1:-1] + grid[1:-1, :-2] + grid[1:-1, 2:])
        return grid.at[1:-1, 1:-1].set(inner)

    def with_arrays(grid: Any) -> Any:
        for _ in range(steps):
            grid[1:-1, 1:-1] = 0.25 * (grid[:-2, 1:-1] + grid[2:, 1:-1] + grid[1:-1, :-2] + grid[1:-1, 2:])
        return grid

    return Program(
        [uniform(rng, n, n)],
        jax=lambda grid: lax.fori_loop(0, steps, relax, grid),
        torch=lambda t, grid: with_arrays(grid.clone()),
        torch_compiles=False,
        numpy=lambda grid: with_arrays(grid.copy()),
    )


@workload("loops", full={"n": 512, "steps": 100}, quick={"n": 10, "steps": 10})
def mandelbrot(rng: np.random.Generator, n: int, steps: int) -> Program:
    """How long each point of the plane stays near."""

    def iterate(zero: Any, where: Any, a: Any, b: Any, repeat: Any) -> Any:
        def step(state: Any) -> Any:
            x, y, count = state
            x, y = x * x - y * y + a, 2 * x * y + b
            near = x * x + y * y < 4
            # A point that has left stays where it is, so that it does not overflow.
            return where(near, x, 2.0), where(near, y, 2.0), count + near

        return repeat(step, (zero, zero, zero))[2]

    def unrolled(step: Any, state: Any) -> Any:
        for _ in range(steps):
            state = step(state)
        return state

    def looped(step: Any, state: Any) -> Any:
        return lax.fori_loop(0, steps, lambda _, s: step(s), state)

    grid = np.meshgrid(np.linspace(-2, 0.6, n, dtype=np.float32), np.linspace(-1.2, 1.2, n, dtype=np.float32))
    return Program(
        [np.ascontiguousarray(axis + rng.random() * 1e-3, np.float32) for axis in grid],
        jax=lambda a, b: iterate(jnp.zeros_like(a), jnp.where, a, b, looped),
        torch=lambda t, a, b: iterate(t.zeros_like(a), t.where, a, b, unrolled),
        torch_compiles=False,
        numpy=lambda a, b: iterate(
            np.zeros_like(a), lambda near, x, y: np.where(near, x, np.float32(y)), a, b, unrolled
        ),
        # At the border, the last bit of a product decides when a point leaves.
        differing=0.02,
    )


@workload("loops", full={"steps": 100_000}, quick={"steps": 20}, x64=True)
def matrix_scan_f64(rng: np.random.Generator, steps: int) -> Program:
    """Products of 3x3 matrices, one after the other."""
    rotations = np.linalg.qr(rng.standard_normal((steps, 3, 3)))[0]

    def step(state: Any, matrix: Any) -> Any:
        state = matrix @ state
        return state, jnp.trace(state)

    return Program(
        [np.eye(3), np.ascontiguousarray(rotations)],
        jax=lambda start, matrices: lax.scan(step, start, matrices),
    )


@workload("loops", full={"bodies": 512, "steps": 20}, quick={"bodies": 12, "steps": 3})
def n_body(rng: np.random.Generator, bodies: int, steps: int) -> Program:
    """Bodies that attract each other, by pairs."""

    def advance(rsqrt: Any, position: Any, velocity: Any, mass: Any) -> Any:
        apart = position[None, :, :] - position[:, None, :]
        inverse = rsqrt((apart * apart).sum(-1) + 1e-2)
        pull = (apart * (inverse * inverse * inverse * mass[None, :])[:, :, None]).sum(1)
        velocity = velocity + pull * 1e-3
        return position + velocity * 1e-3, velocity

    def looped(position: Any, velocity: Any, mass: Any) -> Any:
        return lax.fori_loop(0, steps, lambda _, s: advance(lax.rsqrt, s[0], s[1], mass), (position, velocity))

    def unrolled(rsqrt: Any, position: Any, velocity: Any, mass: Any) -> Any:
        for _ in range(steps):
            position, velocity = advance(rsqrt, position, velocity, mass)
        return position, velocity

    return Program(
        [normal(rng, bodies, 3), normal(rng, bodies, 3), uniform(rng, bodies)],
        jax=looped,
        torch=lambda t, *state: unrolled(t.rsqrt, *state),
        torch_compiles=False,
        numpy=lambda *state: unrolled(lambda x: 1 / np.sqrt(x), *state),
    )
