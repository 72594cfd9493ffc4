"""New names of instructions and computations."""

from __future__ import annotations

from collections.abc import Container


def unused_name(stem: str, taken: Container[str]) -> str:
    """``stem`` if no name that is taken is the same, else ``stem.1``, ``stem.2``, and so on."""
    name, number = stem, 0
    while name in taken:
        number += 1
        name = f"{stem}.{number}"
    return name
