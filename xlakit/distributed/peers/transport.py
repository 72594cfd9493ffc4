"""Transport: connections between processes, by ZeroMQ.

Each process has one socket that receives, and a socket for each process that it sends to. ZeroMQ keeps the order of the
messages between two processes, and its own thread carries them while Python does something else. A connection that ends
is not used again, though ZeroMQ would, because messages may have been lost with it.
"""

from __future__ import annotations

import importlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from xlakit.distributed.packing import Bytes
from xlakit.errors import ResourceError, UnsupportedError

# How often the receiving thread looks for new connections, in milliseconds.
_POLL = 100
# How long the end waits for the last messages to leave, in milliseconds. Whoever sent them knows what has arrived.
_LINGER = 200


def _zmq() -> Any:
    try:
        return importlib.import_module("zmq")
    except ImportError as error:
        raise UnsupportedError(
            f"programs on several processes that MPI did not start need pyzmq: {error}",
            hint="pip install 'xlakit[distributed]'",
        ) from None


class Transport:
    """The sockets of a process.

    host: the address of this machine at which the others reach it. receive: is called with the head and the body of
    every message, by one thread. lost: is called with the rank of a process to which the connection has ended.
    """

    def __init__(self, host: str, receive: Callable[[bytes, Bytes], None], lost: Callable[[int], None]) -> None:
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
        self._lock = threading.Lock()
        self._outboxes: dict[int, Any] = {}
        # Sockets that report the end of a connection, which the thread has not taken over.
        self._new_monitors: deque[tuple[int, Any]] = deque()
        self._is_closing = False
        self._thread = threading.Thread(target=self._serve, name="xlakit-peers", daemon=True)
        self._thread.start()

    def connect(self, rank: int, endpoint: str) -> None:
        """Connect to a process, once; does not wait for it."""
        zmq = self._zmq
        with self._lock:
            if rank in self._outboxes or self._is_closing:
                return
            socket = self._context.socket(zmq.PUSH)
            socket.setsockopt(zmq.SNDHWM, 0)
            socket.setsockopt(zmq.IPV6, 1)
            monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            socket.connect(endpoint)
            self._outboxes[rank] = socket
            self._new_monitors.append((rank, monitor))

    def send(self, rank: int, head: bytes, body: Bytes | None = None) -> None:
        """Send a message, without waiting; the body must not be changed any more. Nothing is sent to a process that is
        lost.
        """
        with self._lock:
            socket = self._outboxes.get(rank)
            if socket is not None and not socket.closed:
                socket.send_multipart([head] if body is None else [head, body], copy=False)

    def connected(self) -> list[int]:
        """The processes to which there are connections."""
        with self._lock:
            return [rank for rank, socket in self._outboxes.items() if not socket.closed]

    def close(self) -> None:
        """Close the sockets."""
        with self._lock:
            self._is_closing = True
        self._thread.join()
        self._context.destroy(linger=_LINGER)

    def _serve(self) -> None:
        zmq = self._zmq
        poller = zmq.Poller()
        poller.register(self._inbox, zmq.POLLIN)
        monitors: dict[Any, int] = {}
        while not self._is_closing:
            while self._new_monitors:
                rank, monitor = self._new_monitors.popleft()
                monitors[monitor] = rank
                poller.register(monitor, zmq.POLLIN)
            for socket, _ in poller.poll(_POLL):
                if socket is self._inbox:
                    self._take_all()
                    continue
                # What it says does not matter: it is about the end of the connection.
                poller.unregister(socket)
                self._drop(monitors.pop(socket))

    def _take_all(self) -> None:
        zmq = self._zmq
        while True:
            try:
                frames = self._inbox.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            # A copy, because machine code wants arrays that are aligned.
            body = np.empty(len(frames[1].buffer) if len(frames) > 1 else 0, np.uint8)
            if len(body):
                body[:] = np.frombuffer(frames[1].buffer, np.uint8)
            self._receive(frames[0].bytes, body)

    def _drop(self, rank: int) -> None:
        with self._lock:
            socket = self._outboxes[rank]
            socket.disable_monitor()
            socket.close(linger=0)
        self._lost(rank)
