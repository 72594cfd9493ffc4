"""The printed form of a memory plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xlakit.memory.live_ranges import Numbers
from xlakit.memory.steps import (
    CollectiveStep,
    ConditionalStep,
    CopyStep,
    HostStep,
    KernelStep,
    Step,
    WhileStep,
    defines,
    reads_of,
)
from xlakit.memory.values import HloValue

if TYPE_CHECKING:
    from xlakit.memory.assignment import BufferSlice
    from xlakit.memory.plan import MemoryPlan


def plan_text(plan: MemoryPlan) -> str:
    """A plan as text: its steps with their numbers, the slices of memory, and the aliases that were wanted."""
    lines = [
        f"memory plan of {plan.module.name}: an arena of {plan.arena_bytes:,} bytes, "
        f"{_count(len(plan.slices), 'slice')}, {_count(len(plan.copies), 'copy')}",
        "",
        "steps:",
        *_steps(plan, plan.steps, "  "),
        "",
        "slices (size, live range by the numbers of steps, values):",
        *_table([_slice(plan, own) for own in plan.slices]),
    ]
    if plan.aliases:
        rows = [[str(alias), _outcome(plan, alias.source, alias.target)] for alias in plan.aliases]
        lines += ["", "aliases:", *_table(rows)]
    if plan.donations:
        lines += [
            "",
            "donations:",
            *(f"  result {result} in argument {argument}" for result, argument in plan.donations),
        ]
    return "\n".join(lines) + "\n"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun if number == 1 else noun[:-1] + 'ies' if noun.endswith('y') else noun + 's'}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with columns of one width, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        (
            "  " + "  ".join(c.rjust(w) if c[:1].isdigit() else c.ljust(w) for c, w in zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _slice(plan: MemoryPlan, own: BufferSlice) -> list[str]:
    intervals = sorted(interval for value in own.values for interval in plan.intervals[value])
    values = ", ".join(_with_place(plan, value) for value in own.values)
    return [str(own), f"{own.size:,}", spans_text(intervals), values]


def spans_text(intervals: Sequence[tuple[int, int]]) -> str:
    """Intervals of points as numbers of steps."""
    joined: list[list[int]] = []
    for low, high in intervals:
        first, last = low // 2, high // 2
        if joined and first <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], last)
        else:
            joined.append([first, last])
    return " ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in joined)


def _with_place(plan: MemoryPlan, value: HloValue) -> str:
    location = None if value.instruction is None else plan.module.location_of(value.instruction)
    return f"{value} ({location})" if location is not None else str(value)


def _outcome(plan: MemoryPlan, source: HloValue, target: HloValue) -> str:
    return "shared" if plan.slice_of(source) is plan.slice_of(target) else "apart"


def _steps(plan: MemoryPlan, steps: Sequence[Step], indent: str) -> Iterator[str]:
    for step in steps:
        # Copies have none.
        numbers = plan.numbers.get(step, Numbers(0))
        own, inner = f"{numbers.own or '':>4} {indent}", numbers.inner
        if isinstance(step, WhileStep):
            yield f"{own}while {step.instruction.name}: test {inner[0]}, back {inner[1]}, end {inner[2]}"
            yield from _steps(plan, step.condition, indent + "  ")
            yield f"     {indent}while {step.predicate}"
            yield from _steps(plan, step.body, indent + "  ")
        elif isinstance(step, ConditionalStep):
            yield f"{own}conditional {step.instruction.name} by {step.index}"
            for position, (branch, end) in enumerate(zip(step.branches, inner, strict=True)):
                yield f"     {indent}branch {position}, to {end}"
                yield from _steps(plan, branch, indent + "  ")
        else:
            yield f"{own}{_line(step)}"


def _line(step: Step) -> str:
    if isinstance(step, CopyStep):
        return f"copy {step.source} -> {step.target}"
    what = step.instruction.opcode if isinstance(step, (KernelStep, HostStep, CollectiveStep)) else type(step).__name__
    if isinstance(step, CollectiveStep) and step.part:
        what = f"{what} ({step.part})"
    if isinstance(step, HostStep):
        what = f"{what} (host)"
    made, given = (", ".join(map(str, values)) for values in (defines(step), reads_of(step)))
    return f"{made} = {what}({given})" if made else f"{what}({given})"
