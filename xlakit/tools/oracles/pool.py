"""Several servers that observe modules side by side."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from xlakit.child_process import Child, Limits, Unanswered
from xlakit.errors import InternalError
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.data import Parameter, Tuple
from xlakit.ops.reduction import Reduce
from xlakit.ops.windows import ReduceWindow
from xlakit.passes.analysis.loops import has_endless_loop
from xlakit.tools.oracles.arguments import Arguments
from xlakit.tools.oracles.captured import Capture, Captured
from xlakit.tools.oracles.oracle import Disagreement, Oracle, OutOfTime, Report, Verdict

# The time limit of a candidate: so many times the time of the original module, or of a smaller one, plus a second. Many
# candidates have endless loops.
_SLOWER = 5.0
_SECONDS_MORE = 1.0


class OraclePool:
    """Asks an oracle of modules, in as many processes at a time as there are jobs; a context manager.

    files: files of Python that each process runs first, such as one that registers a backend.
    deadline: when the whole search is over, by ``time.monotonic``; what still runs then is ended, and asking raises
    OutOfTime, since it might have ended within its own limits.

    Raises UnsupportedError where a backend is not installed, ArgumentError where a file cannot be loaded.
    """

    def __init__(
        self,
        oracle: Oracle,
        *,
        jobs: int = 1,
        limits: Limits | None = None,
        files: Sequence[str] = (),
        deadline: float = math.inf,
    ) -> None:
        self.oracle = oracle
        self.limits = Limits() if limits is None else limits
        self.jobs = jobs
        # Whether a smaller module whose result is not defined would be taken for one with the fault.
        self._is_defined = False
        self._deadline = deadline
        self._files = list(files)
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="xlakit-oracle")
        self._own = threading.local()
        self._servers: list[_Server] = []
        # Starts a server now, so that errors about the oracle or the files are raised at once.
        self._threads.submit(self._server).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.end()
        self._threads.shutdown(cancel_futures=True)

    @property
    def claim(self) -> str:
        """What a module with the oracle's property does."""
        return self.oracle.claim

    def begin(self, module: HloModule) -> Verdict:
        """As :meth:`ask`, for the original module; later questions are about the same fault, within a similar time."""
        start = time.monotonic()
        report = self.report(module)
        verdict = self.oracle.judge(report)
        if verdict.holds:
            self._is_defined = isinstance(self.oracle, Disagreement) and not depends_on_order(module)
            self.oracle = self.oracle.like(report)
            self._shorten(time.monotonic() - start)
        return verdict

    def ask(self, module: HloModule, environment: Mapping[str, str] | None = None) -> Verdict:
        """Whether the oracle's property holds of a module, with environment variables set while it is observed."""
        return self.oracle.judge(self.report(module, environment))

    def report(self, module: HloModule, environment: Mapping[str, str] | None = None) -> Report:
        """What became of the process that observed a module."""
        return self._threads.submit(self._report, module, environment).result()

    def submit(self, module: HloModule) -> Future[Verdict]:
        """As :meth:`ask`, without waiting; of a module with the property, smaller ones take no longer."""
        return self._threads.submit(self._judged, module)

    def captured(self, module: HloModule) -> Captured:
        """Values of a run on the interpreter, with the oracle's arguments; none where it has none, or that fails."""
        arguments = getattr(self.oracle, "arguments", None)
        if not isinstance(arguments, Arguments):
            return Captured({}, {})
        oracle, self.oracle = self.oracle, Capture(arguments)
        try:
            report = self.report(module)
        finally:
            self.oracle = oracle
        return report.observed if isinstance(report.observed, Captured) else Captured({}, {})

    def _judged(self, module: HloModule) -> Verdict:
        if self.oracle.runs_to_the_end and has_endless_loop(module):
            return Verdict(False, "a loop has no end")
        if self._is_defined and depends_on_order(module):
            return Verdict(False, "its result depends on the order in which a reduction combines its elements")
        start = time.monotonic()
        verdict = self.oracle.judge(self._report(module, None))
        if verdict.holds:
            self._shorten(time.monotonic() - start)
        return verdict

    def _shorten(self, seconds: float) -> None:
        """Make the time limit that of candidates of a module that has taken so long."""
        self.limits = replace(self.limits, seconds=min(self.limits.seconds, _SLOWER * seconds + _SECONDS_MORE))

    def _report(self, module: HloModule, environment: Mapping[str, str] | None) -> Report:
        server, data = self._server(), module.to_proto()
        left = max(0.0, self._deadline - time.monotonic())
        limits = replace(self.limits, seconds=min(self.limits.seconds, left))
        report = server.report(data, dict(environment or {}), limits, self.oracle)
        if report.how == "timed out" and left < self.limits.seconds:
            raise OutOfTime
        return report

    def _server(self) -> _Server:
        """The server of this thread."""
        server: _Server | None = getattr(self._own, "server", None)
        if server is None or not server.is_alive:
            server = self._own.server = _Server(self.oracle, self._files)
            self._servers.append(server)
        return server


def depends_on_order(module: HloModule) -> bool:
    """Whether a reduction of several elements gives one of them as it is: which one, backends may choose."""
    return any(
        isinstance(i.op, (Reduce, ReduceWindow)) and _gives_a_parameter(i.op.to_apply) and _combined(i) > 1
        for i in module.instructions
    )


def _gives_a_parameter(reducer: Computation) -> bool:
    results = reducer.root.operands if isinstance(reducer.root.op, Tuple) else (reducer.root,)
    return any(isinstance(result.op, Parameter) for result in results)


def _combined(i: Instruction) -> int:
    """How many elements of an array a reduction makes one of."""
    if isinstance(i.op, Reduce):
        return math.prod(i.operands[0].shape.dimensions[d] for d in i.op.dimensions)
    return math.prod(d.size for d in i.op_as(ReduceWindow).window.dimensions)


class _Server:
    """A process that runs :mod:`xlakit.tools.oracles.server`."""

    def __init__(self, oracle: Oracle, files: list[str]) -> None:
        # NumPy's BLAS starts its threads when it is loaded, and forked children do not have them.
        self._child = Child("xlakit.tools.oracles.server", environment={"OPENBLAS_NUM_THREADS": "1"})
        self._oracle = oracle
        error = self._asked((oracle, files))
        if error is not None:
            self.end()
            raise error

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._child.is_alive

    def report(self, module: bytes, environment: dict[str, str], limits: Limits, oracle: Oracle) -> Report:
        """What the process reports of a serialized module."""
        replaced = None if oracle is self._oracle else oracle
        self._oracle = oracle
        return self._asked((module, environment, limits, replaced))

    def _asked(self, request: Any) -> Any:
        try:
            return self._child.ask(request)
        except Unanswered:
            raise InternalError("the process that observes modules has ended by itself") from None

    def end(self) -> None:
        """End the process; what it is doing is lost."""
        self._child.end()
