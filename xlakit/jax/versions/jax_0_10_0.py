"""JAX 0.10.0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def mlir_types(context: Any, aval: Any) -> Sequence[Any]:
    """The MLIR types of a value; this version needs no context of the module."""
    from jax._src.interpreters import mlir

    written: Any = mlir
    return written.aval_to_ir_types(aval)


def set_sharding(context: Any, op: Any, sharding: Any) -> None:
    """Write the sharding of an operation; this version needs no context of the module."""
    from jax._src.interpreters import mlir

    written: Any = mlir
    written.set_sharding(op, sharding)


def missing_primitives() -> frozenset[str]:
    """Operations of JAX's linear algebra that this version lacks."""
    return frozenset()
