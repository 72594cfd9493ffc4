"""The state of JAX's dispatch that programs read and set: of the process, and of each thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from xlakit.compat.xla_client.binding import TypedAttributes, bound
from xlakit.compat.xla_client.runtime.array import ArrayImpl
from xlakit.errors import ArgumentError


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


class PyArgSignature:
    """The type of an argument: dtype, shape, and whether another operand's type prevails."""

    __slots__ = ("dtype", "shape", "weak_type")

    def __init__(self) -> None:
        raise TypeError("PyArgSignature: no constructor defined!")

    dtype: Any
    shape: tuple[int, ...]
    weak_type: bool


_NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}


@bound
def _ArgSignatureOfValue(value: object, jax_enable_x64: bool, /) -> PyArgSignature:
    """The type of an array or a number; NumPy's types of 64 bits are narrower unless they are enabled.

    Raises XlaRuntimeError for other values.
    """
    made = PyArgSignature.__new__(PyArgSignature)
    if isinstance(value, ArrayImpl):
        made.dtype, made.shape, made.weak_type = value.dtype, value.shape, value.weak_type
        return made
    if not isinstance(value, (np.ndarray, np.generic, bool, int, float, complex)):
        raise ArgumentError(
            f"a {type(value).__name__} is no array and no number",
            hint="give an array of this package or of NumPy, or a number",
        )
    found = np.asarray(value)
    made.dtype = found.dtype if jax_enable_x64 else np.dtype(_NARROW.get(found.dtype.name, found.dtype))
    made.shape = found.shape
    made.weak_type = not isinstance(value, (np.ndarray, np.generic))
    return made


def _is_float0(value: np.ndarray[Any, Any], /) -> bool:  # pyright: ignore[reportUnusedFunction]
    """Whether the elements are of JAX's type of no bytes, which gradients of integers have."""
    return value.dtype == np.dtype([("float0", np.void, 0)])
