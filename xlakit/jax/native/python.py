"""Native code's use of Python: the GIL, which a thread releases while it waits, and signals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from xlakit.cpu.llvm import I1, I32, PTR, VOID, Function, Module, Type, Value
from xlakit.cpu.llvm.promises import COLD, NO_INLINE
from xlakit.jax.api.numbers import Code
from xlakit.jax.native.errors import error

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
    ("PyErr_SetInterrupt", VOID, []),
]


def emit_python(module: Module) -> None:
    """``settle_signals() -> i1``: whether a signal handler has raised while a program ran; clears the exception then.

    JAX makes an error of a program that ends early, and would overwrite an exception that is set already. When that
    error is made, the interrupt is set again (``interrupt``), and Python raises it at the next opportunity.

    ``check_signals() -> i1`` runs signal handlers first; it has no effect on threads other than the main one.
    ``interrupted() -> ptr``: the error of a function that was interrupted so.
    """
    for name, result, parameters in PYTHON_FUNCTIONS:
        module.declare(name, result, parameters)
    for name in ("settle_signals", "check_signals"):
        fn = module.function(name, I1, [], attributes=(NO_INLINE, COLD))
        state = fn.call("PyGILState_Ensure", I32)
        if name == "check_signals":
            fn.call("PyErr_CheckSignals", I32)
        has_raised = fn.call("PyErr_Occurred", PTR).ne(fn.null())
        with fn.if_(has_raised):
            fn.call("PyErr_Clear", VOID)
        fn.call("PyGILState_Release", VOID, state)
        fn.ret(has_raised)

    fn = module.function("interrupted", PTR, [], attributes=(NO_INLINE, COLD))
    failure = error(fn, Code.CANCELLED, "waiting for a program was interrupted; the program goes on")
    interrupt(fn)
    fn.ret(failure)


def interrupt(fn: Function) -> None:
    """Make Python raise KeyboardInterrupt when it next checks for signals."""
    fn.call("PyErr_SetInterrupt", VOID)


def without_gil(fn: Function, wait: Callable[[], tuple[Value, ...]]) -> tuple[Value, ...]:
    """Emit ``wait`` with the GIL released, if this thread holds it; gives the values of ``wait``."""

    def released() -> tuple[Value, ...]:
        state = fn.call("PyEval_SaveThread", PTR)
        found = wait()
        fn.call("PyEval_RestoreThread", VOID, state)
        return found

    return fn.if_else(fn.call("PyGILState_Check", I32).ne(0), released, wait)
