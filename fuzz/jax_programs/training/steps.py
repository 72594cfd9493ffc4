"""Steps of training and inferences as whole programs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fuzz.jax_programs.training.draft import Draft, Parameters
from fuzz.jax_programs.training.losses import loss
from fuzz.jax_programs.training.networks import Network, network
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


@dataclass(frozen=True, slots=True)
class _Task:
    """A network with its loss on given values, of which programs of all kinds are made.

    arguments: parameters, values, target, and the key for what is dropped.
    """

    d: Draft
    network: Network
    measure: Callable[[Any, Any], Any]
    arguments: tuple[Parameters, Any, Any, Any]

    @property
    def wide(self) -> np.dtype[Any]:
        """The type of losses."""
        return jnp.dtype("float32") if self.d.computed.itemsize == 2 else self.d.computed

    @property
    def scale(self) -> Any:
        """What the loss is multiplied by, so that gradients in few bits are not zero."""
        return self.wide.type(64.0 if self.d.computed == jnp.float16 else 1.0)

    def forward(self, p: Parameters, x: Any, key: Any) -> Any:
        """What the network gives."""
        return self.network.apply(p, x if self.network.tokens else x.astype(self.d.computed), key)

    def objective(self, p: Parameters, x: Any, target: Any, key: Any) -> tuple[Any, Any]:
        """The loss, and what the network gives."""
        y = self.forward(p, x, key).astype(self.wide)
        return self.measure(y, target) * self.scale, y

    def loss(self, p: Parameters, x: Any, target: Any, key: Any) -> Any:
        """The loss alone."""
        return self.objective(p, x, target, key)[0]

    def step(self, how: Callable[..., Any], what: str, arguments: tuple[Any, ...] = ()) -> Step:
        """A program of a kind on the task's arguments or others."""
        return Step(how, arguments or self.arguments, what, self.d.computed)


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
    if of == "labels":
        target = d.numbers.integers(0, made.made[-1], made.made[:-1]).astype(np.int32)
    else:
        target = d.numbers.standard_normal(made.made).astype("float32" if computed.itemsize == 2 else computed)
    key = np.uint32(rng.getrandbits(20))
    task = _Task(d, made, measure, (d.parameters, x, target, key))
    kind = rng.choice([*("train",) * 3, *("gradients",) * 5, "inference", "examples", "curvature", "batches", "twice"])
    return _KINDS[kind](task)


def _inference(task: _Task) -> Step:
    """What the network gives, nothing being dropped."""
    return task.step(lambda p, x: task.forward(p, x, None).astype(task.wide), "inference", task.arguments[:2])


def _gradients(task: _Task) -> Step:
    """Loss and gradients, those of what is given among them."""
    with_input = not task.network.tokens and task.d.chance(0.5)
    return task.step(jax.value_and_grad(task.objective, (0, 1) if with_input else 0, has_aux=True), "gradients")


def _examples(task: _Task) -> Step:
    """The gradients of each example, clipped and summed."""

    def examples(p: Parameters, x: Any, target: Any, key: Any) -> Any:
        one = jax.grad(lambda p, x, t: task.loss(p, x[None], t[None], key))
        found = jax.vmap(one, (None, 0, 0))(p, x, target)
        norms = jax.vmap(norm)(found)
        return norms, _map(lambda g: (g.T * jnp.minimum(1, 1 / norms).astype(g.dtype)).T.sum(0), found)

    return task.step(examples, "examples")


def _curvature(task: _Task) -> Step:
    """The product of second derivatives and a direction."""

    def curvature(p: Parameters, x: Any, target: Any, key: Any) -> Any:
        gradient = jax.grad(task.loss)
        direction = _map(jnp.cos, p)
        return jax.jvp(lambda p: gradient(p, x, target, key), (p,), (direction,))

    return task.step(curvature, "curvature")


def _batches(task: _Task) -> Step:
    """Gradients summed over batches in a loop."""
    parts = task.d.rng.choice([2, 3])

    def batches(p: Parameters, x: Any, target: Any, key: Any) -> Any:
        def one(total: Any, given: Any) -> tuple[Any, Any]:
            value, found = jax.value_and_grad(task.loss)(p, *given)
            return _map(jnp.add, total, found), value

        many = _map(lambda a: jnp.stack([a, *(a[::-1],) * (parts - 1)]), (x, target))
        keys = key + jnp.arange(parts, dtype=jnp.uint32)
        return lax.scan(one, _map(jnp.zeros_like, p), (*many, keys))

    return task.step(batches, "batches")


def _train(task: _Task) -> Step:
    """An update, whose old parameters may be given away."""
    train, arguments = _update(task)
    donated = (0, 1) if task.d.chance(0.5) else ()
    return replace(task.step(train, "train", arguments), donated=donated)


def _twice(task: _Task) -> Step:
    """Two updates in a loop."""
    train, arguments = _update(task)

    def twice(p: Parameters, state: Any, t: Any, x: Any, target: Any, key: Any) -> Any:
        def one(carry: tuple[Any, Any, Any], key: Any) -> tuple[Any, Any]:
            *changed, found = train(*carry, x, target, key)
            return tuple(changed), found

        return lax.scan(one, (p, state, t), key + jnp.arange(2, dtype=jnp.uint32))

    return task.step(twice, "twice", arguments)


def _update(task: _Task) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """An optimizer's update of parameters and state, and its arguments."""
    rule, state = update(task.d)

    def train(p: Parameters, state: Any, t: Any, x: Any, target: Any, key: Any) -> Any:
        (value, y), found = jax.value_and_grad(task.objective, has_aux=True)(p, x, target, key)
        found = _map(lambda g: g / g.dtype.type(task.scale), found)
        new, state = rule(p, found, state, t)
        return new, state, t + 1, (value, norm(found), y.mean())

    p, *given = task.arguments
    return train, (p, state, np.int32(3), *given)


_KINDS: dict[str, Callable[[_Task], Step]] = {
    "train": _train,
    "gradients": _gradients,
    "inference": _inference,
    "examples": _examples,
    "curvature": _curvature,
    "batches": _batches,
    "twice": _twice,
}


def lowered(made: Step) -> Any:
    """The program as JAX lowers it for its CPU."""
    jitted = jax.jit(made.function, keep_unused=True, donate_argnums=made.donated)
    with jax.enable_x64(True):
        return jitted.trace(*made.arguments).lower(lowering_platforms=("cpu",))
