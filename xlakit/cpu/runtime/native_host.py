"""The native functions that call Python; host.py describes them, and has the Python side."""

from __future__ import annotations

from xlakit.cpu.llvm import I1, I32, I64, PTR, VOID, Module
from xlakit.cpu.llvm.promises import COLD, NO_INLINE
from xlakit.cpu.runtime import waiting
from xlakit.cpu.runtime.context import CONTEXT, Status
from xlakit.cpu.runtime.devices.fibers import FIBER, FiberState, current_fiber, leave_fiber
from xlakit.cpu.runtime.float_mode import float_mode
from xlakit.cpu.runtime.threads import emit_for_python

# The time between two checks for signals in a loop; a check needs the GIL.
_POLL_NANOSECONDS = 100_000_000


def emit_host(module: Module) -> None:
    """Write ``xlakit_host_call``, by which programs call Python, and what they run signal handlers by.

    ``xlakit_main_thread(i64)`` sets the thread on which Python runs these. The module has the functions of
    emit_context.
    """
    main = module.global_data("main_thread", 8)
    fn = module.function("xlakit_main_thread", VOID, [I64], external=True)
    fn.store(fn.parameters[0], fn.address(main))

    module.declare("xlakit_host_trampoline", I64, [I64, I64, I64])
    fn, context, step, buffers = module.begin("xlakit_host_call", I64, [PTR, I64, PTR], external=True)
    stopped = CONTEXT.load(fn, context, "stopped")
    # After a cancellation an exception may be set, and the operands of the step may be incomplete.
    fn.return_if(stopped.ne(0), stopped)
    key = CONTEXT.load(fn, context, "host")
    with float_mode(fn):
        status = fn.call("xlakit_host_trampoline", I64, key, step, buffers.cast("ptrtoint", I64))
    fn.ret(status)

    module.declare("PyEval_SaveThread", PTR, [])
    module.declare("PyEval_RestoreThread", VOID, [PTR])
    emit_for_python(module, "xlakit_execute_for_python", "xlakit_execute", 3)
    _emit_signals(module)
    _emit_poll(module)


def _emit_poll(module: Module) -> None:
    """``xlakit_poll(ptr context) -> status``: DONE if the program may continue.

    On the main thread, signal handlers run from time to time; a handler that raises stops the program.
    """
    fn, context = module.begin("xlakit_poll", I64, [PTR], external=True)
    stopped = CONTEXT.load(fn, context, "stopped")
    fn.return_if(stopped.ne(0), stopped)
    origin = CONTEXT.pointer(fn, context, "origin")
    interrupt = fn.atomic_load(I64, CONTEXT.at(fn, origin, "interrupt"), "monotonic")
    fn.return_if(interrupt.ne(0), fn.i64(Status.INTERRUPTED))
    run = CONTEXT.pointer(fn, context, "run")
    is_one = (fn.constant(I1, 0),)
    (stopped,) = fn.if_else(run.eq(fn.null()), lambda: is_one, lambda: (fn.call("run_has_stopped", I1, run),))
    fn.return_if(stopped, fn.i64(Status.INTERRUPTED))
    module.declare("pthread_self", I64, [])
    fn.return_if(fn.call("pthread_self", I64).ne(fn.load(I64, fn.address("main_thread"))), fn.i64(Status.DONE))
    polled = CONTEXT.at(fn, context, "polled")
    last, now = fn.atomic_load(I64, polled, "monotonic"), waiting.clock(fn)
    fn.return_if((now - last) < _POLL_NANOSECONDS, fn.i64(Status.DONE))
    fn.atomic_store(now, polled, "monotonic")
    # The first poll only starts the clock.
    fn.return_if(last.eq(0), fn.i64(Status.DONE))
    fn.ret(fn.call("run_signal_handlers", I64))


def _emit_signals(module: Module) -> None:
    """``run_signal_handlers() -> status``; for a fiber, the thread runs them on its stack (``signals_on_thread``)."""
    module.declare("PyGILState_Ensure", I32, [])
    module.declare("PyGILState_Release", VOID, [I32])
    module.declare("PyErr_CheckSignals", I32, [])
    fn = module.function("signals_on_thread", I64, [], attributes=(NO_INLINE, COLD))
    state = fn.call("PyGILState_Ensure", I32)
    raised = fn.call("PyErr_CheckSignals", I32).ne(0)
    fn.call("PyGILState_Release", VOID, state)
    fn.ret(fn.select(raised, fn.i64(Status.RAISED), fn.i64(Status.DONE)))

    fn = module.function("run_signal_handlers", I64, [], attributes=(NO_INLINE, COLD))
    fiber = current_fiber(fn)
    with fn.if_(fiber.eq(fn.null())):
        fn.ret(fn.call("signals_on_thread", I64))
    leave_fiber(fn, fiber, FiberState.NEEDS_SIGNALS)
    fn.ret(FIBER.load(fn, fiber, "answer"))
