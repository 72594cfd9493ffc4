"""Credits: flow control that limits the bytes of values that a process sends ahead of their use in the receiver.

A process that runs ahead would fill the memory of a slower one. So each process counts the bytes of the values that it
has sent to each other process, and gets acknowledgements of the bytes used there: received by a device, or dropped. It
waits if more than the limit would be in flight. A value larger than the limit is sent alone.

The receiver acknowledges after a quarter of the limit, and at once to a process that waits.

    sent ........................|
    used there ..........|         the process may send while sent - used <= limit
    acknowledged |                 the sender's last information about used

If collectives have one order on all devices, no wait is endless: of all waiting senders, the one whose collective is
first in that order has room, since the values it has sent before belong to finished collectives. Values of channels
have no such order; they wait only for values of earlier runs.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

# The bytes that a value is counted in addition to its own.
OVERHEAD: Final = 512


class Credits:
    """The byte counts of one process, by the other process; the caller holds a lock.

    limit: the most bytes in flight to one process.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # As the sender: the bytes sent, and of these the acknowledged ones.
        self._sent: dict[int, int] = Counter[int]()
        self._acknowledged = Counter[int]()
        # As the receiver: the bytes used, and of these the ones that have been acknowledged.
        self._used = Counter[int]()
        self._reported = Counter[int]()
        self._waiting: set[int] = set()

    # -- of the sender ---------------------------------------------------------------------------

    def has_room(self, rank: int, size: int, exempt: int = 0) -> bool:
        """Whether a value of so many bytes may be sent to a process.

        exempt: the number of bytes in flight that are not counted.
        """
        ahead = max(0, self._sent[rank] - self._acknowledged.get(rank, 0) - exempt)
        return not ahead or ahead + size + OVERHEAD <= self._limit

    def take_room(self, rank: int, size: int, exempt: int = 0) -> int:
        """As :meth:`add_sent` if there is room for the value, else 0."""
        sent = self._sent[rank]
        # A process whose values are used up to now has room for any.
        ahead = sent - self._acknowledged.get(rank, 0) - exempt
        size += OVERHEAD
        if ahead > 0 and ahead + size > self._limit:
            return 0
        self._sent[rank] = sent + size
        return size

    def add_sent(self, rank: int, size: int) -> int:
        """Count a value that is sent; gives the bytes that it counts."""
        self._sent[rank] += size + OVERHEAD
        return size + OVERHEAD

    def acknowledge(self, rank: int, used: int) -> None:
        """Record an acknowledgement by a process of all bytes that it has used so far."""
        self._acknowledged[rank] = max(self._acknowledged[rank], used)

    def acknowledged(self, rank: int) -> int:
        """The bytes that a process has acknowledged."""
        return self._acknowledged[rank]

    # -- of the receiver -------------------------------------------------------------------------

    def add_used(self, rank: int, size: int) -> bool:
        """Count a value of a process that is used; gives whether to acknowledge now."""
        self._used[rank] += size + OVERHEAD
        return rank in self._waiting or self._used[rank] - self._reported.get(rank, 0) > self._limit // 4

    def add_waiting(self, rank: int) -> None:
        """Note that a process waits for room: the next value used is acknowledged at once."""
        self._waiting.add(rank)

    def take_used(self, rank: int) -> int:
        """The bytes to acknowledge to a process now."""
        self._waiting.discard(rank)
        self._reported[rank] = self._used[rank]
        return self._used[rank]
