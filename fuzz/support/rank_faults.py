"""Faults of programs on several processes: mpiexec starts two, of which the last meets a fault.

Injecting one ends when mpiexec does; its error says how, and what the processes have said since. It is counted from the
moment at which both have run a program well.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fuzz.support.fault_bench import Bench, Cases, Injection

RANK_CASES = Cases()
_RANKS = 2
_START_SECONDS = 60.0
_END_SECONDS = 60.0
# How long a process may take to vanish when its launcher has ended.
_GONE_SECONDS = 2.0


class RanksEndedError(Exception):
    """How mpiexec ended, and what the processes said before."""


def mpiexec() -> str | None:
    """The launcher that is beside this Python, or on the path; None where there is none, or no mpi4py."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return shutil.which("mpiexec", path=places) if importlib.util.find_spec("mpi4py") else None


class _Ranks:
    """Processes that wait for the fault."""

    def __init__(self, bench: Bench, fault: str) -> None:
        launcher = mpiexec()
        if launcher is None:
            raise FileNotFoundError("mpiexec or mpi4py is not installed: pip install 'xlakit[mpi]'")
        self._directory = tempfile.TemporaryDirectory()
        self._go = Path(self._directory.name, "go")
        worker = [
            sys.executable,
            "-m",
            "fuzz.support.workers.rank_worker",
            fault,
            bench.backend,
            str(bench.timeout),
            str(self._go),
        ]
        self._output = Path(self._directory.name, "output")
        with self._output.open("wb") as output:
            self._launcher = subprocess.Popen(
                [launcher, "-n", str(_RANKS), *worker],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=Path(__file__).parents[2],
                # A process group of its own, as one that a terminal sends Ctrl-C to.
                start_new_session=True,
            )
        self.numbers: list[int] = []
        self._await_processes()

    def _said(self) -> list[str]:
        lines = self._output.read_text("utf-8", "replace").splitlines()
        return [line for line in lines if line.startswith("rank ")]

    def _await_processes(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while len(self.numbers) < _RANKS:
            self.numbers = [int(line.rsplit(" ", 1)[1]) for line in self._said() if ": is process " in line]
            if time.monotonic() > deadline or self._launcher.poll() is not None:
                self.end()
                raise RuntimeError(f"the processes did not start: {self._output.read_text('utf-8', 'replace')}")
            time.sleep(0.01)

    def run(self, then: Callable[[subprocess.Popen[bytes]], None]) -> None:
        """Let the fault happen and raise how it ended; ``then`` is done when it has begun."""
        before = len(self._said())
        self._go.touch()
        try:
            then(self._launcher)
            status = self._launcher.wait(_END_SECONDS)
        except BaseException:
            self.end()
            raise
        raise RanksEndedError("\n".join([f"mpiexec ended with status {status}", *self._said()[before:]]))

    def are_gone(self) -> bool:
        """Whether no process is left over."""
        self._directory.cleanup()
        deadline = time.monotonic() + _GONE_SECONDS
        while any(map(_exists, self.numbers)):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def end(self) -> None:
        """End all that is left."""
        for number in (self._launcher.pid, *self.numbers):
            if _exists(number):
                os.kill(number, signal.SIGKILL)
        self._launcher.wait()


def _exists(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def _nothing(launcher: subprocess.Popen[bytes]) -> None:
    """Wait."""


def _signaled(number: signal.Signals) -> Callable[[subprocess.Popen[bytes]], None]:
    def send(launcher: subprocess.Popen[bytes]) -> None:
        # Both are in the program by then, one of them computes.
        time.sleep(0.3)
        os.killpg(launcher.pid, number)

    return send


def _enter(
    name: str,
    fault: str,
    *says: str,
    waits: bool = False,
    then: Callable[[subprocess.Popen[bytes]], None] = _nothing,
) -> None:
    @RANK_CASES.case(name, RanksEndedError, *says, waits=waits)
    def inject(bench: Bench) -> Injection:
        ranks = _Ranks(bench, fault)
        return lambda: ranks.run(then), ranks.are_gone


_BOTH_GO_ON = ("status 0", r"rank 0: gives \[2.0, 2.0, 2.0\]", r"rank 1: gives \[2.0, 2.0, 2.0\]")

_enter("a rank that is killed", "is killed", "status 9")
_enter("a rank that exits", "exits", "status 3")
_enter(
    "a rank with an uncaught error",
    "dies",
    "status 1",
    r"rank 0: RankError: all-reduce .*rank 1 \(device 1\) has ended with an error: RuntimeError: this rank is ill",
)
_enter(
    "a rank on whose device something raises",
    "raises",
    *_BOTH_GO_ON,
    "rank 1: ExecutionError: .* raised ValueError: the pump is broken",
    r"rank 0: RankError: rank 1 \(device 1\) failed: ExecutionError: .*the pump is broken",
)
_enter(
    "a rank that never reaches a collective",
    "skips",
    *_BOTH_GO_ON,
    r"rank 0: RankError: all-reduce .*rank 1 \(device 1\) has ended the program, after .*rank_worker.py:[0-9]+",
)
_enter(
    "a rank that does not come to a program",
    "stays away",
    "status 0",
    r"rank 0: RankError: .*rank 1 \(device 1\) has not begun the program \(it runs no program\), after",
    waits=True,
)
_enter(
    "a rank that is stopped",
    "is stopped",
    "status [1-9]",
    r"rank 0: RankError: .*rank 1 \(device 1\) does not answer, after",
    waits=True,
)
_enter("Ctrl-C for mpiexec", "computes", "status (-2|130|2|1|9|15)", then=_signaled(signal.SIGINT))
_enter("SIGTERM for mpiexec", "computes", "status (-15|143|15|9|1)", then=_signaled(signal.SIGTERM))
