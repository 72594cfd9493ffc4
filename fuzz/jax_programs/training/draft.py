"""A network under way: its parameters by name, with their first values, and what is drawn for it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

Shape = tuple[int, ...]
Parameters = dict[str, Any]
# A block on values, with the parameters of the whole network and a key for what is dropped.
Apply = Callable[[Parameters, Any, Any], Any]
Block = tuple[Apply, Shape]

SIZES = (7, 16, 17, 27, 32, 33, 64, 65, 100)


@dataclass(slots=True)
class Draft:
    """What is drawn, of which types, and the parameters so far."""

    rng: random.Random
    numbers: np.random.Generator
    stored: Any
    computed: Any
    parameters: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict[str, np.ndarray[Any, Any]])

    def weight(self, shape: Shape, fan_in: int = 0, center: float = 0.0) -> str:
        """A new parameter about ``center``, of a size that keeps the size of sums over ``fan_in`` elements."""
        name = f"w{len(self.parameters):02}"
        scale = fan_in**-0.5 if fan_in else 0.2
        self.parameters[name] = (center + scale * self.numbers.standard_normal(shape)).astype(self.stored)
        return name

    def width(self, shape: Shape) -> int:
        """A width behind values of a shape: often theirs, since arrays of one size may share memory."""
        return shape[-1] if self.chance(0.5) else self.rng.choice(SIZES)

    def chance(self, share: float) -> bool:
        """True in so many of the cases."""
        return self.rng.random() < share

    def cast(self, value: Any) -> Any:
        """A parameter in the type that is computed in."""
        return value.astype(self.computed)


def chained(*blocks: Apply) -> Apply:
    """One block after the other."""

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        for number, block in enumerate(blocks):
            x = block(p, x, None if key is None else key + jnp.uint32(7 * number + 1))
        return x

    return apply
