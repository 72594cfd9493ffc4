"""The clock, locks, spinning, and sleeping until another thread wakes this one, for native code."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from xlakit.cpu.llvm import I1, I32, I64, PTR, VOID, Function, Value
from xlakit.cpu.runtime.record import Record

# Space for a mutex and a condition variable on every system: 64 and 48 bytes at most.
PARKING_SLOT = Record(sleeping=1, _before_mutex=7, mutex=8, condition=8)

# How often the clock is read while spinning, in iterations; a power of two.
_ITERATIONS_PER_CLOCK = 32


def clock(fn: Function) -> Value:
    """The monotonic time in nanoseconds."""
    module = fn.module
    reader = module.functions.get("clock")
    if reader is None:
        reader = module.function("clock", I64, [])
        seconds = reader.alloca(I64, 2)
        module.declare("clock_gettime", I32, [I32, PTR])
        reader.call("clock_gettime", I32, reader.i32(time.CLOCK_MONOTONIC), seconds)
        nanoseconds = reader.load(I64, reader.at(seconds, I64, 1))
        reader.ret(reader.load(I64, seconds) * 1_000_000_000 + nanoseconds)
    return fn.call(reader, I64)


def lock(fn: Function, mutex: Value) -> None:
    """Lock a mutex."""
    fn.module.declare("pthread_mutex_lock", I32, [PTR])
    fn.call("pthread_mutex_lock", I32, mutex)


def unlock(fn: Function, mutex: Value) -> None:
    """Unlock a mutex."""
    fn.module.declare("pthread_mutex_unlock", I32, [PTR])
    fn.call("pthread_mutex_unlock", I32, mutex)


def yield_processor(fn: Function) -> None:
    """Let another thread use the processor."""
    fn.module.declare("sched_yield", I32, [])
    fn.call("sched_yield", I32)


@contextmanager
def spin_locked(fn: Function, word: Value) -> Generator[None]:
    """Emit code that runs while it holds a lock: a word, 0 if the lock is free. For a few instructions only."""
    with fn.while_((), lambda _: fn.atomic_update("xchg", word, fn.i64(1)).ne(0)):
        yield_processor(fn)
    yield
    fn.atomic_store(fn.i64(0), word)


def make_mutex(fn: Function, mutex: Value) -> None:
    """Initialize a mutex in memory of any content."""
    fn.fill(mutex, 0, 64)
    fn.module.declare("pthread_mutex_init", I32, [PTR, PTR])
    fn.call("pthread_mutex_init", I32, mutex, fn.null())


def make_parking_slot(fn: Function, parking: Value) -> None:
    """Initialize the parking slot of one thread in memory of any content."""
    fn.store(fn.i64(0), PARKING_SLOT.at(fn, parking, "sleeping"))
    make_mutex(fn, PARKING_SLOT.at(fn, parking, "mutex"))
    condition = PARKING_SLOT.at(fn, parking, "condition")
    fn.fill(condition, 0, 64)
    fn.module.declare("pthread_cond_init", I32, [PTR, PTR])
    fn.call("pthread_cond_init", I32, condition, fn.null())


def pause(fn: Function) -> None:
    """Hint to the processor that the loop spins until another thread writes."""
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        fn.module.declare("llvm.x86.sse2.pause", VOID, [])
        fn.call("llvm.x86.sse2.pause", VOID)
    elif machine in ("aarch64", "arm64"):
        fn.module.declare("llvm.aarch64.hint", VOID, [I32])
        # Hint 1 is "yield".
        fn.call("llvm.aarch64.hint", VOID, fn.i32(1))


def spin(fn: Function, pending: Callable[[], Value], nanoseconds: Value, crowded: Value | None = None) -> None:
    """Spin while ``pending`` (an I1, computed anew at each iteration), for at most ``nanoseconds``.

    If it is ``crowded``, the loop yields the processor, which the awaited thread may need.
    """
    deadline = clock(fn) + nanoseconds

    def late() -> tuple[Value]:
        return (clock(fn) > deadline,)

    start = (fn.i64(0), nanoseconds <= 0)
    with fn.while_(start, lambda iteration: pending() & ~iteration.carried[1]) as iteration:
        pause(fn)
        if crowded is not None:
            with fn.if_(crowded):
                yield_processor(fn)
        count = iteration.carried[0] + 1
        asks = (count & (_ITERATIONS_PER_CLOCK - 1)).eq(0)
        if crowded is not None:
            asks = asks | crowded
        iteration.next(count, *fn.if_else(asks, late, lambda: (fn.constant(I1, 0),)))


def sleep(fn: Function, parking: Value, pending: Callable[[], Value], nanoseconds: Value | None = None) -> None:
    """Sleep while ``pending``, until woken, or for at most ``nanoseconds``.

    No wake-up is lost if ``pending`` reads, and the waker writes before it calls ``wake``, with sequential consistency:
    either the sleeper sees the change, or the waker sees the sleeper.
    """
    mutex, sleeping = PARKING_SLOT.at(fn, parking, "mutex"), PARKING_SLOT.at(fn, parking, "sleeping")
    lock(fn, mutex)
    fn.atomic_store(fn.i64(1), sleeping, "seq_cst")
    condition = PARKING_SLOT.at(fn, parking, "condition")
    if nanoseconds is None:
        fn.module.declare("pthread_cond_wait", I32, [PTR, PTR])
        with fn.while_((), lambda _: pending()):
            fn.call("pthread_cond_wait", I32, condition, mutex)
    else:
        fn.module.declare("pthread_cond_timedwait", I32, [PTR, PTR, PTR])
        until = deadline_in(fn, nanoseconds)
        with fn.while_((fn.i32(0),), lambda iteration: pending() & iteration.carried[0].eq(0)) as iteration:
            iteration.next(fn.call("pthread_cond_timedwait", I32, condition, mutex, until))
    fn.atomic_store(fn.i64(0), sleeping)
    unlock(fn, mutex)


def deadline_in(fn: Function, nanoseconds: Value) -> Value:
    """The address of an absolute time, ``nanoseconds`` from now, as pthread_cond_timedwait takes it."""
    until = fn.alloca(I64, 2)
    fn.module.declare("clock_gettime", I32, [I32, PTR])
    fn.call("clock_gettime", I32, fn.i32(time.CLOCK_REALTIME), until)
    nanosecond_field = fn.at(until, I64, 1)
    total = fn.load(I64, nanosecond_field) + nanoseconds
    fn.store(fn.load(I64, until) + total // 1_000_000_000, until)
    fn.store(total % 1_000_000_000, nanosecond_field)
    return until


def wake(fn: Function, parking: Value) -> None:
    """Wake the thread that sleeps at a parking slot, if there is one."""
    module = fn.module
    waker = module.functions.get("wake")
    if waker is None:
        waker, its = module.begin("wake", VOID, [PTR])
        waker.return_if(waker.atomic_load(I64, PARKING_SLOT.at(waker, its, "sleeping"), "seq_cst").eq(0))
        mutex = PARKING_SLOT.at(waker, its, "mutex")
        lock(waker, mutex)
        module.declare("pthread_cond_signal", I32, [PTR])
        waker.call("pthread_cond_signal", I32, PARKING_SLOT.at(waker, its, "condition"))
        unlock(waker, mutex)
    fn.call(waker, VOID, parking)
