"""Aliases: pairs of values that should have the same memory, each with its reason and its point in the program.

A *must-alias* is a pair that must be in the same memory when a step begins: the state of a loop and its initial value,
or the value from the previous iteration; the result of a conditional and that of each branch; an array before and after
an update in place. If the two cannot share memory, copy insertion copies the one to the other. A *may-alias* is a pair
that a kernel permits: its result written over an operand.

Both values of a pair are live at the step of the pair: the first value up to ``point``, the second from there on. This
overlap is no interference, for a reason that depends on the kind:

LOOP_BACK, LOOP_INIT, BRANCH    the step only copies the first value to the second
UPDATE                          the kernel changes the operand into the result, and the value is no other operand
COPY                            the step is the copy itself, which becomes a no-op
IN_PLACE                        the kernel states that it reads each element of the operand before it writes the same
                                element of the result
HOST                            Python copies the operands before it writes, or an external function works in place on
                                the operand, and the value is no other operand; for donated arguments only
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

from xlakit.dataclass import dataclass
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
    with_loop_depth,
)
from xlakit.memory.values import HloValue


class AliasKind(Enum):
    """The reason of an alias, in the order in which aliases are tried."""

    LOOP_BACK = "loop-back"
    LOOP_INIT = "loop-init"
    BRANCH = "branch"
    UPDATE = "update"
    COPY = "copy"
    IN_PLACE = "in-place"
    HOST = "host"

    @property
    def is_must(self) -> bool:
        """Whether a copy is inserted if the two values do not share memory."""
        return self not in (AliasKind.IN_PLACE, AliasKind.HOST)


@dataclass(frozen=True, slots=True)
class Alias:
    """Two values that should have the same memory. depth: the number of loops around the step."""

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
    for step, depth in with_loop_depth(steps):
        for alias in _of_step(step, ranges, depth):
            if alias.source.bytes == alias.target.bytes:
                (must if alias.kind.is_must else may).append(alias)
    must.sort(key=lambda alias: -alias.depth)
    return must + may


def _of_step(step: Step, ranges: LiveRanges, depth: int) -> Iterator[Alias]:
    numbers = ranges.numbers[step]
    if isinstance(step, WhileStep):
        _, back, _ = numbers.inner
        yield from _row(AliasKind.LOOP_BACK, step.next_values, step.carried, back, depth + 1)
        yield from _row(AliasKind.LOOP_INIT, step.initial, step.carried, numbers.first, depth)
    elif isinstance(step, ConditionalStep):
        for incoming, number in zip(step.incoming, numbers.inner, strict=True):
            yield from _row(AliasKind.BRANCH, incoming, step.results, number, depth)
    elif isinstance(step, CopyStep):
        yield Alias(AliasKind.COPY, step.source, step.target, 2 * numbers.first, depth)
    elif isinstance(step, KernelStep):
        yield from _pairs(AliasKind.UPDATE, step, step.updates.items(), numbers.first, depth)
        yield from _pairs(AliasKind.IN_PLACE, step, step.in_place, numbers.first, depth)
    elif isinstance(step, CollectiveStep):
        yield from _pairs(AliasKind.IN_PLACE, step, step.in_place, numbers.first, depth)
    elif isinstance(step, HostStep):
        every = [(r, o) for r in range(len(step.results)) for o in range(len(step.operands))]
        pairs = step.updates.items() if step.function else every
        arguments = [(r, o) for r, o in pairs if step.operands[o].kind.value == "argument"]
        yield from _pairs(AliasKind.HOST, step, arguments, numbers.first, depth)


def _row(kind: AliasKind, sources: Values, targets: Values, number: int, depth: int) -> Iterator[Alias]:
    return (Alias(kind, s, t, 2 * number, depth) for s, t in zip(sources, targets, strict=True))


def _pairs(
    kind: AliasKind,
    step: KernelStep | CollectiveStep | HostStep,
    pairs: Iterable[tuple[int, int]],
    number: int,
    depth: int,
) -> Iterator[Alias]:
    """Aliases of a step's results and operands; a value that occurs as several operands must be permitted as each."""
    allowed = set(pairs)
    positions: dict[HloValue, list[int]] = {}
    for operand, value in enumerate(step.operands):
        positions.setdefault(value, []).append(operand)
    for result, operand in sorted(allowed):
        value = step.operands[operand]
        if all((result, n) in allowed for n in positions[value]):
            yield Alias(kind, value, step.results[result], 2 * number, depth)
