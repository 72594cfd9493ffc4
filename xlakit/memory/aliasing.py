"""Aliases: which values are wanted in one memory, why, and until when both may have it.

A *must-alias* is a pair that has to be in one memory where a step begins: the state of a loop and what the loop is
given at first and by each iteration, the result of a conditional and that of each branch, what a kernel changes in
place before and after. Where the two cannot share, the one is copied to the other. A *may-alias* is a pair that a
kernel allows: its result written over an operand.

Both values of a pair live at the step of the pair, the one until then and the other from then on; ``point`` is that
point. It is no interference, for the reasons that stand at each kind:

LOOP_BACK, LOOP_INIT, BRANCH    the step only copies the one to the other
UPDATE                          the kernel changes the operand into the result, and has it for no other operand
COPY                            the copy, which then has nothing to do
IN_PLACE                        the kernel reads an element of the operand before it writes the same element of the
                                result, and the operand for nothing else
HOST                            Python makes copies of what it reads; for donated arguments alone
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from xlakit.memory.live_ranges import LiveRanges
from xlakit.memory.steps import (
    CollectiveStep,
    ConditionalStep,
    CopyStep,
    HostStep,
    KernelStep,
    Step,
    Values,
    WhileStep,
    inner,
)
from xlakit.memory.values import HloValue


class AliasKind(Enum):
    """Why two values are wanted in one memory; in the order in which they are tried."""

    LOOP_BACK = "loop-back"
    LOOP_INIT = "loop-init"
    BRANCH = "branch"
    UPDATE = "update"
    COPY = "copy"
    IN_PLACE = "in-place"
    HOST = "host"

    @property
    def is_must(self) -> bool:
        """Whether there is a copy where the two do not share."""
        return self not in (AliasKind.IN_PLACE, AliasKind.HOST)


@dataclass(frozen=True, slots=True)
class Alias:
    """Two values that are wanted in one memory. depth: how many loops are around."""

    kind: AliasKind
    source: HloValue
    target: HloValue
    point: int
    depth: int = 0

    def __str__(self) -> str:
        return f"{self.kind.value} {self.source} -> {self.target} at {self.point // 2}"


def aliases(steps: Sequence[Step], ranges: LiveRanges) -> list[Alias]:
    """The aliases of a program: must-aliases of the innermost loops first, then may-aliases in the order of steps."""
    must: list[Alias] = []
    may: list[Alias] = []
    for step, depth in _with_depth(steps, 0):
        for alias in _of_step(step, ranges, depth):
            if alias.source.bytes == alias.target.bytes:
                (must if alias.kind.is_must else may).append(alias)
    must.sort(key=lambda alias: -alias.depth)
    return must + may


def _with_depth(steps: Sequence[Step], depth: int) -> Iterator[tuple[Step, int]]:
    """The steps with how many loops are around, each after those inside of it."""
    for step in steps:
        for row in inner(step):
            yield from _with_depth(row, depth + isinstance(step, WhileStep))
        yield step, depth


def _of_step(step: Step, ranges: LiveRanges, depth: int) -> Iterator[Alias]:
    numbers = ranges.numbers[step]
    if isinstance(step, WhileStep):
        _, back, _ = numbers.inner
        yield from _row(AliasKind.LOOP_BACK, step.given, step.carried, back, depth + 1)
        yield from _row(AliasKind.LOOP_INIT, step.initial, step.carried, numbers.own, depth)
    elif isinstance(step, ConditionalStep):
        for given, number in zip(step.given, numbers.inner, strict=True):
            yield from _row(AliasKind.BRANCH, given, step.results, number, depth)
    elif isinstance(step, CopyStep):
        yield Alias(AliasKind.COPY, step.source, step.target, 2 * numbers.own, depth)
    elif isinstance(step, KernelStep):
        yield from _pairs(AliasKind.UPDATE, step, step.updates.items(), numbers.own, depth)
        yield from _pairs(AliasKind.IN_PLACE, step, step.in_place, numbers.own, depth)
    elif isinstance(step, CollectiveStep):
        yield from _pairs(AliasKind.IN_PLACE, step, step.in_place, numbers.own, depth)
    elif isinstance(step, HostStep):
        every = [(r, o) for r in range(len(step.results)) for o in range(len(step.operands))]
        yield from (
            Alias(AliasKind.HOST, step.operands[o], step.results[r], 2 * numbers.own, depth)
            for r, o in every
            if step.operands[o].kind.value == "argument"
        )


def _row(kind: AliasKind, sources: Values, targets: Values, number: int, depth: int) -> Iterator[Alias]:
    return (Alias(kind, s, t, 2 * number, depth) for s, t in zip(sources, targets, strict=True))


def _pairs(
    kind: AliasKind, step: KernelStep | CollectiveStep, pairs: Iterable[tuple[int, int]], number: int, depth: int
) -> Iterator[Alias]:
    """Aliases of a step's results and operands, where a value is no operand for which that does not hold as well."""
    allowed = set(pairs)
    positions: dict[HloValue, list[int]] = {}
    for operand, value in enumerate(step.operands):
        positions.setdefault(value, []).append(operand)
    for result, operand in sorted(allowed):
        value = step.operands[operand]
        if all((result, n) in allowed for n in positions[value]):
            yield Alias(kind, value, step.results[result], 2 * number, depth)
