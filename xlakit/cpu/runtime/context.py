"""Context: the state of one call of a compiled program, and the status with which it ends.

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
from xlakit.cpu.runtime.thread_state import THREAD, thread_state
from xlakit.execution.random_state import RANDOM_WORDS, RandomState


class Status(IntEnum):
    """What an entry returns. A program may give other numbers from PROGRAM on a meaning of its own."""

    DONE = 0
    # A Python exception is set, or a host call has stored one.
    RAISED = 1
    # The interrupt flag has been set.
    INTERRUPTED = 2
    # There is no memory for the arena or for something else.
    OUT_OF_MEMORY = 3
    # The values of a collective's operands are invalid; Python raises the error.
    FAULTY = 4
    PROGRAM = 16


# Eight bytes each:
#   arena         where this call keeps its intermediate values; aligned to 64 bytes
#   origin        the context that this one was copied from
#   polled        when this call last checked for signals, in nanoseconds
#   stopped       the status that a job was given up with, else 0: all later ones of the call do nothing
#   host          the key of the Python object that answers the program's host calls, 0 for none
#   ordinal       the number of the device that runs the program
#   random        where the device's random state is, which all its calls share: the words of a RandomState
#   spare         three words for the program's own use, copied for each call
#   run           what the devices of this run share, where there are several; see rendezvous.py
# and in the origin alone:
#   entry         the address of the entry
#   arena_bytes   the size of the arena
#   interrupt     not 0 to stop all calls that run; any thread may set it
CONTEXT = Record(
    arena=1, origin=1, polled=1, stopped=1, host=1, ordinal=1, random=1, spare=3, run=1,
    entry=1, arena_bytes=1, interrupt=1, _fill=2,
)  # fmt: skip
_RANDOM = Record(**dict.fromkeys(RANDOM_WORDS, 1))


class Context:
    """The origin of a program's contexts. It must stay as long as the program may be called."""

    def __init__(
        self, entry: int, *, arena_bytes: int = 0, host: int = 0, ordinal: int = 0, random: RandomState | None = None
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


def emit_context(module: Module) -> None:
    """Write the functions about contexts into a module that has emit_memory's."""
    _emit_execute(module)
    _emit_random_state(module)
    _emit_random_draw(module)


def _emit_execute(module: Module) -> None:
    """``xlakit_execute``, described at the top of this file; it returns the entry's status.

    ``execute_in(ptr origin, ptr arguments, ptr results, ptr run)`` does it for one of several devices.
    """
    fn = module.function("xlakit_execute", I64, [PTR, PTR, PTR], external=True)
    fn.ret(fn.call("execute_in", I64, *fn.parameters, fn.null()))

    fn = module.function("execute_in", I64, [PTR, PTR, PTR, PTR])
    origin, arguments, results, run = fn.parameters
    interrupt = CONTEXT.at(fn, origin, "interrupt")
    fn.return_if(fn.atomic_load(I64, interrupt, "monotonic").ne(0), fn.i64(Status.INTERRUPTED))
    context = fn.alloca(I64, CONTEXT.size // 8, align=64)
    fn.copy(context, origin, CONTEXT.offset("entry"))
    bytes = CONTEXT.load(fn, origin, "arena_bytes")
    no_arena = (fn.null(),)
    (arena,) = fn.if_else(bytes > 0, lambda: (fn.call("xlakit_allocate", PTR, bytes),), lambda: no_arena)
    fn.return_if((bytes > 0) & arena.eq(fn.null()), fn.i64(Status.OUT_OF_MEMORY))
    fn.store(arena, CONTEXT.at(fn, context, "arena"))
    fn.store(run, CONTEXT.at(fn, context, "run"))
    entry = fn.load(PTR, CONTEXT.at(fn, origin, "entry"))
    # A custom call may run a program inside of another one.
    running = THREAD.at(fn, thread_state(fn), "running")
    outer = fn.load(PTR, running)
    fn.store(context, running)
    status = fn.call_pointer(entry, I64, arguments, results, context)
    fn.store(outer, running)
    fn.call("xlakit_release", VOID, arena)
    fn.ret(fn.select(status.eq(0), CONTEXT.load(fn, context, "stopped"), status))


def _emit_random_state(module: Module) -> None:
    """``xlakit_random_state(ptr context, ptr state, i64 delta)``: write the 128-bit state to ``state``, then add."""
    module.declare("sched_yield", I32, [])
    fn = module.function("xlakit_random_state", VOID, [PTR, PTR, I64], external=True)
    context, target, delta = fn.parameters
    random = fn.load(PTR, CONTEXT.at(fn, context, "random"))
    held = _RANDOM.at(fn, random, "held")

    with fn.while_((), lambda _: fn.atomic_update("xchg", held, fn.i64(1)).ne(0)):
        fn.call("sched_yield", I32)
    low, high = (_RANDOM.load(fn, random, name) for name in ("low", "high"))
    total = low + delta
    _RANDOM.store(fn, random, "low", total)
    # The upper half of a negative delta has all bits set.
    _RANDOM.store(fn, random, "high", high + delta.integer("ashr", 63) + total.compare("ult", low).cast("zext", I64))
    fn.atomic_store(fn.i64(0), held)
    fn.store(low, target)
    fn.store(high, fn.at(target, I64, 1))
    fn.ret()


def _emit_random_draw(module: Module) -> None:
    """``xlakit_random_draw(ptr context, ptr state)``: write the next draw's key, and the halves of its counter."""
    fn = module.function("xlakit_random_draw", VOID, [PTR, PTR], external=True)
    context, target = fn.parameters
    random = fn.load(PTR, CONTEXT.at(fn, context, "random"))
    number = fn.atomic_update("add", _RANDOM.at(fn, random, "draws"), fn.i64(1))
    for index, word in enumerate((_RANDOM.load(fn, random, "key"), fn.i64(0), number)):
        fn.store(word, fn.at(target, I64, index))
    fn.ret()
