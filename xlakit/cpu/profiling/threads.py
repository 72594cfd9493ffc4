"""The threads of a profile: the time that each worked, waited, and took to wake up."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence, Set
from dataclasses import field
from typing import Any

from xlakit.cpu.profiling.recorder import Event
from xlakit.dataclass import dataclass


@dataclass(slots=True)
class ThreadTimes:
    """A thread that took part in runs; times are in nanoseconds.

    thread: its identifier in Python and the system. calls: whether it called the program; other threads are workers of
    the pool. busy: its time on steps that it executed alone and on ranges of tasks; ranges: their number. shared: the
    number of executions of shared steps that it took part in. waiting: the time in these without a range. waking: the
    time from their begin to its first range. The last two are None if several threads called the program: then the
    step of a range is not known.
    """

    thread: int
    calls: bool
    busy: int = 0
    ranges: int = 0
    shared: int = 0
    waiting: int | None = 0
    waking: int | None = 0

    @property
    def name(self) -> str:
        """The kind of thread: ``caller`` or ``worker``."""
        return "caller" if self.calls else "worker"

    def as_dict(self) -> dict[str, Any]:
        """The fields for JSON."""
        return {
            "thread": self.thread,
            "calls": self.calls,
            "busy_nanoseconds": self.busy,
            "ranges": self.ranges,
            "shared_steps": self.shared,
            "waiting_nanoseconds": self.waiting,
            "waking_nanoseconds": self.waking,
        }


@dataclass(slots=True)
class _Part:
    """The part of one thread in one execution of a shared step."""

    busy: int = 0
    first: int = field(default=(1 << 63) - 1)


def thread_times(events: Sequence[Event], shared: Set[int], holders: Set[int]) -> tuple[ThreadTimes, ...]:
    """The threads of some events: first the threads that called the program, then workers, the busiest first.

    shared: the numbers of steps that threads share. holders: the numbers of steps that consist of other steps.
    """
    callers = dict.fromkeys(event.thread for event in events if not event.is_range)
    found = {thread: ThreadTimes(thread, calls=True) for thread in callers}
    for event in events:
        own = found.setdefault(event.thread, ThreadTimes(event.thread, calls=False))
        if event.is_range:
            own.busy += event.end - event.begin
            own.ranges += 1
        elif event.step not in shared and event.step not in holders:
            own.busy += event.end - event.begin
    if len(callers) == 1:
        _add_waits(events, shared, found)
    else:
        for own in found.values():
            own.waiting = own.waking = None
    return tuple(sorted(found.values(), key=lambda own: (not own.calls, -own.busy)))


def _add_waits(events: Sequence[Event], shared: Set[int], found: dict[int, ThreadTimes]) -> None:
    """Add the time that threads waited in shared steps. The steps of one caller do not overlap, so a range has one."""
    executions = sorted((e for e in events if not e.is_range and e.step in shared), key=lambda e: e.begin)
    begins = [e.begin for e in executions]
    parts: dict[tuple[int, int], _Part] = {}
    for event in events:
        if not event.is_range:
            continue
        index = bisect_right(begins, event.begin) - 1
        if index < 0 or event.end > executions[index].end:
            continue
        part = parts.setdefault((event.thread, index), _Part())
        part.busy += event.end - event.begin
        part.first = min(part.first, event.begin)
    for (thread, index), part in parts.items():
        own, execution = found[thread], executions[index]
        own.shared += 1
        own.waiting = (own.waiting or 0) + execution.end - execution.begin - part.busy
        own.waking = (own.waking or 0) + part.first - execution.begin
