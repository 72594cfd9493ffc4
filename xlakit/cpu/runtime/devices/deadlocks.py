"""Detects deadlocks in a run that native code began: its devices wait for each other at collectives for ever.

In such a run only its own devices can end a wait: a device arrives, or fails. So the run is deadlocked if each of its
devices has ended, or waits for members of its group that have not arrived. A worker that has slept for a while inspects
all devices, one after the other, while they may still run. It does so twice:

    ===========  ======================================================================================
    value        conclusion at the second inspection
    ===========  ======================================================================================
    ``waits``    counts begins and ends of a device's waits: if it is the same, the device did not run
    ``arrived``  members are still missing, and all devices that could arrive wait
    ===========  ======================================================================================

So at some time between the inspections all of them waited, and no device was left that could arrive. Python raises the
error, unless the run may not call Python (``detached``).
"""

from __future__ import annotations

from xlakit.cpu.llvm import I1, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.promises import ALWAYS_INLINE, COLD, NO_INLINE
from xlakit.cpu.runtime.context import Status
from xlakit.cpu.runtime.devices.rendezvous import RUN, SLOT, table_at


def emit_deadlocks(module: Module) -> None:
    """Write the functions into a module that has the functions of emit_rendezvous.

    ``begin_wait(ptr run, i64 device, ptr slot, i64 generation)`` and ``end_wait(ptr run, i64 device)`` surround a wait;
    ``needs_python(ptr run) -> i1`` is called when it takes long.
    """
    _emit_waits(module)
    _emit_all_wait(module)
    _emit_needs_python(module)


def _word(fn: Function, run: Value, table: str, device: Value) -> Value:
    return fn.at(table_at(fn, run, table), I64, device)


def _emit_waits(module: Module) -> None:
    fn = module.function("begin_wait", VOID, [PTR, I64, PTR, I64], attributes=(ALWAYS_INLINE,))
    run, device, slot, generation = fn.parameters
    fn.store(slot.cast("ptrtoint", I64), _word(fn, run, "waiting_at", device))
    fn.store(generation, _word(fn, run, "generations", device))
    fn.call("end_wait", VOID, run, device)

    # The count is odd while the device waits.
    fn, run, device = module.begin("end_wait", VOID, [PTR, I64], attributes=(ALWAYS_INLINE,))
    waits = _word(fn, run, "waits", device)
    fn.atomic_store(fn.load(I64, waits) + 1, waits, "seq_cst")


def _emit_all_wait(module: Module) -> None:
    """``wait_count(ptr run) -> i64``: the sum over all devices; ``all_wait(ptr run) -> i1``: if none can continue."""
    fn, run = module.begin("wait_count", I64, [PTR])
    with fn.loop(0, RUN.load(fn, run, "devices"), carried=[fn.i64(0)]) as each:
        each.next(each.carried[0] + fn.atomic_load(I64, _word(fn, run, "waits", each.index), "seq_cst"))
    fn.ret(each.results[0])

    fn, run, device = module.begin("misses_members", I1, [PTR, I64])
    fn.return_if((fn.atomic_load(I64, _word(fn, run, "waits", device), "seq_cst") & 1).eq(0), fn.constant(I1, 0))
    slot = fn.load(PTR, _word(fn, run, "waiting_at", device))
    needed = (fn.load(I64, _word(fn, run, "generations", device)) + 1) * SLOT.load(fn, slot, "count")
    fn.ret(fn.atomic_load(I64, SLOT.at(fn, slot, "arrived"), "seq_cst") < needed)

    fn, run = module.begin("all_wait", I1, [PTR])
    statuses = RUN.pointer(fn, run, "statuses")
    with fn.loop(0, RUN.load(fn, run, "devices"), carried=[fn.constant(I1, 1)]) as each:
        has_ended = fn.atomic_load(I64, fn.at(statuses, I64, each.index), "seq_cst") >= 0
        each.next(each.carried[0] & (has_ended | fn.call("misses_members", I1, run, each.index)))
    fn.ret(each.results[0])


def _emit_needs_python(module: Module) -> None:
    """``is_deadlocked(ptr run) -> i1``, and ``needs_python``, whether a long wait must continue in Python.

    Python raises the error of a deadlock, and handles all waits of a run that Python began, whose devices may also wait
    in Python. Signals are handled here: an exception that a handler raises stays set, and the run stops.
    """
    fn, run = module.begin("is_deadlocked", I1, [PTR])
    no = fn.constant(I1, 0)
    before = fn.call("wait_count", I64, run)
    for _ in range(2):
        fn.return_if(~fn.call("all_wait", I1, run), no)
    fn.ret(fn.call("wait_count", I64, run).eq(before))

    fn, run = module.begin("needs_python", I1, [PTR], attributes=(NO_INLINE, COLD))
    yes, no = fn.constant(I1, 1), fn.constant(I1, 0)
    fn.return_if(RUN.load(fn, run, "origins").eq(0), yes)
    detached = RUN.load(fn, run, "detached").ne(0)
    with fn.if_(fn.call("is_deadlocked", I1, run)):
        with fn.if_(detached):
            RUN.store(fn, run, "deadlocked", fn.i64(1))
            fn.call("xlakit_run_stop", VOID, run)
        fn.ret(~detached)
    with fn.if_(handles_signals(fn)):
        with fn.if_(fn.call("run_signal_handlers", I64).ne(Status.DONE)):
            fn.call("xlakit_run_stop", VOID, run)
    fn.ret(no)


def handles_signals(fn: Function) -> Value:
    """Whether this is the thread that runs signal handlers."""
    fn.module.declare("pthread_self", I64, [])
    return fn.call("pthread_self", I64).eq(fn.load(I64, fn.address("main_thread")))
