"""Segments: memory that processes of one machine share, without a name that could be left behind.

Memory is an anonymous file (memfd) that its maker keeps open; another process opens it by the maker's process id and
file descriptor. The system frees it when the last process that has mapped it ends, even if that crashes.

A segment holds the body of one message at a time: its maker writes the body, and each receiver reads it in place. The
segment may be reused when no array of the maker refers to it any more, and each receiver has stored the number of the
use in its own word of the segment. A message to several processes is written once.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from xlakit.distributed.packing import Bytes

# The bytes before the data of a segment, which have a word for each receiver.
_HEADER: Final = 4096
MOST_RECEIVERS: Final = _HEADER // 8
# The sizes of segments: powers of two, with so many steps in between.
_LEAST, _STEPS = 1 << 16, 8


@cache
def _system() -> tuple[Callable[..., int], Callable[..., int]]:
    """The system's mmap and munmap; Python's mmap would keep a duplicate file descriptor open for each mapping."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library.mmap, library.munmap


class Memory:
    """A mapping of an anonymous file. ``fd`` is its descriptor in the process that made it, -1 in others.

    Arrays of this memory must not be used after this object has been destroyed.
    """

    def __init__(self, fd: int, size: int, *, is_own: bool) -> None:
        self.fd = -1
        self.size = size
        map, self._unmap = _system()
        address = map(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
        if address == ctypes.c_void_p(-1).value:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self.address: int = address
        self.fd = fd if is_own else -1
        buffer: Any = (ctypes.c_uint8 * size).from_address(address)
        self.bytes: Bytes = np.frombuffer(buffer, np.uint8)
        self.words: npt.NDArray[np.int64] = self.bytes.view(np.int64)

    @staticmethod
    def allocate(size: int) -> Memory:
        """New memory of zeros, which is allocated at once; raises OSError if there is not enough."""
        fd = os.memfd_create("xlakit")
        try:
            os.posix_fallocate(fd, 0, size)
            return Memory(fd, size, is_own=True)
        except BaseException:
            os.close(fd)
            raise

    @staticmethod
    def of(process: int, fd: int, size: int) -> Memory:
        """Map the memory that another process has made; raises OSError without permission, or for another file."""
        duplicate_fd = os.open(f"/proc/{process}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(duplicate_fd).st_size != size:
                raise OSError(f"file {fd} of process {process} has not {size} bytes")
            return Memory(duplicate_fd, size, is_own=False)
        finally:
            os.close(duplicate_fd)

    def close_file(self) -> None:
        """Close the file: no other process can map it from now on."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self._unmap(self.address, self.size)
            self.close_file()


class Lease:
    """The owner of an array on a segment's data; calls ``end`` when no array refers to the data any more."""

    def __init__(self, memory: Memory, size: int, end: Callable[[], None], segment: Segment | None = None) -> None:
        self.segment = segment
        self.size = size
        self._memory = memory
        self._end = end
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "typestr": "|u1",
            "shape": (size,),
            "data": (memory.address + _HEADER, False),
        }

    def __del__(self) -> None:
        self._end()

    def array(self) -> Bytes:
        """The data."""
        return np.asarray(self)


class Segment:
    """A segment of this process."""

    def __init__(self, number: int, capacity: int) -> None:
        self.number = number
        self.memory = Memory.allocate(_HEADER + capacity)
        # The number of its use, and the receivers of this use.
        self.use = 0
        self.receivers: set[int] = set()
        # All receivers that have ever mapped it.
        self.known_to: set[int] = set()
        self.is_leased = False

    def is_free(self, lost: Iterable[int]) -> bool:
        """Whether it may be reused: all receivers, except ``lost`` ones, have read it, and no array refers to it."""
        if self.is_leased:
            return False
        words = self.memory.words
        self.receivers = {r for r in self.receivers.difference(lost) if words[r] != self.use}
        return not self.receivers

    def lease(self, size: int) -> Bytes:
        """Begin a use; gives so many bytes."""
        self.use += 1
        self.is_leased = True
        self.receivers = set()
        return Lease(self.memory, size, self._end, self).array()

    def _end(self) -> None:
        self.is_leased = False


class Segments:
    """The segments of a process.

    limit: the bytes of segments above which free ones are given up. forget: called with a segment that is given up.
    lock: of the caller, which may be held during calls.
    """

    def __init__(self, limit: int, forget: Callable[[Segment], None], lock: threading.RLock) -> None:
        self._limit = limit
        self._forget = forget
        self._lock = lock
        self._by_capacity: dict[int, list[Segment]] = {}
        self._count = self._bytes = 0

    def take(self, size: int, lost: Iterable[int]) -> Bytes | None:
        """An array of ``size`` bytes in a free or a new segment; None if there is no memory."""
        capacity = _capacity(size)
        with self._lock:
            for segment in self._by_capacity.get(capacity, ()):
                if segment.is_free(lost):
                    return segment.lease(size)
            if self._bytes + capacity > self._limit:
                self._give_up(lost)
            try:
                segment = Segment(self._count, capacity)
            except OSError:
                return None
            self._count += 1
            self._bytes += capacity
            self._by_capacity.setdefault(capacity, []).append(segment)
            return segment.lease(size)

    def _give_up(self, lost: Iterable[int]) -> None:
        """Give up all free segments."""
        for capacity, segments in self._by_capacity.items():
            in_use = [segment for segment in segments if not segment.is_free(lost)]
            for segment in segments:
                if segment not in in_use:
                    self._bytes -= capacity
                    self._forget(segment)
            segments[:] = in_use


def _capacity(size: int) -> int:
    step = max(_LEAST, 1 << (size - 1).bit_length()) // _STEPS
    return max(_LEAST, -(-size // step) * step)


def received(memory: Memory, size: int, receiver: int, use: int, store: Callable[[int, int], Any]) -> Bytes:
    """An array of ``size`` bytes in a segment of another process.

    When no array refers to them any more, the number of the use is stored in the receiver's word.
    """
    word, process = memory.address + 8 * receiver, os.getpid()

    def end() -> None:
        # A forked child has the same mapping, but must not release the use of its parent.
        if os.getpid() == process:
            store(word, use)

    return Lease(memory, size, end).array()
