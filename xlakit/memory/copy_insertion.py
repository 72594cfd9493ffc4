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
        with_copies: list[Step] = []
        for step in steps:
            numbers = self._ranges.numbers[step]
            if isinstance(step, KernelStep):
                updated = [(step.operands[o], step.results[r]) for r, o in step.updates.items()]
                with_copies += self._copies(updated)
                new = step
            elif isinstance(step, WhileStep):
                _, back, _ = numbers.inner
                with_copies += self._copies(zip(step.initial, step.carried, strict=True))
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
            with_copies.append(new)
        return tuple(with_copies)

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
        free = [target for value_set, target in targets.items() if not readers[value_set]]
        copies: list[Step] = []
        while left:
            if not free:
                first = next(iter(left))
                temporary = HloValue(ValueKind.COPY, first.bytes, first.instruction, first.index, suffix=".held")
                value_set = self._sets.set_of(first)
                readers[self._sets.add(temporary, [(2 * number, 2 * number + 1)])] = readers.pop(value_set)
                copies.append(CopyStep(first, temporary))
                left = {t: temporary if self._sets.set_of(s) is value_set else s for t, s in left.items()}
                free.append(first)
            target = free.pop()
            source = left.pop(target)
            copies.append(CopyStep(source, target))
            value_set = self._sets.set_of(source)
            readers[value_set] -= 1
            if not readers[value_set] and value_set in targets:
                free.append(targets[value_set])
        return tuple(copies)

    def results(self, *, shares: bool) -> tuple[tuple[Step, ...], list[ValueSet]]:
        """Copies into results that have no memory of their own, and the set of each result.

        A set is the memory of at most one result, and then of no argument or constant.
        """
        copies: list[Step] = []
        sets: dict[ValueSet, None] = {}
        for number, value in zip(self._ranges.results, self._program.results, strict=True):
            value_set = self._sets.set_of(value)
            if value_set.preassigned is not None or value_set in sets or not shares:
                copy = HloValue(ValueKind.COPY, value.bytes, value.instruction, value.index, suffix=".result")
                value_set = self._sets.add(copy, [(2 * number, 2 * self._ranges.end)])
                self._sets.allow(value, copy, 2 * number)
                copies.append(CopyStep(value, copy))
            sets[value_set] = None
        return tuple(copies), list(sets)
