"""Emits all native functions as LLVM IR."""

from __future__ import annotations

from typing import Final

from xlakit.cpu.llvm import I64, PTR, VOID, Module, Type
from xlakit.jax.api.slots import LAYOUTS, SLOTS
from xlakit.jax.native.buffers import emit_buffers
from xlakit.jax.native.client import emit_client
from xlakit.jax.native.dispatch import emit_dispatch
from xlakit.jax.native.errors import emit_errors, emit_unsupported
from xlakit.jax.native.events import emit_events
from xlakit.jax.native.executables import emit_executables
from xlakit.jax.native.execute import emit_execute
from xlakit.jax.native.getters import emit_getters
from xlakit.jax.native.layouts import emit_extension, emit_layouts
from xlakit.jax.native.memory import emit_blocks
from xlakit.jax.native.prepare import emit_prepare
from xlakit.jax.native.python import PYTHON_FUNCTIONS, emit_calls_of_python, emit_python
from xlakit.jax.native.queue import emit_queue
from xlakit.jax.native.records import FAILURE
from xlakit.jax.native.staging import emit_staging
from xlakit.jax.native.transfer import emit_transfer

# The functions imported from the runtime: name, result and parameters.
_FROM_RUNTIME: Final[list[tuple[str, Type, list[Type]]]] = [
    ("xlakit_allocate", PTR, [I64]),
    ("xlakit_release", VOID, [PTR]),
    ("xlakit_detach_thread", VOID, []),
    ("xlakit_limit_threads", I64, [I64]),
    ("xlakit_thread_count", I64, []),
]
# The names of the functions imported from the runtime, and of those from Python.
RUNTIME: Final = [name for name, _, _ in _FROM_RUNTIME]
PYTHON: Final = [name for name, _, _ in PYTHON_FUNCTIONS]


def slots_text(of_python: tuple[str, ...]) -> tuple[str, list[str]]:
    """The functions as LLVM IR, and the names of the interface's functions among them.

    of_python: the interface's functions that are written in Python.
    """
    module = Module("jax")
    for name, result, parameters in _FROM_RUNTIME:
        module.declare(name, result, parameters)
    for emit in (
        emit_errors,
        emit_python,
        emit_events,
        emit_blocks,
        emit_layouts,
        emit_extension,
        emit_buffers,
        emit_transfer,
        emit_staging,
        emit_executables,
        emit_dispatch,
        emit_queue,
        emit_prepare,
        emit_execute,
        emit_client,
        emit_getters,
    ):
        emit(module)
    emit_calls_of_python(module, (*of_python, FAILURE))
    emit_unsupported(module, [s for s in SLOTS if s not in module.functions])
    return module.text(), [s for s in (*SLOTS, *LAYOUTS) if s in module.functions]
