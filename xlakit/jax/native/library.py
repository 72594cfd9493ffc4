"""The native functions: compiled once, kept in the compile cache, and loaded once in each process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from xlakit.compile_cache import Entry
from xlakit.cpu.cache.cache_key import process_code
from xlakit.cpu.llvm.effort import Effort
from xlakit.cpu.llvm.library import Library, laid_out
from xlakit.cpu.runtime import runtime_symbols
from xlakit.cpu.runtime.numpy_api import keep_for_ever
from xlakit.jax.native.records import FAILURE, object_symbol

_FORK: Final = ("queue_before_fork", "queue_after_fork_in_parent", "queue_after_fork_in_child")
_FOR_PYTHON: Final = (
    "make_error", "event_start", "queue_start", "take_dead", "make_bytes", "destroy_bytes", "set_queue_mode", "way_of",
    "queue_weight", "cancel_queue", *_FORK,
)  # fmt: skip

# Takes the address of a structure, or a status; gives the address of an error, or 0.
OfPython = Callable[[int], int]


class Native:
    """The functions in memory. They stay until the process ends.

    of_python: the interface's functions that are written in Python. failure: gives the address of the error of a
    program that ended with a status.
    """

    def __init__(self, of_python: Mapping[str, OfPython], failure: OfPython) -> None:
        slots = tuple(of_python)
        code = process_code(variant_of(slots), lambda: compiled_functions(slots))
        names: list[str] = code.fields["slots"]
        found = runtime_symbols()
        symbols = {name: found[name] for name in code.fields["runtime"]}
        for name in code.fields["python"]:
            symbols[name] = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
        for name, function in {**of_python, FAILURE: failure}.items():
            keep_for_ever(function)
            symbols[object_symbol(name)] = id(function)
        exported = [*names, *_FOR_PYTHON]
        self._library = Library(
            "xlakit_jax",
            bytes(code.sections["object"]),
            exported,
            symbols,
            stays=True,
        )
        keep_for_ever(self._library)
        self.slots: Mapping[str, int] = {name: self._library.address(name) for name in names}
        self._make_error = self._function(
            "make_error", ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64
        )
        self.take_dead: Callable[[], int] = self._function("take_dead", ctypes.c_int64)
        self._make_bytes = self._function("make_bytes", ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64)
        self.destroy_bytes: int = self._library.address("destroy_bytes")
        self._function("event_start", None)()
        self._function("queue_start", None)()
        self.set_queue_mode: Callable[[int], None] = self._function("set_queue_mode", None, ctypes.c_int64)
        self.queue_weight: Callable[[], int] = self._function("queue_weight", ctypes.c_int64)
        self.cancel_queue: Callable[[], None] = self._function("cancel_queue", None)
        before, in_parent, in_child = (self._function(name, None) for name in _FORK)
        os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)

    def _function(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        return ctypes.CFUNCTYPE(result, *arguments)(self._library.address(name))

    def make_error(self, code: int, text: str) -> int:
        """An error, for the caller to destroy."""
        data = text.encode("utf-8", "replace")
        return self._make_error(code, data, len(data))

    def make_bytes(self, data: bytes) -> int:
        """A copy of bytes, to be freed by the function at :attr:`destroy_bytes`. Raises MemoryError."""
        address = self._make_bytes(data, len(data))
        if not address:
            raise MemoryError(f"there is no memory for {len(data)} bytes")
        return address


def variant_of(of_python: tuple[str, ...]) -> str:
    """The name of the machine code beside which these functions of the interface are written in Python."""
    return f"jax {of_python}"


def compiled_functions(of_python: tuple[str, ...]) -> Entry:
    """The machine code, and the names of the functions that it has and of those that it imports."""
    # Imported here: the code generator is not needed if the machine code is in the cache.
    from xlakit.cpu.llvm import engine
    from xlakit.jax.native.text import PYTHON, RUNTIME, slots_text

    text, names = slots_text(of_python)
    fields = {"slots": names, "runtime": RUNTIME, "python": PYTHON}
    # More effort would take eight times as long, before the first program of a machine, and make a call of the
    # smallest program a fortieth faster.
    (data,) = laid_out([engine.compiled(text, Effort.LITTLE)])
    return Entry(fields, {"object": data})
