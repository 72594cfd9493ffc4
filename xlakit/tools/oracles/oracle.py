"""Oracles: yes-or-no properties of modules, such as whether two backends disagree on a module.

An oracle observes a module in a separate process, which may crash, and judges the report of that process in the calling
process. Oracles are immutable values that are pickled for the process.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, Self, runtime_checkable

from xlakit.data.shape import ProgramShape
from xlakit.errors import ArgumentError, UnsupportedError, XlakitError, headline
from xlakit.ir.instruction import HloModule
from xlakit.tools.compare import LeafComparison, Tolerance, compare
from xlakit.tools.inputs import compiled
from xlakit.tools.oracles.arguments import Arguments
from xlakit.tools.replicas import as_replicas
from xlakit.tools.shards import Devices, on_devices

# ``plain`` is machine code without what xlakit.options.PLAIN lists.
BACKENDS = ("cpu", "interpreter", "plain", "jaxlib")
# Runs of a program that is timed; the fastest counts.
_TIMED_RUNS = 5
# Shorter runs are dominated by the cost of a call, in which backends may differ by any factor.
_LEAST_SECONDS = 500e-6


class OutOfTime(Exception):
    """The time of a whole search is over; never leaves the tool that searches."""


class Report(NamedTuple):
    """The outcome of a process that observed a module; ``observed`` is None unless it ended normally."""

    how: Literal["ended", "died", "timed out", "out of memory"]
    observed: Any = None
    # For a death its signal or status.
    detail: str = ""


class Verdict(NamedTuple):
    """Whether an oracle's property holds, a line that describes the observation, and a hint if it does not hold."""

    holds: bool
    seen: str
    hint: str = "try other arguments (--seed, --input)"


@runtime_checkable
class Oracle(Protocol):
    """A property of modules."""

    @property
    def claim(self) -> str:
        """What a module with the property does, to follow "it does"."""
        ...

    @property
    def options(self) -> str:
        """The options of the command line that ask for it."""
        ...

    @property
    def runs_to_the_end(self) -> bool:
        """Whether it holds of no module whose run does not end."""
        return False

    def observe(self, module: HloModule) -> Any:
        """What is judged: anything that pickles. Called in a process of its own; raises XlakitError."""
        ...

    def judge(self, report: Report) -> Verdict:
        """The verdict on a report."""
        ...

    def like(self, report: Report) -> Self:
        """The oracle narrowed to the report of the first module, so that one fault is not taken for another."""
        return self

    def prepare(self) -> None:
        """Import the modules that observing needs, in the process that forks the others."""


def _failed(report: Report) -> Verdict | None:
    """The verdict where a run has no results that could be judged."""
    if report.how != "ended":
        hint = "allow it more (--timeout, --memory), or look for that with --crash"
        return Verdict(False, f"the run {report.how} {report.detail}".rstrip(), hint)
    if isinstance(report.observed, Failure):
        return Verdict(False, report.observed.message, "mend that first, or look for that with --crash")
    return None


# -- comparisons -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Disagreement(Oracle):
    """Whether two backends give different results for the same arguments. NaN equals NaN.

    backends: two of BACKENDS, or of :func:`xlakit.register_backend`. tolerance: by default that of each type.
    """

    backends: tuple[str, str]
    arguments: Arguments = field(default_factory=Arguments)
    tolerance: Tolerance = field(default_factory=Tolerance)

    @property
    def claim(self) -> str:
        return "give different results on {} and {}".format(*self.backends)

    @property
    def options(self) -> str:
        return " ".join(
            [f"--compare {','.join(self.backends)}", self.tolerance.options, self.arguments.options]
        ).strip()

    @property
    def runs_to_the_end(self) -> bool:
        return True

    def observe(self, module: HloModule) -> list[LeafComparison]:
        """The outputs compared."""
        devices = on_devices(module)
        values = self.arguments.values(named_shapes(devices), devices.module.entry)
        actual, expected = (results_of(devices, values, name, self.arguments.seed) for name in self.backends)
        return compare(actual, expected, self.tolerance)

    def judge(self, report: Report) -> Verdict:
        """Whether an output differs."""
        failed = _failed(report)
        if failed is not None:
            return failed
        for leaf in report.observed:
            if not leaf.agrees:
                error = f"max rel error {leaf.max_relative:.3g}"
                return Verdict(True, f"{leaf.name} {leaf.shape}: {leaf.mismatches}/{leaf.count} differ, {error}")
        return Verdict(
            False, "all outputs agree", "try other arguments (--seed, --input), or another tolerance (--rtol)"
        )

    def prepare(self) -> None:
        """Load the backends."""
        _prepare(self.backends)


