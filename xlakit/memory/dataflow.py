"""Dataflow: removes phis that always are one value.

At the head of a loop, and after a conditional, an element of the state or of the result is one of several values: a
phi. If all predecessors give the same value, the phi is replaced by that value; for example an element of a loop's
state that the body returns unchanged, even through tuples, calls or inner loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from xlakit.memory.steps import (
    CollectiveStep,
    CopyStep,
    HostStep,
    KernelStep,
    NumberStep,
    RandomStep,
    Step,
    Values,
    WhileStep,
)
from xlakit.memory.values import HloValue


class Dataflow:
    """Finds the phis of a program that are always one value."""

    def __init__(self) -> None:
        self._same: dict[HloValue, HloValue] = {}

    def value(self, value: HloValue) -> HloValue:
        """The value that replaces a phi; any other value itself."""
        while value in self._same:
            value = self._same[value]
        return value

    def join(self, phis: Sequence[HloValue], ways: Sequence[Sequence[HloValue]]) -> None:
        """Find the phis that always are one value; ``ways`` has, for each predecessor, a value for each phi."""
        left = list(zip(phis, *ways, strict=True))
        before = len(left) + 1
        # Repeated, as a phi that is replaced may be a value of another phi.
        while len(left) < before:
            before = len(left)
            left = [row for row in left if not self._is_one(*row)]

    def _is_one(self, phi: HloValue, *incoming: HloValue) -> bool:
        values = {self.value(v) for v in incoming} - {phi}
        if len(values) != 1:
            return False
        self._same[phi] = values.pop()
        return True

    def replace_phis(self, steps: Iterable[Step]) -> tuple[Step, ...]:
        """The steps with phis replaced by the values that they always are."""
        return tuple(map(self._replace_in, steps)) if self._same else tuple(steps)

    def values(self, values: Iterable[HloValue]) -> Values:
        """The values, with phis replaced."""
        return tuple([self.value(v) for v in values])

    def _replace_in(self, step: Step) -> Step:
        """A step with phis replaced; those that are replaced are removed from loops and conditionals."""
        if isinstance(step, (KernelStep, HostStep, CollectiveStep)):
            operands = self.values(step.operands)
            return step if operands == step.operands else replace(step, operands=operands)
        if isinstance(step, CopyStep):
            return replace(step, source=self.value(step.source))
        if isinstance(step, (RandomStep, NumberStep)):
            return step
        if isinstance(step, WhileStep):
            left = [n for n, phi in enumerate(step.carried) if phi not in self._same]
            return replace(
                step,
                condition=self.replace_phis(step.condition),
                predicate=self.value(step.predicate),
                body=self.replace_phis(step.body),
                carried=tuple([step.carried[n] for n in left]),
                initial=self.values(step.initial[n] for n in left),
                next_values=self.values(step.next_values[n] for n in left),
            )
        left = [n for n, phi in enumerate(step.results) if phi not in self._same]
        return replace(
            step,
            index=self.value(step.index),
            branches=tuple(map(self.replace_phis, step.branches)),
            results=tuple([step.results[n] for n in left]),
            incoming=tuple([self.values(incoming[n] for n in left) for incoming in step.incoming]),
        )
