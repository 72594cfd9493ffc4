"""JAX 0.10.1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def mlir_types(context: Any, aval: Any) -> Sequence[Any]:
    """The MLIR types of a value; this version has no trees of types."""
    from jax._src.interpreters import mlir

    return mlir.aval_to_ir_types(context, aval)


def set_sharding(context: Any, op: Any, sharding: Any) -> None:
    """Write the sharding of an operation."""
    from jax._src.interpreters import mlir

    mlir.set_sharding(context, op, sharding)


def missing_primitives() -> frozenset[str]:
    """Operations of JAX's linear algebra that this version lacks."""
    return frozenset()
