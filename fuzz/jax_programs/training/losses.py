"""Losses of what a network makes, in 32 bits or more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fuzz.jax_programs.training.draft import Draft, Shape

# Of results and of a target of their shape without the last dimension, of whole numbers, or with it, of real ones.
Loss = Callable[[Any, Any], Any]


def loss(d: Draft, shape: Shape) -> tuple[Loss, str]:
    """A loss, and of what its target is: "labels" or "numbers"."""
    name = d.rng.choice(
        ["entropy", "entropy", "entropy", "squares", "huber", "binary", "contrast", "divergence", "path"]
    )
    smooth, masked, penalty = d.rng.choice([0.0, 0.1]), d.chance(0.3), d.chance(0.2)
    classes = shape[-1]

    def entropy(y: Any, target: Any) -> Any:
        log = jax.nn.log_softmax(y)
        found = -jnp.take_along_axis(log, target[..., None], -1)[..., 0]
        found = (1 - smooth) * found - smooth * log.mean(-1) if smooth else found
        found = found + 1e-3 * jnp.square(jax.nn.logsumexp(y, -1)) if penalty else found
        if masked:
            kept = (target % 3 != 1).astype(y.dtype)
            return (found * kept).sum() / (kept.sum() + 1)
        return found.mean()

    def squares(y: Any, target: Any) -> Any:
        return jnp.square(y - target).mean()

    def huber(y: Any, target: Any) -> Any:
        off = jnp.abs(y - target)
        return jnp.where(off < 1, 0.5 * off * off, off - 0.5).mean()

    def binary(y: Any, target: Any) -> Any:
        return (jax.nn.softplus(y) - jax.nn.sigmoid(target) * y).mean()

    def contrast(y: Any, target: Any) -> Any:
        a, b = (t.reshape(-1, classes) for t in (y, target))
        a, b = (t / jnp.sqrt((t * t).sum(-1, keepdims=True) + 0.1) for t in (a, b))
        logits = a @ b.T / 0.3
        return -(jnp.diagonal(jax.nn.log_softmax(logits)) + jnp.diagonal(jax.nn.log_softmax(logits, 0))).mean()

    def divergence(y: Any, target: Any) -> Any:
        wanted = jax.nn.softmax(target)
        return (wanted * (jnp.log(wanted + 1e-6) - jax.nn.log_softmax(y))).sum(-1).mean()

    def path(y: Any, target: Any) -> Any:
        """All ways through states, each from itself or the one before, as in CTC."""
        scores = jax.nn.log_softmax(y.reshape(-1, y.shape[-2] if y.ndim > 2 else 1, classes))
        first = jnp.where(jnp.arange(classes) == 0, 0.0, -1e4).astype(y.dtype)

        def step(a: Any, s: Any) -> tuple[Any, None]:
            return jnp.logaddexp(a, jnp.concatenate([a[:1] - 1e4, a[:-1]])) + s, None

        ends = jax.vmap(lambda s: lax.scan(step, first, s)[0])(scores)
        return -jax.nn.logsumexp(ends, -1).mean() / scores.shape[1] + 0.01 * jnp.square(y - target).mean()

    found: dict[str, tuple[Loss, str]] = {
        "entropy": (entropy, "labels"),
        "squares": (squares, "numbers"),
        "huber": (huber, "numbers"),
        "binary": (binary, "numbers"),
        "contrast": (contrast, "numbers"),
        "divergence": (divergence, "numbers"),
        "path": (path, "numbers"),
    }
    return found[name]
