"""Profiles: the times of a program's steps, added up by instruction, by line and by thread."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from xlakit.cpu.profiling.recorder import Recorder, Totals
from xlakit.cpu.profiling.roofline import Roofline
from xlakit.cpu.profiling.rows import StepRow
from xlakit.cpu.profiling.tables import profile_text
from xlakit.cpu.profiling.threads import thread_times
from xlakit.cpu.profiling.times import InstructionTimes, LineTimes, Overhead, StepTimes, Times
from xlakit.cpu.profiling.trace_events import trace_json
from xlakit.data.html import heading, table
from xlakit.dataclass import dataclass
from xlakit.errors import Location
from xlakit.ir.instruction import Instruction

_MOST_ROWS: Final = 12


def profile_html(profile: Times) -> str:
    """HTML with the time of a run and its most expensive instructions, with their lines and parts of the time."""
    runs = max(1, profile.runs)
    rows = [
        (
            f"{one.instruction.opcode} {one.instruction.name}",
            "" if one.location is None else str(one.location),
            f"{'~' * one.estimated}{one.nanoseconds / runs / 1e3:,.1f}",
            f"{100 * one.nanoseconds / profile.nanoseconds:.1f} %" if profile.nanoseconds else "",
        )
        for one in profile.instructions[:_MOST_ROWS]
    ]
    left = len(profile.instructions) - len(rows)
    facts = [
        f"{profile.runs:,} run{'s' * (profile.runs != 1)}",
        f"{profile.nanoseconds / runs / 1e3:,.1f} us each",
        f"{len(profile.instructions):,} instructions" + f", the {len(rows)} most expensive of them here" * (left > 0),
    ]
    title = heading("Profile", profile.name, facts)
    return title + table(("instruction", "line", "us per run", "part"), rows, numbers=2)


@dataclass(frozen=True, slots=True)
class Profile(Times):
    """The times of a program's steps; ``print`` shows them as tables.

    name: of the module. runs: the number of timed calls, on all devices; nanoseconds: their total time. steps: in the
    order of the schedule, a step before the steps inside of it. instructions, lines: the most expensive first; they
    divide the time of the steps, counting each step once. threads: of the runs whose events were kept. events: the
    executions that were kept, for a timeline; dropped: the number of events for which there was no room.
    """

    def as_dict(self) -> dict[str, Any]:
        """All fields but the events, for JSON."""
        machine = self.roofline.machine
        return {
            "module": self.name,
            "runs": self.runs,
            "nanoseconds": self.nanoseconds,
            "nanoseconds_between_steps": self.between,
            "overhead": None if self.overhead is None else self.overhead.as_dict(),
            "machine": {
                "processor": machine.processor,
                "threads": self.roofline.threads,
                "measured": bool(machine.measured),
                "roofs": self.roofline.as_dict(),
            },
            "steps": [times.as_dict() for times in self.steps],
            "instructions": [times.as_dict() for times in self.instructions],
            "lines": [times.as_dict() for times in self.lines],
            "threads": [times.as_dict() for times in self.threads],
            "events": len(self.events),
            "dropped_events": self.dropped,
        }

    def as_json(self) -> str:
        """All fields but the events, as a JSON object."""
        return json.dumps(self.as_dict(), indent=1)

    def as_trace(self) -> str:
        """The events as a JSON object in the Trace Event format, which Perfetto and Chrome open as a timeline."""
        return trace_json([self])

    def __str__(self) -> str:
        """Tables of the steps, and of the most expensive instructions, lines and threads."""
        return profile_text(self)

    def _repr_html_(self) -> str:
        return profile_html(self)


def make_profile(
    name: str, rows: Sequence[StepRow], recorder: Recorder, roofline: Roofline, overhead: Overhead | None = None
) -> Profile:
    """The profile of a program, given its steps and the recorder that it wrote to."""
    totals = recorder.totals()
    steps = tuple(_step_times(row, totals) for row in _flat(rows))
    events = tuple(recorder.events())
    instructions = _instruction_times(steps)
    return Profile(
        name,
        totals[0].count,
        totals[0].total,
        steps,
        instructions,
        _line_times(instructions),
        thread_times(events, {times.row.number for times in steps if times.row.shared}, _holders(steps)),
        events,
        recorder.dropped,
        roofline,
        overhead,
    )


def _flat(rows: Sequence[StepRow]) -> Iterator[StepRow]:
    for row in rows:
        yield row
        yield from _flat(row.inside)


def _holders(steps: Sequence[StepTimes]) -> frozenset[int]:
    """The numbers of the steps whose time is the sum of other steps' times; 0, the whole call, is one."""
    return frozenset({0, *(times.row.number for times in steps if times.row.inside)})


def _step_times(row: StepRow, totals: Sequence[Totals]) -> StepTimes:
    own = totals[row.number]
    inside = sum(totals[inner.number].total for inner in row.inside)
    bound = row.bound.nanoseconds * own.count
    return StepTimes(
        row,
        own.count,
        own.total,
        # Each time is measured separately, so the steps of a short loop may take longer in sum than the loop.
        max(0, own.total - inside),
        own.least,
        own.most,
        bound / own.total if bound and own.total and not row.inside else None,
        own.busy / own.total if row.shared and own.total else None,
    )


def _instruction_times(steps: Sequence[StepTimes]) -> tuple[InstructionTimes, ...]:
    times: dict[Instruction, float] = {}
    places: dict[Instruction, Location | None] = {}
    estimated: set[Instruction] = set()
    for step in steps:
        for part in step.row.parts:
            instruction = part.instruction
            times[instruction] = times.get(instruction, 0.0) + part.share * step.own
            places[instruction] = part.location
            if len(step.row.parts) > 1:
                estimated.add(instruction)
    found = [InstructionTimes(i, places[i], spent, i in estimated) for i, spent in times.items() if spent]
    return tuple(sorted(found, key=lambda one: -one.nanoseconds))


def _line_times(instructions: Sequence[InstructionTimes]) -> tuple[LineTimes, ...]:
    lines: dict[tuple[str | None, int], list[InstructionTimes]] = {}
    for one in instructions:
        place = (None, 0) if one.location is None else (one.location.file, one.location.line)
        lines.setdefault(place, []).append(one)
    found = [
        LineTimes(file, line, sum(o.nanoseconds for o in own), any(o.estimated for o in own), len(own))
        for (file, line), own in lines.items()
    ]
    return tuple(sorted(found, key=lambda one: -one.nanoseconds))
