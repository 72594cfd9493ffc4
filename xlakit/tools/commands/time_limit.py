"""A time limit for each program of a batch."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager

from xlakit.errors import ArgumentError, ExecutionError


class _TimeIsUp(KeyboardInterrupt):
    """Ends a program wherever Ctrl-C does."""


@contextmanager
def time_limit(seconds: float | None) -> Generator[None]:
    """Interrupt the block after that many seconds, if a number is given; for the main thread.

    Raises ExecutionError when the time is up, and ArgumentError on systems without timers that interrupt.
    """
    if seconds is None:
        yield
        return
    if not hasattr(signal, "setitimer"):
        raise ArgumentError("--timeout needs timers that interrupt a process, which this system has not")

    def stop(number: int, frame: object) -> None:
        raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, stop)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _TimeIsUp:
        raise ExecutionError(
            f"the program is not done after {seconds:g} s", hint="allow more with --timeout, or make it smaller"
        ) from None
    finally:
        signal.signal(signal.SIGALRM, before)
