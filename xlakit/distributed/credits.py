"""Credits: how many bytes of values a process may send to another one that this one has not asked for yet.

A process that runs ahead would fill the memory of one that is behind. So each counts, for each other process, the bytes
of all values that it has sent there, and is told how many of them have been used: have been received by a device, or
dropped. It waits where more than the limit would be on their way. A value larger than the limit travels alone.

The receiver tells what it has used after a quarter of the limit, and at once to a process that waits.

    sent ........................|
    used there ..........|         the process may send while sent - used <= limit
    told ........|                 what it knows of used

Where collectives come in one order that all devices agree on, nothing waits for ever: of all that wait, the one whose
collective comes first in that order has room, since what it has sent before belongs to collectives that are over.
Values of channels have no such order; they wait only for those of earlier runs.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

# What a value takes beside its bytes.
OVERHEAD: Final = 512


class Credits:
    """The accounts of one process; the caller holds a lock.

    limit: how many bytes may be on their way to one process.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sent = Counter[int]()
        self._heard = Counter[int]()
        self._used = Counter[int]()
        self._told = Counter[int]()
        self._waiting: set[int] = set()

    # -- of the sender ---------------------------------------------------------------------------

    def has_room(self, rank: int, size: int, exempt: int = 0) -> bool:
        """Whether a value of so many bytes may be sent to a process.

        exempt: how many bytes that are on their way do not count.
        """
        ahead = max(0, self._sent[rank] - self._heard[rank] - exempt)
        return not ahead or ahead + size + OVERHEAD <= self._limit

    def note_sent(self, rank: int, size: int) -> int:
        """Count a value that is sent; gives the bytes that it counts."""
        self._sent[rank] += size + OVERHEAD
        return size + OVERHEAD

    def hear(self, rank: int, used: int) -> None:
        """Note what a process says that it has used."""
        self._heard[rank] = max(self._heard[rank], used)

    def heard(self, rank: int) -> int:
        """What a process has said that it has used."""
        return self._heard[rank]

    # -- of the receiver -------------------------------------------------------------------------

    def note_used(self, rank: int, size: int) -> bool:
        """Count a value of a process that is used; gives whether that process is to be told now."""
        self._used[rank] += size + OVERHEAD
        return rank in self._waiting or self._used[rank] - self._told[rank] > self._limit // 4

    def note_waiting(self, rank: int) -> None:
        """Note that a process waits for room."""
        self._waiting.add(rank)

    def tell(self, rank: int) -> int:
        """What a process is to be told that is used of its values."""
        self._waiting.discard(rank)
        self._told[rank] = self._used[rank]
        return self._used[rank]
