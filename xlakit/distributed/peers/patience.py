"""Patience: how long a process waits for another one at one point of a run, and the error when it gives up.

A process that computes is waited for without limit. One that has ended the run, or whose connection has ended, will not
come. Otherwise it is asked what it does: one that does not answer is given up soon, one that answers late.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Protocol

from xlakit.distributed.peers.letters import Progress, RunKey
from xlakit.errors import RankError
from xlakit.execution.run import Run
from xlakit.settings import default_timeout

# Seconds until the first question, and the most between two.
_FIRST, _MOST = 0.25, 2.0
# What is still on its way from a process that has ended arrives within so many seconds.
_DRAIN = 1.0
# A process that answers may be reading a checkpoint, or compiling, for long.
_ALIVE = 300.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a process has said of a run, and when."""

    progress: Progress
    text: str
    when: float


class Peers(Protocol):
    """The other processes, as a wait sees them."""

    def name_of(self, rank: int) -> str:
        """The name of a process in errors."""
        ...

    def ask(self, rank: int, run: RunKey) -> None:
        """Ask a process for its progress in a run."""
        ...

    def answer(self, rank: int, run: RunKey) -> Answer | None:
        """The last answer."""
        ...

    def gone(self, rank: int) -> tuple[float, str] | None:
        """When a process was last heard of, and how it ended; None while it is there."""
        ...


class Patience:
    """A wait for one process."""

    def __init__(self, peers: Peers, run: Run, key: RunKey, rank: int) -> None:
        self._peers = peers
        self._run = run
        self._key = key
        self._rank = rank
        self._timeout = default_timeout()
        self._alive = self._timeout if "XLAKIT_TIMEOUT" in os.environ else _ALIVE
        self._since = self._change = time.monotonic()
        self._interval = min(_FIRST, self._timeout / 8)
        self._next = self._since + self._interval

    def check(self) -> None:
        """To be called repeatedly while nothing has come; raises RankError where nothing will, Stopped if the run has
        failed.
        """
        self._run.check()
        now = time.monotonic()
        gone = self._peers.gone(self._rank)
        if gone is not None and now - gone[0] > _DRAIN:
            raise self._error(gone[1], now)
        if now < self._next:
            return
        self._interval = min(2 * self._interval, _MOST, self._timeout / 8)
        self._next = now + self._interval
        self._look(now)
        self._peers.ask(self._rank, self._key)

    def _look(self, now: float) -> None:
        answer = self._peers.answer(self._rank, self._key)
        if answer is None or answer.when < self._since:
            if now - self._since > self._timeout:
                raise self._error("does not answer", now)
            return
        if now - answer.when > self._timeout:
            raise self._error(f"no longer answers; it {_says(answer)}", now)
        if answer.progress is Progress.OVER:
            raise self._error("has ended the program", now)
        if answer.progress is Progress.RUNNING:
            self._change = now
        elif now - self._change > self._alive:
            raise self._error(_says(answer), now)

    def _error(self, what: str, now: float) -> RankError:
        return RankError(
            f"{self._peers.name_of(self._rank)} {what}, after {now - self._since:.1f} seconds of waiting",
            hint="XLAKIT_TIMEOUT says how many seconds to wait for a process that does not come",
        )


def _says(answer: Answer) -> str:
    if answer.progress is Progress.NOT_BEGUN:
        return "has not begun the program" + (f" ({answer.text})" if answer.text else "")
    return f"waits in {answer.text}" if answer.progress is Progress.WAITING else "computes"
