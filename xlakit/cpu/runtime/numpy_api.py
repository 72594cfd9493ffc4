"""The layout of NumPy's and Python's objects that native code reads, checked against live objects at start.

Native code reads arrays without calling NumPy. NumPy's public header fixes the offsets of the fields; if a build of
Python or NumPy has other offsets, programs are called through Python instead.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, Final

import numpy as np

# Offsets in a PyObject and in a PyArrayObject, in bytes.
TYPE: Final = 8
DATA: Final = 16
RANK: Final = 24
DIMENSIONS: Final = 32
DTYPE: Final = 56
FLAGS: Final = 64
HANDLER: Final = 88

# Flags of arrays, with NumPy's values.
CONTIGUOUS: Final = 0x1
OWNS_DATA: Final = 0x4
ALIGNED: Final = 0x100
WRITEABLE: Final = 0x400

# Indices in the table of NumPy's C API, and the version of its binary interface.
_VERSION, _ARRAY_TYPE, _NEW_FROM_DESCR, _GET_HANDLER = 0, 2, 94, 305
_ABI = 0x02000000

_PYTHON_FUNCTIONS = (
    "Py_IncRef",
    "Py_DecRef",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyTuple_GetItem",
    "PyBytes_AsString",
    "PyErr_Occurred",
    "PyErr_NoMemory",
    "PyObject_Vectorcall",
    "PyObject_CallOneArg",
    "PyLong_FromLongLong",
)


@cache
def api_symbols() -> dict[str, int] | None:
    """The addresses that native code for arrays imports; None if the assumed object layouts do not hold."""
    table = _table()
    if table is None:
        return None
    try:
        symbols = {name: _function(name) for name in _PYTHON_FUNCTIONS}
    except AttributeError:
        return None
    symbols["numpy_new_array"] = _word(table + 8 * _NEW_FROM_DESCR)
    return symbols if _fields_hold(table) else None


def _function(name: str) -> int:
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _table() -> int | None:
    # A NumPy that is built in another way may lack any of these.
    core: Any = getattr(np, "_core", None)
    capsule = getattr(getattr(core, "_multiarray_umath", None), "_ARRAY_API", None)
    if capsule is None or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    prototype = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    table: int = prototype(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, None)
    version = ctypes.CFUNCTYPE(ctypes.c_uint)(_word(table + 8 * _VERSION))()
    return table if version & 0xFF000000 == _ABI and _word(table + 8 * _ARRAY_TYPE) == id(np.ndarray) else None


class _DataHandler(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


def data_handler(malloc: int, calloc: int, realloc: int, free: int) -> Any:
    """NumPy's capsule for array memory that the given native functions manage. It is never freed."""
    # Arrays may outlive all modules.
    return lasting_capsule(_DataHandler(b"xlakit", 1, None, malloc, calloc, realloc, free), b"mem_handler")


def lasting_capsule(memory: Any, name: bytes) -> Any:
    """Python's capsule for the address of a ctypes object. Both stay until the process ends."""
    text = ctypes.create_string_buffer(name)
    prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    make = prototype(("PyCapsule_New", ctypes.pythonapi))
    capsule: Any = make(ctypes.addressof(memory), ctypes.addressof(text), None)
    for reference in (memory, text, capsule):
        keep_for_ever(reference)
    return capsule


def keep_for_ever(value: Any) -> None:
    """Keep an object alive until the process ends, as native code may use it until then."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def _fields_hold(table: int) -> bool:
    get_handler = ctypes.PYFUNCTYPE(ctypes.py_object)(_word(table + 8 * _GET_HANDLER))
    handler = get_handler()
    for array in (np.zeros((3, 5), np.float32), np.zeros((2, 3, 4), np.int64)[:, ::2], np.zeros((), np.complex64)):
        address = id(array)
        flags = array.flags
        expected = (
            (flags.c_contiguous and CONTIGUOUS) | (flags.aligned and ALIGNED) | (flags.writeable and WRITEABLE)
        ) | (flags.owndata and OWNS_DATA)
        rank = ctypes.c_int32.from_address(address + RANK).value
        if (
            _word(address + TYPE) != id(np.ndarray)
            or _word(address + DATA) != array.ctypes.data
            or rank != array.ndim
            or _word(address + DTYPE) != id(array.dtype)
            or ctypes.c_int32.from_address(address + FLAGS).value & 0x505 != expected
            or (flags.owndata and _word(address + HANDLER) != id(handler))
        ):
            return False
        dimensions = _word(address + DIMENSIONS)
        if [_word(dimensions + 8 * i) for i in range(rank)] != list(array.shape):
            return False
    return True
