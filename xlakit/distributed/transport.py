"""Transport: the interface of message transports between processes.

A transport keeps the order of the messages from one process to another. Messages are received during calls of
:meth:`Transport.pump`, by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from xlakit.distributed.packing import Bytes

# Called with the head and the body of every message that arrives.
Receive = Callable[[bytes, Bytes], None]
# Called with the rank of a process to which the connection has ended.
Lost = Callable[[int], None]


class Transport(Protocol):
    """The connections of a process. Any thread may call the methods, :meth:`pump` and :meth:`look` one at a time."""

    endpoint: str
    """Where the others reach this process, in the transport's own words."""
    ends_together: bool
    """Whether a process can end only when all do."""

    def connect(self, rank: int, endpoint: str) -> None:
        """Connect to a process, once; does not wait for it."""
        ...

    def send(self, rank: int, head: bytes, body: Bytes | None = None) -> None:
        """Send a message without waiting; the body must not be changed afterwards. No effect for a lost process."""
        ...

    def new_body(self, size: int) -> Bytes:
        """Memory for the body of a message, where it can be sent with the fewest copies."""
        ...

    def connected(self) -> list[int]:
        """The processes to notify when this one ends."""
        ...

    def pump(self, seconds: float) -> None:
        """Receive the messages that have arrived; if there is none, wait for one, at most so many seconds."""
        ...

    def look(self) -> None:
        """Detect connections that have ended."""
        ...

    def close(self, *, deserted: bool) -> None:
        """Close the connections after the last messages are sent.

        deserted: whether a process has not acknowledged that this one ends.
        """
        ...


Open = Callable[[Receive, Lost], Transport]
"""Opens a transport."""
