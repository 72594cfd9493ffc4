"""The parts of a profile: times of steps, instructions, lines and threads, and the overhead of measuring."""

from __future__ import annotations

from typing import Any

from xlakit.cpu.profiling.recorder import Event
from xlakit.cpu.profiling.roofline import Roofline
from xlakit.cpu.profiling.rows import StepRow
from xlakit.cpu.profiling.threads import ThreadTimes
from xlakit.dataclass import dataclass
from xlakit.errors import Location
from xlakit.ir.instruction import Instruction


@dataclass(frozen=True, slots=True)
class StepTimes:
    """A step and the sum of its executions in all runs; times are in nanoseconds.

    own: ``total`` without the steps inside of it. roofline: the least time that the machine's peak and bandwidth allow,
    as a part of ``total``; None if the step computes and moves nothing, or has steps inside of it. threads: the average
    number of threads at work; None if threads do not share the step.
    """

    row: StepRow
    executions: int
    total: int
    own: int
    least: int
    most: int
    roofline: float | None
    threads: float | None

    @property
    def flops(self) -> float:
        """The operations of all executions."""
        return self.row.cost.flops * self.executions

    @property
    def bytes(self) -> float:
        """The bytes read and written in all executions."""
        return self.row.cost.bytes_accessed * self.executions

    def as_dict(self) -> dict[str, Any]:
        """The fields for JSON."""
        row = self.row
        return {
            "step": row.number,
            "depth": row.depth,
            "kind": row.kind,
            "name": row.name,
            "opcode": None if row.instruction is None else row.instruction.opcode,
            "location": _text(row.location),
            "executions": self.executions,
            "nanoseconds": self.total,
            "own_nanoseconds": self.own,
            "least_nanoseconds": self.least,
            "most_nanoseconds": self.most,
            "flops": self.flops,
            "transcendentals": row.cost.transcendentals * self.executions,
            "bytes": self.bytes,
            "roofline": self.roofline,
            "bound": row.bound.by,
            "threads": self.threads,
        }


@dataclass(frozen=True, slots=True)
class InstructionTimes:
    """An instruction of the optimized program in all of its executions; times are in nanoseconds.

    estimated: whether a part of the time is its share of a fusion's time, which is divided by estimated costs.
    """

    instruction: Instruction
    location: Location | None
    nanoseconds: float
    estimated: bool

    def as_dict(self) -> dict[str, Any]:
        """The fields for JSON."""
        return {
            "instruction": self.instruction.name,
            "opcode": self.instruction.opcode,
            "shape": self.instruction.shape.to_string(with_layout=False),
            "location": _text(self.location),
            "nanoseconds": self.nanoseconds,
            "estimated": self.estimated,
        }


@dataclass(frozen=True, slots=True)
class LineTimes:
    """A line of the user's program, from instructions' metadata; ``file`` is None for instructions without one."""

    file: str | None
    line: int
    nanoseconds: float
    estimated: bool
    instructions: int

    @property
    def name(self) -> str:
        """The name ``file:line``."""
        return "(no line)" if self.file is None else f"{self.file}:{self.line}"

    def as_dict(self) -> dict[str, Any]:
        """The fields for JSON."""
        return {
            "file": self.file,
            "line": self.line,
            "nanoseconds": self.nanoseconds,
            "estimated": self.estimated,
            "instructions": self.instructions,
        }


@dataclass(frozen=True, slots=True)
class Overhead:
    """The cost of profiling: the median nanoseconds of a run of the profiled program and of the normal one."""

    profiled: float
    usual: float

    @property
    def part(self) -> float:
        """The overhead as a part of the normal time; it may be negative if noise is larger."""
        return self.profiled / self.usual - 1

    def as_dict(self) -> dict[str, Any]:
        """The fields for JSON."""
        return {"profiled_nanoseconds": self.profiled, "usual_nanoseconds": self.usual}


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a program's steps.

    name: of the module. runs: the number of timed calls, on all devices; nanoseconds: their total time. steps: in the
    order of the schedule, a step before the steps inside of it. instructions, lines: the most expensive first; they
    divide the time of the steps, counting each step once. threads: of the runs whose events were kept. events: the
    executions that were kept, for a timeline; dropped: the number of events for which there was no room.
    """

    name: str
    runs: int
    nanoseconds: int
    steps: tuple[StepTimes, ...]
    instructions: tuple[InstructionTimes, ...]
    lines: tuple[LineTimes, ...]
    threads: tuple[ThreadTimes, ...]
    events: tuple[Event, ...]
    dropped: int
    roofline: Roofline
    overhead: Overhead | None = None

    @property
    def between(self) -> int:
        """The time of all runs outside of steps, in nanoseconds."""
        return self.nanoseconds - sum(times.total for times in self.steps if times.row.depth == 0)


def _text(location: Location | None) -> str | None:
    return None if location is None else str(location)
