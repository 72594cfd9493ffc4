"""Work in a child that is forked for it, which may end or block its process without harm."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from xlakit.child_process import Limits, Unanswered, answer_of, ending_of, send
from xlakit.tools.oracles.oracle import Report


def forked(work: Callable[[], Any], limits: Limits) -> Report:
    """What a child of this process has computed, within limits; it must pickle."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(read)
        _answer(work, write)
    os.close(write)
    try:
        return Report("ended", answer_of(read, child, limits))
    except Unanswered as error:
        if error.why == "timed out":
            return Report("timed out", detail=f"after {limits.seconds:.3g} s")
        if error.why == "out of memory":
            return Report("out of memory", detail=f"of {limits.memory >> 20} MiB")
        return Report("died", detail=ending_of(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
    finally:
        os.close(read)
        _end(child)


def _answer(work: Callable[[], Any], write: int) -> None:
    """The child: does not return."""
    status = 1
    try:
        # A group of its own, which ends with everything that it has started.
        os.setsid()
        answer = work()
        with os.fdopen(write, "wb") as stream:
            send(stream, answer)
        status = 0
    finally:
        # os._exit, as a normal exit of Python would wait for the program's threads, which may block forever.
        os._exit(status)


def _end(child: int) -> None:
    """End a child and all that it has started, where that still runs."""
    # It may have ended, been waited for, or not made its group yet.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
