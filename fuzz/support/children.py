"""A process that judges programs: one that dies or does not end is a finding, and the next gets a new process."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any


class Child:
    """Runs ``judge`` on requests in a child process, which is kept until it dies or exceeds its time.

    judge: gives what is wrong, in words; a function of a module, so that another process finds it.
    environment: what the process has in its environment beyond this one's.
    """

    def __init__(self, judge: Callable[..., str], environment: Mapping[str, str] | None = None) -> None:
        self._judge = judge
        self._environment = dict(environment or {})
        self._process: Any = None
        self._pipe: Connection | None = None

    def ask(self, *request: Any, seconds: float = 120.0) -> str:
        """What ``judge`` says of the request, or how the process ended."""
        pipe = self._pipe or self._start()
        pipe.send(request)
        if not pipe.poll(seconds):
            self.close()
            return f"took more than {seconds:.0f} s"
        try:
            return str(pipe.recv())
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            self.close()
            return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        own, given = context.Pipe()
        # A daemon ends with this process.
        self._process = context.Process(target=_serve, args=(given, self._judge, self._environment), daemon=True)
        self._process.start()
        given.close()
        self._pipe = own
        return own


def _serve(pipe: Connection, judge: Callable[..., str], environment: Mapping[str, str]) -> None:
    os.environ.update(environment)
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        pipe.send(judge(*request))
