"""The use of the arena over the schedule: the bytes at each step, the values at the peak, and what would lower it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from xlakit.data.text_table import aligned
from xlakit.dataclass import dataclass
from xlakit.errors import Location
from xlakit.memory.assignment import BufferSlice, Space
from xlakit.memory.plan import MemoryPlan
from xlakit.memory.steps import ConditionalStep, CopyStep, Step, WhileStep, inner, reads_of
from xlakit.memory.values import HloValue

# Rows of a longer program stand for several steps each.
_MOST_ROWS = 40
_MOST_HELD = 20
_BAR = 30
# For this many of the largest values, the peak without the value is computed.
_MOST_WITHOUT = 50


@dataclass(frozen=True, slots=True)
class Moment:
    """A step of the schedule.

    number: of the step in the memory plan. depth: the number of loops and branches around it. bytes: of the arena in
    use; for a loop or a conditional, at its own numbers, without the steps inside. point: the one with the most bytes.
    """

    number: int
    point: int
    depth: int
    name: str
    opcode: str
    location: Location | None
    bytes: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        where = None if self.location is None else str(self.location)
        return {
            "step": self.number,
            "depth": self.depth,
            "name": self.name,
            "opcode": self.opcode,
            "location": where,
            "bytes": self.bytes,
        }


@dataclass(frozen=True, slots=True)
class Held:
    """A value that is in the arena at the peak.

    first, last: the steps between which its slice is in use. defined: the step that defines the value. used: the next
    step, at or after the peak, that reads the value, or 0. idle: whether the step at the peak neither reads nor writes
    it. without: the peak, in bytes, that the arena would have without the slice; None if it was not computed.
    """

    value: HloValue
    slice: BufferSlice
    first: int
    last: int
    defined: int
    used: int
    idle: bool
    location: Location | None
    without: int | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "value": self.value.name,
            "bytes": self.slice.size,
            "slice": str(self.slice),
            "first_step": self.first,
            "last_step": self.last,
            "defined": self.defined,
            "next_use": self.used or None,
            "idle": self.idle,
            "location": None if self.location is None else str(self.location),
            "peak_without": self.without,
        }


@dataclass(frozen=True, slots=True)
class MemoryTimeline:
    """The arena of one run over its steps.

    moments: the steps in order, each with the bytes in use. peak: the moment with the most bytes; None for a program
    without an arena. held: the values in the arena at the peak, the largest first. arena_bytes: the size of the arena,
    which is larger than the peak if slices leave holes. donations: pairs of a result and an argument that may share
    memory if the argument is donated, with their size in bytes.
    """

    moments: tuple[Moment, ...]
    peak: Moment | None
    held: tuple[Held, ...]
    arena_bytes: int
    donations: tuple[tuple[int, int, int], ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "arena_bytes": self.arena_bytes,
            "peak": None if self.peak is None else self.peak.as_dict(),
            "held": [one.as_dict() for one in self.held],
            "moments": [moment.as_dict() for moment in self.moments],
            "donations": [list(pair) for pair in self.donations],
        }

    def __str__(self) -> str:
        """The arena by steps, the values at the peak, and what would lower it."""
        parts = [_table(self), _held(self), _advice(self)]
        return "\n\n".join(part for part in parts if part)


def memory_timeline(plan: MemoryPlan) -> MemoryTimeline:
    """The timeline of a plan's arena."""
    slices = [slice_ for slice_ in plan.slices if slice_.space is Space.ARENA]
    levels = ArenaUse(slices)
    moments = tuple(_moments(plan, plan.steps, levels, 0))
    donations = tuple((result, argument, plan.results[result].bytes) for result, argument in plan.donations)
    if not slices or not moments:
        return MemoryTimeline(moments, None, (), plan.arena_bytes, donations)
    # Of equally full moments, one inside of a loop is preferred to the begin or end of the loop, as it tells more.
    peak = max(moments, key=lambda moment: (moment.bytes, moment.point // 2 == moment.number, moment.depth))
    return MemoryTimeline(moments, peak, _held_at(plan, slices, peak), plan.arena_bytes, donations)


class ArenaUse:
    """The bytes that the slices have in use together at each point."""

    def __init__(self, slices: Sequence[BufferSlice]) -> None:
        changes: dict[int, int] = {}
        for slice_ in slices:
            changes[slice_.first] = changes.get(slice_.first, 0) + slice_.size
            changes[slice_.last + 1] = changes.get(slice_.last + 1, 0) - slice_.size
        self._points = sorted(changes)
        self._at: list[int] = []
        bytes_in_use = 0
        for point in self._points:
            bytes_in_use += changes[point]
            self._at.append(bytes_in_use)

    def fullest(self) -> int:
        """The first of the points with the most bytes; 0 without slices."""
        return self._points[self._at.index(max(self._at))] if self._at else 0

    def at(self, point: int) -> int:
        """The bytes at a point."""
        index = bisect_right(self._points, point) - 1
        return self._at[index] if index >= 0 else 0

    def most_without(self, slice_: BufferSlice) -> int:
        """The most bytes at any point, without one of the slices."""
        most = 0
        for point, bytes_in_use in zip(self._points, self._at, strict=True):
            most = max(most, bytes_in_use - slice_.size if slice_.first <= point <= slice_.last else bytes_in_use)
        return most


def _moments(plan: MemoryPlan, steps: Sequence[Step], levels: ArenaUse, depth: int) -> Iterator[Moment]:
    for step in steps:
        numbers = plan.numbers.get(step)
        # Copies without numbers, from copy insertion, are counted with the step after them.
        if numbers is not None:
            instruction = None if isinstance(step, CopyStep) else step.instruction
            name = f"copy of {step.source.name}" if isinstance(step, CopyStep) else step.instruction.name
            points = [point for number in (numbers.first, *numbers.inner) for point in (2 * number, 2 * number + 1)]
            fullest = max(points, key=levels.at)
            yield Moment(
                numbers.first,
                fullest,
                depth,
                name,
                "copy" if instruction is None else instruction.opcode,
                None if instruction is None else plan.module.location_of(instruction),
                levels.at(fullest),
            )
        for row in inner(step):
            yield from _moments(plan, row, levels, depth + 1)


def _held_at(plan: MemoryPlan, slices: Sequence[BufferSlice], peak: Moment) -> tuple[Held, ...]:
    """The slices in use at a peak, the largest first, each with the value that it holds and the value's next reader."""
    levels = ArenaUse(slices)
    in_use = [slice_ for slice_ in slices if slice_.first <= peak.point <= slice_.last]
    in_use.sort(key=lambda slice_: (-slice_.size, slice_.first, slice_.values[0].name))
    uses = _uses(plan)
    found: list[Held] = []
    for number, slice_ in enumerate(in_use):
        value = _value_at(plan, slice_, peak.point)
        reads = sorted(uses.get(value, ()))
        step = peak.point // 2
        defined = plan.intervals[value][0][0] // 2
        location = None if value.instruction is None else plan.module.location_of(value.instruction)
        found.append(
            Held(
                value,
                slice_,
                slice_.first // 2,
                slice_.last // 2,
                defined,
                next((read for read in reads if read >= step), 0),
                step != defined and step not in reads,
                location,
                levels.most_without(slice_) if number < _MOST_WITHOUT else None,
            )
        )
    return tuple(found)


def _value_at(plan: MemoryPlan, slice_: BufferSlice, point: int) -> HloValue:
    """The value that a slice holds at a point, or the one defined closest to the point if it holds none."""
    for value in slice_.values:
        if any(low <= point <= high for low, high in plan.intervals[value]):
            return value
    return min(slice_.values, key=lambda value: min(abs(low - point) for low, _ in plan.intervals[value]))


def _uses(plan: MemoryPlan) -> dict[HloValue, set[int]]:
    """The steps at which each value is read."""
    found: dict[HloValue, set[int]] = {}

    def note(values: Sequence[HloValue], number: int) -> None:
        for value in values:
            found.setdefault(value, set()).add(number)

    for step, numbers in plan.numbers.items():
        if isinstance(step, WhileStep):
            note(step.initial, numbers.first)
            note((step.predicate,), numbers.inner[0])
            note(step.next_values, numbers.inner[1])
        elif isinstance(step, ConditionalStep):
            note((step.index,), numbers.first)
            for incoming, end in zip(step.incoming, numbers.inner, strict=True):
                note(incoming, end)
        else:
            note(reads_of(step), numbers.first)
    return found


# -- the printed form --------------------------------------------------------------------------------


def _table(timeline: MemoryTimeline) -> str:
    if timeline.peak is None:
        return ""
    size = -(-len(timeline.moments) // _MOST_ROWS)
    table = [("step", "in use", "", "instruction", "line")]
    for start in range(0, len(timeline.moments), size):
        moments = timeline.moments[start : start + size]
        most = max(moments, key=lambda moment: moment.bytes)
        bar = "#" * round(_BAR * most.bytes / max(1, timeline.peak.bytes))
        numbers = str(moments[0].number) if len(moments) == 1 else f"{moments[0].number}-{moments[-1].number}"
        mark = "  <- peak" if timeline.peak in moments else ""
        indent = "  " * most.depth if size == 1 else ""
        table.append((numbers, f"{most.bytes:,}", bar, f"{indent}%{most.name} ({most.opcode}){mark}", _place(most)))
    what = "temporaries over the schedule"
    if size > 1:
        what += f", {size} steps in a row, with the one at which most is in use"
    return f"{what}:\n{aligned(table, right=range(2))}"


def _held(timeline: MemoryTimeline) -> str:
    peak = timeline.peak
    if peak is None:
        return ""
    table = [("bytes", "slice", "value", "steps", "read next", "line")]
    for one in timeline.held[:_MOST_HELD]:
        next_use = f"at {one.used}" if one.used else ""
        spans = f"{one.first}-{one.last}"
        table.append((f"{one.slice.size:,}", str(one.slice), f"%{one.value.name}", spans, next_use, _place(one)))
    rest = timeline.held[_MOST_HELD:]
    if rest:
        table.append((f"{sum(one.slice.size for one in rest):,}", f"{len(rest)} others", "", "", "", ""))
    return f"at the peak, step {peak.number}:\n{aligned(table, right=(0,))}"


def _advice(timeline: MemoryTimeline) -> str:
    """What would lower the peak."""
    lines = list(_savings(timeline))
    return "\n".join(["what would lower it:", *(f"  {line}" for line in lines)]) if lines else ""


def _savings(timeline: MemoryTimeline) -> Iterator[str]:
    peak = timeline.peak
    if peak is not None:
        idle = [one for one in timeline.held if one.idle]
        waiting = sum(one.slice.size for one in idle)
        if idle:
            yield f"{waiting:,} bytes of it wait at the peak: step {peak.number} neither reads nor writes them"
        for one in idle[:5]:
            without = "" if one.without is None else f"; without it the peak is {one.without:,}"
            used = f", and is read next at {one.used}" if one.used else ""
            yield (
                f"%{one.value.name} ({one.slice.size:,}) is there from step {one.defined} on{used}: "
                f"compute it later, or again{without}"
            )
        busy = [one for one in timeline.held if not one.idle]
        if busy and (not idle or busy[0].slice.size > waiting):
            largest = ", ".join(f"%{one.value.name}" for one in busy[:3])
            yield f"step {peak.number} itself works on {largest}: in pieces (a loop over a dimension) it takes less"
        holes = timeline.arena_bytes - peak.bytes
        if holes > peak.bytes // 20:
            yield f"{holes:,} bytes of the arena are holes and padding between slices at the peak"
    for result, argument, size in timeline.donations:
        yield f"result {result} ({size:,}) may lie in argument {argument}, if the caller donates that"


def _place(of: Moment | Held) -> str:
    return "" if of.location is None else f"{of.location.file}:{of.location.line}"
