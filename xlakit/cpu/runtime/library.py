"""Loads the runtime: compiled once on a machine, loaded once in each process, and shared by all compiled programs."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from xlakit.compile_cache import Entry
from xlakit.cpu.cache.cache_key import process_code
from xlakit.cpu.llvm.effort import Effort
from xlakit.cpu.llvm.library import Library, laid_out
from xlakit.cpu.runtime.host import host_symbols
from xlakit.cpu.runtime.numpy_api import api_symbols, data_handler, keep_for_ever
from xlakit.cpu.runtime.processors import default_threads, processor_count
from xlakit.errors import UnsupportedError
from xlakit.settings import kept_bytes

# The functions that Python calls with ctypes: the type of the result, and the number of word parameters.
_FUNCTIONS: Mapping[str, tuple[type[Any] | None, int]] = {
    "xlakit_runtime_start": (None, 3),
    "xlakit_limit_threads": (ctypes.c_int64, 1),
    "xlakit_thread_count": (ctypes.c_int64, 0),
    "xlakit_pool_reset": (None, 0),
    "xlakit_pool_stop": (None, 0),
    "xlakit_allocate": (ctypes.c_int64, 1),
    "xlakit_release": (None, 1),
    "xlakit_memory_trim": (None, 0),
    "xlakit_memory_held": (ctypes.c_int64, 0),
    "xlakit_memory_cached": (ctypes.c_int64, 0),
    "xlakit_memory_limit": (ctypes.c_int64, 1),
    "xlakit_memory_before_fork": (None, 0),
    "xlakit_memory_after_fork": (None, 0),
    "xlakit_main_thread": (None, 1),
    "xlakit_run_start": (None, 4),
    "xlakit_run_stop": (None, 1),
    "xlakit_run_watch": (None, 1),
    "xlakit_rendezvous_sleep": (None, 2),
    "xlakit_share_sleep": (None, 3),
    "xlakit_replicas_end": (None, 1),
    "xlakit_device_threads_reset": (None, 0),
    "xlakit_device_threads_stop": (None, 0),
    "xlakit_library_reset": (None, 0),
}

# The functions that compiled programs and JAX's plugin import.
_FOR_PROGRAMS = (
    "xlakit_detach_thread",
    "xlakit_parallel",
    "xlakit_scratch_acquire",
    "xlakit_scratch_release",
    "xlakit_poll",
    "xlakit_is_cancelled",
    "xlakit_call_host_function",
    "xlakit_host_call",
    "xlakit_collective",
    "xlakit_collective_start",
    "xlakit_collective_done",
    "xlakit_random_draw",
    "xlakit_random_state",
    "xlakit_execute",
    "xlakit_execute_for_python",
    "xlakit_execute_member",
    "xlakit_execute_replicas",
    "xlakit_execute_replicas_for_python",
    "xlakit_library_enter",
    "xlakit_library_leave",
)

# The functions that exist only if the object layouts of this build of Python and NumPy are known.
_FOR_PYTHON = (
    "xlakit_python_start",
    "xlakit_data_malloc",
    "xlakit_data_calloc",
    "xlakit_data_realloc",
    "xlakit_data_free",
    "xlakit_new_array",
    "xlakit_call",
)

_lock = threading.Lock()
_loaded: list[Runtime] = []


def runtime_object(text: str) -> bytes:
    """The machine code of the runtime, in loadable form. It contains no addresses, so it can be cached on disk."""
    # The code is written as it should run and has no loop to vectorize, so LLVM's passes would only cost time.
    # Optimized code generation would take eight times as long, and save 1 % of a call of a small program.
    from xlakit.cpu.llvm import engine

    (data,) = laid_out([engine.compiled(text, Effort.LITTLE)])
    return data


class Runtime:
    """The loaded runtime. There is one, which stays until the process ends, because threads run in it."""

    def __init__(self, data: bytes) -> None:
        api = api_symbols()
        exported = [*_FOR_PROGRAMS, *_FUNCTIONS, *([] if api is None else _FOR_PYTHON)]
        self._library = Library("xlakit_runtime", data, exported, {**host_symbols(), **(api or {})}, stays=True)
        # Never unloaded, not even while the interpreter finalizes.
        keep_for_ever(self._library)
        self.symbols = {name: self._library.address(name) for name in exported}
        self._functions = {
            name: ctypes.CFUNCTYPE(result, *[ctypes.c_int64] * count)(self.symbols[name])
            for name, (result, count) in _FUNCTIONS.items()
        }
        processors = processor_count()
        self.call("xlakit_runtime_start", default_threads(processors), processors, kept_bytes())
        self.call("xlakit_main_thread", threading.main_thread().ident or 0)
        if api is not None:
            self._start_python()

    def _start_python(self) -> None:
        functions = (self.symbols[f"xlakit_data_{name}"] for name in ("malloc", "calloc", "realloc", "free"))
        handler = data_handler(*functions)
        start = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
        start(self.symbols["xlakit_python_start"])(id(None), id(np.ndarray), id(handler))

    def call(self, name: str, *arguments: int) -> Any:
        """Call a function of the runtime by name, without the GIL."""
        return self._functions[name](*arguments)

    def before_fork(self) -> None:
        """To be called in the parent, before the process forks."""
        self.call("xlakit_memory_before_fork")

    def after_fork_in_parent(self) -> None:
        """To be called in the parent, after the process has forked."""
        self.call("xlakit_memory_after_fork")

    def after_fork_in_child(self) -> None:
        """To be called in the child, which has a copy of the parent's memory, and one thread."""
        self.call("xlakit_memory_after_fork")
        self.call("xlakit_pool_reset")
        self.call("xlakit_device_threads_reset")
        self.call("xlakit_library_reset")
        self.call("xlakit_main_thread", threading.get_ident())


def runtime() -> Runtime:
    """The runtime, loaded at the first call.

    Raises UnsupportedError on a system without POSIX threads.
    """
    if not _loaded:
        with _lock:
            if not _loaded:
                _loaded.append(_load())
    return _loaded[0]


def runtime_symbols() -> dict[str, int]:
    """The addresses of the runtime's functions, which compiled programs may import, by name."""
    return dict(runtime().symbols)


def runtime_variant() -> str:
    """What there is of the runtime in this process."""
    return "" if api_symbols() is None else "python"


def compiled_runtime() -> Entry:
    """The runtime's machine code, compiled now."""
    # Imported here: a cached runtime does not need the code that writes it.
    from xlakit.cpu.runtime.text import runtime_text

    return Entry({}, {"object": runtime_object(runtime_text())})


def _load() -> Runtime:
    if os.name != "posix":
        raise UnsupportedError(f"the native runtime needs POSIX threads, which {sys.platform} does not have")
    entry = process_code(runtime_variant(), compiled_runtime)
    loaded = Runtime(bytes(entry.sections["object"]))
    os.register_at_fork(
        before=loaded.before_fork,
        after_in_parent=loaded.after_fork_in_parent,
        after_in_child=loaded.after_fork_in_child,
    )
    atexit.register(loaded.call, "xlakit_pool_stop")
    atexit.register(loaded.call, "xlakit_device_threads_stop")
    return loaded
