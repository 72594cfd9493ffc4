"""Rings: ring buffers of records from one process to another of the same machine, in memory that both have mapped.

The positions of writer and reader are the total numbers of bytes written and read. A record is contiguous; if it does
not fit before the end of the ring, the rest of the ring is skipped. A small body follows its head, a large one is in a
segment; see segments.py.
"""

from __future__ import annotations

import struct
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from xlakit.distributed.packing import Bytes
from xlakit.distributed.shared.segments import Memory

# Offsets of the words before the records, each in its own cache line: the position of the writer, that of the reader,
# and whether the reader has accepted the ring; then the offset of the records.
_WRITTEN, _READ, _ACCEPTED, _BEGIN = 0, 64, 128, 192
BYTES: Final = 1 << 18
_CAPACITY = BYTES - _BEGIN
# Bodies of up to so many bytes are written into the ring.
INLINE: Final = 1 << 14

# A record: its size, or SKIP; the sizes of head and body; then a BodyLocation.
_RECORD = struct.Struct("=7q")
_SKIP = -1
# The largest head: a record may take at most half of the ring, as up to its own size may be skipped before it.
MOST_HEAD: Final = _CAPACITY // 2 - INLINE - _RECORD.size - 8
NO_BODY, INLINE_BODY, FORGET = -1, -2, -3


class BodyLocation(NamedTuple):
    """The location of a record's body. segment: its number, or INLINE_BODY or NO_BODY; fd, bytes, use: the segment's
    file, size and use. With FORGET the record tells the reader to unmap the segment of number ``use``.
    """

    segment: int = NO_BODY
    fd: int = 0
    bytes: int = 0
    use: int = 0


# The location of every body that is in the ring, for the reader.
_IN_RING: Final = BodyLocation(INLINE_BODY)


class OutRing:
    """The writer's end. A lock of the caller's keeps calls apart."""

    def __init__(self, publish: Callable[[int, int, int], int]) -> None:
        self.memory = Memory.allocate(BYTES)
        self._data: Any = self.memory.bytes.data
        self._publish = publish
        self._written = self._read = 0
        # Records that wait for room.
        self._waiting: deque[tuple[bytes, Bytes | None, BodyLocation]] = deque()

    @property
    def is_accepted(self) -> bool:
        """Whether the reader has mapped it."""
        return bool(self.memory.words[_ACCEPTED // 8])

    def write(self, head: bytes, body: Bytes | None, location: BodyLocation, bell: int) -> int:
        """Write a record, or keep it until there is room; gives the bell's previous value."""
        if self._waiting or not self._put(head, body, location):
            self._waiting.append((head, body, location))
            return self.flush(bell)
        return self._publish(self.memory.address + _WRITTEN, self._written, bell)

    def flush(self, bell: int) -> int:
        """Write waiting records as far as there is room now; gives the bell's previous value."""
        before = self._written
        while self._waiting and self._put(*self._waiting[0]):
            self._waiting.popleft()
        return self._publish(self.memory.address + _WRITTEN, self._written, bell) if before != self._written else 0

    @property
    def has_waiting(self) -> bool:
        """Whether records wait for room."""
        return bool(self._waiting)

    def _put(self, head: bytes, body: Bytes | None, location: BodyLocation) -> bool:
        inline = 0 if body is None or location.segment != INLINE_BODY else len(body)
        # In whole words, so that there is always room for the word that says SKIP.
        size = -(-(_RECORD.size + len(head) + inline) // 8) * 8
        offset = self._written % _CAPACITY
        skipped = _CAPACITY - offset if offset + size > _CAPACITY else 0
        if self._written + skipped + size - self._read > _CAPACITY:
            self._read = int(self.memory.words[_READ // 8])
            if self._written + skipped + size - self._read > _CAPACITY:
                return False
        if skipped:
            self.memory.words[(_BEGIN + offset) // 8] = _SKIP
            self._written += skipped
            offset = 0
        start = _BEGIN + offset
        data, length = self._data, 0 if body is None else len(body)
        _RECORD.pack_into(data, start, size, len(head), length, *location)
        start += _RECORD.size
        rest = start + len(head)
        data[start:rest] = head
        if body is not None and inline:
            data[rest : rest + inline] = body.data
        self._written += size
        return True


class Record(NamedTuple):
    """A record that was read. body: its body, if that was in the ring; otherwise it has ``length`` bytes at its
    location.
    end: the end of the record, for :meth:`InRing.advance`.
    """

    head: bytes
    body: Bytes | None
    length: int
    location: BodyLocation
    end: int


class InRing:
    """The reader's end. ``load`` is an acquire load and ``store`` a release store of the word at an address."""

    def __init__(self, memory: Memory, load: Callable[[int], int], store: Callable[[int, int], Any]) -> None:
        self.memory = memory
        self._data: Any = memory.bytes.data
        self.read = 0
        self._load, self._store = load, store
        self.written_address = memory.address + _WRITTEN

    def accept(self) -> None:
        """Let the writer know that it may write."""
        self._store(self.memory.address + _ACCEPTED, 1)

    def next(self) -> Record | None:
        """The next record; None if there is none."""
        if self._load(self.written_address) == self.read:
            return None
        offset, end = self.read % _CAPACITY, self.read
        data = self._data
        # The first word of a record is its size.
        if int.from_bytes(data[_BEGIN + offset : _BEGIN + offset + 8], sys.byteorder, signed=True) == _SKIP:
            end += _CAPACITY - offset
            offset = 0
        start = _BEGIN + offset
        size, head_size, length, segment, fd, total, use = _RECORD.unpack_from(data, start)
        start += _RECORD.size
        rest = start + head_size
        head = bytes(data[start:rest])
        if segment not in (NO_BODY, INLINE_BODY):
            return Record(head, None, length, BodyLocation(segment, fd, total, use), end + size)
        # Copied, as the ring's memory is reused, and machine code needs aligned arrays.
        body = np.empty(length, np.uint8)
        body.data[:] = data[rest : rest + length]  # pyright: ignore[reportIndexIssue]
        return Record(head, body, length, _IN_RING, end + size)

    def advance(self, end: int) -> None:
        """Release the ring's memory before ``end`` to the writer."""
        self.read = end
        self._store(self.memory.address + _READ, end)
