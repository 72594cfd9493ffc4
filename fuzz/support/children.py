"""Processes: one that judges programs, whose death is a finding, and several of a program that runs on them all."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, Self

_ROOT = Path(__file__).parents[2]
# How children begin: a fork of a process that may have threads could wait for them for ever.
_START = {"method": "spawn"}


def may_fork() -> bool:
    """Whether children are forks of this process, which is one itself."""
    return _START["method"] == "fork"


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


@contextmanager
def processes(
    commands: Sequence[Sequence[str]], folder: Path, variables: Mapping[str, str], devices: int
) -> Generator[list[subprocess.Popen[bytes]]]:
    """A process of each command, on so many devices of JAX's CPU, which ends with the block."""
    environment = {
        **os.environ,
        **variables,
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(commands):
            with (folder / f"log{number}").open("wb") as said:
                made = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=subprocess.STDOUT)
                started.append(made)
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def logs(folder: Path, count: int) -> list[str]:
    """What so many processes have said."""
    return [(folder / f"log{number}").read_text("utf-8", "replace") for number in range(count)]


class Forked:
    """``main`` of a module in a fork of this process, which has no threads; used as a ``Popen`` with a piped output.

    What it writes to standard error is in the file ``said``, if one is given. Children of its own are forks, too.
    """

    def __init__(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], said: IO[str] | None = None
    ) -> None:
        own, given = os.pipe()
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=_run, args=(module, arguments, environment, given, said))
        self._process.start()
        os.close(given)
        self.stdout = os.fdopen(own)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self.wait()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def wait(self) -> int:
        """Its exit status, or the negative number of the signal that ended it."""
        self._process.join()
        return self._process.exitcode or 0


def _run(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], output: int, said: IO[str] | None
) -> None:
    _START["method"] = "fork"
    os.dup2(output, 1)
    os.close(output)
    os.dup2(said.fileno() if said else os.open(os.devnull, os.O_WRONLY), 2)
    os.environ.update(environment)
    sys.exit(imported(module).main(arguments))


def imported(module: str) -> Any:
    """The module that ``python -m`` runs by this name."""
    found: Any = importlib.import_module(module)
    return importlib.import_module(f"{module}.__main__") if hasattr(found, "__path__") else found


class NoAnswerError(Exception):
    """How a child ended before it gave an answer."""


class Child:
    """Runs ``judge`` on requests in a child process, which is kept until it dies or exceeds its time.

    judge: gives what is wrong, in words, for :meth:`ask`; a function of a module, so that another process finds it.
    environment: what the process has in its environment beyond this one's.
    """

    def __init__(self, judge: Callable[..., Any], environment: Mapping[str, str] | None = None) -> None:
        self._judge = judge
        self._environment = dict(environment or {})
        self._process: Any = None
        self._pipe: Connection | None = None

    def ask(self, *request: Any, seconds: float = 120.0) -> str:
        """What ``judge`` says of the request, or how the process ended."""
        self.submit(*request)
        try:
            return self.answer(seconds)
        except NoAnswerError as error:
            return str(error)

    def submit(self, *request: Any) -> None:
        """Send a request; :meth:`answer` gives what comes of it. One at a time."""
        pipe = self._pipe or self._start()
        pipe.send(request)

    def answer(self, seconds: float) -> Any:
        """What ``judge`` gives for the request. Raises NoAnswerError."""
        assert self._pipe is not None
        if not self._pipe.poll(seconds):
            self.close()
            raise NoAnswerError(f"took more than {seconds:.0f} s")
        try:
            return self._pipe.recv()
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            self.close()
            end = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
            raise NoAnswerError(end) from None

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    def _start(self) -> Connection:
        context: Any = multiprocessing.get_context(_START["method"])
        own, given = context.Pipe()
        # A daemon ends with this process.
        self._process = context.Process(target=_serve, args=(given, own, self._judge, self._environment), daemon=True)
        self._process.start()
        given.close()
        self._pipe = own
        return own


def _serve(pipe: Connection, other: Connection, judge: Callable[..., Any], environment: Mapping[str, str]) -> None:
    # Where this process holds the other end, too, it never learns that the one that asks has died.
    other.close()
    os.environ.update(environment)
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        pipe.send(judge(*request))
