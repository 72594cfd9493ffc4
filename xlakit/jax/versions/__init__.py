"""Differences between JAX's versions that affect the platform: one file for each version, with the same functions.

:func:`of_jax` gives the functions of the running version. A version has a file if the platform's tests pass with it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, cast

from xlakit.errors import UnsupportedError

_FILES: Final[Mapping[str, str]] = {
    "0.10.2": "jax_0_10_2",
    "0.10.1": "jax_0_10_1",
    "0.10.0": "jax_0_10_0",
    "0.9.2": "jax_0_9_2",
}
VERSIONS: Final = tuple(_FILES)
"""The versions of jax and jaxlib that are tested, the newest first."""


class Version(Protocol):
    """The functions of each file."""

    def mlir_types(self, context: Any, aval: Any) -> Sequence[Any]:
        """The MLIR types of a value, given JAX's context of the module; JAX represents some values by several."""
        ...

    def set_sharding(self, context: Any, op: Any, sharding: Any) -> None:
        """Write the sharding of an operation, given JAX's context of the module."""
        ...

    def missing_primitives(self) -> frozenset[str]:
        """Operations of JAX's linear algebra that later versions have."""
        ...


def of_jax() -> Version:
    """The functions of the running version of JAX. Raises UnsupportedError for an unknown version."""
    import jax

    if jax.__version__ not in _FILES:
        raise unsupported("jax", jax.__version__, VERSIONS)
    return cast("Version", importlib.import_module(f"{__name__}.{_FILES[jax.__version__]}"))


def unsupported(name: str, version: str, supported: Sequence[str]) -> UnsupportedError:
    """The error for a version that is not supported."""
    return UnsupportedError(
        f"xlakit runs programs of jax {', '.join(supported)}; this is {name} {version}",
        hint="pip install 'xlakit[jax]' installs the versions that fit together",
    )
