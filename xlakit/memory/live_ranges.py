"""Live ranges: the intervals, in the order of steps, in which the memory of a value must hold it.

Steps are numbered in order, including those inside of loops and branches. Step ``n`` reads at the point
``2 * n`` and writes up to the point ``2 * n + 1``; the memory of its results is written from ``2 * n`` on. A loop has
four numbers, and a conditional has one for each branch in addition to its own:

    begin   the initial values are copied to the state          index     the index is read
            steps of the condition                                        steps of the first branch
    test    the predicate is read                               end of it its values are copied to the results
            steps of the body                                             .. and so on for each branch
    back    the values of the body are copied to the state      end
    end

The range of a value goes from its definition to its last use. A value that a loop reads and does not define is read
again by the next iteration, so it is live to the end of the loop. An element of the state is not live between its last
use in the body and ``back``, where the next iteration's value is written; but it is always live up to ``test``, after
which it may be the loop's result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from xlakit.dataclass import dataclass
from xlakit.memory.steps import (
    CollectiveStep,
    ConditionalStep,
    KernelStep,
    Step,
    StepProgram,
    WhileStep,
    defines,
    reads_of,
)
from xlakit.memory.values import HloValue

# The first and the last point of a range.
Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of a step.

    first: the first number. inner: the test, back and end of a loop, or the ends of the branches of a conditional.
    """

    first: int
    inner: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveRanges:
    """The live ranges of a program's values, each a sequence of intervals, and the numbers of its steps.

    results: the numbers at which results are copied to the caller's memory. end: the number after all steps.
    """

    intervals: dict[HloValue, list[Interval]]
    numbers: dict[Step, Numbers]
    results: tuple[int, ...]
    end: int


@dataclass(slots=True, eq=False)
class _Loop:
    """A loop that is being walked. outside: the values that it uses and does not define."""

    parent: _Loop | None
    outside: dict[HloValue, None] = field(default_factory=dict[HloValue, None])


class _Walk:
    """Numbers steps and notes where values are defined and used."""

    def __init__(self) -> None:
        self.number = 0
        self.numbers: dict[Step, Numbers] = {}
        self.intervals: dict[HloValue, list[Interval]] = {}
        self._loop: _Loop | None = None
        # For each value, the innermost loop in which it is defined, and its last interval, which still grows.
        self._loop_of: dict[HloValue, _Loop | None] = {}
        self._first: dict[HloValue, int] = {}
        self._last: dict[HloValue, int] = {}

    def next(self) -> int:
        self.number += 1
        return self.number

    def define(self, value: HloValue, number: int) -> None:
        self._loop_of[value] = self._loop
        self._first[value] = 2 * number
        self._last[value] = 2 * number + 1

    def use(self, value: HloValue, point: int) -> None:
        if value not in self._loop_of:
            # The value has no defining step: an argument, a constant, or a context of an async operation. It is live
            # from the start.
            self._loop_of[value] = None
            self._first[value] = 0
            self._last[value] = point
        self._last[value] = max(self._last[value], point)
        if self._loop is not None and self._loop_of[value] is not self._loop:
            self._loop.outside[value] = None

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, KernelStep):
                self._kernel(step)
            elif isinstance(step, WhileStep):
                self._while(step)
            elif isinstance(step, ConditionalStep):
                self._conditional(step)
            elif isinstance(step, CollectiveStep) and step.part == "done":
                # Other devices may read the start's operands and write its results until the done.
                self._simple_step(step, (*step.operands, *step.results, *step.arrival), ())
            else:
                self._simple_step(step, reads_of(step), defines(step))

    def _simple_step(self, step: Step, reads: Sequence[HloValue], defines: Sequence[HloValue]) -> None:
        number = self.next()
        self.numbers[step] = Numbers(number)
        for value in reads:
            self.use(value, 2 * number)
        for value in defines:
            self.define(value, number)

    def _kernel(self, step: KernelStep) -> None:
        # Scratch that an earlier step has written, such as the random state, is defined there already.
        new_scratch = [value for value in step.scratch if value not in self._loop_of]
        self._simple_step(step, step.operands, (*step.results, *new_scratch))
        for value in step.scratch:
            self.use(value, 2 * self.number + 1)

    def _while(self, step: WhileStep) -> None:
        """Number the points of a loop: its begin, its test, the way back, and its end.

        What the loop uses from outside is live until its end, in every iteration. Its carried values are live from the
        begin to their last use, the test at least, and again from the way back on.
        """
        begin = self.next()
        for value in step.initial:
            self.use(value, 2 * begin)
        loop = self._loop = _Loop(self._loop)
        for phi in step.carried:
            self.define(phi, begin)
        self.steps(step.condition)
        test = self.next()
        self.use(step.predicate, 2 * test)
        self.steps(step.body)
        back = self.next()
        for value in step.next_values:
            self.use(value, 2 * back)
        end = self.next()
        self.numbers[step] = Numbers(begin, (test, back, end))
        self._loop = loop.parent
        for value in loop.outside:
            self.use(value, 2 * end)
        for phi in step.carried:
            self.intervals[phi] = [(2 * begin, max(self._last[phi], 2 * test))]
            self._loop_of[phi] = self._loop
            self._first[phi], self._last[phi] = 2 * back, 2 * end + 1

    def _conditional(self, step: ConditionalStep) -> None:
        begin = self.next()
        self.use(step.index, 2 * begin)
        ends: list[int] = []
        for branch, incoming in zip(step.branches, step.incoming, strict=True):
            self.steps(branch)
            ends.append(self.next())
            for value in incoming:
                self.use(value, 2 * ends[-1])
        self.numbers[step] = Numbers(begin, tuple(ends))
        end = self.next()
        for phi in step.results:
            self.define(phi, end)
            self.intervals[phi] = [(2 * number, 2 * number + 1) for number in ends]

    def finish(self) -> None:
        """End the last interval of each value."""
        for value, first in self._first.items():
            before = self.intervals.setdefault(value, [])
            if before and before[-1][1] >= first - 1:
                first = before.pop()[0]
            before.append((first, self._last[value]))


def live_ranges(program: StepProgram) -> LiveRanges:
    """The live ranges of a program's values; its results live to the end, where they are copied one after the other."""
    walk = _Walk()
    for value in program.arguments:
        walk.define(value, 0)
    walk.steps(program.steps)
    results = tuple([walk.next() for _ in program.results])
    end = walk.next()
    for value, number in zip(program.results, results, strict=True):
        walk.use(value, 2 * (number if value.is_preassigned else end))
    walk.finish()
    return LiveRanges(walk.intervals, walk.numbers, results, end)
