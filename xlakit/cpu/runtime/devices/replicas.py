"""The native entry of a program on several devices: ``i64 (ptr replicas, ptr arguments, ptr results)``.

``xlakit_execute_replicas`` takes the REPLICAS of a program and two tables with the arrays of one device after the
other. It may be called on any thread, and gives a Status: RAISED if Python holds the error, or if a signal handler
raised. On a thread that is detached from Python it gives another status, such as DEADLOCKED.

A call runs on one thread, or on one thread for each processor that the caller may use, whichever is faster. One thread
is enough if the program ends before other threads would be awake. The choice depends on the number of ``calls``:

| calls | threads |
|---|---|
| 0, 1 | one; the first call is not timed |
| then, if one thread takes longer than _SHORT_NANOSECONDS: 3 calls | all; the first of them is not timed |
| all others | the faster choice; once in _RETRIED_CALLS the other one |
"""

from __future__ import annotations

from typing import Final

from xlakit.cpu.llvm import I1, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.promises import COLD, NO_INLINE
from xlakit.cpu.runtime import waiting
from xlakit.cpu.runtime.context import Status
from xlakit.cpu.runtime.devices.fibers import machine
from xlakit.cpu.runtime.devices.rendezvous import FINISH, RUN, SLOT, slot_bytes_of, table_at
from xlakit.cpu.runtime.record import Record
from xlakit.cpu.runtime.thread_state import THREAD, thread_state
from xlakit.cpu.runtime.threads import emit_for_python

# held: a spin lock for ``free``, the list of runs that are not in use. origins: for each device its context.
# num_arguments, num_results: the number of arrays of each device. slots, end: the offsets of the begin and the end of
# the slots of a run; counts: the number of members of each of num_slots slots. time: the mean time of a call on one
# thread, and on all, in nanoseconds, to which a new time contributes a quarter; 0 before the first. tried: the calls on
# all threads.
REPLICAS: Final = Record(
    held=1, free=1, devices=1, origins=1, num_arguments=1, num_results=1, slots=1, end=1, counts=1, num_slots=1,
    calls=1, tried=1, time=2, _fill=2,
)  # fmt: skip

# A shorter run ends before other threads are awake, or soon after.
_SHORT_NANOSECONDS: Final = 60_000
_RETRIED_CALLS: Final = 64
_TRIED_CALLS: Final = 3


def emit_replicas(module: Module) -> None:
    """Write ``xlakit_execute_replicas``, its variant ``_for_python``, and ``xlakit_replicas_end(ptr replicas)``.

    The module has the functions of emit_device_threads.
    """
    _emit_lists(module)
    _emit_make(module)
    _emit_choice(module)
    _emit_finish(module)
    _emit_execute(module)


def _emit_lists(module: Module) -> None:
    """``take_run(ptr replicas) -> ptr``: a free run or null; ``give_run(ptr replicas, ptr run)``: make it free."""
    fn, replicas = module.begin("take_run", PTR, [PTR])
    with waiting.spin_locked(fn, REPLICAS.at(fn, replicas, "held")):
        free = REPLICAS.at(fn, replicas, "free")
        run = fn.load(PTR, free)
        with fn.if_(run.ne(fn.null())):
            fn.store(RUN.pointer(fn, run, "next"), free)
    fn.ret(run)

    fn, replicas, run = module.begin("give_run", VOID, [PTR, PTR])
    with waiting.spin_locked(fn, REPLICAS.at(fn, replicas, "held")):
        free = REPLICAS.at(fn, replicas, "free")
        fn.store(fn.load(PTR, free), RUN.at(fn, run, "next"))
        fn.store(run, free)

    fn, replicas = module.begin("xlakit_replicas_end", VOID, [PTR], external=True)
    with fn.while_(
        (fn.call("take_run", PTR, replicas),), lambda iteration: iteration.carried[0].ne(fn.null())
    ) as iteration:
        fn.call("xlakit_release", VOID, iteration.carried[0])
        iteration.next(fn.call("take_run", PTR, replicas))


