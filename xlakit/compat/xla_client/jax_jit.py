"""The parts of JAX's dispatch that programs use: argument signatures, and its state."""

from __future__ import annotations

from typing import Any

import numpy as np

from xlakit.compat.xla_client.binding import bound
from xlakit.compat.xla_client.jit_state import (
    JitState as JitState,
    get_enable_x64 as get_enable_x64,
    global_state as global_state,
    narrow,
    set_thread_local_state_initialization_callback as set_thread_local_state_initialization_callback,
    swap_thread_local_state_disable_jit as swap_thread_local_state_disable_jit,
    thread_local_state as thread_local_state,
)
from xlakit.compat.xla_client.runtime.array import ArrayImpl
from xlakit.errors import ArgumentError


class PyArgSignature:
    """The type of an argument: dtype, shape, and whether another operand's type prevails."""

    __slots__ = ("dtype", "shape", "weak_type")

    def __init__(self) -> None:
        raise TypeError("PyArgSignature: no constructor defined!")

    dtype: Any
    shape: tuple[int, ...]
    weak_type: bool


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
    made.dtype = found.dtype if jax_enable_x64 else narrow(found.dtype)
    made.shape = found.shape
    made.weak_type = not isinstance(value, (np.ndarray, np.generic))
    return made


def _is_float0(value: np.ndarray[Any, Any], /) -> bool:  # pyright: ignore[reportUnusedFunction]
    """Whether the elements are of JAX's type of no bytes, which gradients of integers have."""
    return value.dtype == np.dtype([("float0", np.void, 0)])
