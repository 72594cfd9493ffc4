"""jaxlib in a process of its own: it may abort on a program, or never come back from one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from fuzz.programs.draft import Program
from fuzz.support.children import Child, NoAnswerError
from xlakit.errors import UnsupportedError

# Compilation and execution of the small programs here take a fraction of a second.
_TIMEOUT_SECONDS = 60.0
REPLICAS = 4


class JaxlibWorker:
    """Sends programs to a process that runs them on jaxlib, and collects the results in their order."""

    def __init__(self) -> None:
        self._child = Child(_run)

    def submit(self, program: Program) -> None:
        """Send a program; :meth:`result` gives what comes of it. One at a time."""
        self._child.submit(program.text, program.arguments)

    def result(self) -> list[Any]:
        """The results of the replicas; raises UnsupportedError where jaxlib refuses the program, or dies of it."""
        try:
            refusal, value = self._child.answer(_TIMEOUT_SECONDS)
        except NoAnswerError as error:
            raise UnsupportedError(f"jaxlib {error}") from None
        if refusal is not None:
            raise UnsupportedError(refusal)
        return value

    def close(self) -> None:
        """End the process."""
        self._child.close()


@cache
def _backend() -> Any:
    from xlakit.tools.jaxlib_backend import JaxlibBackend

    return JaxlibBackend(REPLICAS)


def _run(text: str, arguments: Sequence[Sequence[Any]]) -> tuple[str | None, Any]:
    try:
        return None, _backend().run_replicas(text, arguments)
    except UnsupportedError as error:
        return error.rule, None
