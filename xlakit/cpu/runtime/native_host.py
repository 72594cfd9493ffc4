"""The native functions that call Python; host.py describes them, and has the Python side."""

from __future__ import annotations

from xlakit.cpu.llvm import I1, I32, I64, PTR, VOID, Module, Value
from xlakit.cpu.llvm.promises import COLD, NO_INLINE
from xlakit.cpu.runtime import waiting
from xlakit.cpu.runtime.context import CONTEXT, Status
from xlakit.cpu.runtime.devices.fibers import FIBER, FiberState, current_fiber, leave_fiber
from xlakit.cpu.runtime.float_mode import float_mode
from xlakit.cpu.runtime.host import HOST_FUNCTION
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

    _emit_call_function(module)
    fn, context, step, buffers = module.begin("xlakit_host_call", I64, [PTR, I64, PTR], external=True)
    stopped = CONTEXT.load(fn, context, "stopped")
    # After a cancellation an exception may be set, and the operands of the step may be incomplete.
    fn.return_if(stopped.ne(0), stopped)
    key = CONTEXT.load(fn, context, "host")
    with float_mode(fn):
        status = fn.call("xlakit_call_host_function", I64, key, step, buffers.cast("ptrtoint", I64))
    fn.ret(status)

    module.declare("PyEval_SaveThread", PTR, [])
    module.declare("PyEval_RestoreThread", VOID, [PTR])
    emit_for_python(module, "xlakit_execute_for_python", "xlakit_execute", 3)
    _emit_signals(module)
    _emit_poll(module)


def _emit_call_function(module: Module) -> None:
    """``xlakit_call_host_function(i64 key, i64 step, i64 buffers) -> status``: call what answers host calls.

    A signal handler can raise even before the function's first statement: the exception stays set then, and the status
    is RAISED. A callback of ctypes would print the exception, and return nothing.
    """
    module.declare(HOST_FUNCTION, VOID, [])
    module.declare("PyGILState_Ensure", I32, [])
    module.declare("PyGILState_Release", VOID, [I32])
    module.declare("PyLong_FromLongLong", PTR, [I64])
    module.declare("PyLong_AsLongLong", I64, [PTR])
    module.declare("PyObject_Vectorcall", PTR, [PTR, PTR, I64, PTR])
    module.declare("Py_DecRef", VOID, [PTR])
    fn = module.function("xlakit_call_host_function", I64, [I64, I64, I64], external=True)
    count = len(fn.parameters)
    objects = fn.alloca(PTR, count)
    state = fn.call("PyGILState_Ensure", I32)
    numbers = [fn.call("PyLong_FromLongLong", PTR, number) for number in fn.parameters]
    for index, number in enumerate(numbers):
        fn.store(number, fn.at(objects, PTR, index))
    found = fn.call("PyObject_Vectorcall", PTR, fn.address(HOST_FUNCTION), objects, fn.i64(count), fn.null())
    for number in numbers:
        fn.call("Py_DecRef", VOID, number)

    def returned() -> tuple[Value]:
        status = fn.call("PyLong_AsLongLong", I64, found)
        fn.call("Py_DecRef", VOID, found)
        return (status,)

    (status,) = fn.if_else(found.eq(fn.null()), lambda: (fn.i64(Status.RAISED),), returned)
    fn.call("PyGILState_Release", VOID, state)
    fn.ret(status)


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
