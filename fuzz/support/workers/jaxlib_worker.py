"""jaxlib in a process of its own: it may abort on a program, or never come back from one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from fuzz.programs.draft import Program
from xlakit.errors import UnsupportedError

# Compilation and execution of the small programs here take a fraction of a second.
_TIMEOUT_SECONDS = 60.0
REPLICAS = 4


class JaxlibWorker:
    """Sends programs to a process that runs them on jaxlib, and collects the results in their order."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def submit(self, program: Program) -> None:
        """Send a program; :meth:`result` gives what comes of it. One at a time."""
        self._connection.send((program.text, program.arguments))

    def result(self) -> list[Any]:
        """The results of the replicas; raises UnsupportedError where jaxlib refuses the program, or dies of it."""
        reason = f"gave no result in {_TIMEOUT_SECONDS:.0f} s"
        if self._connection.poll(_TIMEOUT_SECONDS):
            try:
                refusal, value = self._connection.recv()
            except EOFError:
                self._process.join(5)
                reason = f"ended its process with status {self._process.exitcode}"
            else:
                if refusal is not None:
                    raise UnsupportedError(refusal)
                return value
        self.close()
        self._start()
        raise UnsupportedError(f"jaxlib {reason}")

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.kill()
        self._process.join()


def _serve(connection: Connection[Any, Any]) -> None:
    from xlakit.tools.jaxlib_backend import JaxlibBackend

    backend = JaxlibBackend(REPLICAS)
    while True:
        try:
            text, arguments = connection.recv()
        except EOFError:
            return
        connection.send(_run(backend, text, arguments))


def _run(backend: Any, text: str, arguments: Sequence[Sequence[Any]]) -> tuple[str | None, Any]:
    try:
        return None, backend.run_replicas(text, arguments)
    except UnsupportedError as error:
        return error.rule, None
