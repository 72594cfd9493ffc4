"""Measures one workload after the other: first whether all peers agree, then how long each takes, turn by turn."""

from __future__ import annotations

import enum
import gc
import math
import statistics
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import jax

from benchmarks.check import difference
from benchmarks.peers import Peer, Prepared, XlakitPeer, XlaPeer
from benchmarks.program import Array, Bound, Program, Workload

# A sample has as many runs as take this long, so that the overhead of reading the clock is negligible.
_SAMPLE_SECONDS = 2e-3
# Before a sample of short runs, one run that is not timed, so that each peer finds its data in the cache.
_WARM_BELOW_SECONDS = 20e-3
# The threads of a BLAS or of OpenMP wait for more work by spinning, on the processors that the next peer needs: for
# about 110 ms after OpenBLAS's last product. So a sample begins when the process uses next to no processor.
_PAUSE_SECONDS = 5e-3
_QUIET_SHARE = 0.1
_MOST_PAUSES = 100
_FEWEST_ROUNDS = 3
_OURS = ("xlakit", "jax", "again")


class Status(enum.Enum):
    """How a row ended."""

    OK = "ok"
    WRONG = "WRONG"
    ERROR = "error"


@dataclass(slots=True)
class Timing:
    """The measurements of one peer in one row."""

    seconds: float | None = None
    samples: list[float] = field(default_factory=list)
    compile_seconds: float | None = None
    cached_seconds: float | None = None
    memory: int | None = None


@dataclass(slots=True)
class Row:
    """One workload's line of the table. traffic: bytes; flops: 0 if not asked for."""

    name: str
    group: str
    bound: Bound
    status: Status = Status.OK
    message: str = ""
    notes: list[str] = field(default_factory=list)
    timings: dict[str, Timing] = field(default_factory=dict)
    traffic: int = 0
    flops: float = 0.0

    def seconds(self, peer: str) -> float | None:
        """A peer's time, if it has one."""
        timing = self.timings.get(peer)
        return timing.seconds if timing else None

    @property
    def ratio_to_xla(self) -> float | None:
        """The ratio of xlakit's time to XLA's."""
        return self._ratio("xlakit", "xla")

    @property
    def ratio_to_best(self) -> float | None:
        """The ratio of xlakit's time to that of the quickest other peer; JAX on xlakit does not count as a peer."""
        ratios = [self._ratio("xlakit", name) for name in self.timings if name not in _OURS]
        return max((ratio for ratio in ratios if ratio is not None), default=None)

    @property
    def ratio_through_jax(self) -> float | None:
        """The ratio of the time of JAX on xlakit to xlakit's."""
        return self._ratio("jax", "xlakit")

    @property
    def ratio_to_itself(self) -> float | None:
        """The ratio of a second measurement of xlakit to the first: the noise of ratios on this machine."""
        return self._ratio("again", "xlakit")

    def _ratio(self, ours: str, theirs: str) -> float | None:
        """The median over rounds of one peer's time divided by another's; a disturbance mostly meets whole rounds."""
        a, b = (self.timings.get(name) for name in (ours, theirs))
        if a is None or b is None or a.seconds is None or not b.seconds:
            return None
        rounds = [x / y for x, y in zip(a.samples, b.samples, strict=True)]
        return statistics.median(rounds) if rounds else a.seconds / b.seconds


@dataclass(frozen=True, slots=True)
class Plan:
    """How to measure. rounds: 0 for the check alone; budget: seconds for one row, which may cost it rounds.

    clock: gives seconds; that of the process counts processor time, which others disturb less.
    """

    quick: bool = False
    rounds: int = 15
    budget: float = 30.0
    clock: Callable[[], float] = time.perf_counter


def measure_all(
    workloads: Iterable[Workload], xla: XlaPeer, xlakit: XlakitPeer, others: Sequence[Peer], plan: Plan
) -> Iterator[Row]:
    """A row for each workload, as soon as it is there."""
    for workload in workloads:
        with jax.enable_x64(workload.x64):
            yield measure(workload, xla, xlakit, others, plan)
        gc.collect()


