"""``reduce_module``: the steps in their order, until none makes the module smaller."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields, replace
from pathlib import Path

from xlakit.arguments import converting
from xlakit.child_process import Limits
from xlakit.errors import ArgumentError, ExecutionError
from xlakit.ir.instruction import HloModule
from xlakit.tools.oracles.captured import Captured
from xlakit.tools.oracles.forked import forked
from xlakit.tools.oracles.oracle import Oracle, OutOfTime, Verdict
from xlakit.tools.oracles.pool import OraclePool
from xlakit.tools.reduce import applied, contexts, loops, steps, values
from xlakit.tools.reduce.search import BEST, PropertyOracle, Search

# The steps that remove most come first. Types and constants come last, as they do not make later steps faster.
STEPS: tuple[steps.Step, ...] = (
    steps.drop_annotations,
    steps.stand_alone,
    steps.drop_results,
    steps.cut_end,
    steps.cut_around_root,
    steps.cut_start,
    steps.drop_results,
    steps.take_parameters,
    steps.inline_calls,
    loops.run_iterations,
    steps.move_root,
    steps.move_inner_root,
    steps.pass_operands,
    values.take_constants,
    values.take_values,
    contexts.keep_context,
    loops.freeze_state,
    loops.drop_state,
    loops.unpack_state,
    steps.drop_operands,
    applied.enter_computations,
    applied.drop_arrays,
    applied.give_parameters,
    applied.share_computations,
    steps.merge_parameters,
    values.use_parameters,
    values.share_constants,
    values.shrink_dimensions,
    values.simplify_constants,
    values.simplify_attributes,
    values.simplify_types,
    applied.unite_types,
    contexts.end_by_value,
)


@dataclass(frozen=True)
class Reduction:
    """A reduced module, and what it took. Sizes count the bytes of HLO text."""

    module: HloModule
    instructions_before: int
    instructions: int
    bytes_before: int
    bytes: int
    tries: int
    successes: int
    seconds: float
    # Whether no step could make it smaller; False where the time was over before.
    is_minimal: bool
    # What was seen of the module as given, and of the reduced one.
    seen_before: str
    seen: str

    def __str__(self) -> str:
        """The summary, in a line."""
        end = "" if self.is_minimal else "; stopped by the limit of time"
        return (
            f"{self.instructions_before} -> {self.instructions} instructions, "
            f"{self.bytes_before} -> {self.bytes} bytes; {self.tries} tries, {self.seconds:.1f} s{end}"
        )

    def as_dict(self) -> dict[str, object]:
        """All but the module, for JSON."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "module"}


@converting
def reduce_module(
    module: HloModule,
    test: Oracle | Callable[[HloModule], bool],
    *,
    jobs: int = 1,
    limits: Limits | None = None,
    max_seconds: float = float("inf"),
    work: str | None = None,
    load: Sequence[str] = (),
    progress: Callable[[Search], None] | None = None,
) -> Reduction:
    """The smallest module found of which a test still holds.

    module: what the test holds of.
    test: an oracle (:class:`Disagreement`, :class:`Crash`, :class:`Slowness`, :class:`ExternalTest`), which is asked in
        processes of their own that may crash or hang; or a function of a module, which is called in this process, or
        with ``limits`` in a child that is forked for each call: then the function does not hold of a module for which
        it dies or exceeds them, and what it does to variables is lost.
    jobs: how many processes run at a time; calls of a function come one after the other.
    limits: seconds and memory of a run; seconds are less where the module as given runs fast.
    max_seconds: about how long all may take; the best module so far is given then. A run that is not done by then is
        ended, but a function without limits is not interrupted.
    work: a folder where the best module is kept, from which the same call goes on after an interruption.
    load: files of Python that each process runs first, such as one that registers a backend.
    progress: called with the search after each try.

    The reduced module is well formed. Raises ArgumentError where the test does not hold of the module as given,
    ExecutionError where the run of that takes longer than max_seconds, UnsupportedError where a backend is not
    installed, VerificationError for a malformed module.
    """
    start = time.monotonic()
    module.verify()
    if isinstance(test, Oracle):
        with OraclePool(test, jobs=jobs, limits=limits, files=load, deadline=start + max_seconds) as pool:
            return _reduced(module, pool, start, max_seconds, work, progress)
    return _reduced(module, _Function(test, limits, start + max_seconds), start, max_seconds, work, progress)


