"""Steps of training and inferences as whole programs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fuzz.jax_programs.training.draft import Draft, Parameters
from fuzz.jax_programs.training.losses import loss
from fuzz.jax_programs.training.networks import network
from fuzz.jax_programs.training.updates import norm, update

_map = jax.tree_util.tree_map
# Of parameters, and of what is computed.
_TYPES = (
    *(("float32", "float32"),) * 6,
    *(("float32", "bfloat16"),) * 2,
    ("bfloat16", "bfloat16"),
    ("float32", "float16"),
    ("float64", "float64"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """A program with its arguments, what it is in words, and the type that decides how exact it is."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    what: str
    computed: np.dtype[Any]
    donated: tuple[int, ...] = ()


def step(seed: int, number: int) -> Step:
    """The program of a number."""
    rng = random.Random(f"training {seed} {number}")
    stored, computed = (jnp.dtype(name) for name in rng.choice(_TYPES))
    d = Draft(rng, np.random.default_rng(rng.getrandbits(32)), stored, computed)
    made = network(d)
    measure, of = loss(d, made.made)
    if made.tokens:
        x: Any = d.numbers.integers(0, made.tokens, made.given).astype(np.int32)
    else:
        x = d.numbers.standard_normal(made.given).astype(stored)
    wide = jnp.dtype("float32") if computed.itemsize == 2 else computed
    if of == "labels":
        target = d.numbers.integers(0, made.made[-1], made.made[:-1]).astype(np.int32)
    else:
        target = d.numbers.standard_normal(made.made).astype(wide)
    key = np.uint32(rng.getrandbits(20))
    scale = 64.0 if computed == jnp.float16 else 1.0

    def forward(p: Parameters, x: Any, key: Any) -> Any:
        return made.apply(p, x if made.tokens else x.astype(computed), key)

    def objective(p: Parameters, x: Any, target: Any, key: Any) -> tuple[Any, Any]:
        y = forward(p, x, key).astype(wide)
        return measure(y, target) * wide.type(scale), y

    def plain(p: Parameters, x: Any, target: Any, key: Any) -> Any:
        return objective(p, x, target, key)[0]

    kind = rng.choice([*("train",) * 3, *("gradients",) * 5, "inference", "examples", "curvature", "batches", "twice"])
    p = d.parameters
    if kind == "inference":
        return Step(lambda p, x: forward(p, x, None).astype(wide), (p, x), kind, computed)
    if kind == "gradients":
        with_input = not made.tokens and d.chance(0.5)
        how = jax.value_and_grad(objective, (0, 1) if with_input else 0, has_aux=True)
        return Step(how, (p, x, target, key), kind, computed)
    if kind == "examples":

        def examples(p: Parameters, x: Any, target: Any, key: Any) -> Any:
            one = jax.grad(lambda p, x, t: plain(p, x[None], t[None], key))
            found = jax.vmap(one, (None, 0, 0))(p, x, target)
            norms = jax.vmap(norm)(found)
            return norms, _map(lambda g: (g.T * jnp.minimum(1, 1 / norms).astype(g.dtype)).T.sum(0), found)

        return Step(examples, (p, x, target, key), kind, computed)
    if kind == "curvature":

        def curvature(p: Parameters, x: Any, target: Any, key: Any) -> Any:
            gradient = jax.grad(plain)
            direction = _map(jnp.cos, p)
            return jax.jvp(lambda p: gradient(p, x, target, key), (p,), (direction,))

        return Step(curvature, (p, x, target, key), kind, computed)
    if kind == "batches":
        parts = rng.choice([2, 3])

        def batches(p: Parameters, x: Any, target: Any, key: Any) -> Any:
            def one(total: Any, given: Any) -> tuple[Any, Any]:
                value, found = jax.value_and_grad(plain)(p, *given)
                return _map(jnp.add, total, found), value

            many = _map(lambda a: jnp.stack([a, *(a[::-1],) * (parts - 1)]), (x, target))
            keys = key + jnp.arange(parts, dtype=jnp.uint32)
            return lax.scan(one, _map(jnp.zeros_like, p), (*many, keys))

        return Step(batches, (p, x, target, key), kind, computed)
    rule, state = update(d)

    def train(p: Parameters, state: Any, t: Any, x: Any, target: Any, key: Any) -> Any:
        (value, y), found = jax.value_and_grad(objective, has_aux=True)(p, x, target, key)
        found = _map(lambda g: g / g.dtype.type(scale), found)
        new, state = rule(p, found, state, t)
        return new, state, t + 1, (value, norm(found), y.mean())

    if kind == "twice":

        def twice(p: Parameters, state: Any, t: Any, x: Any, target: Any, key: Any) -> Any:
            def one(carry: tuple[Any, Any, Any], key: Any) -> tuple[Any, Any]:
                *changed, found = train(*carry, x, target, key)
                return tuple(changed), found

            return lax.scan(one, (p, state, t), key + jnp.arange(2, dtype=jnp.uint32))

        return Step(twice, (p, state, np.int32(3), x, target, key), kind, computed)
    donated = (0, 1) if d.chance(0.5) else ()
    return Step(train, (p, state, np.int32(3), x, target, key), kind, computed, donated)


def lowered(made: Step) -> Any:
    """The program as JAX lowers it for its CPU."""
    jitted = jax.jit(made.function, keep_unused=True, donate_argnums=made.donated)
    with jax.enable_x64(True):
        return jitted.trace(*made.arguments).lower(lowering_platforms=("cpu",))
