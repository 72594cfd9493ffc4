"""What a profile consists of: times of steps, instructions and lines, and events."""

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
    """A step and its executions in all runs together, times in nanoseconds.

    own: ``total`` without the steps inside of it. roofline: the least time that the machine's peak and bandwidth allow,
    as a part of ``total``; None where a step has nothing to compute or move, or has steps inside of it. threads: how
    many threads were at work on average; None where a step is not shared out.
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
        """For JSON."""
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
    """An instruction of the optimized program in all of its executions, in nanoseconds.

    estimated: whether a part of the time is that of fusions, shared out among their members by what these cost.
    """

    instruction: Instruction
    location: Location | None
    nanoseconds: float
    estimated: bool

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
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
    """A line of the program that was compiled, of which the instructions' metadata tell; None for those without."""

    file: str | None
    line: int
    nanoseconds: float
    estimated: bool
    instructions: int

    @property
    def name(self) -> str:
        """``file:line``."""
        return "(no line)" if self.file is None else f"{self.file}:{self.line}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "file": self.file,
            "line": self.line,
            "nanoseconds": self.nanoseconds,
            "estimated": self.estimated,
            "instructions": self.instructions,
        }


@dataclass(frozen=True, slots=True)
class Overhead:
    """What taking the times costs: the median times of runs of the profiled program and of the usual one, in
    nanoseconds.
    """

    profiled: float
    usual: float

    @property
    def part(self) -> float:
        """The overhead as a part of the usual time; less than 0 where noise is larger."""
        return self.profiled / self.usual - 1

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"profiled_nanoseconds": self.profiled, "usual_nanoseconds": self.usual}


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a program's steps.

    name: of the module. runs: how many calls of the program, on all of its devices, were timed; nanoseconds: of these
    together. steps: in the order of the schedule, each before those inside of it. instructions, lines: the most
    expensive first; their times are those of the steps, each counted once. threads: of the runs whose events were
    kept. events: the executions that were kept, for a timeline; dropped: how many there was no room for.
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
        """The nanoseconds of all runs that are those of no step."""
        return self.nanoseconds - sum(times.total for times in self.steps if times.row.depth == 0)


def _text(location: Location | None) -> str | None:
    return None if location is None else str(location)
