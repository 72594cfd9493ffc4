"""Connections: the messages of a process to and from the others, and which of these have ended.

A thread that waits for a message receives messages itself, so that no other thread has to wake it. While none waits, a
background thread receives. The receiving thread holds ``_pumping``.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType

from xlakit.condition import Condition
from xlakit.distributed.messages import Address, Header, Kind, RunKey
from xlakit.distributed.packing import Bytes
from xlakit.distributed.transport import Open

# The interval at which a waiting thread checks for changes without notification, in seconds.
_PAUSE = 0.05
# The interval at which the background thread checks while other threads receive, and the time for which it stays aside
# after they have, in seconds: they are likely to wait again, and are faster if they receive themselves.
_ASIDE, _LATELY = 0.005, 0.02
# The longest time that an ending process waits for acknowledgements of processes that continue without it, in seconds.
_LEAVE_SECONDS = 5.0
# The interval at which an ending process asks its neighbor whether it still exists, in seconds.
_NEIGHBOR_SECONDS = 0.5
# The time after the end of a connection within which messages sent before it still arrive, in seconds.
_DRAIN = 1.0


def process_name(noun: str, rank: int, devices: range) -> str:
    """The name of a process in errors, with the devices that it has."""
    many = len(devices) > 1
    return f"{noun} {rank} (device{'s' * many} {devices.start}{f' to {devices.stop - 1}' * many})"


class Connections:
    """The connections of a process.

    open: opens them. handle: called with each message that arrives, once the process has joined. :meth:`join` is called
    once, after the processes have exchanged their :attr:`endpoint`.
    """

    def __init__(self, open: Open, handle: Callable[[Header, Bytes], None]) -> None:
        self.rank = 0
        # The error with which this process ends; empty where there is none.
        self.error = ""
        # The lock of this object and of its users; notified when a message has arrived.
        self.condition = Condition()
        self._handle = handle
        self._token = b""
        self._endpoints: Sequence[str] = ()
        self._names: Sequence[str] = ()
        # For each process: the time of its last message; how it ended, if it has; and whether its connection ended.
        self._heard: dict[int, float] = {}
        self._left: dict[int, str] = {}
        self._disconnected: set[int] = set()
        # The processes that have acknowledged that this one ends.
        self._acknowledged: set[int] = set()
        # The messages that arrived before this process joined.
        self._unread: list[tuple[bytes, Bytes]] = []
        self._pumping = threading.Lock()
        # The number of threads that wait for messages, and the time at which one last stopped waiting.
        self.awaiting = 0
        self.last_awaited = 0.0
        self._is_closing = False
        self._transport = open(self._receive_message, self._lost)
        self.endpoint = self._transport.endpoint
        # Whether the transport requires that all processes end together.
        self.ends_together = self._transport.ends_together
        # Allocates the body of a message where it can be sent with the fewest copies.
        self.new_body = self._transport.new_body
        self._thread = threading.Thread(target=self._serve, name="xlakit-network", daemon=True)
        self._thread.start()

    def join(self, rank: int, endpoints: Sequence[str], names: Sequence[str], token: bytes) -> None:
        """Set this process's rank, and the endpoints and the names (for errors) of all processes.

        token: the same random bytes in all processes of the job.
        """
        self.rank, self._endpoints, self._names = rank, endpoints, names
        if self.ends_together:
            for other in range(len(endpoints)):
                self.connect(other)
        before = sys.excepthook

        def note_error(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
            before(kind, error, traceback)
            self.error = f"{kind.__name__}: {error}"
            if not self._is_closing:
                self._announce_end()

        sys.excepthook = note_error
        with self.condition.lock:
            self._token = token
            unread, self._unread = self._unread, []
        for head, body in unread:
            self._receive_message(head, body)

    @property
    def has_joined(self) -> bool:
        """Whether :meth:`join` has been called."""
        return bool(self._token)

    def name_of(self, rank: int) -> str:
        """The name of a process in errors."""
        return self._names[rank]

    # -- sending ---------------------------------------------------------------------------------

    def connect(self, rank: int) -> None:
        """Connect to a process, once."""
        if rank != self.rank:
            self._transport.connect(rank, self._endpoints[rank])

    def send(self, rank: int, header: Header, body: Bytes | None = None) -> None:
        """Send a message to a process that is connected, without waiting."""
        if rank != self.rank:
            self._transport.send(rank, header.packed(self._token), body)

    def send_value(
        self, rank: int, run: RunKey, program: int, mark: int, address: Address, text: bytes, body: Bytes
    ) -> None:
        """Send a value to another process that is connected; its header is not made first."""
        self._transport.send(rank, Header.packed_value(self._token, self.rank, run, program, mark, address, text), body)

    def answer(self, rank: int, header: Header) -> None:
        """Send a message to a process that may not be connected yet."""
        self.connect(rank)
        self.send(rank, header)

    # -- receiving -------------------------------------------------------------------------------

    def awaited(self) -> _Awaited:
        """Hold the lock during the block, in which this thread waits for messages."""
        return _Awaited(self)

    def pump_or_wait(self) -> None:
        """Receive messages, or wait for the thread that does so now; the lock is held, and released meanwhile."""
        if not self._pumping.acquire(blocking=False):
            self.condition.wait(_PAUSE)
            return
        try:
            self.condition.lock.release()
            try:
                self._transport.pump(_PAUSE)
            finally:
                self.condition.lock.acquire()
        finally:
            self._pumping.release()

    def _serve(self) -> None:
        while not self._is_closing:
            self._transport.look()
            if self.awaiting:
                # A waiting thread may have found this one receiving, and has to take over.
                with self.condition.lock:
                    self.condition.notify_all()
                time.sleep(_ASIDE)
            elif time.monotonic() - self.last_awaited < _LATELY or not self._pumping.acquire(blocking=False):
                time.sleep(_ASIDE)
            else:
                try:
                    self._transport.pump(_PAUSE)
                finally:
                    self._pumping.release()

    def _receive_message(self, head: bytes, body: Bytes) -> None:
        if not self._token:
            with self.condition.lock:
                if not self._token:
                    self._unread.append((head, body))
                    return
        header = Header.unpacked(head, self._token)
        if header is None:
            return
        self._heard[header.rank] = time.monotonic()
        if header.kind is Kind.LEAVE_ACK:
            self._acknowledged.add(header.rank)
        elif header.kind is Kind.LEAVE:
            with self.condition.lock:
                self._left[header.rank] = header.text
            self.answer(header.rank, Header(Kind.LEAVE_ACK, self.rank))
        self._handle(header, body)
        with self.condition.lock:
            if self.condition.waiting:
                self.condition.notify_all()

    # -- the others ------------------------------------------------------------------------------

    def gone(self, ranks: Collection[int]) -> Mapping[int, str]:
        """Those of ``ranks`` from which no message can arrive any more, with how they ended."""
        if not self._left and not self._disconnected:
            return {}
        now = time.monotonic()
        return {
            rank: self._left.get(rank, "is gone: its connection has ended")
            for rank in ranks
            # The message LEAVE of a process is its last one.
            if rank in self._left or (rank in self._disconnected and now - self._heard[rank] > _DRAIN)
        }

    def is_connected(self, rank: int) -> bool:
        """Whether the connection to a process has not ended."""
        return rank not in self._disconnected

    def _has_ended(self, rank: int) -> bool:
        return rank in self._left or rank in self._disconnected

    def _lost(self, rank: int) -> None:
        with self.condition.lock:
            self._heard[rank] = time.monotonic()
            self._disconnected.add(rank)
            self.condition.notify_all()

    # -- the end of the process ------------------------------------------------------------------

    def leave(self, timeout: float) -> None:
        """Tell the others that this process ends, and wait for their acknowledgements.

        If the transport requires that all processes end together, wait until all end. timeout: the number of seconds
        after which a process that does not answer is given up.
        """
        others = self._announce_end()
        if self.ends_together:
            known = self._await_all(others, timeout)
        else:
            with self.condition.lock:
                known = self.condition.wait_for(
                    lambda: all(rank in self._acknowledged or self._has_ended(rank) for rank in others), _LEAVE_SECONDS
                )
        self._is_closing = True
        self._thread.join()
        self._transport.close(deserted=not known)

    def await_ends(self, seconds: float) -> None:
        """Wait until all others end, so many seconds at most."""
        others = self._transport.connected()
        with self.condition.lock:
            self.condition.wait_for(lambda: all(map(self._has_ended, others)), seconds)

    def _announce_end(self) -> list[int]:
        """Tell the other processes that this one ends; gives them."""
        others = self._transport.connected()
        text = f"has ended with an error: {self.error}" if self.error else "has ended"
        for rank in others:
            self.send(rank, Header(Kind.LEAVE, self.rank, text=text))
        return others

    def _await_all(self, others: Sequence[int], timeout: float) -> bool:
        """Wait until all processes end; False where one does not answer.

        Each asks the next one whether it is there, so that every process is watched.
        """
        neighbor = min(others, key=lambda rank: (rank < self.rank, rank), default=self.rank)
        begin = asked = time.monotonic()
        with self.condition.lock:
            while not all(map(self._has_ended, others)):
                now = time.monotonic()
                if now - max(begin, self._heard.get(neighbor, 0.0)) > timeout:
                    print(f"xlakit: {self.name_of(neighbor)} does not answer", file=sys.stderr)
                    return False
                if now - asked > _NEIGHBOR_SECONDS:
                    asked = now
                    self.send(neighbor, Header(Kind.QUERY, self.rank))
                self.condition.wait(_PAUSE)
        return True


class _Awaited:
    """See :meth:`Connections.awaited`."""

    __slots__ = ("_connections", "_lock")

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = connections.condition.lock

    def __enter__(self) -> None:
        self._lock.acquire()
        self._connections.awaiting += 1

    def __exit__(self, *_: object) -> None:
        connections = self._connections
        try:
            connections.awaiting -= 1
            connections.last_awaited = time.monotonic()
            if connections.awaiting:
                # Another waiting thread has to receive from here on.
                connections.condition.notify_all()
        finally:
            self._lock.release()
