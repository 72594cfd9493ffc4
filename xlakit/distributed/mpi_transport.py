"""MpiTransport: connections between processes by MPI, for processes that MPI has started.

A message is a packet: the sizes of head and body, the head, and the body if it fits; a larger body is a separate MPI
message, which is received directly into its final memory. Receives for packets are posted in advance. MPI is polled, at
growing intervals while nothing arrives.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from xlakit.distributed.mpi import Mpi, Pause
from xlakit.distributed.packing import Bytes
from xlakit.distributed.transport import Lost, Receive
from xlakit.errors import RankError, ResourceError

_PACKET_TAG, _BODY_TAG = 1, 2
# The sender; the size of the head; the size of the body; whether the body is a separate message.
_SIZES = struct.Struct("=4q")
_PACKET = 6144
# The number of receives for packets that are posted at a time.
_WAITING = 16
# After so many seconds without a message MPI is polled at longer intervals, in seconds.
_IDLE_AFTER, _IDLE = 1.0, 0.01
# The timeout of the creation of the communicator, in which all processes must take part, in seconds.
_JOIN_SECONDS = 300.0
# The longest time that closing waits for the last messages to be sent, in seconds.
_LINGER = 2.0


@dataclass(slots=True)
class _Packet:
    """A posted receive for a packet, and for its body if that is a separate message."""

    data: Bytes
    request: Any
    body: Bytes | None = None
    body_request: Any = None


class MpiTransport:
    """See :class:`xlakit.distributed.transport.Transport`. All processes make one at the same time."""

    ends_together = True

    def __init__(self, mpi: Mpi, receive: Receive, lost: Lost) -> None:
        self._mpi = mpi
        self._receive = receive
        self._lost = lost
        self.endpoint = f"mpi:{mpi.world.rank}"
        self._communicator, request = mpi.call(mpi.world.Idup)
        start = time.monotonic()

        def check() -> None:
            if time.monotonic() - start > _JOIN_SECONDS:
                raise RankError(
                    f"MPI made no communicator in {_JOIN_SECONDS:g} seconds",
                    hint="all processes that MPI has started must call xlakit.distributed.initialize(), or "
                    "jax.devices()",
                )

        mpi.finish(request, check)
        self._lock = threading.Lock()
        # MPI's rank of each process.
        self._mpi_ranks: dict[int, int] = {}
        # Sends that are under way, with the memory that they use.
        self._sending: deque[tuple[int, Any, Bytes]] = deque()
        self._packets = deque(self._new_packet() for _ in range(_WAITING))
        self._last_arrival = time.monotonic()
        # Processes to which MPI has refused to send.
        self._refused: set[int] = set()

    def _new_packet(self) -> _Packet:
        data = np.empty(_PACKET, np.uint8)
        api = self._mpi.api
        return _Packet(
            data, self._mpi.call(lambda: self._communicator.Irecv([data, api.BYTE], api.ANY_SOURCE, _PACKET_TAG))
        )

    def connect(self, rank: int, endpoint: str) -> None:
        """Record the MPI rank of a process."""
        self._mpi_ranks[rank] = int(endpoint.removeprefix("mpi:"))

    def send(self, rank: int, head: bytes, body: Bytes | None = None) -> None:
        """Send a message, without waiting."""
        if rank in self._refused or rank not in self._mpi_ranks:
            return
        size = 0 if body is None else len(body)
        room = _PACKET - _SIZES.size - len(head)
        apart = size > room
        text = _SIZES.pack(self._communicator.rank, len(head), size, apart) + head
        if size and not apart and body is not None:
            text += body.tobytes()
        try:
            with self._lock:
                self._start(rank, np.frombuffer(text, np.uint8), _PACKET_TAG)
                if apart and body is not None:
                    self._start(rank, body, _BODY_TAG)
        except ResourceError:
            self._refused.add(rank)

    def new_body(self, size: int) -> Bytes:
        """Memory for a body."""
        return np.empty(size, np.uint8)

    def _start(self, rank: int, data: Bytes, tag: int) -> None:
        api, mpi_rank = self._mpi.api, self._mpi_ranks[rank]
        request = self._mpi.call(lambda: self._communicator.Isend([data, api.BYTE], mpi_rank, tag))
        self._sending.append((rank, request, data))

    def connected(self) -> list[int]:
        """The processes to which this one has connected."""
        return [rank for rank in list(self._mpi_ranks) if rank not in self._refused]

    def pump(self, seconds: float) -> None:
        """Receive the messages that have arrived; if there is none, wait for one, at most so many seconds."""
        pause, start = Pause(), time.monotonic()
        while not self._take():
            now = time.monotonic()
            if now - start > seconds:
                break
            if now - self._last_arrival > _IDLE_AFTER and not self._sending:
                time.sleep(_IDLE)
            else:
                pause()
        else:
            self._last_arrival = time.monotonic()
        self._forget_sent()

    def _take(self) -> bool:
        """Hand over the packets that are complete, in the order in which they were sent."""
        any_arrived = False
        while self._is_complete(self._packets[0]):
            packet = self._packets[0]
            _, head_size, size, _ = _SIZES.unpack_from(packet.data.data)
            end = _SIZES.size + head_size
            body = packet.data[end : end + size].copy() if packet.body is None else packet.body
            self._receive(packet.data[_SIZES.size : end].tobytes(), body)
            self._packets.append(self._new_packet())
            self._packets.popleft()
            any_arrived = True
        return any_arrived

    def _is_complete(self, packet: _Packet) -> bool:
        if not self._mpi.call(packet.request.Test):
            return False
        if packet.body is None:
            source, _, size, apart = _SIZES.unpack_from(packet.data.data)
            if not apart:
                return True
            body, api = np.empty(size, np.uint8), self._mpi.api
            packet.body_request = self._mpi.call(lambda: self._communicator.Irecv([body, api.BYTE], source, _BODY_TAG))
            packet.body = body
        return bool(self._mpi.call(packet.body_request.Test))

    def _forget_sent(self) -> None:
        with self._lock:
            for _ in range(len(self._sending)):
                rank, request, data = self._sending.popleft()
                try:
                    if not self._mpi.call(request.Test):
                        self._sending.append((rank, request, data))
                except ResourceError:
                    self._refused.add(rank)

    def look(self) -> None:
        """Notice processes to which MPI refuses to send."""
        for rank in [rank for rank in self._refused if rank in self._mpi_ranks]:
            del self._mpi_ranks[rank]
            self._lost(rank)

    def close(self, *, deserted: bool) -> None:
        """Wait until the last messages are sent. If a process does not answer, MPI could not finalize: abort all."""
        if deserted:
            self._mpi.abort()
        end = time.monotonic() + _LINGER
        while self._sending and time.monotonic() < end:
            self._forget_sent()
            time.sleep(1e-3)
        for packet in self._packets:
            self._mpi.call(packet.request.Cancel)
        self._mpi.stop()
