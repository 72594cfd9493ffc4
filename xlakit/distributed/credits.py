"""Credits: flow control by how many bytes of values a process may send to another one ahead of their use there.

A process that runs ahead would fill the memory of one that is behind. So each counts, for each other process, the bytes
of all values that it has sent there, and gets acknowledged how many of them are used: have been received by a device,
or dropped. It waits where more than the limit would be on their way. A value larger than the limit travels alone.

The receiver acknowledges after a quarter of the limit, and at once to a process that waits.

    sent ........................|
    used there ..........|         the process may send while sent - used <= limit
    acknowledged |                 the sender's last information about used

Where collectives come in one order on all devices, no wait is endless: of all that wait, the one whose collective comes
first in that order has room, since what it has sent before belongs to collectives that are over. Values of channels
have no such order; they wait only for those of earlier runs.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

# What a value takes beside its bytes.
OVERHEAD: Final = 512


class Credits:
    """The byte counts of one process, by the other process; the caller holds a lock.

    limit: how many bytes may be on their way to one process.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # As the sender: the bytes sent, and of these the acknowledged ones.
        self._sent = Counter[int]()
        self._acknowledged = Counter[int]()
        # As the receiver: the bytes used, and of these the ones that have been acknowledged.
        self._used = Counter[int]()
        self._reported = Counter[int]()
        self._waiting: set[int] = set()

    # -- of the sender ---------------------------------------------------------------------------

    def has_room(self, rank: int, size: int, exempt: int = 0) -> bool:
        """Whether a value of so many bytes may be sent to a process.

        exempt: how many bytes that are on their way do not count.
        """
        ahead = max(0, self._sent[rank] - self._acknowledged[rank] - exempt)
        return not ahead or ahead + size + OVERHEAD <= self._limit

    def add_sent(self, rank: int, size: int) -> int:
        """Count a value that is sent; gives the bytes that it counts."""
        self._sent[rank] += size + OVERHEAD
        return size + OVERHEAD

    def acknowledge(self, rank: int, used: int) -> None:
        """Take an acknowledgement of a process of all that it has used so far."""
        self._acknowledged[rank] = max(self._acknowledged[rank], used)

    def acknowledged(self, rank: int) -> int:
        """The bytes that a process has acknowledged."""
        return self._acknowledged[rank]

    # -- of the receiver -------------------------------------------------------------------------

    def add_used(self, rank: int, size: int) -> bool:
        """Count a value of a process that is used; gives whether to acknowledge now."""
        self._used[rank] += size + OVERHEAD
        return rank in self._waiting or self._used[rank] - self._reported[rank] > self._limit // 4

    def add_waiting(self, rank: int) -> None:
        """Note that a process waits for room: the next value used is acknowledged at once."""
        self._waiting.add(rank)

    def take_used(self, rank: int) -> int:
        """The bytes to acknowledge to a process now."""
        self._waiting.discard(rank)
        self._reported[rank] = self._used[rank]
        return self._used[rank]
