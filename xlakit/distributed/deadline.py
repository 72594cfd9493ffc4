"""Deadline: how long a process waits for others at one point of a run, and the error when it gives up.

The waiting process queries the status of the others. It waits without limit for a process that computes, and for one
that waits (directly or not) for a process that computes: each answer has the time since such a process last computed.
It gives up at once on a process that has ended the run, whose connection has ended, or that runs another program; and
after the timeout on a process that does not answer, or that answers but neither computes nor waits for one that does.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from xlakit.distributed.messages import Progress, RunKey
from xlakit.errors import RankError
from xlakit.execution.run import Run

# Seconds until the first query, the longest interval between two, and the factor by which intervals grow.
_FIRST, _MOST, _LATER = 0.25, 2.0, 1.5
# The factor on the timeout for processes that wait themselves.
_LONGER = 1.25
_MOST_LINES = 8


@dataclass(frozen=True, slots=True)
class Status:
    """The answer of a process about a run. when: the time of the answer. program: its fingerprint, 0 if unknown.

    idle: the seconds since a process that it waits for, directly or not, last computed, as far as it knows.
    """

    progress: Progress
    program: int
    text: str
    when: float
    idle: float


class Others(Protocol):
    """The other processes, as a wait sees them."""

    def name_of(self, rank: int) -> str:
        """The name of a process in errors."""
        ...

    def query(self, ranks: Collection[int], run: RunKey) -> None:
        """Ask some processes for their progress in a run."""
        ...

    def status(self, rank: int, run: RunKey) -> Status | None:
        """The last answer of a process."""
        ...

    def gone(self, ranks: Collection[int]) -> Mapping[int, str]:
        """Those of ``ranks`` from which no message can arrive any more, with how they ended."""
        ...

    def is_connected(self, rank: int) -> bool:
        """Whether the connection to a process has not ended."""
        ...

    def program_error(self, run: RunKey, rank: int, text: str) -> RankError:
        """The error for a process that runs another program than this one."""
        ...

    def note_computed(self, run: RunKey, when: float) -> None:
        """Record that a process that a run waits for, directly or not, computed at time ``when``."""
        ...


class Deadline:
    """A wait for some processes.

    program: the fingerprint of the program of the run. timeout: the seconds after which a process that does not answer
    is given up. alive: the same for a process that answers, but makes no progress.
    """

    def __init__(self, others: Others, run: Run, key: RunKey, program: int, timeout: float, alive: float) -> None:
        self._others = others
        self._run = run
        self._key = key
        self._program = program
        self._timeout = timeout
        self._alive = alive
        self._since = self._change = time.monotonic()
        # The times of the last two queries: an answer describes a state after the first of them.
        self._asked = self._since, self._since
        self._interval = min(_FIRST, timeout / 8)
        self._next = self._since + self._interval

    def check(self, missing: Collection[int]) -> None:
        """Called repeatedly while values of the missing processes have not arrived.

        Raises RankError if they will not arrive, Stopped if the run has failed.
        """
        self._run.check()
        lost = self._others.gone(missing)
        if lost:
            raise self._error([f"{self._others.name_of(rank)} {how}" for rank, how in lost.items()])
        now = time.monotonic()
        if now < self._next:
            return
        self._interval = min(_LATER * self._interval, _MOST, self._timeout / 8)
        self._next = now + self._interval
        self._judge(missing, now)
        self._asked = self._asked[1], now
        self._others.query(missing, self._key)

    def _judge(self, missing: Collection[int], now: float) -> None:
        """Raise if some processes cannot arrive any more, or have made no progress for too long."""
        lost: list[str] = []
        idle: list[str] = []
        waiting: list[str] = []
        is_computing = False
        # Processes whose connection has ended are skipped until their last messages have arrived; then they are gone.
        for rank in sorted(filter(self._others.is_connected, missing)):
            name, status = self._others.name_of(rank), self._others.status(rank, self._key)
            if status is None or status.when < self._since:
                if now - self._since > self._timeout:
                    lost.append(f"{name} does not answer")
                continue
            if status.program not in (0, self._program):
                raise self._others.program_error(self._key, rank, status.text)
            if status.progress is Progress.OVER:
                lost.append(f"{name} has ended the program")
            elif now - status.when > self._timeout:
                lost.append(f"{name} no longer answers; it {_words(status)}")
            elif status.progress is Progress.RUNNING:
                is_computing = True
            else:
                # Dated before the answer was made, so that processes that wait for each other do not delay each other.
                self._change = max(self._change, min(status.when, self._asked[0]) - status.idle)
                (waiting if status.progress is Progress.WAITING else idle).append(f"{name} {_words(status)}")
        if is_computing:
            self._change = now
        self._others.note_computed(self._key, self._change)
        if lost:
            raise self._error(lost)
        if idle and now - self._change > self._alive:
            raise self._error(idle + waiting)
        # Raised later: the cause is rather the process that these wait for, which others report first.
        if waiting and now - self._change > _LONGER * self._alive:
            raise self._error(waiting)

    def _error(self, lines: Sequence[str]) -> RankError:
        after = f"after {time.monotonic() - self._since:.1f} seconds of waiting"
        if len(lines) == 1:
            rule = f"{lines[0]}, {after}"
        else:
            shown = "".join(f"\n  {line}" for line in lines[:_MOST_LINES])
            more = f"\n  and {len(lines) - _MOST_LINES} more" if len(lines) > _MOST_LINES else ""
            rule = f"{len(lines)} processes do not come, {after}:{shown}{more}"
        return RankError(rule, hint="XLAKIT_TIMEOUT says how many seconds to wait for a process that does not come")


def _words(status: Status) -> str:
    if status.progress is Progress.NOT_BEGUN:
        return "has not begun the program" + (f" ({status.text})" if status.text else "")
    return f"waits in {status.text}" if status.progress is Progress.WAITING else "computes"
