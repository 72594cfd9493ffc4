"""Context: what a compiled program is told beside its arguments, and how it ends.

An entry is ``i64 entry(ptr arguments, ptr results, ptr context)``: two arrays of pointers, to the data of each argument
and of each result, and the context. It returns a Status.

A program has one context, made by Python (the origin). ``xlakit_execute(ptr origin, ptr arguments, ptr results)`` is
what Python's calls and native ones both go through: it copies the context for the time of one call and gives the copy
an arena, so that calls of one program may run at the same time. What they share, they reach through ``origin``.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum

from xlakit.cpu.llvm import I32, I64, PTR, VOID, Module
from xlakit.cpu.runtime.record import Record


class Status(IntEnum):
    """What an entry returns. A program may give other numbers from PROGRAM on a meaning of its own."""

    DONE = 0
    # A Python exception is set, or a host call has kept one.
    RAISED = 1
    # Somebody has set the interrupt flag.
    INTERRUPTED = 2
    # There is no memory for the arena or for something else.
    OUT_OF_MEMORY = 3
    PROGRAM = 16


# Eight bytes each:
#   arena         where this call keeps its intermediate values; aligned to 64 bytes
#   origin        the context that this one was copied from
#   polled        when this call last asked for signals, in nanoseconds
#   host          the key of the Python object that answers the program's host calls, 0 for none
#   ordinal       the number of the device that runs the program
#   spare         four words for the program's own use, copied for each call
# and in the origin alone:
#   entry         the address of the entry
#   arena_bytes   the size of the arena
#   interrupt     not 0 to stop all calls that run; any thread may set it
#   random_lock   held while the random state changes
#   random        the state of rng-get-and-update-state: 128 bits, the low ones first
CONTEXT = Record(
    arena=1, origin=1, polled=1, host=1, ordinal=1, spare=4,
    entry=1, arena_bytes=1, interrupt=1, random_lock=1, random=2, _fill=1,
)  # fmt: skip

# What a fresh program's random state is, as in XLA.
_FIRST_RANDOM_STATE = 0x7012395


class Context:
    """The origin of a program's contexts. It must stay as long as the program may be called."""

    def __init__(self, entry: int, *, arena_bytes: int = 0, host: int = 0, ordinal: int = 0) -> None:
        self._memory = (ctypes.c_int64 * (CONTEXT.size // 8))()
        self.address = ctypes.addressof(self._memory)
        for name, value in (
            ("origin", self.address),
            ("entry", entry),
            ("arena_bytes", arena_bytes),
            ("host", host),
            ("ordinal", ordinal),
            ("random", _FIRST_RANDOM_STATE),
        ):
            self._memory[CONTEXT.index(name)] = value

    @property
    def arena_bytes(self) -> int:
        """The size of the arena of each call."""
        return self._memory[CONTEXT.index("arena_bytes")]

    @property
    def interrupt(self) -> bool:
        """Whether calls that run are to stop, and later ones not to begin."""
        return self._memory[CONTEXT.index("interrupt")] != 0

    @interrupt.setter
    def interrupt(self, stop: bool) -> None:
        self._memory[CONTEXT.index("interrupt")] = int(stop)

    @property
    def random_state(self) -> int:
        """The state of rng-get-and-update-state, a number of 128 bits."""
        low, high = (self._memory[CONTEXT.index("random") + i] & (2**64 - 1) for i in (0, 1))
        return high << 64 | low

    @random_state.setter
    def random_state(self, state: int) -> None:
        for i in (0, 1):
            self._memory[CONTEXT.index("random") + i] = ctypes.c_int64(state >> 64 * i & (2**64 - 1)).value


def emit_context(module: Module) -> None:
    """Write the functions about contexts into a module that has emit_memory's."""
    _emit_execute(module)
    _emit_random_state(module)


def _emit_execute(module: Module) -> None:
    """``xlakit_execute``, as told at the top of this file; it gives the entry's status."""
    fn = module.function("xlakit_execute", I64, [PTR, PTR, PTR], external=True)
    origin, arguments, results = fn.parameters
    interrupt = CONTEXT.at(fn, origin, "interrupt")
    fn.return_if(fn.atomic_load(I64, interrupt, "monotonic").ne(0), fn.i64(Status.INTERRUPTED))
    context = fn.alloca(I64, CONTEXT.size // 8, align=64)
    fn.copy(context, origin, CONTEXT.offset("entry"))
    bytes = CONTEXT.load(fn, origin, "arena_bytes")
    no_arena = (fn.null(),)
    (arena,) = fn.if_else(bytes > 0, lambda: (fn.call("xlakit_allocate", PTR, bytes),), lambda: no_arena)
    fn.return_if((bytes > 0) & arena.eq(fn.null()), fn.i64(Status.OUT_OF_MEMORY))
    fn.store(arena, CONTEXT.at(fn, context, "arena"))
    entry = fn.load(PTR, CONTEXT.at(fn, origin, "entry"))
    status = fn.call_pointer(entry, I64, arguments, results, context)
    fn.call("xlakit_release", VOID, arena)
    fn.ret(status)


def _emit_random_state(module: Module) -> None:
    """``xlakit_random_state(ptr context, ptr state, i64 delta)``: write the 128-bit state to ``state``, then add."""
    module.declare("sched_yield", I32, [])
    fn = module.function("xlakit_random_state", VOID, [PTR, PTR, I64], external=True)
    context, target, delta = fn.parameters
    origin = fn.load(PTR, CONTEXT.at(fn, context, "origin"))
    held = CONTEXT.at(fn, origin, "random_lock")

    with fn.while_((), lambda _: fn.atomic_update("xchg", held, fn.i64(1)).ne(0)):
        fn.call("sched_yield", I32)
    low_place = CONTEXT.at(fn, origin, "random")
    high_place = fn.at(low_place, I64, 1)
    low, high = fn.load(I64, low_place), fn.load(I64, high_place)
    total = low + delta
    fn.store(total, low_place)
    fn.store(high + total.compare("ult", low).cast("zext", I64), high_place)
    fn.atomic_store(fn.i64(0), held)
    fn.store(low, target)
    fn.store(high, fn.at(target, I64, 1))
    fn.ret()
