"""SharedMemoryTransport: connections by shared memory between processes of one machine, and by ZeroMQ to all others.

Two processes count as being on one machine if they have the same boot id and network namespace, and one can map the
other's memory. The end of a connection is detected by ZeroMQ. A connection begins with ZeroMQ:

    a connects to b        maps b's bell, makes a ring, and offers it to b, by ZeroMQ
    b gets the offer       maps the ring, and accepts it, in the ring
    a sends                by ZeroMQ until the ring is accepted; then says so, by ZeroMQ, and writes into the ring
    b gets that            reads the ring

So messages keep their order. If any of these steps is not possible, ZeroMQ stays in use. An offer is authenticated by
the receiver's secret, which only processes of the job know.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

import numpy as np

from xlakit.cpu.runtime.devices.rendezvous import SPIN_NANOSECONDS
from xlakit.distributed.packing import Bytes
from xlakit.distributed.shared import doorbell, rings
from xlakit.distributed.shared.segments import MOST_RECEIVERS, Lease, Memory, Segment, Segments, received
from xlakit.distributed.transport import Lost, Receive
from xlakit.distributed.zeromq import ZeroMqTransport
from xlakit.settings import receive_limit

# The prefixes of internal messages by ZeroMQ, which are followed by the receiver's secret: an offer, the switch to a
# ring, and a message that only wakes the receiver.
_OFFER, _SWITCH, _RING_BELL = b"xlakit-offer:", b"xlakit-switch:", b"xlakit-bell:"
_SECRET_BYTES: Final = 16
_BELL_BYTES: Final = 4096
# The interval at which ZeroMQ is polled if all known processes write into rings, in seconds.
_LOOK = 0.02
_NO_BODY, _INLINE_BODY = rings.BodyLocation(rings.NO_BODY), rings.BodyLocation(rings.INLINE_BODY)
# The bytes of segments that are kept at least.
_LEAST_KEPT = 1 << 26


class _Neighbor:
    """A process of this machine to which this one writes. index: its word in segments."""

    def __init__(self, index: int, endpoint: dict[str, Any], bell: Memory, ring: rings.OutRing) -> None:
        self.index = index
        self.secret: str = endpoint["secret"]
        self.bell = bell
        self.ring = ring
        self.is_switched = self.is_lost = False
        # Whether the ring is not written to any more, and the messages that wait until its last record is written.
        self.is_closed = False
        self.after_ring: deque[tuple[bytes, Bytes | None]] = deque()


class _Source:
    """A ring that this process reads, and the segments of its writer."""

    def __init__(self, ring: rings.InRing, process: int, receiver: int) -> None:
        self.ring = ring
        self.process = process
        # This process's word in the writer's segments.
        self.receiver = receiver
        self.segments: dict[int, Memory] = {}
        self.is_lost = False


class SharedMemoryTransport:
    """See :class:`xlakit.distributed.transport.Transport`.

    host: the address of this machine at which the others reach it.
    """

    ends_together = False

    def __init__(self, host: str, receive: Receive, lost: Lost) -> None:
        self._receive, self._lost_rank = receive, lost
        self._inner = ZeroMqTransport(host, self._received_by_zeromq, self._lost)
        self._bells = doorbell.bells()
        self._bell = Memory.allocate(_BELL_BYTES)
        secret = secrets.token_bytes(_SECRET_BYTES)
        # After the word of the bell: a process that maps it compares this with the secret in the endpoint.
        self._bell.bytes[8 : 8 + _SECRET_BYTES] = np.frombuffer(secret, np.uint8)
        self._own = {
            "zeromq": self._inner.endpoint,
            "machine": _machine(),
            "process": os.getpid(),
            "bell": self._bell.fd,
            "secret": secret.hex(),
        }
        self.endpoint: str = json.dumps(self._own)
        # Held for all that is written.
        self._lock = threading.RLock()
        self._segments = Segments(max(_LEAST_KEPT, receive_limit() // 4), self._forget, self._lock)
        self._neighbors: dict[int, _Neighbor] = {}
        self._endpoints: dict[int, str] = {}
        # The offered rings, and the rings that are read, by the ZeroMQ endpoint of the writing process.
        self._offered: dict[str, _Source] = {}
        self._sources: dict[str, _Source] = {}
        self._table = np.zeros((1, doorbell.ROW_WORDS), np.int64)
        self._table_address = self._bell.address
        # Whether rings bring all messages, and when to look at ZeroMQ next if they do.
        self._is_quiet = False
        self._next_take = 0.0

    # -- sending ---------------------------------------------------------------------------------

    def connect(self, rank: int, endpoint: str) -> None:
        """Connect to a process, once; does not wait for it."""
        if rank in self._endpoints:
            return
        with self._lock:
            if rank in self._endpoints:
                return
            theirs = json.loads(endpoint)
            self._inner.connect(rank, theirs["zeromq"])
            self._endpoints[rank] = theirs["zeromq"]
            self._is_quiet = False
            if theirs["machine"] == self._own["machine"] and len(self._neighbors) < MOST_RECEIVERS:
                self._offer(rank, theirs)

    def _offer(self, rank: int, theirs: dict[str, Any]) -> None:
        secret = bytes.fromhex(theirs["secret"])
        try:
            bell = Memory.of(theirs["process"], theirs["bell"], _BELL_BYTES)
            if bell.bytes[8 : 8 + _SECRET_BYTES].tobytes() != secret:
                return
            ring = rings.OutRing(self._bells.publish)
        except OSError:
            # The process belongs to another user or container, for example: ZeroMQ stays in use.
            return
        neighbor = self._neighbors[rank] = _Neighbor(len(self._neighbors), theirs, bell, ring)
        offer = {**self._own, "ring": ring.memory.fd, "receiver": neighbor.index}
        self._inner.send(rank, _OFFER + secret + json.dumps(offer).encode())

    def send(self, rank: int, head: bytes, body: Bytes | None = None) -> None:
        """Send a message, without waiting."""
        neighbor = self._neighbors.get(rank)
        if neighbor is None:
            self._inner.send(rank, head, body)
            return
        with self._lock:
            if neighbor.is_lost:
                return
            if not neighbor.is_switched:
                if not neighbor.ring.is_accepted:
                    self._inner.send(rank, head, body)
                    return
                neighbor.is_switched = True
                neighbor.ring.memory.close_file()
                self._inner.send(rank, self._control(_SWITCH, neighbor))
            location = None
            if not neighbor.is_closed and len(head) <= rings.MOST_HEAD:
                location, body = self._locate_body(neighbor, body)
            if location is not None:
                slept = neighbor.ring.write(head, body, location, neighbor.bell.address)
            else:
                # There is no memory, or the head is too large for a ring: ZeroMQ is used from here on.
                neighbor.is_closed = True
                neighbor.after_ring.append((head, body))
                slept = self._flush(rank, neighbor)
        if slept:
            self._wake(rank, neighbor, slept)

    def _flush(self, rank: int, neighbor: _Neighbor) -> int:
        """Write waiting records to the ring, then send the messages after them by ZeroMQ; gives how the reader slept.

        The receiver reads the ring before each message of ZeroMQ, so that messages keep their order.
        """
        slept = neighbor.ring.flush(neighbor.bell.address)
        while neighbor.after_ring and not neighbor.ring.has_waiting:
            self._inner.send(rank, *neighbor.after_ring.popleft())
        return slept

    def _control(self, kind: bytes, neighbor: _Neighbor) -> bytes:
        return kind + bytes.fromhex(neighbor.secret) + self._inner.endpoint.encode()

    def _wake(self, rank: int, neighbor: _Neighbor, slept: int) -> None:
        if slept == doorbell.SELECTS:
            self._inner.send(rank, self._control(_RING_BELL, neighbor))

    def _locate_body(self, neighbor: _Neighbor, body: Bytes | None) -> tuple[rings.BodyLocation | None, Bytes | None]:
        """The location of a message's body, in the ring or in a segment, and the body, copied to its segment if needed.

        The location is None if there is no memory for a segment.
        """
        if body is None:
            return _NO_BODY, None
        lease = body.base
        segment = lease.segment if isinstance(lease, Lease) and len(body) == lease.size else None
        # A receiver acknowledges a use of a segment once, so it can get the body in that segment only once.
        if segment is None or neighbor.index in segment.receivers:
            if len(body) <= rings.INLINE:
                return _INLINE_BODY, body
            copy = self._segments.take(len(body), self._lost_indices())
            if copy is None:
                return None, body
            copy[:] = body
            body, segment = copy, copy.base.segment  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
        segment.receivers.add(neighbor.index)
        segment.known_to.add(neighbor.index)
        return rings.BodyLocation(segment.number, segment.memory.fd, segment.memory.size, segment.use), body

    def new_body(self, size: int) -> Bytes:
        """Memory for a body: a segment, from which it is sent without a copy, if possible."""
        if size > rings.INLINE and any(n.is_switched for n in self._neighbors.values()):
            body = self._segments.take(size, self._lost_indices())
            if body is not None:
                return body
        return np.empty(size, np.uint8)

    def _lost_indices(self) -> list[int]:
        return [neighbor.index for neighbor in self._neighbors.values() if neighbor.is_lost]

    def _forget(self, segment: Segment) -> None:
        """Tell the processes that have mapped a segment to unmap it."""
        with self._lock:
            for rank, neighbor in self._neighbors.items():
                if neighbor.index in segment.known_to and not neighbor.is_lost:
                    location = rings.BodyLocation(rings.FORGET, use=segment.number)
                    self._wake(rank, neighbor, neighbor.ring.write(b"", None, location, neighbor.bell.address))

    def connected(self) -> list[int]:
        """The processes to which there are connections."""
        return self._inner.connected()

    # -- receiving -------------------------------------------------------------------------------

    def pump(self, seconds: float) -> None:
        """Receive the messages that have arrived; if there is none, wait for one, at most so many seconds."""
        now = time.monotonic()
        is_quiet = self._is_quiet
        # Quiet processes look at their rings as they begin to wait.
        if not (is_quiet and now <= self._next_take) and self._receive_from_rings():
            return
        if not is_quiet or now > self._next_take:
            self._next_take = now + _LOOK
            if self._inner.take():
                return
        how = doorbell.SLEEPS if is_quiet else doorbell.SELECTS
        nanoseconds = int(min(seconds, _LOOK) * 1e9)
        any_arrived = self._bells.await_any(
            self._bell.address, self._table_address, len(self._sources), how, SPIN_NANOSECONDS, nanoseconds
        )
        if not any_arrived and not is_quiet:
            try:
                self._inner.wait(seconds)
            finally:
                self._bells.store(self._bell.address, doorbell.AWAKE)
        if not self._receive_from_rings() and not is_quiet:
            self._inner.take()

    def _receive_from_rings(self) -> bool:
        """Receive every message that lies in the rings; whether there was any."""
        any_arrived = False
        for number, (endpoint, source) in enumerate(tuple(self._sources.items())):
            while (record := source.ring.next()) is not None:
                any_arrived = True
                if record.body is not None:
                    self._receive(record.head, record.body)
                elif record.location.segment == rings.FORGET:
                    source.segments.pop(record.location.use, None)
                else:
                    try:
                        body = self._body_of(source, record)
                    except OSError:
                        # The writer has ended, or there are no file descriptors left: the rest is unreadable, too.
                        self._give_up(endpoint)
                        break
                    self._receive(record.head, body)
                source.ring.advance(record.end)
            self._table[number, 1] = source.ring.read
            if source.is_lost:
                del self._sources[endpoint]
                self._tabulate()
                return True
        return any_arrived

    def _give_up(self, endpoint: str) -> None:
        """Treat the connection to a process as ended."""
        for rank in [rank for rank, theirs in self._endpoints.items() if theirs == endpoint]:
            self._lost(rank)

    def _body_of(self, source: _Source, record: rings.Record) -> Bytes:
        location = record.location
        memory = source.segments.get(location.segment)
        if memory is None:
            memory = source.segments[location.segment] = Memory.of(source.process, location.fd, location.bytes)
        return received(memory, record.length, source.receiver, location.use, self._bells.store)

    def _received_by_zeromq(self, head: bytes, body: Bytes) -> None:
        for kind in (_OFFER, _SWITCH, _RING_BELL):
            if head.startswith(kind):
                begin = len(kind) + _SECRET_BYTES
                if head[len(kind) : begin].hex() == self._own["secret"]:
                    self._controlled(kind, head[begin:].decode())
                return
        # First the records that the sender has written into its ring before.
        self._receive_from_rings()
        self._receive(head, body)

    def _controlled(self, kind: bytes, text: str) -> None:
        if kind == _OFFER:
            theirs = json.loads(text)
            try:
                memory = Memory.of(theirs["process"], theirs["ring"], rings.BYTES)
            except OSError:
                return
            ring = rings.InRing(memory, self._bells.load, self._bells.store)
            self._offered[theirs["zeromq"]] = _Source(ring, theirs["process"], theirs["receiver"])
            ring.accept()
        elif kind == _SWITCH and text in self._offered:
            self._sources[text] = self._offered.pop(text)
            self._tabulate()

    def _tabulate(self) -> None:
        rows = [(source.ring.written_address, source.ring.read) for source in self._sources.values()]
        with self._lock:
            self._is_quiet = all(endpoint in self._sources for endpoint in self._endpoints.values())
        self._table = np.array(rows or [(0, 0)], np.int64)
        self._table_address = self._table.__array_interface__["data"][0]

    # -- ends ------------------------------------------------------------------------------------

    def look(self) -> None:
        """Detect connections that have ended, and write waiting records."""
        self._inner.look()
        for rank, neighbor in list(self._neighbors.items()):
            if (neighbor.ring.has_waiting or neighbor.after_ring) and not neighbor.is_lost:
                with self._lock:
                    slept = self._flush(rank, neighbor)
                self._wake(rank, neighbor, slept)

    def _lost(self, rank: int) -> None:
        neighbor = self._neighbors.get(rank)
        if neighbor is not None:
            neighbor.is_lost = True
        source = self._sources.get(self._endpoints[rank])
        if source is not None:
            source.is_lost = True
        self._lost_rank(rank)

    def close(self, *, deserted: bool) -> None:
        """Close the connections."""
        self._inner.close(deserted=deserted)


def is_supported() -> bool:
    """Whether processes of this system can share memory without a name."""
    return doorbell.is_supported() and hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir()


def _machine() -> str:
    """An identifier of the machine and of the network namespace, equal for processes that can share memory."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{platform.node()} {boot} {os.stat('/proc/self/ns/net').st_ino}"
