"""Worker: the thread of a device, made when there is something to do for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

from xlakit.execution.context import ExecutionContext

if TYPE_CHECKING:
    from xlakit.runtime.execution import Part


class Worker:
    """A thread that does the parts it is given, in order. It holds on to nothing else while it waits."""

    def __init__(self, number: int, execution_context: ExecutionContext) -> None:
        self._inbox: SimpleQueue[tuple[Part, Callable[[Part], None]] | None] = SimpleQueue()
        self._thread = threading.Thread(
            target=_serve, args=(self._inbox, execution_context), name=f"xlakit-device-{number}", daemon=True
        )
        self._thread.start()

    @property
    def ident(self) -> int | None:
        """The number of its thread."""
        return self._thread.ident

    def put(self, part: Part, finish: Callable[[Part], None]) -> None:
        """Have a part done, and ``finish`` called with it then."""
        self._inbox.put((part, finish))

    def stop(self) -> None:
        """Let the thread end when it has done what it was given."""
        self._inbox.put(None)

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread, so long at most."""
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)


def _serve(inbox: SimpleQueue[tuple[Part, Callable[[Part], None]] | None], execution_context: ExecutionContext) -> None:
    # Whatever it runs is a device of this execution_context: nothing comes from outside.
    with execution_context.bound():
        while _serve_one(inbox.get()):
            pass


def _serve_one(order: tuple[Part, Callable[[Part], None]] | None) -> bool:
    # A function of its own, so that nothing of the last part stays alive in variables.
    if order is None:
        return False
    part, finish = order
    part.run()
    finish(part)
    return True