class _Function:
    """A function of modules, called where it is asked; with limits in a child."""

    jobs = 1
    claim = "pass the test"

    def __init__(self, function: Callable[[HloModule], bool], limits: Limits | None, deadline: float) -> None:
        self._function, self._limits, self._deadline = function, limits, deadline

    def begin(self, module: HloModule) -> Verdict:
        if self._limits is None:
            return self._verdict(bool(self._function(module)))
        left = max(0.0, self._deadline - time.monotonic())
        report = forked(lambda: self._answer(module), replace(self._limits, seconds=min(self._limits.seconds, left)))
        if report.how == "timed out" and left < self._limits.seconds:
            raise OutOfTime
        if isinstance(report.observed, str):
            raise ExecutionError(f"the test raises {report.observed}")
        return self._verdict(report.observed is True, f"the function {report.how} {report.detail}".rstrip())

    def _answer(self, module: HloModule) -> bool | str:
        try:
            return bool(self._function(module))
        except Exception as error:
            # Not every exception can be sent to another process.
            return f"{type(error).__name__}: {error}"

    @staticmethod
    def _verdict(holds: bool, seen: str = "the function's answer") -> Verdict:
        return Verdict(holds, seen, "it must be true of the module as given")

    def submit(self, module: HloModule) -> Future[Verdict]:
        answer: Future[Verdict] = Future()
        answer.set_result(self.begin(module))
        return answer

    def captured(self, module: HloModule) -> Captured:
        return Captured({}, {})


def _reduced(
    module: HloModule,
    oracle: PropertyOracle,
    start: float,
    max_seconds: float,
    work: str | None,
    progress: Callable[[Search], None] | None,
) -> Reduction:
    try:
        first = oracle.begin(module)
    except OutOfTime:
        raise ExecutionError(
            f"the run of the module as given is not done after {max_seconds:g} s, which is the time for all runs",
            hint="allow more for all (--max-seconds, max_seconds), or less for each (--timeout, limits)",
        ) from None
    if not first.holds:
        raise ArgumentError(
            f"the module as given does not {oracle.claim}: {first.seen}",
            hint=first.hint,
        )
    search = Search(oracle, module, deadline=start + max_seconds, seen=first.seen)
    if progress is not None:
        search.progress = progress
    is_minimal = _run_steps(search, None if work is None else Path(work))
    best = search.best
    return Reduction(
        module=best,
        instructions_before=module.instruction_count(),
        instructions=best.instruction_count(),
        bytes_before=len(module.to_text()),
        bytes=len(best.to_text()),
        tries=search.tries,
        successes=search.successes,
        seconds=time.monotonic() - start,
        is_minimal=is_minimal,
        seen_before=first.seen,
        seen=search.seen,
    )


def _run_steps(search: Search, folder: Path | None) -> bool:
    """Run the steps until none finds anything, from the best module in a folder; whether that was within the time."""
    try:
        if folder is not None:
            _resume(search, folder)
        while True:
            before = search.successes
            for step in STEPS:
                search.step = step.__name__.replace("_", " ")
                step(search)
            if search.successes == before:
                return True
    except OutOfTime:
        return False


def _resume(search: Search, folder: Path) -> None:
    """Go on from the best module in a folder, where it still has the property."""
    folder.mkdir(parents=True, exist_ok=True)
    search.folder = folder
    path = folder / BEST
    if path.exists():
        best = HloModule.from_text(path.read_text(encoding="utf-8"), name=str(path))
        search.step = "go on"
        search.try_one(lambda: best)
