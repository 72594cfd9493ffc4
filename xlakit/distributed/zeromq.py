"""ZeroMqTransport: connections between processes by ZeroMQ.

Each process has one socket that receives, and a socket for each process that it sends to. ZeroMQ keeps the order of the
messages between two processes, and transfers them on its own thread. A connection that has ended is not used again,
although ZeroMQ would reconnect, because messages may have been lost with it.
"""

from __future__ import annotations

import importlib
import selectors
import threading
import time
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from xlakit.distributed.packing import Bytes
from xlakit.distributed.transport import Lost, Receive
from xlakit.errors import ResourceError, UnsupportedError

# The longest time that closing waits for the last messages to be sent, in milliseconds.
_LINGER = 200
# The interval at which connections are checked for their end, in seconds; not shorter, as there may be many.
_LOOK = 0.2
# A body of so many bytes is sent without a copy.
_ZERO_COPY = 1 << 16


def _zmq() -> Any:
    try:
        return importlib.import_module("zmq")
    except ImportError as error:
        raise UnsupportedError(
            f"programs on several processes that MPI did not start need pyzmq: {error}",
            hint="pip install 'xlakit[distributed]'",
        ) from None


class ZeroMqTransport:
    """See :class:`xlakit.distributed.transport.Transport`.

    host: the address of this machine at which the others reach it.
    """

    ends_together = False

    def __init__(self, host: str, receive: Receive, lost: Lost) -> None:
        zmq = self._zmq = _zmq()
        self._receive = receive
        self._lost = lost
        self._context = zmq.Context()
        self._inbox = self._context.socket(zmq.PULL)
        self._inbox.setsockopt(zmq.RCVHWM, 0)
        self._inbox.setsockopt(zmq.IPV6, 1)
        address = f"[{host}]" if ":" in host else host
        try:
            self._inbox.bind(f"tcp://{address}:*")
        except zmq.ZMQError as error:
            raise ResourceError(
                f"this process cannot be reached at {host}: {error}",
                hint="the environment variable XLAKIT_ADDRESS says at which address the other machines reach this one",
            ) from None
        self.endpoint: str = self._inbox.getsockopt(zmq.LAST_ENDPOINT).decode().rstrip("\0")
        # ZeroMQ's descriptor is readable when a message may have arrived, until the socket is read.
        self._arrivals = selectors.DefaultSelector()
        self._arrivals.register(self._inbox.getsockopt(zmq.FD), selectors.EVENT_READ)
        self._next_frame = partial(self._inbox.recv, zmq.NOBLOCK, False)
        self._frames: deque[Any] = deque()
        self._lock = threading.Lock()
        self._outboxes: dict[int, Any] = {}
        # Sockets that report the end of a connection.
        self._monitors: dict[int, Any] = {}
        self._next_look = 0.0

    def connect(self, rank: int, endpoint: str) -> None:
        """Connect to a process, once; does not wait for it."""
        zmq = self._zmq
        with self._lock:
            if rank in self._outboxes or self._context.closed:
                return
            socket = self._context.socket(zmq.PUSH)
            socket.setsockopt(zmq.SNDHWM, 0)
            socket.setsockopt(zmq.IPV6, 1)
            self._monitors[rank] = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            socket.connect(endpoint)
            self._outboxes[rank] = socket

    def send(self, rank: int, head: bytes, body: Bytes | None = None) -> None:
        """Send a message, without waiting."""
        with self._lock:
            socket = self._outboxes.get(rank)
            if socket is None or socket.closed:
                return
            if body is None:
                socket.send(head)
                return
            socket.send(head, self._zmq.SNDMORE)
            socket.send(body, copy=len(body) < _ZERO_COPY)

    def connected(self) -> list[int]:
        """The processes to which there are connections."""
        with self._lock:
            return [rank for rank, socket in self._outboxes.items() if not socket.closed]

    def pump(self, seconds: float) -> None:
        """Receive the messages that have arrived; if there is none, wait for one, at most so many seconds."""
        if not self.take():
            self.wait(seconds)
            self.take()

    def wait(self, seconds: float) -> None:
        """Wait until a message may have arrived, at most so many seconds."""
        self._arrivals.select(seconds)

    def new_body(self, size: int) -> Bytes:
        """Memory for a body."""
        return np.empty(size, np.uint8)

    def take(self) -> bool:
        """Receive the messages that have arrived; gives whether there were any."""
        with suppress(self._zmq.Again):
            # A loop in C: a KeyboardInterrupt cannot lose a frame between its reading and its storing.
            self._frames.extend(iter(self._next_frame, None))
        any_arrived = bool(self._frames)
        while self._frames:
            head = self._frames[0]
            has_body = bool(head.more)
            data = self._frames[1].buffer if has_body else b""
            # Copied, because machine code needs aligned arrays.
            body = np.empty(len(data), np.uint8)
            if has_body:
                body[:] = np.frombuffer(data, np.uint8)
            self._receive(head.bytes, body)
            for _ in range(1 + has_body):
                self._frames.popleft()
        return any_arrived

    def look(self) -> None:
        """Detect connections that have ended."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK
        # Any event of a monitor means that the connection has ended.
        ended = [rank for rank, monitor in list(self._monitors.items()) if monitor.poll(0)]
        for rank in ended:
            del self._monitors[rank]
            with self._lock:
                socket = self._outboxes[rank]
                socket.disable_monitor()
                socket.close(linger=0)
            self._lost(rank)

    def close(self, *, deserted: bool) -> None:
        """Close the sockets."""
        with self._lock:
            self._arrivals.close()
            self._context.destroy(linger=_LINGER)
