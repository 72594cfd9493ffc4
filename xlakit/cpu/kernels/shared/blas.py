"""BLAS and LAPACK by address: the routines of SciPy's libraries, called from machine code without Python.

SciPy publishes these routines to Cython as capsules with function pointers. Importing the package for them takes longer
than many programs run. So if SciPy has its own OpenBLAS, whose symbols tell that its integers have 32 bits, the
routines are looked up in the library itself. All of them follow Fortran's conventions: arguments by address,
column-major matrices, 32-bit integers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from xlakit.cpu.llvm import I32, I64, PTR, VOID, Function, Module, Value
from xlakit.data.primitive import PrimitiveType
from xlakit.errors import InternalError

# The names of the functions that set the number of threads: in SciPy's own OpenBLAS, in a system's, and in MKL.
_SETTERS = ("scipy_openblas_set_num_threads", "openblas_set_num_threads", "MKL_Set_Num_Threads")
_GETTERS = ("scipy_openblas_get_num_threads", "openblas_get_num_threads", "MKL_Get_Max_Threads")
_MODULES = ("cython_blas", "cython_lapack")

# The prefix of the symbol by which machine code imports a routine.
PREFIX = "xlakit_blas_"
# The first letter of the routines for a type, and struct's format of one number of it.
LETTERS = {PrimitiveType.F32: "s", PrimitiveType.F64: "d", PrimitiveType.C64: "c", PrimitiveType.C128: "z"}
FACTORS = {"s": "=f", "d": "=d", "c": "=ff", "z": "=dd"}


@cache
def address(routine: str) -> int:
    """The address of a routine of BLAS or LAPACK, given its plain name (``sgemm``); raises UnsupportedError."""
    for name in _MODULES:
        library = _linked(name)
        function = None if library is None else getattr(library, f"scipy_{routine}_", None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value or 0
    return _published(routine)


@cache
def _linked(name: str) -> ctypes.CDLL | None:
    """SciPy's extension module loaded as a C library, with its linked libraries, but without importing it."""
    spec = find_spec("scipy")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for suffix in EXTENSION_SUFFIXES:
            path = Path(folder, "linalg", name + suffix)
            if path.is_file():
                with suppress(OSError):  # its libraries may be found only when SciPy is imported
                    return ctypes.CDLL(str(path))
    return None


def _published(routine: str) -> int:
    api: Any = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    for name in _MODULES:
        module = import_module(f"scipy.linalg.{name}")
        capsule = module.__pyx_capi__.get(routine)
        if capsule is not None:
            return int(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))
    raise InternalError(f"SciPy publishes no routine {routine}")


def resolve(symbol: str) -> int | None:
    """The address of a routine that machine code imports; None if the symbol is not one of BLAS's."""
    if not symbol.startswith(PREFIX):
        return None
    routine = symbol.removeprefix(PREFIX)
    if routine in _THREADS:
        return _address_of(_library(_THREADS[routine]), routine)
    return address(routine)


# The symbols by which machine code gets and sets the library's number of threads.
_THREADS = {"get_threads": _GETTERS, "set_threads": _SETTERS}


@ctypes.CFUNCTYPE(ctypes.c_int)
def _one_thread() -> int:
    return 1


@ctypes.CFUNCTYPE(None, ctypes.c_int)
def _no_setter(count: int) -> None:
    """The setter for a library that has none."""


def _address_of(function: Callable[..., Any] | None, routine: str) -> int:
    implementation: Any = function or (_one_thread if routine == "get_threads" else _no_setter)
    return ctypes.cast(implementation, ctypes.c_void_p).value or 0


def declare(module: Module, routine: str, arguments: int, lengths: int = 0) -> str:
    """Declare a routine with ``arguments`` arguments in a module; gives the symbol to call and to import.

    lengths: the number of character arguments, whose lengths follow the arguments in Fortran's calling convention.
     Routines written in C ignore them; a routine is always declared with all of them, or always without.
    """
    return module.declare(PREFIX + routine, VOID, [PTR] * arguments + [I64] * lengths)


@cache
def _library(names: tuple[str, ...]) -> Callable[..., Any] | None:
    # A lookup in SciPy's module also searches the libraries that it was linked with.
    library = _linked(_MODULES[0]) or ctypes.CDLL(import_module(f"scipy.linalg.{_MODULES[0]}").__file__)
    return next((getattr(library, name) for name in names if hasattr(library, name)), None)


class Arguments:
    """The arguments of Fortran routines, passed by address: constants are globals, others are on the stack."""

    def __init__(self, fn: Function) -> None:
        self._fn = fn
        self._constants: dict[tuple[str, bytes], Value] = {}
        self._slots: dict[str, Value] = {}

    def letter(self, letter: str) -> Value:
        """A character option such as ``N`` or ``T``."""
        return self._constant("letter", letter.encode())

    def integer(self, number: int) -> Value:
        """A constant integer."""
        return self._constant("integer", number.to_bytes(4, "little", signed=True))

    def computed(self, name: str, number: Value) -> Value:
        """A computed integer, in the stack slot with this name."""
        return self.slot(name, number.cast("trunc", I32))

    def data(self, data: bytes) -> Value:
        """Constant bytes, such as those of a scalar factor."""
        return self._constant("factor", data)

    def slot(self, name: str, value: Value) -> Value:
        """A value in the stack slot with this name."""
        slot = self._slots.get(name)
        if slot is None:
            slot = self._slots[name] = self._fn.alloca(value.type)
        self._fn.store(value, slot)
        return slot

    def _constant(self, stem: str, data: bytes) -> Value:
        address = self._constants.get((stem, data))
        if address is None:
            name = self._fn.module.constant_data(f"blas_{stem}", data.ljust(4, b"\0"), align=16)
            address = self._constants[stem, data] = self._fn.address(name)
        return address
