"""Worker: the thread of a device, made when there is something to do for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from xlakit.execution.context import ExecutionContext

# What a worker does, and what is to be called then.
_Order = tuple[Callable[[], None], Callable[[], None]]


class Worker:
    """A thread that does what it is given, in order. It holds on to nothing else while it waits."""

    def __init__(self, number: int, execution_context: ExecutionContext) -> None:
        self._inbox: SimpleQueue[_Order | None] = SimpleQueue()
        self._thread = threading.Thread(
            target=_serve, args=(self._inbox, execution_context), name=f"xlakit-device-{number}", daemon=True
        )
        self._thread.start()

    @property
    def ident(self) -> int | None:
        """The number of its thread."""
        return self._thread.ident

    def put(self, run: Callable[[], None], finish: Callable[[], None]) -> None:
        """Have ``run`` called, and ``finish`` then."""
        self._inbox.put((run, finish))

    def stop(self) -> None:
        """Let the thread end when it has done what it was given."""
        self._inbox.put(None)

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread, so long at most."""
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)


def _serve(inbox: SimpleQueue[_Order | None], execution_context: ExecutionContext) -> None:
    # Whatever it runs is a device of this execution_context: nothing comes from outside.
    with execution_context.bound():
        while _serve_one(inbox.get()):
            pass


def _serve_one(order: _Order | None) -> bool:
    # A function of its own, so that nothing of the last order stays alive in variables.
    if order is None:
        return False
    run, finish = order
    run()
    finish()
    return True