def measure(workload: Workload, xla: XlaPeer, xlakit: Peer, others: Sequence[Peer], plan: Plan) -> Row:
    """One workload's row. If a peer fails or is wrong, the row says so, and nothing is timed."""
    row = Row(workload.name, workload.group, workload.bound)
    try:
        program = workload.program(quick=plan.quick)
        reference = xla.prepare(workload, program)
        expected = reference.fetch(reference.run())
    except Exception as error:  # a row must not end the run
        return _failed(row, "xla", error)
    _set_work(row, program, expected)
    runs = {"xla": reference}
    try:
        ours = xlakit.prepare(workload, program)
        fault = "" if ours is None else difference(ours.fetch(ours.run()), expected, program)
    except Exception as error:
        return _failed(row, "xlakit", error)
    if ours is not None:
        runs = {"xlakit": ours, **runs}
    faults = [f"xlakit: {fault}"] if fault else []
    for peer in others:
        prepared, fault = _prepare_other(peer, workload, program, expected, row)
        if fault:
            faults.append(f"{peer.name}: {fault}")
        elif prepared is not None:
            runs[peer.name] = prepared
    row.timings = {
        name: Timing(compile_seconds=p.compile_seconds, cached_seconds=p.cached_seconds, memory=p.memory)
        for name, p in runs.items()
    }
    if faults:
        row.status, row.message = Status.WRONG, "; ".join(faults)
    elif plan.rounds:
        time_in_turns(runs, row.timings, plan)
    return row


def _prepare_other(
    peer: Peer, workload: Workload, program: Program, expected: Sequence[Array], row: Row
) -> tuple[Prepared | None, str]:
    """A peer that is not XLA or xlakit, and what is wrong with its result; one that fails is a note, not a fault."""
    try:
        prepared = peer.prepare(workload, program)
        if prepared is None:
            return None, ""
        return prepared, difference(prepared.fetch(prepared.run()), expected, program, same_random=False)
    except Exception as error:
        row.notes.append(f"{peer.name} is left out: {_told(error)}")
        return None, ""


def _set_work(row: Row, program: Program, expected: Sequence[Array]) -> None:
    row.flops = program.flops
    row.traffic = program.traffic or sum(array.nbytes for array in (*program.arguments, *expected))


def _failed(row: Row, peer: str, error: Exception) -> Row:
    row.status, row.message = Status.ERROR, f"{peer}: {_told(error)}"
    return row


def _told(error: Exception) -> str:
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first}"[:300]


def time_in_turns(runs: dict[str, Prepared], timings: dict[str, Timing], plan: Plan) -> None:
    """Fill in each peer's samples and median. Each round runs every peer, beginning with another one."""
    # xlakit and JAX on xlakit run the same program, and are measured next to each other.
    names = sorted(runs, key=lambda name: name not in _OURS)
    estimates = {name: _once(runs[name].run, plan.clock) for name in names}
    counts = {name: max(1, math.ceil(_SAMPLE_SECONDS / max(estimates[name], 1e-9))) for name in names}
    round_seconds = sum(estimates[name] * counts[name] for name in names)
    rounds = max(_FEWEST_ROUNDS, min(plan.rounds, int(plan.budget / max(round_seconds, 1e-9))))
    with _without_collector():
        for number in range(rounds):
            first = number % len(names)
            for name in (*names[first:], *names[:first]):
                run = runs[name].run
                _wait_until_quiet()
                if estimates[name] < _WARM_BELOW_SECONDS:
                    run()
                timings[name].samples.append(_average(run, counts[name], plan.clock))
    for name in names:
        timings[name].seconds = statistics.median(timings[name].samples)


def _wait_until_quiet() -> None:
    """Sleep until no thread of this process has worked for two pauses on end."""
    quiet = 0
    for _ in range(_MOST_PAUSES):
        used, start = time.process_time(), time.perf_counter()
        time.sleep(_PAUSE_SECONDS)
        share = (time.process_time() - used) / (time.perf_counter() - start)
        quiet = quiet + 1 if share < _QUIET_SHARE else 0
        if quiet == 2:
            return


def _once(run: Callable[[], object], clock: Callable[[], float]) -> float:
    """About how long a run takes; the shorter of two, since the first of them may still load something."""
    return min(_average(run, 1, clock), _average(run, 1, clock))


def _average(run: Callable[[], object], count: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(count):
        run()
    return (clock() - start) / count


@contextmanager
def _without_collector() -> Generator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of those that are there; None if none is."""
    logarithms = [math.log(value) for value in values if value is not None]
    return math.exp(statistics.fmean(logarithms)) if logarithms else None