def _emit_make(module: Module) -> None:
    """``make_run(ptr replicas) -> ptr``: a new run, or null; ``prepare_run(replicas, run, arguments, results)``."""
    fn, replicas = module.begin("make_run", PTR, [PTR], attributes=(NO_INLINE, COLD))
    devices, slots, end = (REPLICAS.load(fn, replicas, name) for name in ("devices", "slots", "end"))
    run = fn.call("xlakit_allocate", PTR, end)
    fn.return_if(run.eq(fn.null()), run)
    fn.fill(run, 0, end)
    counts = REPLICAS.pointer(fn, replicas, "counts")
    with fn.loop(0, REPLICAS.load(fn, replicas, "num_slots"), carried=[slots]) as each:
        count = fn.load(I64, fn.at(counts, I64, each.index))
        SLOT.store(fn, fn.at(run, I64, each.carried[0] >> 3), "count", count)
        each.next(each.carried[0] + slot_bytes_of(count))
    fn.call("xlakit_run_start", VOID, run, devices, slots, end)
    fn.store(REPLICAS.pointer(fn, replicas, "origins"), RUN.at(fn, run, "origins"))
    for name in ("arguments", "results", "statuses"):
        fn.store(table_at(fn, run, name), RUN.at(fn, run, name))
    fn.ret(run)

    fn, replicas, run, arguments, results = module.begin("prepare_run", VOID, [PTR, PTR, PTR, PTR])
    tables = [table_at(fn, run, name) for name in ("arguments", "results", "statuses")]
    counts = [REPLICAS.load(fn, replicas, name) for name in ("num_arguments", "num_results")]
    with fn.loop(0, REPLICAS.load(fn, replicas, "devices")) as each:
        for table, arrays, count in zip(tables[:2], (arguments, results), counts, strict=True):
            fn.store(fn.at(arrays, PTR, each.index * count), fn.at(table, PTR, each.index))
        fn.store(fn.i64(-1), fn.at(tables[2], I64, each.index))
    RUN.store(fn, run, "watched", fn.i64(0))
    RUN.store(fn, run, "claimed", fn.i64(0))
    RUN.store(fn, run, "detached", THREAD.load(fn, thread_state(fn), "detached"))


def _emit_choice(module: Module) -> None:
    """``workers_for(ptr replicas) -> i64``: the number of threads for a call; ``note_run(replicas, workers, time)``."""
    fn, replicas = module.begin("workers_for", I64, [PTR])
    devices = REPLICAS.load(fn, replicas, "devices")
    if machine() is None:
        fn.ret(devices)
    else:
        one = fn.i64(1)
        most = fn.call("xlakit_thread_count", I64)
        processors = fn.load(I64, fn.address("rendezvous_processors"))
        most = fn.select(most > processors, processors, most)
        most = fn.select(most > devices, devices, most)
        calls = REPLICAS.load(fn, replicas, "calls")
        REPLICAS.store(fn, replicas, "calls", calls + 1)
        alone, together = (fn.load(I64, _time(fn, replicas, way)) for way in (0, 1))
        fn.return_if((most < 2) | (alone < _SHORT_NANOSECONDS), one)
        tried = REPLICAS.load(fn, replicas, "tried")
        is_better = (tried < _TRIED_CALLS) | (together < alone)
        is_other = (calls & (_RETRIED_CALLS - 1)).eq(_RETRIED_CALLS - 1)
        fn.ret(fn.select(is_better ^ is_other, most, one))

    fn, replicas, workers, nanoseconds = module.begin("note_run", VOID, [PTR, I64, I64])
    is_alone = workers.eq(1)
    tried = REPLICAS.load(fn, replicas, "tried")
    with fn.if_(~is_alone):
        REPLICAS.store(fn, replicas, "tried", tried + 1)
    first = fn.select(is_alone, REPLICAS.load(fn, replicas, "calls") < 2, tried.eq(0))
    fn.return_if(first)
    mean = _time(fn, replicas, fn.select(is_alone, fn.i64(0), fn.i64(1)))
    before = fn.load(I64, mean)
    # A disturbance by the system counts as at most twice the mean.
    most = before * 2
    counted = fn.select(nanoseconds > most, most, nanoseconds)
    after = before + (counted - before).integer("ashr", 2)
    fn.store(fn.select(before.eq(0), nanoseconds, after), mean)


