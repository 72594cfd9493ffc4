"""Programs over eight devices, whose results have no sharding of their own: each must be split as on jaxlib's CPU.

A program has one argument that is split and another that is whole, and only operations through which shardings spread
in one way: on elements, transposes, new dimensions, concatenations along whole dimensions, reshapes that give axes of a
dimension to several or join those of several, random keys, calls with a sharding rule, and constraints that leave some
dimensions open. So there is one right answer to how each result is split.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

DEVICES = 8


def mesh_of(platform: str) -> Mesh:
    """A mesh of all devices of a platform."""
    return Mesh(np.asarray(jax.devices(platform)[:DEVICES]).reshape(4, 2), ("x", "y"))


def result(seed: str, mesh: Mesh) -> list[Any]:
    """The results of a program over a mesh."""
    drawn = random.Random(seed)
    rank = drawn.choice([1, 2, 3])
    axes = [drawn.choice(["x", "y", None]) for _ in range(rank)]
    spec: list[str | tuple[str, ...] | None] = [
        a if a is not None and a not in axes[:d] else None for d, a in enumerate(axes)
    ]
    if drawn.random() < 0.3:
        # Both axes of one dimension, which a reshape may give to two.
        spec = [None] * rank
        spec[drawn.randrange(rank)] = ("x", "y")
    if drawn.random() < 0.2:
        spec[drawn.randrange(rank)] = None
    values = np.random.default_rng(drawn.getrandbits(32)).integers(1, 100, (8,) * rank).astype(np.uint32)
    steps = [drawn.choice(_STEPS) for _ in range(drawn.randint(1, 5))]
    # The last word on a result is often a constraint of the program's, or JAX's own on the dimensions of keys.
    steps += drawn.choice([[], [_constrained], [_keys]])
    count, choices = drawn.choice([1, 1, 2]), drawn.getrandbits(32)
    if count == 2:
        # Shardy may apply a constraint to the value before it, too, which is then a result of its own.
        steps = [step for step in steps if step is not _constrained] or [_elements]

    def program(x: Any, other: Any) -> Any:
        made, each = [x], random.Random(choices)
        for step in steps:
            last = jax.random.key_data(made[-1]) if _has_keys(made[-1]) else made[-1]
            made.append(step(last, other, mesh, each))
        return made[-1] if count == 1 else tuple(made[-count:])

    given = jax.device_put(values, NamedSharding(mesh, P(*spec)))
    return jax.tree.leaves(jax.jit(program)(given, np.uint32(drawn.randint(1, 9))))


def difference(actual: Any, expected: Any) -> str:
    """How a result differs from the other platform's: in its numbers, or how it is split; empty where it does not."""
    split, wanted = (_parts(one.sharding, one.shape) for one in (actual, expected))
    if split != wanted:
        return f"{actual.shape} is split {actual.sharding.spec}, not {expected.sharding.spec}"
    numbers, right = (_numbers(one) for one in (actual, expected))
    return "" if np.array_equal(numbers, right) else f"{numbers.ravel()[:12]} instead of {right.ravel()[:12]}"


def _numbers(result: Any) -> np.ndarray[Any, Any]:
    return np.asarray(jax.random.key_data(result) if _has_keys(result) else result)


def _has_keys(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jax.dtypes.prng_key)


def _parts(sharding: Any, shape: tuple[int, ...]) -> list[Any]:
    indices = sharding.devices_indices_map(shape)
    return [indices[device] for device in sharding.mesh.devices.flat]


_Step = Callable[[Any, Any, Mesh, random.Random], Any]


def _elements(x: Any, other: Any, mesh: Mesh, drawn: random.Random) -> Any:
    return drawn.choice([x + other, x * x, jnp.where(x > other, x, other), x >> 1])


def _transposed(x: Any, other: Any, mesh: Mesh, drawn: random.Random) -> Any:
    return jnp.transpose(x, drawn.sample(range(x.ndim), x.ndim))


def _with_dimension(x: Any, other: Any, mesh: Mesh, drawn: random.Random) -> Any:
    return jnp.expand_dims(x, drawn.randint(0, x.ndim)) if x.ndim < 4 else x


def _stacked(x: Any, other: Any, mesh: Mesh, drawn: random.Random) -> Any:
    return jnp.stack([x, x + other], axis=drawn.randint(0, x.ndim)) if x.ndim < 4 else x


def _reshaped(x: Any, other: Any, mesh: Mesh, drawn: random.Random) -> Any:
    """A dimension divided in two, the first as long as the first axis, or two of which the first is short merged."""
    divided = [d for d, n in enumerate(x.shape) if n == DEVICES and x.ndim < 4]
    merged = [d for d in range(x.ndim - 1) if x.shape[d : d + 2] == (mesh.shape["x"], mesh.shape["y"])]
    if not divided + merged:
        return x
    d = drawn.choice(divided + merged)
    new = (mesh.shape["x"], mesh.shape["y"]) if d in divided else (DEVICES,)
    return x.reshape(*x.shape[:d], *new, *x.shape[d + 3 - len(new) :])


def _constrained(x: Any, other: Any, mesh: Mesh, drawn: random.Random) -> Any:
    if any(size not in (1, DEVICES) for size in x.shape):
        return x
    spec = [drawn.choice([P.UNCONSTRAINED, P.UNCONSTRAINED, None]) for _ in range(x.ndim)]
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))


def _keys(x: Any, other: Any, mesh: Mesh, drawn: random.Random) -> Any:
    if x.ndim > 3:
        return x
    return jax.random.wrap_key_data(jnp.stack([x, x + other], axis=-1)).T


def _by_rule(x: Any, other: Any, mesh: Mesh, drawn: random.Random) -> Any:
    """A call that a function of the program splits, but along dimensions that its rule wants whole."""
    order = drawn.sample(range(x.ndim), x.ndim)
    names, whole = "ijkl"[: x.ndim], [d for d in range(x.ndim) if drawn.random() < 0.3]
    turned: Any = custom_partitioning(lambda a: jnp.transpose(a, order))

    def partition(mesh: Mesh, operands: Any, made: Any) -> Any:
        spec = [*made.sharding.spec, *[None] * (len(order) - len(made.sharding.spec))]
        kept = [None if d in whole else axes for d, axes in zip(order, spec, strict=True)]
        given = [kept[order.index(d)] for d in range(len(order))]
        return (
            mesh,
            lambda a: jnp.transpose(a, order),
            NamedSharding(mesh, P(*kept)),
            (NamedSharding(mesh, P(*given)),),
        )

    rule = f"{' '.join(names)} -> {' '.join(names[d] for d in order)}"
    turned.def_partition(partition, sharding_rule=rule, need_replication_factors=tuple(names[d] for d in whole))
    return turned(x)


_STEPS: list[_Step] = [_elements, _transposed, _with_dimension, _stacked, _reshaped, _constrained, _keys, _by_rule]
