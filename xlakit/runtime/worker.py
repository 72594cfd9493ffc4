"""Worker: the thread of a device, made when there is something to do for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from xlakit.execution.context import ExecutionContext

# What a worker calls: the work, and what follows its end.
_Task = tuple[Callable[[], None], Callable[[], None]]


class Worker:
    """A thread that runs tasks in their order. It keeps no reference to the last one while it waits."""

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
        """Wait for the end of the thread, so long at most."""
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)


def _serve(tasks: SimpleQueue[_Task | None], execution_context: ExecutionContext) -> None:
    # All that it runs are devices of this execution context: the thread feeds none.
    with execution_context.bound():
        while _serve_one(tasks.get()):
            pass


def _serve_one(task: _Task | None) -> bool:
    # A function of its own, so that nothing of the last task stays alive in variables.
    if task is None:
        return False
    run, finish = task
    run()
    finish()
    return True