@dataclass(frozen=True)
class Slowness(Oracle):
    """Whether the first backend takes so many times as long as the second to run a program, compilation apart.

    What takes less than half a millisecond is not slow: that is mostly the cost of a call.
    """

    factor: float
    backends: tuple[str, str] = ("cpu", "jaxlib")
    arguments: Arguments = field(default_factory=Arguments)

    @property
    def claim(self) -> str:
        least = f"{_LEAST_SECONDS * 1e6:g} us"
        return "take {:g} times as long on {} as on {}, and at least {}".format(self.factor, *self.backends, least)

    @property
    def options(self) -> str:
        return f"--slow {self.factor:g}x --compare {','.join(self.backends)} {self.arguments.options}".strip()

    @property
    def runs_to_the_end(self) -> bool:
        return True

    def observe(self, module: HloModule) -> tuple[float, float]:
        """The seconds on both."""
        devices = on_devices(module)
        values = self.arguments.values(named_shapes(devices), devices.module.entry)
        first, second = (_seconds(devices, values, name, self.arguments.seed) for name in self.backends)
        return first, second

    def judge(self, report: Report) -> Verdict:
        """Whether the first took so much longer."""
        failed = _failed(report)
        if failed is not None:
            return failed
        slow, fast = report.observed
        seen = f"{self.backends[0]} takes {slow * 1e6:.4g} us, {self.backends[1]} {fast * 1e6:.4g} us"
        hint = "try a smaller factor, or other arguments (--seed, --input)"
        return Verdict(slow >= max(self.factor * fast, _LEAST_SECONDS), seen, hint)

    def prepare(self) -> None:
        """Load the backends."""
        _prepare(self.backends)


# -- failures --------------------------------------------------------------------------------------


class Failure(NamedTuple):
    """An error that ended an observation: where it was raised (the error's kind and the function), and its text."""

    where: str
    message: str


def failure_of(error: Exception) -> Failure:
    """An exception as a failure; exceptions of one type from one function are the same failure."""
    # The cause of an InternalError is the exception that the compiler raised.
    first = error
    while (earlier := first.__cause__ or first.__context__) is not None and isinstance(earlier, Exception):
        first = earlier
    frames = traceback.extract_tb(first.__traceback__)
    place = f" in {frames[-1].name}" if frames else ""
    return Failure(f"{type(error).__name__} of {type(first).__name__}{place}", headline(error))


@dataclass(frozen=True)
class Crash(Oracle):
    """Whether compiling or running a program ends with an error, ends the process, or does not end.

    wanted: the failure that is looked for; any where it is empty.
    """

    backend: str = "cpu"
    arguments: Arguments = field(default_factory=Arguments)
    wanted: str = ""

    @property
    def claim(self) -> str:
        return f"crash on {self.backend}"

    @property
    def options(self) -> str:
        backend = "" if self.backend == "cpu" else f" --backend {self.backend}"
        return f"--crash{backend} {self.arguments.options}".strip()

    def observe(self, module: HloModule) -> None:
        """Run the program."""
        devices = on_devices(module)
        results_of(
            devices,
            self.arguments.values(named_shapes(devices), devices.module.entry),
            self.backend,
            self.arguments.seed,
        )

    def judge(self, report: Report) -> Verdict:
        """Whether it failed, in the way that is looked for."""
        if report.how == "ended" and not isinstance(report.observed, Failure):
            return Verdict(False, "the program runs")
        where = self._crash_site(report)
        seen = report.observed.message if isinstance(report.observed, Failure) else where
        return Verdict(self.wanted in ("", where), seen)

    def like(self, report: Report) -> Self:
        """A crash in the same place."""
        return replace(self, wanted=self._crash_site(report))

    def _crash_site(self, report: Report) -> str:
        if isinstance(report.observed, Failure):
            return report.observed.where
        return f"the process {report.how} {report.detail}".rstrip()

    def prepare(self) -> None:
        """Load the backend."""
        _prepare((self.backend,))


