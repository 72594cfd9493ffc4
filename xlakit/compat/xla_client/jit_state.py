"""The state of JAX's dispatch that programs read and set: of the process, and of each thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from xlakit.compat.xla_client.binding import TypedAttributes, bound


class JitState(TypedAttributes):
    """The settings of a thread or of the process; None for those that are not set."""

    __slots__ = ("default_device", "disable_jit", "enable_x64", "extra_jit_context", "post_hook")

    disable_jit: bool | None
    enable_x64: bool | None
    default_device: Any
    extra_jit_context: Any
    post_hook: Callable[..., Any] | None

    def __init__(self) -> None:
        self.disable_jit = self.enable_x64 = None
        self.default_device = self.extra_jit_context = self.post_hook = None


class _Local(threading.local):
    state: JitState | None = None


_NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}
_DEFAULT = ("bool", "int64", "float64", "complex128")

_global = JitState()
_local = _Local()
_initialize: Callable[[], object] | None = None


def set_thread_local_state_initialization_callback(function: Callable[[], object], /) -> None:
    """Let a function be called in each thread before its state is given for the first time."""
    global _initialize  # noqa: PLW0603
    _initialize = function


def global_state() -> JitState:
    """The state of the process."""
    return _global


def thread_local_state() -> JitState:
    """The state of this thread."""
    if _local.state is None:
        # Set before the callback runs, so that it can read the state.
        _local.state = JitState()
        if _initialize is not None:
            _initialize()
    return _local.state


def get_enable_x64() -> bool:
    """Whether 64-bit types are enabled: the thread's setting, else that of the process, else False."""
    local = thread_local_state().enable_x64
    return bool(_global.enable_x64 if local is None else local)


@bound
def swap_thread_local_state_disable_jit(value: bool | None) -> bool | None:
    """Set ``disable_jit`` of this thread; gives what it was."""
    state = thread_local_state()
    before, state.disable_jit = state.disable_jit, value
    return before


# -- types of numbers: of 32 bits, and of 64 where ``jax_enable_x64`` is set --------------------------


def narrow(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of 32 bits of one of 64; others as they are."""
    return np.dtype(_NARROW.get(dtype.name, dtype))


def canonical(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The values in the type that they have: one of 32 bits unless 64 are enabled."""
    return values if get_enable_x64() else values.astype(narrow(values.dtype), copy=False)


def default_type(kind: int) -> np.dtype[Any]:
    """The type of Python's bool, int, float and complex, which have the kinds 0 to 3."""
    found = np.dtype(_DEFAULT[kind])
    return found if get_enable_x64() else narrow(found)
