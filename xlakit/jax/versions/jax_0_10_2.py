"""JAX 0.10.2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def mlir_types(context: Any, aval: Any) -> Sequence[Any]:
    """The MLIR types of a value: the leaves of a tree."""
    from jax._src.interpreters import mlir

    flat, _ = mlir.ir_tree_registry.flatten(mlir.aval_to_ir_types(context, aval))
    return flat
