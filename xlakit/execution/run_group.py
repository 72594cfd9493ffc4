"""RunGroup: programs that run at the same time and communicate, so that all of them stop when one fails."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from xlakit.execution.channels import Channels
from xlakit.execution.run import Run

if TYPE_CHECKING:
    from xlakit.execution.context import ExecutionContext


class RunGroup:
    """Runs that end together and have channels of their own, apart from all others in the same execution context."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: list[Run] = []
        self._error: BaseException | None = None
        self._channels: dict[ExecutionContext, Channels] = {}

    def channels(self, execution_context: ExecutionContext) -> Channels:
        """The channels of the group in an execution context."""
        with self._lock:
            return self._channels.setdefault(execution_context, Channels())

    def add(self, run: Run) -> None:
        """Add a run, which fails at once if another one has failed already."""
        with self._lock:
            self._runs.append(run)
            error = self._error
        if error is not None:
            run.fail(error)

    def fail(self, error: BaseException) -> None:
        """Stop all runs, including those that are added later."""
        with self._lock:
            self._error = self._error or error
            runs = list(self._runs)
        for run in runs:
            run.fail(error)


_current: ContextVar[RunGroup | None] = ContextVar("run_group", default=None)


@contextmanager
def running_in(group: RunGroup) -> Generator[None]:
    """Add the runs that this thread begins during the block to a group."""
    token = _current.set(group)
    try:
        yield
    finally:
        _current.reset(token)


def current_group() -> RunGroup | None:
    """The group that the runs of this thread belong to."""
    return _current.get()


def has_group() -> bool:
    """Whether the runs that this thread begins belong to a group."""
    return _current.get() is not None
