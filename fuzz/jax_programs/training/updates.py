"""What optimizers do with gradients. None of it depends on roundings more than its gradients do: epsilons are large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fuzz.jax_programs.training.draft import Draft, Parameters

Update = Callable[[Parameters, Parameters, Any, Any], tuple[Parameters, Any]]
_map = jax.tree_util.tree_map


def norm(tree: Any) -> Any:
    """The norm of all elements."""
    return jnp.sqrt(sum(jnp.square(g.astype(_wide(g))).sum() for g in jax.tree_util.tree_leaves(tree)))


def _wide(x: Any) -> Any:
    return jnp.float32 if x.dtype.itemsize == 2 else x.dtype


def clipped(gradients: Parameters, most: float) -> Parameters:
    """Gradients whose norm is at most so much."""
    factor = most / jnp.maximum(norm(gradients), most)
    return _map(lambda g: (g * factor).astype(g.dtype), gradients)


def _momentum(p: Any, g: Any, m: Any, v: Any, t: Any) -> tuple[Any, Any, Any]:
    m = 0.9 * m + g
    return p - 0.1 * (g + 0.9 * m), m, v


def _adam(p: Any, g: Any, m: Any, v: Any, t: Any) -> tuple[Any, Any, Any]:
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    step = (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.99**t)) + 0.1)
    return p - 0.05 * (step + 0.1 * p), m, v


def _signs(p: Any, g: Any, m: Any, v: Any, t: Any) -> tuple[Any, Any, Any]:
    return p - 0.05 * (jnp.clip(10 * (0.9 * m + 0.1 * g), -1, 1) + 0.01 * p), 0.99 * m + 0.01 * g, v


def _factored(p: Any, g: Any, m: Any, v: Any, t: Any) -> tuple[Any, Any, Any]:
    squares = g * g + 1e-3
    if g.ndim >= 2:
        rows, columns = squares.mean(-1, keepdims=True), squares.mean(-2, keepdims=True)
        squares = rows * columns / rows.mean(-2, keepdims=True)
    step = g * jax.lax.rsqrt(squares)
    step = step / jnp.maximum(1, jnp.sqrt(jnp.square(step).mean()))
    return p - 0.05 * step, m, 0.9 * v + 0.1 * squares


def _orthogonal(p: Any, g: Any, m: Any, v: Any, t: Any) -> tuple[Any, Any, Any]:
    m = 0.9 * m + g
    step = m
    if m.ndim == 2:
        x = m / (jnp.sqrt(jnp.square(m).sum()) + 0.1)
        for _ in range(2):
            a = x @ x.T
            x = 1.5 * x - 0.5 * (a @ x)
        step = x * max(1, m.shape[0] / m.shape[1]) ** 0.5
    return p - 0.05 * step, m, v


def update(d: Draft) -> tuple[Update, Any]:
    """An optimizer of all parameters, and its first state: two moments, an average of parameters, and the steps."""
    rule = d.rng.choice([_adam, _adam, _adam, _momentum, _signs, _factored, _orthogonal])
    most, averaged = d.rng.choice([0.0, 0.5, 1.0]), d.chance(0.3)

    def apply(p: Parameters, g: Parameters, state: Any, t: Any) -> tuple[Parameters, Any]:
        g = clipped(g, most) if most else g
        new: Parameters = {}
        moments: dict[str, Any] = {}
        for name in p:
            wide = _wide(p[name])
            m, v, mean = state[name]
            made, m, v = rule(p[name].astype(wide), g[name].astype(wide), m, v, t.astype(wide))
            new[name] = made.astype(p[name].dtype)
            moments[name] = (m, v, 0.9 * mean + 0.1 * made if averaged else mean)
        return new, moments

    wide = jnp.float32 if d.stored.itemsize == 2 else d.stored
    state = {
        name: tuple((share * d.numbers.random(value.shape)).astype(wide) for share in (0.01, 0.01, 0.2))
        for name, value in d.parameters.items()
    }
    return apply, state
