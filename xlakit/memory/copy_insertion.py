"""Copy insertion: copies between values of must-aliases that do not share memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from xlakit.memory.coalescing import Coalescing, ValueSet
from xlakit.memory.live_ranges import LiveRanges, Numbers
from xlakit.memory.steps import ConditionalStep, CopyStep, KernelStep, Step, StepProgram, WhileStep
from xlakit.memory.values import HloValue, ValueKind


class CopyInsertion:
    """Puts copies into the steps of a program."""

    def __init__(self, program: StepProgram, ranges: LiveRanges, sets: Coalescing) -> None:
        self._program = program
        self._ranges = ranges
        self._sets = sets
        # The current numbers of steps.
        self.numbers: dict[Step, Numbers] = {}

    def steps(self, steps: Iterable[Step]) -> tuple[Step, ...]:
        """The steps with copies: before updates, before loops, at the end of iterations and of branches."""
        found: list[Step] = []
        for step in steps:
            numbers = self._ranges.numbers[step]
            if isinstance(step, KernelStep):
                updated = [(step.operands[o], step.results[r]) for r, o in step.updates.items()]
                found += self._copies(updated)
                new = step
            elif isinstance(step, WhileStep):
                _, back, _ = numbers.inner
                found += self._copies(zip(step.initial, step.carried, strict=True))
                body = self.steps(step.body) + self._parallel_copy(
                    zip(step.next_values, step.carried, strict=True), back
                )
                new = replace(step, condition=self.steps(step.condition), body=body)
            elif isinstance(step, ConditionalStep):
                incoming = zip(step.branches, step.incoming, strict=True)
                branches = [
                    self.steps(b) + self._copies(zip(values, step.results, strict=True)) for b, values in incoming
                ]
                new = replace(step, branches=tuple(branches))
            else:
                new = step
            self.numbers[new] = numbers
            found.append(new)
        return tuple(found)

    def _copies(self, pairs: Iterable[tuple[HloValue, HloValue]]) -> tuple[Step, ...]:
        """Sequential copies, for pairs whose sources are all live here: no target has the memory of another source."""
        return tuple([CopyStep(s, t) for s, t in pairs if self._sets.set_of(s) is not self._sets.set_of(t)])

    def _parallel_copy(self, pairs: Iterable[tuple[HloValue, HloValue]], number: int) -> tuple[Step, ...]:
        """The sequence of copies that implements a parallel copy, whose targets may be sources of other pairs.

        A target is written only when no remaining copy reads it. If every target is still to be read, they form a cycle
        (such as a swap of two elements); then one of them is saved in a temporary.
        """
        left = {t: s for s, t in pairs if self._sets.set_of(s) is not self._sets.set_of(t)}
        readers = Counter(self._sets.set_of(source) for source in left.values())
        targets = {self._sets.set_of(target): target for target in left}
        free = [target for own, target in targets.items() if not readers[own]]
        found: list[Step] = []
        while left:
            if not free:
                first = next(iter(left))
                held = HloValue(ValueKind.COPY, first.bytes, first.instruction, first.index, suffix=".held")
                own = self._sets.set_of(first)
                readers[self._sets.add(held, [(2 * number, 2 * number + 1)])] = readers.pop(own)
                found.append(CopyStep(first, held))
                left = {t: held if self._sets.set_of(s) is own else s for t, s in left.items()}
                free.append(first)
            target = free.pop()
            source = left.pop(target)
            found.append(CopyStep(source, target))
            own = self._sets.set_of(source)
            readers[own] -= 1
            if not readers[own] and own in targets:
                free.append(targets[own])
        return tuple(found)

    def results(self, *, shares: bool) -> tuple[tuple[Step, ...], list[ValueSet]]:
        """Copies into results that have no memory of their own, and the set of each result.

        A set is the memory of at most one result, and then of no argument or constant.
        """
        found: list[Step] = []
        sets: dict[ValueSet, None] = {}
        for number, value in zip(self._ranges.results, self._program.results, strict=True):
            own = self._sets.set_of(value)
            if own.preassigned is not None or own in sets or not shares:
                copy = HloValue(ValueKind.COPY, value.bytes, value.instruction, value.index, suffix=".result")
                own = self._sets.add(copy, [(2 * number, 2 * self._ranges.end)])
                self._sets.allow(value, copy, 2 * number)
                found.append(CopyStep(value, copy))
            sets[own] = None
        return tuple(found), list(sets)