@dataclass(frozen=True)
class ExternalTest(Oracle):
    """Whether a command ends with status 0; its last argument is the path of a file with the module's HLO text."""

    words: tuple[str, ...]

    @staticmethod
    def of(text: str) -> ExternalTest:
        """The command that a shell would read in a line. Raises ArgumentError."""
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise ArgumentError(f"the command {text!r} cannot be read: {error}", hint="close its quotes") from None
        if not words:
            raise ArgumentError("the command is empty", hint="give one that takes the path of a module")
        return ExternalTest(words)

    @property
    def claim(self) -> str:
        return f"make '{shlex.join(self.words)}' end with status 0"

    @property
    def options(self) -> str:
        return f"--test {shlex.quote(shlex.join(self.words))}"

    def observe(self, module: HloModule) -> int:
        """The command's status."""
        with tempfile.TemporaryDirectory(prefix="xlakit-test-") as folder:
            path = Path(folder) / "module.hlo"
            path.write_text(module.to_text(), encoding="utf-8")
            try:
                # Candidates are not worth entries of the compile cache.
                environment = {**os.environ, "XLAKIT_CACHE": "off"}
                done = subprocess.run([*self.words, str(path)], stdin=subprocess.DEVNULL, env=environment, check=False)
            except OSError as error:
                raise ArgumentError(
                    f"the command {self.words[0]!r} cannot be run: {error.strerror}",
                    hint="name a program that is there",
                ) from None
        return done.returncode

    def judge(self, report: Report) -> Verdict:
        """Whether the status is 0."""
        failed = _failed(report)
        if failed is not None:
            return failed._replace(hint="name a command that runs, and allow it more time with --timeout")
        hint = "it must end with status 0 for a program that fails, such as this one"
        return Verdict(report.observed == 0, f"the command ended with status {report.observed}", hint)


# -- backends --------------------------------------------------------------------------------------


def named_shapes(devices: Devices) -> ProgramShape:
    """The shapes of whole arguments with the parameters' names, which a module's header does not say."""
    return replace(devices.program, parameter_names=tuple(p.name for p in devices.module.entry.parameters))


def _prepare(backends: Sequence[str]) -> None:
    # Loaded here, for the processes that are made of this one.
    if "cpu" in backends or "plain" in backends:
        import_module("xlakit.cpu.compiler")
    if "interpreter" in backends:
        import_module("xlakit.interpreter.executable")
    if "jaxlib" in backends:
        from xlakit.tools.jaxlib_backend import require_jaxlib

        require_jaxlib()


def results_of(devices: Devices, values: Sequence[Any], backend: str, seed: int) -> Any:
    """The results on a backend for whole arguments; several are a tuple, those of several devices are joined."""
    if backend == "jaxlib":
        from xlakit.tools.jaxlib_backend import JaxlibBackend

        module = devices.whole if devices.whole is not None else as_replicas(devices.module)
        device_arguments = (
            [list(values)] * module.replica_count if devices.whole is not None else devices.arguments(values)
        )
        results = JaxlibBackend(len(device_arguments)).run_replicas(module, device_arguments)
        if devices.whole is None:
            return devices.joined(results)
        return results[0] if len(results) == 1 else tuple(results)
    # No candidate is worth a place in the compile cache.
    executable = compiled(devices.module, backend, seed, cache=False)
    return devices.run(executable, values)


def _seconds(devices: Devices, values: Sequence[Any], backend: str, seed: int) -> float:
    if devices.count > 1:
        raise UnsupportedError("programs of several devices are not timed", hint="time one of its partitions")
    if backend == "jaxlib":
        from xlakit.tools.jaxlib_backend import JaxlibBackend

        run = JaxlibBackend().prepare(devices.module, [list(values)])
    else:
        run = partial(compiled(devices.module, backend, seed, cache=False), *devices.arguments(values)[0])
    run()
    times: list[float] = []
    for _ in range(_TIMED_RUNS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def observed(oracle: Oracle, module: HloModule, environment: Mapping[str, str]) -> Any:
    """What an oracle observes in this process, with environment variables set; a Failure where that is an error."""
    os.environ.update(environment)
    try:
        return oracle.observe(module)
    except (XlakitError, RecursionError, MemoryError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        return failure_of(error)
