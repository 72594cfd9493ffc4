"""Python's buffer protocol for a class, for Python before version 3.12, which does not call ``__buffer__``.

``memoryview(array)`` then asks the class for a C function. The one that is put there calls Python for an object that
has a buffer, and passes the request on to that object, which the protocol allows: the view holds it, and not the array.
Written as machine code because ctypes cannot leave an exception behind, and a request has to fail with one.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Callable
from typing import Any, Final

from xlakit import options
from xlakit.cpu.llvm import I32, PTR, VOID, Effort, Module, engine
from xlakit.cpu.llvm.library import Library
from xlakit.cpu.runtime.numpy_api import keep_for_ever

# PyTypeObject, the same in all versions before 3.12: tp_basicsize and tp_as_buffer.
_BASIC_SIZE: Final = 32
_AS_BUFFER: Final = 160
# Libraries have names of their own.
_numbers = itertools.count()
_C_FUNCTIONS: Final = {
    "PyObject_CallOneArg": (PTR, [PTR, PTR]),
    "PyObject_GetBuffer": (I32, [PTR, PTR, I32]),
    "Py_DecRef": (VOID, [PTR]),
}


def give_buffers(type_: type, exporter: Callable[[Any], object]) -> None:
    """Let ``memoryview`` read objects of a class: a class of Python with slots, which has no buffer.

    exporter: makes of an object one that has a buffer, such as an array of NumPy, or raises.

    Does nothing where Python asks ``__buffer__``.
    """
    address = id(type_)
    if sys.version_info >= (3, 12) or _word(address + _BASIC_SIZE) != type_.__basicsize__:
        return
    # The function and what it calls stay, as the class does.
    keep_for_ever(exporter)
    ctypes.c_void_p.from_address(_word(address + _AS_BUFFER)).value = _bind(id(exporter))


def _word(address: int) -> int:
    return ctypes.c_size_t.from_address(address).value


def _bind(exporter: int) -> int:
    """The address of a function ``int (PyObject *self, Py_buffer *view, int flags)`` that asks the exporter."""
    symbols = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in _C_FUNCTIONS}
    with options.compiling(options.DEFAULT, cpu=options.current().cpu):
        code = engine.compiled(_text(), Effort.LITTLE)
    symbols["buffer_exporter"] = exporter
    library = Library(f"xlakit_buffers_{next(_numbers)}", code, ["get_buffer"], symbols, stays=True)
    keep_for_ever(library)
    return library.address("get_buffer")


def _text() -> str:
    module = Module("buffers")
    for name, (result, parameters) in _C_FUNCTIONS.items():
        module.declare(name, result, parameters)
    # Its address is the exporter itself; it is never called as a function.
    module.declare("buffer_exporter", PTR, [])
    fn = module.function("get_buffer", I32, [PTR, PTR, I32], external=True)
    self, view, flags = fn.parameters
    exported = fn.call("PyObject_CallOneArg", PTR, fn.address("buffer_exporter"), self)
    fn.return_if(exported.eq(fn.null()), fn.constant(I32, -1))
    status = fn.call("PyObject_GetBuffer", I32, exported, view, flags)
    fn.call("Py_DecRef", VOID, exported)
    fn.ret(status)
    return module.text()
