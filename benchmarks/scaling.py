"""``python -m benchmarks.scaling``: simulates speed-ups on more processors from tasks measured on this machine.

Each workload is compiled as for a machine with 1, 2, 4, ... 64 processors, since the compiler divides tasks by the
number of processors, and runs on this machine with code that measures times. Of each step that threads share, the
profile has the number of its ranges (a range is the work that a thread takes at a time) and how long they took
together; everything else is serial. The schedule of the thread pool is then computed: threads wake as a tree, the
caller two and each of these two more, and take one range after the other.

Assumed is that ranges of a step are equally long, that the bandwidth of memory and of shared caches grows with the
processors, and that a thread takes as long to wake as on this machine. The column ``as here`` has the bandwidth of this
machine instead: no step is faster than its bytes allow. Speed-ups are against one processor with the same simulation.
"""

from __future__ import annotations

import argparse
import heapq
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.program import Program, Workload
    from xlakit.cpu.profiling.rows import StepRow

PROCESSORS = (1, 2, 4, 8, 16, 32, 64)
_RUNS = 5


@dataclass(frozen=True, slots=True)
class SharedStep:
    """All executions of one step in a call: their number, their ranges, and the nanoseconds that all ranges took."""

    name: str
    count: int
    ranges: float
    busy: float
    least_here: float

    def simulated(self, processors: int, wake: float) -> float:
        """The nanoseconds that all executions take on this many processors."""
        each = self.ranges / self.count
        return self.count * schedule(max(1, round(each)), self.busy / self.count, processors, wake)


@dataclass(frozen=True, slots=True)
class Measured:
    """A call: the nanoseconds of its serial part, and the steps that threads share."""

    serial: float
    steps: tuple[SharedStep, ...]

    def seconds(self, processors: int, wake: float) -> float:
        """How long a call takes, in nanoseconds."""
        return self.serial + sum(step.simulated(processors, wake) for step in self.steps)

    def seconds_here(self, processors: int, wake: float) -> float:
        """As ``seconds``, but no step is faster than this machine's bandwidth allows."""
        return self.serial + sum(max(step.simulated(processors, wake), step.least_here) for step in self.steps)

    def losses(self, processors: int, wake: float) -> dict[str, float]:
        """The nanoseconds that a call takes beyond a perfect division of its work by the processors, by cause."""
        free = sum(step.simulated(processors, 0.0) for step in self.steps)
        return {
            "serial": self.serial * (1 - 1 / processors),
            "waking": self.seconds(processors, wake) - self.serial - free,
            "few ranges": free - sum(step.busy for step in self.steps) / processors,
        }


def schedule(ranges: int, busy: float, processors: int, wake: float) -> float:
    """The time at which the last of ``ranges`` equally long ranges ends, on threads that wake each other as a tree."""
    length = busy / ranges
    free = [wake * math.floor(math.log2(thread + 1)) for thread in range(min(processors, ranges))]
    heapq.heapify(free)
    end = 0.0
    for _ in range(ranges):
        end = heapq.heappop(free) + length
        heapq.heappush(free, end)
    return end


@contextmanager
def described(processors: int) -> Generator[None]:
    """A context in which programs are compiled as for this machine with another number of processors."""
    from xlakit import machine

    text = replace(machine.current(), threads=processors).as_text()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "machine.json"
        file.write_text(text, encoding="utf-8")
        before = os.environ.get(machine.VARIABLE)
        os.environ[machine.VARIABLE] = str(file)
        try:
            yield
        finally:
            if before is None:
                del os.environ[machine.VARIABLE]
            else:
                os.environ[machine.VARIABLE] = before


