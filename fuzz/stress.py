"""``python -m fuzz.stress``: collectives of mixed kinds and sizes, with feeds, from several threads at once.

Each caller runs programs that all callers share, and one of its own that is fed and read meanwhile by other threads,
through queues that are too short for it. Every result is compared with NumPy's. The exit status is 1 where one differs,
where something hangs, or where threads, files or memory are left over.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import xlakit as xla
from fuzz.support.numbered import command
from fuzz.support.stress_programs import SIZES, Program, Rows, make_program

_QUEUE_ITEMS = 2
_ROUNDS = 5


@dataclass(frozen=True)
class Options:
    """The number of programs' replicas, collectives and callers of a run, its backend, and its seed."""

    replicas: int = 8
    collectives: int = 10_000
    callers: int = 4
    backend: str = "cpu"
    seed: int = 0
    largest: int = SIZES[-1]


@dataclass(frozen=True)
class Usage:
    """The resources that a process holds: Python's threads and the system's, open files, and memory."""

    threads: int
    system_threads: int
    files: int
    megabytes: float

    @staticmethod
    def now() -> Usage:
        gc.collect()
        process = Path("/proc/self")
        if not process.exists():
            return Usage(threading.active_count(), 0, 0, 0.0)
        pages = int((process / "statm").read_text().split()[1])
        return Usage(
            threading.active_count(),
            len(os.listdir(process / "task")),
            len(os.listdir(process / "fd")),
            pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        )


@dataclass
class Report:
    """The counts of a run, and its faults.

    spare: how many threads the runtime may have made since it began, and keep: how many a program takes is learned from
    its calls.
    """

    spare: int = 0
    calls: int = 0
    collectives: int = 0
    feeds: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    before: Usage = field(default_factory=Usage.now)
    after: Usage = field(default_factory=Usage.now)
    seconds: float = 0.0

    def add(self, program: Program) -> None:
        self.calls += 1
        self.collectives += program.collectives
        self.feeds += 2 * program.rounds * program.replicas * program.is_fed
        for step in program.steps:
            self.kinds[step.kind] += program.rounds


@dataclass(frozen=True)
class Runner:
    """A program that is compiled."""

    program: Program
    executable: xla.Executable

    def run(self, seed: int) -> list[str]:
        """Run the program on rows made from a seed, and compare it with NumPy; gives the faults."""
        program, execution_context = self.program, self.executable.execution_context
        numbers = np.random.default_rng(seed)
        rows: Rows = numbers.integers(-(2**31), 2**31, (program.replicas, program.size)).astype(np.int32)
        feeds: Rows = numbers.integers(-100, 100, (program.rounds, program.replicas)).astype(np.int32)
        expected, expected_fed = program.model(rows, feeds)
        fed = np.zeros_like(feeds)

        def feed() -> None:
            for number, device in np.ndindex(*feeds.shape):
                execution_context.infeed(device, feeds[number, device])

        def read() -> None:
            for number, device in np.ndindex(*fed.shape):
                fed[number, device] = execution_context.outfeed(device)

        threads = [threading.Thread(target=target) for target in (feed, read)] if program.is_fed else []
        for thread in threads:
            thread.start()
        results = self.executable.execute_replicated([[row] for row in rows])
        for thread in threads:
            thread.join()
        wrong = [n for n, (actual, right) in enumerate(zip(results, expected, strict=True)) if (actual != right).any()]
        faults = [f"replicas {wrong} of {program} differ"] if wrong else []
        if program.is_fed and not np.array_equal(fed, expected_fed):
            faults.append(f"the outfeeds of {program} differ")
        return faults


