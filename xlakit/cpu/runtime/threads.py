"""Starts threads from native code, and calls native code from threads of Python."""

from __future__ import annotations

import signal

from xlakit.cpu.llvm import I32, I64, PTR, VOID, Function, Module, Value

# Words of 64 bits that suffice for a signal set on every system.
_SIGNAL_SET_WORDS = 16


def start_thread(fn: Function, function: str, argument: Value) -> Value:
    """Start a detached thread that calls ``function(argument)``; gives an I1, whether the system started it.

    The thread inherits a mask that blocks all signals, which Python's threads handle.
    """
    module = fn.module
    module.declare("pthread_create", I32, [PTR, PTR, PTR, PTR])
    module.declare("pthread_detach", I32, [PTR])
    module.declare("pthread_sigmask", I32, [I32, PTR, PTR])
    everything, before = fn.alloca(I64, _SIGNAL_SET_WORDS), fn.alloca(I64, _SIGNAL_SET_WORDS)
    handle = fn.alloca(PTR)
    fn.fill(everything, 255, _SIGNAL_SET_WORDS * 8)
    fn.call("pthread_sigmask", I32, fn.i32(signal.SIG_SETMASK), everything, before)
    is_made = fn.call("pthread_create", I32, handle, fn.null(), fn.address(function), argument).eq(0)
    fn.call("pthread_sigmask", I32, fn.i32(signal.SIG_SETMASK), before, fn.null())
    with fn.if_(is_made):
        fn.call("pthread_detach", I32, fn.load(PTR, handle))
    return is_made


def emit_for_python(module: Module, name: str, function: str, parameters: int) -> None:
    """``name``: a function for Python that calls ``function`` on pointers, which gives a status, without the GIL."""
    fn = module.function(name, I64, [PTR] * parameters, external=True)
    state = fn.call("PyEval_SaveThread", PTR)
    status = fn.call(function, I64, *fn.parameters)
    fn.call("PyEval_RestoreThread", VOID, state)
    fn.ret(status)
