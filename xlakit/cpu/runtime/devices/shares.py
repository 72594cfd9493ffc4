"""The share of a worker: the devices of a run that one thread runs.

A device that is alone in its share runs on the stack of the thread, and waits by blocking it. Several devices are
fibers: the thread enters one after the other, and each continues until it has ended or waits at a collective for
devices that have not arrived. The last one of a group to arrive computes the collective for all, so a share with all
devices never sleeps, and a collective costs each device a switch of stacks.

If no device of the share can continue, the thread sleeps until devices of other shares have arrived, and after a while
calls Python (a host call of STUCK), which checks whether they still can arrive, handles signals, and looks for
failures. A run that native code began checks itself whether they can arrive (deadlocks.py).

In a run without collectives no device waits for another one, and the workers claim them one after the other: a thread
that wakes late does less.
"""

from __future__ import annotations

from xlakit.cpu.llvm import I1, I32, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.promises import COLD, NO_INLINE
from xlakit.cpu.runtime import waiting
from xlakit.cpu.runtime.context import Status
from xlakit.cpu.runtime.devices.fibers import FIBER, FiberState
from xlakit.cpu.runtime.devices.rendezvous import (
    LEAVE,
    NOTICE,
    RUN,
    SLEEP_NANOSECONDS,
    STUCK,
    first_of,
    parking_slot_at,
    spin_briefly,
    table_at,
)
from xlakit.cpu.runtime.thread_state import THREAD, thread_state


def emit_shares(module: Module) -> None:
    """``run_share(ptr run, i64 worker)``: run the devices of a share until all have ended.

    Their statuses are then in the run's ``statuses``. The module has the functions of emit_fibers, emit_rendezvous and
    emit_context.
    """
    _emit_execute_device(module)
    _emit_end_device(module)
    _emit_can_go(module)
    _emit_fibers_of(module)
    _emit_idle(module)
    _emit_take_turns(module)
    _emit_run_share(module)


def _emit_execute_device(module: Module) -> None:
    """``execute_member(ptr origin, ptr arguments, ptr results, ptr run) -> i64``: run the program on one device.

    ``execute_device(ptr run, i64 device) -> i64`` takes the arguments from the device's entries in the tables of the
    run, and ``run_fiber(ptr fiber)`` runs the device of a fiber, and stores the status in the fiber. A device that
    fails stops the whole run, and returns only when no other device reads its arrays any more.
    """
    fn = module.function("execute_member", I64, [PTR, PTR, PTR, PTR])
    run = fn.parameters[3]
    status = fn.call("execute_in", I64, *fn.parameters)
    with fn.if_(status.ne(Status.DONE), likely=False):
        fn.call("xlakit_run_close", VOID, run)
    fn.ret(status)

    fn, run, device = module.begin("execute_device", I64, [PTR, I64])
    tables = [RUN.pointer(fn, run, name) for name in ("origins", "arguments", "results")]
    origin, arguments, results = (fn.pointer(table, device) for table in tables)
    fn.ret(fn.call("execute_member", I64, origin, arguments, results, run))

    fn, fiber = module.begin("run_fiber", VOID, [PTR])
    run = FIBER.pointer(fn, fiber, "run")
    status = fn.call("execute_device", I64, run, FIBER.load(fn, fiber, "ordinal"))
    FIBER.store(fn, fiber, "answer", status)


