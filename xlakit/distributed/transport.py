"""Transport: the interface of what carries messages between processes.

It keeps the order of the messages from one process to another. They arrive while :meth:`Transport.pump` is called,
by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from xlakit.distributed.packing import Bytes

# Is called with the head and the body of every message that arrives.
Receive = Callable[[bytes, Bytes], None]
# Is called with the rank of a process to which the connection has ended.
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
        """Send a message, without waiting; the body must not be changed any more. Nothing is sent to a process that is
        lost.
        """
        ...

    def new_body(self, size: int) -> Bytes:
        """Memory for the body of a message, from which it is sent with the fewest copies."""
        ...

    def connected(self) -> list[int]:
        """The processes to notify when this one ends."""
        ...

    def pump(self, seconds: float) -> None:
        """Take in what has arrived; where there is nothing, wait for it, so many seconds at most."""
        ...

    def look(self) -> None:
        """Notice connections that have ended."""
        ...

    def close(self, *, deserted: bool) -> None:
        """Close the connections, when the last messages have left.

        deserted: whether a process does not acknowledge that this one ends.
        """
        ...


Open = Callable[[Receive, Lost], Transport]
"""Opens a transport."""
