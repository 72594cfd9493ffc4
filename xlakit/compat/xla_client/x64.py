"""The types that numbers have by default: of 32 bits, and of 64 where ``jax_enable_x64`` is set."""

from __future__ import annotations

from typing import Any

import numpy as np

from xlakit.compat.xla_client.jit_state import get_enable_x64 as get_enable_x64

_NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}
_DEFAULT = ("bool", "int64", "float64", "complex128")


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