def _emit_end_device(module: Module) -> None:
    """``end_device(ptr run, i64 device, i64 status)``: record the status of a device that has ended.

    ``notify_python(ptr run, i64 device, i64 number, i64 ordinal) -> i64`` makes a host call for a device of the run. An
    exception that is set already stays set; the notice tells Python so, and the status is RAISED.
    """
    fn, run, device, status = module.begin("end_device", VOID, [PTR, I64, I64])
    address = fn.at(RUN.pointer(fn, run, "statuses"), I64, device)
    fn.atomic_store(status, address, "seq_cst")
    # Python sets "watched" before it reads the statuses: so it either sees this status, or is notified here.
    with fn.if_(fn.atomic_load(I64, RUN.at(fn, run, "watched"), "seq_cst").ne(0), likely=False):
        told = fn.call("notify_python", I64, run, device, fn.i64(LEAVE), device)
        # A signal handler may have raised instead: then Python counts this device as running, for which others wait.
        with fn.if_(told.ne(Status.DONE), likely=False):
            fn.atomic_store(told, address, "seq_cst")
            fn.call("xlakit_run_stop", VOID, run)

    fn = module.function("notify_python", I64, [PTR, I64, I64, I64], attributes=(NO_INLINE, COLD))
    run, device, number, ordinal = fn.parameters
    notice = fn.alloca(I64, NOTICE.size // 8)
    fn.fill(notice, 0, NOTICE.size)
    NOTICE.store(fn, notice, "run", run.cast("ptrtoint", I64))
    NOTICE.store(fn, notice, "ordinal", ordinal)
    module.declare("PyErr_Fetch", VOID, [PTR, PTR, PTR])
    module.declare("PyErr_Restore", VOID, [PTR, PTR, PTR])
    exception = [fn.alloca(PTR) for _ in range(3)]
    state = fn.call("PyGILState_Ensure", I32)
    fn.call("PyErr_Fetch", VOID, *exception)
    is_set = fn.load(PTR, exception[0]).ne(fn.null())
    NOTICE.store(fn, notice, "raised", is_set.cast("zext", I64))
    origin = fn.pointer(RUN.pointer(fn, run, "origins"), device)
    status = fn.call("xlakit_host_call", I64, origin, number, notice)
    with fn.if_(is_set):
        fn.call("PyErr_Restore", VOID, *[fn.load(PTR, part) for part in exception])
    fn.call("PyGILState_Release", VOID, state)
    fn.ret(fn.select(is_set, fn.i64(Status.RAISED), status))


def _fiber_of(fn: Function, run: Value, device: Value) -> Value:
    return fn.pointer(table_at(fn, run, "fibers"), device)


def _emit_can_go(module: Module) -> None:
    """``can_go(ptr fiber) -> i1``: whether a fiber that is not entered may continue; false if it has ended.

    ``share_is_stuck(ptr run, i64 worker) -> i1``: whether none of a share's fibers can continue, and for Python
    ``xlakit_share_sleep(ptr run, i64 worker, i64 nanoseconds)``: sleep while that is so.
    """
    fn, fiber = module.begin("can_go", I1, [PTR])
    state = FIBER.load(fn, fiber, "state")
    fn.return_if(state.eq(FiberState.READY), fn.constant(I1, 1))
    fn.return_if(state.eq(FiberState.ENDED), fn.constant(I1, 0))
    run, site, slot = (FIBER.pointer(fn, fiber, name) for name in ("run", "site", "slot"))
    generation = FIBER.load(fn, fiber, "generation")
    (waits,) = fn.if_else(
        state.eq(FiberState.AWAITS_MEMBERS),
        lambda: (fn.call("absent", I1, run, site, slot, generation),),
        lambda: (fn.call("incomplete", I1, slot, generation),),
    )
    fn.ret(~waits)

    fn, run, worker = module.begin("share_is_stuck", I1, [PTR, I64])
    first, last = first_of(fn, run, worker), first_of(fn, run, worker + 1)
    with fn.loop(first, last, carried=[fn.constant(I1, 1)]) as each:
        each.next(each.carried[0] & ~fn.call("can_go", I1, _fiber_of(fn, run, each.index)))
    fn.ret(each.results[0])

    fn, run, worker, nanoseconds = module.begin("xlakit_share_sleep", VOID, [PTR, I64, I64], external=True)

    def stuck() -> Value:
        return fn.call("share_is_stuck", I1, run, worker)

    with fn.if_(stuck()):
        waiting.sleep(fn, parking_slot_at(fn, run, worker), stuck, nanoseconds)


def _emit_fibers_of(module: Module) -> None:
    """``take_fibers(ptr run, i64 first, i64 last) -> i1``: a fiber for each device, all or none; ``give_fibers``."""
    fn, run, first, last = module.begin("give_fibers", VOID, [PTR, I64, I64])
    with fn.loop(first, last) as each:
        fn.call("give_fiber", VOID, _fiber_of(fn, run, each.index))

    fn, run, first, last = module.begin("take_fibers", I1, [PTR, I64, I64])
    start = (first, fn.constant(I1, 1))
    with fn.while_(start, lambda iteration: (iteration.carried[0] < last) & iteration.carried[1]) as iteration:
        device = iteration.carried[0]
        fiber = fn.call("take_fiber", PTR)
        fn.store(fiber, fn.at(table_at(fn, run, "fibers"), PTR, device))
        is_there = fiber.ne(fn.null())
        with fn.if_(is_there):
            fn.store(run, FIBER.at(fn, fiber, "run"))
            FIBER.store(fn, fiber, "ordinal", device)
            fn.call("start_fiber", VOID, fiber)
        iteration.next(fn.select(is_there, device + 1, device), is_there)
    end, enough = iteration.results
    with fn.if_(~enough, likely=False):
        fn.call("give_fibers", VOID, run, first, end)
    fn.ret(enough)


def _emit_idle(module: Module) -> None:
    """``idle(ptr run, i64 worker)``: called if no device of the share can continue; returns when one may."""
    fn, run, worker = module.begin("idle", VOID, [PTR, I64])

    def stuck() -> Value:
        return fn.call("share_is_stuck", I1, run, worker)

    # If this share has all devices, no other thread can end the wait.
    with fn.if_(RUN.load(fn, run, "workers") > 1):
        spin_briefly(fn, run, stuck)
        with fn.if_(stuck()):
            waiting.sleep(fn, parking_slot_at(fn, run, worker), stuck, fn.i64(SLEEP_NANOSECONDS))
    with fn.if_(stuck(), likely=False):
        fn.return_if(~fn.call("needs_python", I1, run))
        status = fn.call("notify_python", I64, run, first_of(fn, run, worker), fn.i64(STUCK), worker)
        with fn.if_(status.ne(Status.DONE)):
            fn.call("xlakit_run_stop", VOID, run)


def _emit_take_turns(module: Module) -> None:
    """``take_turns(ptr run, i64 first, i64 last, ptr entered) -> i64``: enter each fiber that can continue.

    Gives the number of fibers that have ended, and adds the number of fibers that were entered to the word ``entered``.
    """
    fn, run, first, last, entered = module.begin("take_turns", I64, [PTR, I64, I64, PTR])
    with fn.loop(first, last, carried=[fn.i64(0)]) as each:
        fiber = _fiber_of(fn, run, each.index)

        def enter(fiber: Value = fiber, device: Value = each.index) -> tuple[Value]:
            fn.store(fn.load(I64, entered) + 1, entered)
            fn.call("resume", VOID, fiber)
            has_ended = FIBER.load(fn, fiber, "state").eq(FiberState.ENDED)
            with fn.if_(has_ended):
                fn.call("end_device", VOID, run, device, FIBER.load(fn, fiber, "answer"))
            return (has_ended.cast("zext", I64),)

        (ended,) = fn.if_else(fn.call("can_go", I1, fiber), enter, lambda: (fn.i64(0),))
        each.next(each.carried[0] + ended)
    fn.ret(each.results[0])


def _emit_run_share(module: Module) -> None:
    """``run_share(run, worker)``: run the devices of a share, and record their statuses.

    ``run_alone_device(run, device)`` is for a share of one device, which needs no fiber; ``run_claimed(run, devices)``
    runs those that no other worker has claimed; ``run_in_turn(run, worker)`` gives each of several devices a fiber, and
    enters those that can continue until all have ended.
    """
    fn, run, device = module.begin("run_alone_device", VOID, [PTR, I64])
    # The program may be called from a custom call of a program that is on a fiber.
    address = THREAD.at(fn, thread_state(fn), "fiber")
    outer = fn.load(PTR, address)
    fn.store(fn.null(), address)
    status = fn.call("execute_device", I64, run, device)
    fn.store(outer, THREAD.at(fn, thread_state(fn), "fiber"))
    fn.call("end_device", VOID, run, device, status)

    fn, run, worker = module.begin("run_in_turn", VOID, [PTR, I64])
    first, last = first_of(fn, run, worker), first_of(fn, run, worker + 1)
    enough = fn.call("take_fibers", I1, run, first, last)
    with fn.if_(~enough, likely=False):
        fn.call("xlakit_run_close", VOID, run)
        with fn.loop(first, last) as each:
            fn.call("end_device", VOID, run, each.index, fn.i64(Status.OUT_OF_MEMORY))
        fn.ret()
    entered = fn.alloca(I64)
    with fn.while_((last - first,), lambda iteration: iteration.carried[0] > 0) as iteration:
        fn.store(fn.i64(0), entered)
        ended = fn.call("take_turns", I64, run, first, last, entered)
        with fn.if_(fn.load(I64, entered).eq(0)):
            fn.call("idle", VOID, run, worker)
        iteration.next(iteration.carried[0] - ended)
    fn.call("give_fibers", VOID, run, first, last)

    fn, run, devices = module.begin("run_claimed", VOID, [PTR, I64])

    def claim() -> Value:
        return fn.atomic_update("add", RUN.at(fn, run, "claimed"), fn.i64(1))

    with fn.while_((claim(),), lambda iteration: iteration.carried[0] < devices) as iteration:
        fn.call("run_alone_device", VOID, run, iteration.carried[0])
        iteration.next(claim())
    fn.ret()

    fn, run, worker = module.begin("run_share", VOID, [PTR, I64])
    with fn.if_(RUN.load(fn, run, "slots").eq(RUN.load(fn, run, "end"))):
        fn.call("run_claimed", VOID, run, RUN.load(fn, run, "devices"))
        fn.ret()
    first, last = first_of(fn, run, worker), first_of(fn, run, worker + 1)
    is_alone = (last - first).eq(1)
    with fn.if_(is_alone):
        fn.call("run_alone_device", VOID, run, first)
    with fn.if_(~is_alone):
        fn.call("run_in_turn", VOID, run, worker)
