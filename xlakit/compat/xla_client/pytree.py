"""Trees of containers, flattened into leaves and a structure: jaxlib's own, which all of its releases have."""

from __future__ import annotations

import importlib
from typing import Any


def __dir__() -> list[str]:
    try:
        return [*globals(), *dir(_trees()), "tuple"]
    except AttributeError:
        return list(globals())


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    trees = _trees()
    return getattr(trees, "treedef_tuple" if name == "tuple" and not hasattr(trees, name) else name)


def _trees() -> Any:
    try:
        return importlib.import_module("jaxlib._jax").pytree
    except ImportError as error:
        raise AttributeError(f"pytree is jaxlib's, which is not installed: pip install jaxlib ({error})") from None
