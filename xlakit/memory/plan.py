"""The memory plan of a program: computed from its steps alone, printed, and read by what makes code of it.

The analyses and decisions, in order: which values there are and which are one (:mod:`xlakit.memory.dataflow`), when
they live (:mod:`~xlakit.memory.live_ranges`), which ones are wanted in one memory (:mod:`~xlakit.memory.aliasing`) and
can be (:mod:`~xlakit.memory.coalescing`), the copies for those that cannot (:mod:`~xlakit.memory.copy_insertion`), and
where everything is (:mod:`~xlakit.memory.assignment`). Plain memory leaves out coalescing and all use of memory twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xlakit.ir.instruction import HloModule
from xlakit.memory.aliasing import Alias, AliasKind, aliases
from xlakit.memory.assignment import BufferSlice, assign
from xlakit.memory.coalescing import Coalescing
from xlakit.memory.copy_insertion import CopyInsertion
from xlakit.memory.donation import donations
from xlakit.memory.live_ranges import Interval, Numbers, live_ranges
from xlakit.memory.plan_text import plan_text
from xlakit.memory.steps import CopyStep, Step, StepProgram, walk
from xlakit.memory.values import HloValue
from xlakit.options import is_plain


@dataclass(frozen=True, slots=True, eq=False)
class MemoryPlan:
    """Where the values of a program are.

    program: the steps that it was made for; steps: those with copies, and numbers those of them that live ranges are
    told by. result_slices: where the program's results must be at its end. donations: pairs of a result's and an
    argument's number that may have the same address. intervals: the live range of each value. aliases: the pairs of
    values that were wanted in one memory.
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
        """The values that the caller gives."""
        return self.program.arguments

    @property
    def results(self) -> Sequence[HloValue]:
        """The values that the program gives."""
        return self.program.results

    @property
    def copies(self) -> list[CopyStep]:
        """The copies that copy insertion has made."""
        return [step for step in walk(self.steps) if isinstance(step, CopyStep) and not step.is_value]

    def slice_of(self, value: HloValue) -> BufferSlice:
        """The memory that a value is in."""
        return self._slice_of[value]

    def as_text(self) -> str:
        """The steps, the slices with their live ranges and values, and which values were wanted in one memory."""
        return plan_text(self)


def plan_memory(module: HloModule, program: StepProgram) -> MemoryPlan:
    """The memory plan of a module that was lowered to steps."""
    shares = not is_plain("memory")
    ranges = live_ranges(program)
    wanted = aliases(program.steps, ranges)
    sets = Coalescing(ranges, wanted)
    for alias in wanted if shares else ():
        if alias.kind is not AliasKind.HOST:
            sets.join(alias.source, alias.target)
    insertion = CopyInsertion(program, ranges, sets)
    final, results = insertion.results(shares=shares)
    steps = insertion.steps(program.steps) + final
    slices, arena_bytes = assign(sets.sets(), results)
    slice_of = {value: own for own in slices for value in own.values}
    return MemoryPlan(
        module,
        program,
        steps,
        slices,
        [slice_of[own.values[0]] for own in results],
        arena_bytes,
        donations(module, program, sets, results) if shares else (),
        sets.intervals,
        insertion.numbers,
        [alias for alias in wanted if alias.kind is not AliasKind.HOST],
        slice_of,
    )
