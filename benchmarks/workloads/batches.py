"""Batches of small programs: ``vmap`` of loops over many small arrays, such as physics and solvers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.program import Program, normal, workload


def _velocities(state: dict[str, Any]) -> dict[str, Any]:
    """How fast a body moves that a spring pulls to the origin: position, velocity, quaternion, spin."""
    inertia = jnp.diag(jnp.array([1.0, 2.0, 3.0])) + 0.1 * jnp.outer(state["position"], state["position"])
    w, x, y, z = state["turn"]
    a, b, c = state["spin"]
    return {
        "position": state["velocity"],
        "velocity": 0.1 * jnp.cross(state["spin"], state["velocity"]) - state["position"],
        "turn": 0.5
        * jnp.stack(
            [
                -x * a - y * b - z * c,
                w * a + y * c - z * b,
                w * b - x * c + z * a,
                w * c + x * b - y * a,
            ]
        ),
        "spin": -jnp.cross(state["spin"], inertia @ state["spin"]) * 0.1,
    }


def _runge_kutta(state: dict[str, Any], _: Any) -> tuple[dict[str, Any], Any]:
    step = 0.01

    def after(slopes: dict[str, Any], time: float) -> dict[str, Any]:
        return jax.tree.map(lambda x, slope: x + time * slope, state, slopes)

    first = _velocities(state)
    second = _velocities(after(first, step / 2))
    third = _velocities(after(second, step / 2))
    fourth = _velocities(after(third, step))
    slopes = jax.tree.map(lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6, first, second, third, fourth)
    found = after(slopes, step)
    found["turn"] = found["turn"] / jnp.linalg.norm(found["turn"])
    return found, found["position"]


@workload("batches", full={"bodies": 256, "steps": 100}, quick={"bodies": 5, "steps": 3})
def rigid_bodies(rng: np.random.Generator, bodies: int, steps: int) -> Program:
    """Bodies that turn and swing, by the method of Runge and Kutta."""
    sizes = {"position": 3, "velocity": 3, "turn": 4, "spin": 3}

    def simulate(*arrays: Any) -> Any:
        state = dict(zip(sizes, arrays, strict=True))
        return jax.vmap(lambda body: lax.scan(_runge_kutta, body, None, length=steps)[1])(state)

    return Program([normal(rng, bodies, size) for size in sizes.values()], jax=simulate, tolerance=16)


@workload(
    "batches",
    full={"problems": 256, "size": 8, "steps": 20},
    quick={"problems": 5, "size": 3, "steps": 2},
    portable=True,
)
def newton_steps(rng: np.random.Generator, problems: int, size: int, steps: int) -> Program:
    """The least of a convex function of a few variables, for many functions, with a factor in each step."""

    def least(matrix: Any, target: Any) -> Any:
        def value(x: Any) -> Any:
            return jnp.sum(jnp.logaddexp(matrix @ x, -(matrix @ x))) + 0.5 * jnp.sum((x - target) ** 2)

        def step(_: Any, x: Any) -> Any:
            factor = jax.scipy.linalg.cho_factor(jax.hessian(value)(x))
            return x - 0.5 * jax.scipy.linalg.cho_solve(factor, jax.grad(value)(x))

        return lax.fori_loop(0, steps, step, jnp.zeros_like(target))

    return Program(
        [normal(rng, problems, 2 * size, size), normal(rng, problems, size)], jax=jax.vmap(least), tolerance=16
    )
