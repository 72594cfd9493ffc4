"""Native code's use of Python: the GIL, which a thread releases while it waits, and signals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from xlakit.cpu.llvm import I1, I32, I64, PTR, VOID, Function, Module, Type, Value
from xlakit.cpu.llvm.promises import COLD, NO_INLINE
from xlakit.jax.api.numbers import Code
from xlakit.jax.native.errors import error
from xlakit.jax.native.records import FAILURE, object_symbol

# The functions of Python's C interface that native code imports: name, result and parameters.
PYTHON_FUNCTIONS: Final[list[tuple[str, Type, list[Type]]]] = [
    ("PyGILState_Ensure", I32, []),
    ("PyGILState_Release", VOID, [I32]),
    ("PyGILState_Check", I32, []),
    ("PyEval_SaveThread", PTR, []),
    ("PyEval_RestoreThread", VOID, [PTR]),
    ("PyErr_CheckSignals", I32, []),
    ("PyErr_Occurred", PTR, []),
    ("PyErr_Clear", VOID, []),
    ("PyErr_Fetch", VOID, [PTR, PTR, PTR]),
    ("PyErr_Restore", VOID, [PTR, PTR, PTR]),
    ("PyErr_SetInterrupt", VOID, []),
    ("Py_AddPendingCall", I32, [PTR, PTR]),
    ("PyLong_FromLongLong", PTR, [I64]),
    ("PyLong_AsLongLong", I64, [PTR]),
    ("PyObject_CallOneArg", PTR, [PTR, PTR]),
    ("Py_DecRef", VOID, [PTR]),
]

# The exception of a signal handler that Python still has to raise: its type, value and traceback, which are owned.
_KEPT = "exception_of_handler"


def emit_python(module: Module) -> None:
    """``settle_signals() -> i1``: whether a signal handler has raised while a program ran; keeps the exception then.

    JAX makes an error of a program that ends early, and would overwrite an exception that is set already. When that
    error is made, the exception is handed over (``interrupt``), and Python raises it at the next opportunity.

    ``check_signals() -> i1`` runs signal handlers first; it has no effect on threads other than the main one.
    ``raise_kept(ptr) -> i32``: the pending call that raises the exception.
    ``interrupted() -> ptr``: the error of a function that was interrupted so.
    """
    for name, result, parameters in PYTHON_FUNCTIONS:
        module.declare(name, result, parameters)
    module.global_data(_KEPT, 3 * PTR.bytes)
    for name in ("settle_signals", "check_signals"):
        fn = module.function(name, I1, [], attributes=(NO_INLINE, COLD))
        state = fn.call("PyGILState_Ensure", I32)
        if name == "check_signals":
            fn.call("PyErr_CheckSignals", I32)
        has_raised = fn.call("PyErr_Occurred", PTR).ne(fn.null())
        with fn.if_(has_raised):
            # Of two exceptions before Python can raise one, the first is kept.
            is_first = _kept(fn)[0].eq(fn.null())
            with fn.if_(is_first):
                fn.call("PyErr_Fetch", VOID, *_places(fn))
            with fn.if_(~is_first):
                fn.call("PyErr_Clear", VOID)
        fn.call("PyGILState_Release", VOID, state)
        fn.ret(has_raised)

    fn = module.function("raise_kept", I32, [PTR], attributes=(NO_INLINE, COLD))
    kept = _kept(fn)
    fn.return_if(kept[0].eq(fn.null()), fn.i32(0))
    for place in _places(fn):
        fn.store(fn.null(), place)
    fn.call("PyErr_Restore", VOID, *kept)
    fn.ret(fn.i32(-1))

    fn = module.function("interrupted", PTR, [], attributes=(NO_INLINE, COLD))
    failure = error(fn, Code.CANCELLED, "waiting for a program was interrupted; the program goes on")
    interrupt(fn)
    fn.ret(failure)


def emit_calls_of_python(module: Module, functions: Iterable[str]) -> None:
    """For each function that is written in Python one that calls it; it takes an integer, and gives an error's address.

    An exception that leaves it, which a signal handler can raise even before its first statement, is handed over like
    those that are raised while a program runs. A callback of ctypes would print it, and return nothing.
    """
    fn, called, argument = module.begin("call_python", PTR, [PTR, I64], attributes=(NO_INLINE, COLD))
    state = fn.call("PyGILState_Ensure", I32)
    number = fn.call("PyLong_FromLongLong", PTR, argument)
    found = fn.call("PyObject_CallOneArg", PTR, called, number)
    fn.call("Py_DecRef", VOID, number)

    def hand_over() -> tuple[Value]:
        fn.call("settle_signals", I1)
        interrupt(fn)
        return (error(fn, Code.CANCELLED, "interrupted by an exception, which Python raises next"),)

    def returned() -> tuple[Value]:
        address = fn.call("PyLong_AsLongLong", I64, found)
        fn.call("Py_DecRef", VOID, found)
        return (address.cast("inttoptr", PTR),)

    (result,) = fn.if_else(found.eq(fn.null()), hand_over, returned)
    fn.call("PyGILState_Release", VOID, state)
    fn.ret(result)

    for name in functions:
        module.declare(object_symbol(name), VOID, [])
        parameter = I64 if name == FAILURE else PTR
        fn, argument = module.begin(name, PTR, [parameter], external=name != FAILURE)
        argument = argument if name == FAILURE else argument.cast("ptrtoint", I64)
        fn.ret(fn.call("call_python", PTR, fn.address(object_symbol(name)), argument))


def interrupt(fn: Function) -> None:
    """Make Python raise what a signal handler has raised, or else KeyboardInterrupt, at the next opportunity."""

    def hand_over() -> tuple[Value]:
        return (fn.call("Py_AddPendingCall", I32, fn.address("raise_kept"), fn.null()).ne(0),)

    (is_left,) = fn.if_else(is_kept(fn), hand_over, lambda: (fn.constant(I1, 1),))
    with fn.if_(is_left):
        fn.call("PyErr_SetInterrupt", VOID)


def is_kept(fn: Function) -> Value:
    """Whether Python still has to raise what a signal handler has raised."""
    return _kept(fn)[0].ne(fn.null())


def _places(fn: Function) -> list[Value]:
    return [fn.at(fn.address(_KEPT), PTR, index) for index in range(3)]


def _kept(fn: Function) -> list[Value]:
    return [fn.load(PTR, place) for place in _places(fn)]


def without_gil(fn: Function, wait: Callable[[], tuple[Value, ...]]) -> tuple[Value, ...]:
    """Emit ``wait`` with the GIL released, if this thread holds it; gives the values of ``wait``."""

    def released() -> tuple[Value, ...]:
        state = fn.call("PyEval_SaveThread", PTR)
        found = wait()
        fn.call("PyEval_RestoreThread", VOID, state)
        return found

    return fn.if_else(fn.call("PyGILState_Check", I32).ne(0), released, wait)