def _time(fn: Function, replicas: Value, way: Value | int) -> Value:
    return fn.at(REPLICAS.at(fn, replicas, "time"), I64, way)


def _emit_finish(module: Module) -> None:
    """``finish_run(ptr run, i64 status) -> i64``: the end of a run that has failed, or that Python watches.

    Python owns the memory of a run that it watches, and releases it. ``finish_detached(ptr run) -> i64`` is for a run
    that may not call Python.
    """
    fn, run = module.begin("all_done", I1, [PTR])
    statuses = RUN.pointer(fn, run, "statuses")
    with fn.loop(0, RUN.load(fn, run, "devices"), carried=[fn.constant(I1, 1)]) as each:
        each.next(each.carried[0] & fn.load(I64, fn.at(statuses, I64, each.index)).eq(Status.DONE))
    fn.ret(each.results[0])

    fn, run = module.begin("finish_detached", I64, [PTR], attributes=(NO_INLINE, COLD))
    statuses = RUN.pointer(fn, run, "statuses")
    with fn.loop(0, RUN.load(fn, run, "devices"), carried=[fn.i64(Status.INTERRUPTED)]) as each:
        status = fn.load(I64, fn.at(statuses, I64, each.index))
        # An interrupted device was stopped by the failure of another one, whose status is the cause.
        says_more = status.ne(Status.DONE) & status.ne(Status.INTERRUPTED)
        each.next(fn.select(says_more, status, each.carried[0]))
    is_deadlocked = RUN.load(fn, run, "deadlocked").ne(0)
    fn.call("xlakit_release", VOID, run)
    fn.ret(fn.select(is_deadlocked, fn.i64(Status.DEADLOCKED), each.results[0]))

    fn, run, status = module.begin("finish_run", I64, [PTR, I64], attributes=(NO_INLINE, COLD))
    with fn.if_(RUN.load(fn, run, "detached").ne(0)):
        fn.ret(fn.call("finish_detached", I64, run))
    is_watched = RUN.load(fn, run, "watched").ne(0)
    python_status = fn.call("notify_python", I64, run, fn.i64(0), fn.i64(FINISH), status)
    with fn.if_(~is_watched):
        fn.call("xlakit_release", VOID, run)
    fn.ret(fn.select(status.eq(Status.DONE), python_status, status))


def _emit_execute(module: Module) -> None:
    fn, replicas, arguments, results = module.begin("xlakit_execute_replicas", I64, [PTR, PTR, PTR], external=True)
    free_run = fn.call("take_run", PTR, replicas)
    (run,) = fn.if_else(free_run.ne(fn.null()), lambda: (free_run,), lambda: (fn.call("make_run", PTR, replicas),))
    fn.return_if(run.eq(fn.null()), fn.i64(Status.OUT_OF_MEMORY))
    fn.call("prepare_run", VOID, replicas, run, arguments, results)
    workers = fn.call("workers_for", I64, replicas)
    RUN.store(fn, run, "workers", workers)
    since = waiting.clock(fn)
    status = fn.call("run_devices", I64, run)
    is_well = status.eq(Status.DONE) & RUN.load(fn, run, "watched").eq(0) & fn.call("all_done", I1, run)
    with fn.if_(~is_well, likely=False):
        fn.ret(fn.call("finish_run", I64, run, status))
    fn.call("note_run", VOID, replicas, workers, waiting.clock(fn) - since)
    fn.call("give_run", VOID, replicas, run)
    fn.ret(fn.i64(Status.DONE))
    emit_for_python(module, "xlakit_execute_replicas_for_python", "xlakit_execute_replicas", 3)
