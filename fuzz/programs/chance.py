"""Chance: choices of one random generator, from which a seed and a number make a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

_T = TypeVar("_T")


class Chance:
    """Choices of one random generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def chance(self, probability: float = 0.5) -> bool:
        """True so often."""
        return bool(self.rng.random() < probability)

    def pick(self, choices: Sequence[_T]) -> _T:
        """One of the choices."""
        return choices[int(self.rng.integers(len(choices)))]

    def some(self, choices: Sequence[_T], probability: float = 0.5) -> list[_T]:
        """The choices that are taken, each so often."""
        return [choice for choice in choices if self.chance(probability)]

    def shuffled(self, choices: Sequence[_T]) -> list[_T]:
        """All choices in some order."""
        return [choices[i] for i in self.permutation(len(choices))]

    def integer(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``, both included."""
        return int(self.rng.integers(low, high + 1))

    def permutation(self, count: int) -> list[int]:
        """The numbers below ``count``, in some order."""
        return [int(i) for i in self.rng.permutation(count)]
