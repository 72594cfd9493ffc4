"""A time limit for each program of a batch."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager

from xlakit.errors import ArgumentError, ExecutionError

# Seconds until the next interruption, where one was dropped.
_AGAIN = 0.01


class _TimeIsUp(KeyboardInterrupt):
    """Ends a program wherever Ctrl-C does."""


@contextmanager
def time_limit(seconds: float | None) -> Generator[None]:
    """Interrupt the block after that many seconds, if a number is given; for the main thread.

    Where Python drops the exception, as at the entry of a function that machine code calls, it interrupts again.

    Raises ExecutionError when the time is up, and ArgumentError on systems without timers that interrupt.
    """
    if seconds is None:
        yield
        return
    if not hasattr(signal, "setitimer"):
        raise ArgumentError("--timeout needs timers that interrupt a process, which this system has not")

    def stop(number: int, frame: object) -> None:
        raise _TimeIsUp

    def dropped(what: sys.UnraisableHookArgs) -> None:
        if what.exc_type is _TimeIsUp:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        else:
            report(what)

    before, report = signal.signal(signal.SIGALRM, stop), sys.unraisablehook
    sys.unraisablehook = dropped
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
        sys.unraisablehook = report
