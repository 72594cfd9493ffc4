"""JAX 0.10.1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def mlir_types(context: Any, aval: Any) -> Sequence[Any]:
    """The MLIR types of a value: there are no trees yet."""
    from jax._src.interpreters import mlir

    return mlir.aval_to_ir_types(context, aval)
