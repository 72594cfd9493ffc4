"""Worker: the thread of a device, started with the device's first task."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from xlakit.execution.context import ExecutionContext

# The two functions that a worker calls in turn: the work, and the handler of its end.
_Task = tuple[Callable[[], None], Callable[[], None]]


class Worker:
    """A thread that runs tasks in order. While it waits it holds no reference to the last task."""

    def __init__(self, number: int, execution_context: ExecutionContext) -> None:
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._thread = threading.Thread(
            target=_serve, args=(self._tasks, execution_context), name=f"xlakit-device-{number}", daemon=True
        )
        self._thread.start()

    @property
    def ident(self) -> int | None:
        """The number of its thread."""
        return self._thread.ident

    def put(self, run: Callable[[], None], finish: Callable[[], None]) -> None:
        """Add a task: call ``run``, then ``finish``."""
        self._tasks.put((run, finish))

    def stop(self) -> None:
        """End the thread when it has run its tasks."""
        self._tasks.put(None)

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread, for at most so many seconds."""
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)


def _serve(tasks: SimpleQueue[_Task | None], execution_context: ExecutionContext) -> None:
    # The thread only runs devices of this execution context, so it never feeds any.
    with execution_context.bound():
        while _serve_one(tasks.get()):
            pass


def _serve_one(task: _Task | None) -> bool:
    # A separate function, so that local variables do not keep the last task alive.
    if task is None:
        return False
    run, finish = task
    run()
    finish()
    return True
