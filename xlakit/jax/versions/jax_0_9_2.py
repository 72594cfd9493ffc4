"""JAX 0.9.2."""

from __future__ import annotations

from xlakit.jax.versions.jax_0_10_0 import mlir_types, set_sharding

__all__ = ["missing_primitives", "mlir_types", "set_sharding"]


def missing_primitives() -> frozenset[str]:
    """Operations of JAX's linear algebra that this version lacks."""
    return frozenset({"ormqr_p"})
