"""Context: the state of one call of a compiled program, and the status with which it ends.

An entry is ``i64 entry(ptr arguments, ptr results, ptr context)``: two arrays of pointers, to the data of each argument
and of each result, and the context. It returns a Status.

A program has one context made by Python (the origin). All calls, from Python and from native code, go through
``xlakit_execute(ptr origin, ptr arguments, ptr results)``: it copies the context for the time of one call and gives the
copy an arena, so that calls of one program may run concurrently. Calls reach their shared state through ``origin``.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum

from xlakit.cpu.runtime.record import Record
from xlakit.execution.random_state import RANDOM_WORDS, RandomState


class Status(IntEnum):
    """The status that an entry returns. A program may define numbers from PROGRAM on."""

    DONE = 0
    # A Python exception is set, or a host call has stored one.
    RAISED = 1
    # The interrupt flag has been set.
    INTERRUPTED = 2
    # There is not enough memory for the arena or another allocation.
    OUT_OF_MEMORY = 3
    # The values of a collective's operands are invalid; Python raises the error.
    FAULTY = 4
    # The devices of a run wait for each other, in a run that may not ask Python; else Python raises a DeadlockError.
    DEADLOCKED = 5
    PROGRAM = 16


# Eight bytes each:
#   arena         the memory of this call's intermediate values; aligned to 64 bytes
#   origin        the context that this one was copied from
#   polled        the time of this call's last check for signals, in nanoseconds
#   stopped       the status with which a job was canceled, else 0: all later jobs of the call do nothing
#   host          the key of the Python function that answers the program's host calls, 0 for none
#   ordinal       the number of the device that runs the program
#   random        the address of the device's random state, shared by all its calls: the words of a RandomState
#   spare         three words for the program's own use, copied for each call
#   run           the RUN that the devices of this run share, 0 if there is one device; see rendezvous.py
#   flushes       not 0 if the program treats subnormal numbers as zero
# and in the origin alone:
#   entry         the address of the entry
#   arena_bytes   the size of the arena
#   interrupt     not 0 to stop all running calls; any thread may set it
CONTEXT = Record(
    arena=1, origin=1, polled=1, stopped=1, host=1, ordinal=1, random=1, spare=3, run=1,
    flushes=1, entry=1, arena_bytes=1, interrupt=1, _fill=1,
)  # fmt: skip
RANDOM = Record(**dict.fromkeys(RANDOM_WORDS, 1))


class Context:
    """The origin of a program's contexts. It must live as long as the program may be called."""

    def __init__(
        self,
        entry: int,
        *,
        arena_bytes: int = 0,
        host: int = 0,
        ordinal: int = 0,
        random: RandomState | None = None,
        flushes: bool = False,
    ) -> None:
        self.random = RandomState(0, ordinal) if random is None else random
        self._memory = (ctypes.c_int64 * (CONTEXT.size // 8))()
        self.address = ctypes.addressof(self._memory)
        for name, value in (
            ("origin", self.address),
            ("entry", entry),
            ("arena_bytes", arena_bytes),
            ("host", host),
            ("ordinal", ordinal),
            ("random", self.random.address),
            ("flushes", int(flushes)),
        ):
            self._memory[CONTEXT.index(name)] = value

    @property
    def arena_bytes(self) -> int:
        """The size of the arena of each call."""
        return self._memory[CONTEXT.index("arena_bytes")]

    @property
    def interrupt(self) -> bool:
        """Whether running calls must stop, and later ones must not begin."""
        return self._memory[CONTEXT.index("interrupt")] != 0

    @interrupt.setter
    def interrupt(self, stop: bool) -> None:
        self._memory[CONTEXT.index("interrupt")] = int(stop)
