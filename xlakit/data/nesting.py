"""Nested tuples of values: their leaves in order, and values nested as a shape is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from xlakit.data.shape import Shape


def leaves_of(value: Any) -> list[Any]:
    """The leaves of nested tuples, in order; of any other value, the value itself."""
    if isinstance(value, tuple):
        return [leaf for part in cast("tuple[Any, ...]", value) for leaf in leaves_of(part)]
    return [value]


def nested(shape: Shape, leaves: Iterator[Any]) -> Any:
    """A value that is nested as a shape is, with the next of ``leaves`` for each array or token."""
    return tuple([nested(part, leaves) for part in shape.tuple_shapes]) if shape.is_tuple else next(leaves)
