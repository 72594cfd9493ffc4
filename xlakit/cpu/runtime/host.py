"""Calls from native code to Python: polling for signals in long loops, and host calls.

``xlakit_poll(ptr context) -> i64`` is called by long loops and jobs now and then; it gives Status.DONE, or another
status with which the caller has to return. ``xlakit_host_call(ptr context, i64 step, ptr buffers) -> i64`` calls the
Python function that the context's ``host`` identifies, with the number of the step and the address of an array of
pointers, and gives a status, too. The exception of a host call is kept for the thread that made the call; see
take_error.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

from xlakit.cpu.runtime.context import Status

HostFunction = Callable[[int, int], None]
_Owner = TypeVar("_Owner")

_PYTHON_FUNCTIONS = (
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyErr_CheckSignals",
    "PyErr_Fetch",
    "PyErr_Restore",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
)

_keys = itertools.count(1)
_functions: dict[int, HostFunction] = {}
_errors = threading.local()


def failed_call(step: int) -> int:
    """The number of the host call that tells of a step's error, whose address it has; and the step of that number."""
    return -1 - step


def register_host(function: HostFunction) -> int:
    """Have ``function(step, address)`` answer host calls; gives the key for the context.

    It is called on the thread that runs the program. What it raises ends the program.
    """
    key = next(_keys)
    _functions[key] = function
    return key


def release_host(key: int) -> None:
    """Forget a function; no program that has its key may run any more."""
    _functions.pop(key, None)


def take_error() -> BaseException | None:
    """The exception of the host call that ended the last program of this thread; at most once."""
    error: BaseException | None = getattr(_errors, "error", None)
    _errors.error = None
    return error


def _answer(key: int, step: int, buffers: int) -> int:
    try:
        _functions[key](step, buffers)
    except BaseException as error:  # Native code is in between: it is raised again when that has ended.
        _errors.error = error
        return Status.RAISED
    return Status.DONE


# One for all programs, never freed: compiled code has its address.
_trampoline = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(_answer)


def host_symbols() -> dict[str, int]:
    """What the functions of native_host.py import."""
    imported = {"xlakit_host_trampoline": _address_of(_trampoline)}
    for name in _PYTHON_FUNCTIONS:
        imported[name] = _address_of(getattr(ctypes.pythonapi, name))
    return imported


def _address_of(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # pyright: ignore[reportArgumentType]


def register_steps(owner: _Owner, step: Callable[[_Owner, int, int], None]) -> int:
    """Have the host calls of a program answered by ``step(owner, number, address)``; returns the key of these calls.

    The registration holds no reference to the owner, and ends with it: machine code runs only while its owner lives.
    """
    reference = weakref.ref(owner)

    def answer(number: int, address: int) -> None:
        alive = reference()
        if alive is not None:
            step(alive, number, address)

    key = register_host(answer)
    # Programs may still run when the process ends.
    weakref.finalize(owner, release_host, key).atexit = False
    return key