class Stress:
    """One run of the stress test: the programs, the threads that call them, and the report."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self.report = Report()
        sizes = [size for size in SIZES if size <= options.largest]
        self._shared = [self._runner(seed, size, is_fed=False) for seed, size in enumerate(sizes)]
        self._own = [self._runner(seed, sizes[seed % len(sizes)], is_fed=True) for seed in range(options.callers)]

    def _runner(self, seed: int, size: int, *, is_fed: bool) -> Runner:
        options = self._options
        program = make_program(options.seed + seed, options.replicas, _ROUNDS, size, is_fed=is_fed)
        return Runner(program, program.compile(options.backend, xla.ExecutionContext(queue_items=_QUEUE_ITEMS)))

    def run(self) -> Report:
        """Run every program once, then what was asked for, then count what is left over."""
        self._in_callers(self._warm_up)
        options = self._options
        others = min(options.replicas, os.cpu_count() or 1) - 1
        self.report = Report(options.callers * others, faults=self.report.faults)
        start = time.monotonic()
        self._in_callers(self._work)
        self.report.seconds = time.monotonic() - start
        self.report.after = Usage.now()
        return self.report

    def _in_callers(self, function: Callable[[int], None]) -> None:
        def work(caller: int) -> None:
            try:
                function(caller)
            except Exception as error:  # any error is a finding
                self._note([f"caller {caller}: {type(error).__name__}: {error}"])

        threads = [threading.Thread(target=work, args=(n,), name=f"caller-{n}") for n in range(self._options.callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _warm_up(self, caller: int) -> None:
        for runner in (*self._shared, self._own[caller]):
            self._note(runner.run(caller))

    def _work(self, caller: int) -> None:
        chooser = random.Random(f"{self._options.seed} {caller}")
        while True:
            runner = self._own[caller] if chooser.random() < 0.5 else chooser.choice(self._shared)
            with self._lock:
                if self.report.collectives >= self._options.collectives or self.report.faults:
                    return
                self.report.add(runner.program)
            self._note(runner.run(chooser.randrange(2**32)))

    def _note(self, faults: Sequence[str]) -> None:
        with self._lock:
            self.report.faults.extend(faults)


def leftovers(report: Report, megabytes: float) -> list[str]:
    """What a run has left over; memory counts from so many megabytes on."""
    before, after = report.before, report.after
    found = [
        f"{name}: {old} before, {new} after"
        for name, old, new in (
            ("threads", before.threads, after.threads),
            ("threads of the system", before.system_threads + report.spare, after.system_threads),
            ("files", before.files, after.files),
        )
        if new > old
    ]
    if after.megabytes > before.megabytes + megabytes:
        found.append(f"memory: {before.megabytes:.0f} MB before, {after.megabytes:.0f} MB after")
    return found


def table(report: Report) -> str:
    """What has been done, and what the process holds."""
    lines = [f"{count:8,} {kind}" for kind, count in report.kinds.most_common()]
    lines.append(f"{report.collectives:8,} collectives in {report.calls:,} calls, {report.feeds:,} feeds")
    lines.append(f"{'':8} {'threads':>8} {'system threads':>15} {'files':>6} {'memory':>10}")
    for name, usage in (("before", report.before), ("after", report.after)):
        lines.append(f"{name:8} {usage.threads:8} {usage.system_threads:15} {usage.files:6} {usage.megabytes:7.1f} MB")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("fuzz.stress", __doc__)
    defaults = Options()
    parser.add_argument("--replicas", type=int, default=defaults.replicas, help="of each program (8)")
    parser.add_argument("--collectives", type=int, default=defaults.collectives, help="at least (10000)")
    parser.add_argument("--callers", type=int, default=defaults.callers, help="threads that run programs (4)")
    parser.add_argument("--backend", choices=("cpu", "interpreter"), default=defaults.backend, help="(cpu)")
    parser.add_argument("--seed", type=int, default=defaults.seed, help="what the programs are made from (0)")
    parser.add_argument("--largest", type=int, default=defaults.largest, help="the longest row (65536)")
    parser.add_argument("--memory", type=float, default=64.0, help="megabytes that may be more afterwards (64)")
    parser.add_argument("--watchdog", type=float, default=900.0, help="seconds after which it hangs (900)")
    options: dict[str, Any] = vars(parser.parse_args(arguments))
    memory, watchdog = options.pop("memory"), options.pop("watchdog")
    faulthandler.dump_traceback_later(watchdog, exit=True, file=sys.__stderr__)
    report = Stress(Options(**options)).run()
    faulthandler.cancel_dump_traceback_later()
    faults = [*report.faults, *leftovers(report, memory)]
    print(table(report))
    for fault in faults:
        print(f"FAULT: {fault}")
    print(f"{report.seconds:.1f} s, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
