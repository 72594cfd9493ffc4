"""The memory plan of a program: computed from its steps alone, printable, and read by code generation.

The analyses and decisions, in order: the values, with redundant phis removed (:mod:`xlakit.memory.dataflow`), their
live ranges (:mod:`~xlakit.memory.live_ranges`), aliases (:mod:`~xlakit.memory.aliasing`), sets of values that share
memory (:mod:`~xlakit.memory.coalescing`), copies for must-aliases whose values do not share memory
(:mod:`~xlakit.memory.copy_insertion`), and buffer slices (:mod:`~xlakit.memory.assignment`). Plain memory omits
coalescing and all reuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xlakit.data.text_table import aligned
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import HloModule
from xlakit.memory.aliasing import Alias, AliasKind, aliases
from xlakit.memory.assignment import BufferSlice, assign
from xlakit.memory.coalescing import Coalescing
from xlakit.memory.copy_insertion import CopyInsertion
from xlakit.memory.donation import donations
from xlakit.memory.html import plan_html
from xlakit.memory.live_ranges import Interval, Numbers, live_ranges
from xlakit.memory.steps import (
    CollectiveStep,
    ConditionalStep,
    CopyStep,
    HostStep,
    KernelStep,
    Step,
    StepProgram,
    WhileStep,
    defines,
    reads_of,
    walk,
)
from xlakit.memory.values import HloValue
from xlakit.options import is_plain


@dataclass(frozen=True, slots=True, eq=False)
class MemoryPlan:
    """The memory of a program's values.

    program: the steps that it was computed from; steps: those with copies; numbers: the numbers of steps in live
    ranges. result_slices: where the program's results must be at its end. donations: pairs of a result's and an
    argument's number that may have the same address. intervals: the live range of each value. aliases: all
    aliases, realized or not.
    """

    module: HloModule
    program: StepProgram
    steps: Sequence[Step]
    slices: Sequence[BufferSlice]
    result_slices: Sequence[BufferSlice]
    arena_bytes: int
    donations: tuple[tuple[int, int], ...]
    intervals: Mapping[HloValue, Sequence[Interval]]
    numbers: Mapping[Step, Numbers]
    aliases: Sequence[Alias]
    _slice_of: Mapping[HloValue, BufferSlice]

    @property
    def arguments(self) -> Sequence[HloValue]:
        """The values of the arguments."""
        return self.program.arguments

    @property
    def results(self) -> Sequence[HloValue]:
        """The values of the results."""
        return self.program.results

    @property
    def copies(self) -> list[CopyStep]:
        """The copies that copy insertion has made."""
        return [step for step in walk(self.steps) if isinstance(step, CopyStep) and not step.is_value]

    def slice_of(self, value: HloValue) -> BufferSlice:
        """The buffer slice of a value."""
        return self._slice_of[value]

    def as_text(self) -> str:
        """The steps, the slices with their live ranges and values, and the aliases, as text."""
        return _text(self)

    def _repr_html_(self) -> str:
        return plan_html(self.module.name, self.slices, arena_bytes=self.arena_bytes, copies=len(self.copies))


def plan_memory(module: HloModule, program: StepProgram) -> MemoryPlan:
    """The memory plan of a module that was lowered to steps."""
    shares = not is_plain("memory")
    ranges = live_ranges(program)
    all_aliases = aliases(program.steps, ranges)
    sets = Coalescing(ranges, all_aliases)
    for alias in all_aliases if shares else ():
        if alias.kind is not AliasKind.HOST:
            sets.join(alias.source, alias.target)
    insertion = CopyInsertion(program, ranges, sets)
    final, results = insertion.results(shares=shares)
    steps = insertion.steps(program.steps) + final
    slices, arena_bytes = assign(sets.sets(), results)
    slice_of = {value: slice_ for slice_ in slices for value in slice_.values}
    return MemoryPlan(
        module,
        program,
        steps,
        slices,
        [slice_of[value_set.values[0]] for value_set in results],
        arena_bytes,
        donations(module, program, sets, results) if shares else (),
        sets.intervals,
        insertion.numbers,
        [alias for alias in all_aliases if alias.kind is not AliasKind.HOST],
        slice_of,
    )


# -- the printed form --------------------------------------------------------------------------------


def _text(plan: MemoryPlan) -> str:
    """A plan as text: its steps with their numbers, the slices of memory, and the aliases that were wanted."""
    lines = [
        f"memory plan of {plan.module.name}: an arena of {plan.arena_bytes:,} bytes, "
        f"{_count(len(plan.slices), 'slice')}, {_count(len(plan.copies), 'copy')}",
        "",
        "steps:",
        *_steps(plan, plan.steps, "  "),
        "",
        "slices (size, live range by the numbers of steps, values):",
        *_indented(aligned([_slice(plan, slice_) for slice_ in plan.slices], right=(1, 2))),
    ]
    if plan.aliases:
        rows = [[str(alias), _outcome(plan, alias.source, alias.target)] for alias in plan.aliases]
        lines += ["", "aliases:", *_indented(aligned(rows))]
    if plan.donations:
        lines += [
            "",
            "donations:",
            *(f"  result {result} in argument {argument}" for result, argument in plan.donations),
        ]
    return "\n".join(lines) + "\n"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun if number == 1 else noun[:-1] + 'ies' if noun.endswith('y') else noun + 's'}"


def _indented(table: str) -> list[str]:
    return [f"  {line}" for line in table.splitlines()]


def _slice(plan: MemoryPlan, slice_: BufferSlice) -> list[str]:
    intervals = sorted(interval for value in slice_.values for interval in plan.intervals[value])
    values = ", ".join(_with_location(plan, value) for value in slice_.values)
    return [str(slice_), f"{slice_.size:,}", spans_text(intervals), values]


def spans_text(intervals: Sequence[tuple[int, int]]) -> str:
    """Intervals of points as text, by the numbers of steps, each of which has two points: ``0-3 7``."""
    joined: list[list[int]] = []
    for low, high in intervals:
        first, last = low // 2, high // 2
        if joined and first <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], last)
        else:
            joined.append([first, last])
    return " ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in joined)


def _with_location(plan: MemoryPlan, value: HloValue) -> str:
    location = None if value.instruction is None else plan.module.location_of(value.instruction)
    return f"{value} ({location})" if location is not None else str(value)


def _outcome(plan: MemoryPlan, source: HloValue, target: HloValue) -> str:
    return "shared" if plan.slice_of(source) is plan.slice_of(target) else "apart"


def _steps(plan: MemoryPlan, steps: Sequence[Step], indent: str) -> Iterator[str]:
    for step in steps:
        # Copies that copy insertion added have no numbers.
        numbers = plan.numbers.get(step, Numbers(0))
        prefix, inner = f"{numbers.first or '':>4} {indent}", numbers.inner
        if isinstance(step, WhileStep):
            yield f"{prefix}while {step.instruction.name}: test {inner[0]}, back {inner[1]}, end {inner[2]}"
            yield from _steps(plan, step.condition, indent + "  ")
            yield f"     {indent}while {step.predicate}"
            yield from _steps(plan, step.body, indent + "  ")
        elif isinstance(step, ConditionalStep):
            yield f"{prefix}conditional {step.instruction.name} by {step.index}"
            for position, (branch, end) in enumerate(zip(step.branches, inner, strict=True)):
                yield f"     {indent}branch {position}, to {end}"
                yield from _steps(plan, branch, indent + "  ")
        else:
            yield f"{prefix}{_line(step)}"


def _line(step: Step) -> str:
    if isinstance(step, CopyStep):
        return f"copy {step.source} -> {step.target}"
    what = step.instruction.opcode if isinstance(step, (KernelStep, HostStep, CollectiveStep)) else type(step).__name__
    if isinstance(step, (CollectiveStep, HostStep)) and step.part:
        what = f"{what} ({step.part})"
    if isinstance(step, HostStep):
        what = f"{what} (host)"
    defined, read = (", ".join(map(str, values)) for values in (defines(step), reads_of(step)))
    return f"{defined} = {what}({read})" if defined else f"{what}({read})"