def measure(proto: bytes, program: Program, processors: int) -> Measured:
    """Compile a program as for so many processors, and time its steps: the least of some runs."""
    from xlakit import HloModule, machine
    from xlakit.cpu.compiler import compile_module
    from xlakit.cpu.profiling.roofline import Roofline
    from xlakit.cpu.profiling.rows import step_rows
    from xlakit.cpu.threads import thread_count
    from xlakit.execution.options import ExecutionOptions
    from xlakit.options import compiling

    with described(processors), compiling(profile=True):
        executable = compile_module(HloModule.from_proto(proto), ExecutionOptions())
        rows = list(
            _flat(
                step_rows(
                    executable.optimized_module(),
                    executable.memory_plan().steps,
                    Roofline(machine.current(), thread_count()),
                )
            )
        )
    recorder: Any = executable.recorder
    executable(*program.arguments)
    runs: list[Any] = []
    for _ in range(_RUNS):
        recorder.clear()
        executable(*program.arguments)
        runs.append(recorder.totals())
    steps: list[SharedStep] = []
    for row in rows:
        least = min((totals[row.number] for totals in runs), key=lambda t: t.busy)
        if least.ranges:
            bound = least.count * row.bound.nanoseconds
            steps.append(SharedStep(row.name, least.count, least.ranges, least.busy, bound))
    shared = {row.number for row in rows if runs[0][row.number].ranges}
    serial = min(totals[0].total - sum(totals[number].total for number in shared) for totals in runs)
    return Measured(max(0.0, serial), tuple(steps))


def _flat(rows: Iterable[StepRow]) -> Iterator[StepRow]:
    for row in rows:
        yield row
        yield from _flat(row.inside)


@dataclass(frozen=True, slots=True)
class Row:
    """A workload: speed-ups by number of processors, the last one with this machine's bandwidth, and what bounds it."""

    workload: Workload
    gains: tuple[float, ...]
    here: float
    cause: str
    step: str


def row_of(workload: Workload, wake: float) -> Row:
    """Measure and simulate one workload."""
    from benchmarks.peers import export

    program = workload.program()
    proto = export(workload, program)
    measured = {count: measure(proto, program, count) for count in PROCESSORS}
    alone, most = measured[1].seconds(1, wake), PROCESSORS[-1]
    gains = tuple(alone / max(1.0, measured[count].seconds(count, wake)) for count in PROCESSORS[1:])
    last = measured[most]
    losses = last.losses(most, wake)
    cause = max(losses, key=lambda name: losses[name])
    worst = max(last.steps, key=lambda s: s.simulated(most, wake) - s.busy / most, default=None)
    here = alone / max(1.0, last.seconds_here(most, wake))
    return Row(workload, gains, here, cause, "" if worst is None else worst.name)


def _line(name: str, rows: Sequence[Row], end: str) -> str:
    gains = zip(*(row.gains for row in rows), strict=True)
    cells = [f"{statistics.geometric_mean(column):.3g}" for column in (*gains, [row.here for row in rows])]
    return f"| {name} | {' | '.join(cells)} | {end} |"


def table(rows: Sequence[Row], names: bool) -> str:
    """Speed-ups by group, or by row, as Markdown."""
    head = ["", *(str(count) for count in PROCESSORS[1:]), f"{PROCESSORS[-1]}, as here", "bounded by"]
    lines = [f"| {' | '.join(head)} |", f"| --- |{' --- |' * (len(head) - 1)}"]
    if names:
        ordered = sorted(rows, key=lambda row: row.gains[-1])
        lines += [_line(row.workload.name, [row], f"{row.cause} {row.step}".strip()) for row in ordered]
        return "\n".join(lines)
    for group in dict.fromkeys(row.workload.group for row in rows):
        inside = [row for row in rows if row.workload.group == group]
        causes = [row.cause for row in inside]
        counts = ", ".join(f"{cause} {causes.count(cause)}" for cause in dict.fromkeys(causes))
        lines.append(_line(group, inside, counts))
    return "\n".join([*lines, _line("all", rows, "")])


def main(given: Sequence[str] | None = None) -> int:
    """The command; the exit status is 2 if no workload matches."""
    from benchmarks.workloads import WORKLOADS

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling", description=(__doc__ or "").split("\n\n", 1)[0], allow_abbrev=False
    )
    parser.add_argument("--only", default="", help="a part of the names of workloads")
    options = parser.parse_args(given)
    chosen = [workload for workload in WORKLOADS if options.only in workload.name]
    if not chosen:
        print("no workload matches", file=sys.stderr)
        return 2
    import jax

    from xlakit import machine

    wake = machine.current().wake_nanoseconds
    rows: list[Row] = []
    for workload in chosen:
        with jax.enable_x64(workload.x64):
            rows.append(row_of(workload, wake))
        print(f"[{len(rows)}/{len(chosen)}] {workload.name}", file=sys.stderr, flush=True)
    print(f"wake-up {wake / 1e3:.3g} us; {machine.current().processor}; speed-ups by number of processors\n")
    print(table(rows, names=False), table(rows, names=True), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
