"""Differences between JAX's versions that affect the platform.

:func:`of_jax` gives the running version. :class:`Version` is the newest one; an older version is a class of the next
newer one with what differs. A version is listed if the platform's tests pass with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from xlakit.errors import UnsupportedError


class Version:
    """JAX 0.10.2."""

    def mlir_types(self, context: Any, aval: Any) -> Sequence[Any]:
        """The MLIR types of a value, given JAX's context of the module; JAX represents some values by several."""
        from jax._src.interpreters import mlir

        flat, _ = mlir.ir_tree_registry.flatten(mlir.aval_to_ir_types(context, aval))
        return flat

    def set_sharding(self, context: Any, op: Any, sharding: Any) -> None:
        """Write the sharding of an operation, given JAX's context of the module."""
        from jax._src.interpreters import mlir

        mlir.set_sharding(context, op, sharding)

    def missing_primitives(self) -> frozenset[str]:
        """Operations of JAX's linear algebra that this version lacks."""
        return frozenset()


class _WithoutTypeTrees(Version):
    """JAX 0.10.1, which has no trees of types."""

    def mlir_types(self, context: Any, aval: Any) -> Sequence[Any]:
        from jax._src.interpreters import mlir

        return mlir.aval_to_ir_types(context, aval)


class _WithoutContext(_WithoutTypeTrees):
    """JAX 0.10.0, whose functions need no context of the module."""

    def mlir_types(self, context: Any, aval: Any) -> Sequence[Any]:
        from jax._src.interpreters import mlir

        written: Any = mlir
        return written.aval_to_ir_types(aval)

    def set_sharding(self, context: Any, op: Any, sharding: Any) -> None:
        from jax._src.interpreters import mlir

        written: Any = mlir
        written.set_sharding(op, sharding)


class _WithoutOrmqr(_WithoutContext):
    """JAX 0.9.2."""

    def missing_primitives(self) -> frozenset[str]:
        return frozenset({"ormqr_p"})


_BY_NAME: Final[Mapping[str, type[Version]]] = {
    "0.10.2": Version,
    "0.10.1": _WithoutTypeTrees,
    "0.10.0": _WithoutContext,
    "0.9.2": _WithoutOrmqr,
}
VERSIONS: Final = tuple(_BY_NAME)
"""The versions of jax and jaxlib that are tested, the newest first."""


def of_jax() -> Version:
    """The running version of JAX. Raises UnsupportedError for an unknown one."""
    import jax

    if jax.__version__ not in _BY_NAME:
        raise unsupported("jax", jax.__version__)
    return _BY_NAME[jax.__version__]()


def unsupported(name: str, version: str) -> UnsupportedError:
    """The error for a version of jax or jaxlib that is not supported."""
    return UnsupportedError(
        f"xlakit runs programs of jax {', '.join(VERSIONS)}; this is {name} {version}",
        hint="pip install 'xlakit[jax]' installs the versions that fit together",
    )
