"""Calls from native code to Python: polls for signals in long loops, and host calls.

Long loops and jobs call ``xlakit_poll(ptr context) -> i64`` now and then; it gives Status.DONE, or another status that
the caller has to return. ``xlakit_host_call(ptr context, i64 step, ptr buffers) -> i64`` calls the Python function that
the context's ``host`` identifies, with the number of the step and the address of an array of pointers, and also gives a
status. The exception of a host call is stored for the thread that made the call, see take_error; one that a signal
handler raises before or after the function itself stays set.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import weakref
from collections.abc import Callable
from typing import Final, TypeVar

from xlakit.cpu.runtime.context import Status

HostFunction = Callable[[int, int], None]
_Owner = TypeVar("_Owner")

# The symbol of the object of Python that answers the host calls of all programs.
HOST_FUNCTION: Final = "xlakit_host_function"

_PYTHON_FUNCTIONS = (
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyErr_CheckSignals",
    "PyErr_Fetch",
    "PyErr_Restore",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyLong_FromLongLong",
    "PyLong_AsLongLong",
    "PyObject_Vectorcall",
    "Py_DecRef",
)

_keys = itertools.count(1)
_functions: dict[int, HostFunction] = {}
_errors = threading.local()


def failed_call(step: int) -> int:
    """The number of the host call that reports an error of step ``step``; this function is its own inverse."""
    return -1 - step


def register_host(function: HostFunction) -> int:
    """Register ``function(step, address)`` to answer host calls; gives the key for the context.

    It is called on the thread that runs the program. If it raises, the program ends with status RAISED.
    """
    key = next(_keys)
    _functions[key] = function
    return key


def release_host(key: int) -> None:
    """Remove a function; no program with its key may run any more."""
    _functions.pop(key, None)


def take_error() -> BaseException | None:
    """Remove and return the exception of the host call that ended this thread's last program, if there is one."""
    error: BaseException | None = getattr(_errors, "error", None)
    _errors.error = None
    return error


def _answer(key: int, step: int, buffers: int) -> int:
    try:
        _functions[key](step, buffers)
    except BaseException as error:  # It cannot pass through native code: it is raised again after that.
        _errors.error = error
        return Status.RAISED
    return Status.DONE


def host_symbols() -> dict[str, int]:
    """The addresses of the functions that native_host.py imports, and of the object that answers host calls."""
    # The object lives as long as this module, and so as compiled code.
    imported = {HOST_FUNCTION: id(_answer)}
    for name in _PYTHON_FUNCTIONS:
        imported[name] = _address_of(getattr(ctypes.pythonapi, name))
    return imported


def _address_of(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # pyright: ignore[reportArgumentType]


def register_steps(owner: _Owner, step: Callable[[_Owner, int, int], None]) -> int:
    """Have ``step(owner, number, address)`` answer the host calls of a program; returns the key of these calls.

    The registration holds no reference to the owner, and ends with it: machine code runs only while its owner lives.
    """
    reference = weakref.ref(owner)

    def answer(number: int, address: int) -> None:
        alive = reference()
        if alive is not None:
            step(alive, number, address)

    key = register_host(answer)
    # Not at exit: programs may still run when the process ends.
    weakref.finalize(owner, release_host, key).atexit = False
    return key
