"""The state of JAX's dispatch that programs read and set: of the process, and of each thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from xlakit.compat.xla_client.binding import TypedAttributes, bound


class JitState(TypedAttributes):
    """What a thread, or the process, has set; None where nothing is."""

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
        # First, so that the function can ask for it.
        _local.state = JitState()
        if _initialize is not None:
            _initialize()
    return _local.state


def get_enable_x64() -> bool:
    """Whether numbers have 64 bits: as the thread says, or the process; else no."""
    local = thread_local_state().enable_x64
    return bool(_global.enable_x64 if local is None else local)


@bound
def swap_thread_local_state_disable_jit(value: bool | None) -> bool | None:
    """Set ``disable_jit`` of this thread; gives what it was."""
    state = thread_local_state()
    before, state.disable_jit = state.disable_jit, value
    return before
