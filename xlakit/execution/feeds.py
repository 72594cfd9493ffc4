"""Feeds: bounded queues between the host and devices, and the values that travel in them.

Values are logical: the host puts and takes arrays, whatever the layout of the feed's shape. The host may put bytes
instead of an array, which are the array's memory in the layout of the infeed's shape, and it may take an outfeed's
value as bytes likewise.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Generic, TypeVar, cast

import numpy as np

from xlakit.data.literal import Literal
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.errors import ArgumentError, LiteralError, UnsupportedError
from xlakit.execution.values import to_device, to_host
from xlakit.ir.operation import TOKEN, Value

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The capacity of a queue: items (None for any number) and bytes. A single item may be larger."""

    items: int | None
    bytes: int

    def __post_init__(self) -> None:
        if self.items is not None and self.items < 1:
            raise ArgumentError(f"queue_items is {self.items}", hint="give at least 1, or None for any number")
        if self.bytes < 1:
            raise ArgumentError(f"queue_bytes is {self.bytes}", hint="give at least 1")


class Feed(Generic[_T]):
    """A queue with bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._items: deque[tuple[_T, int]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def has_room(self, size: int) -> bool:
        """Whether one more item of so many bytes fits."""
        limit = self._bounds.items
        if not self._items:
            return True
        return (limit is None or len(self._items) < limit) and self._bytes + size <= self._bounds.bytes

    def append(self, item: _T, size: int) -> None:
        """Put an item at the end."""
        self._items.append((item, size))
        self._bytes += size

    def popleft(self) -> _T:
        """Take the first item."""
        item, size = self._items.popleft()
        self._bytes -= size
        return item

    def clear(self) -> None:
        """Remove all items."""
        self._items.clear()
        self._bytes = 0

    def __str__(self) -> str:
        items = f"{len(self._items):,} value{'s' * (len(self._items) != 1)}"
        limit = "" if self._bounds.items is None else f"{self._bounds.items:,} values and "
        return f"{items} of {self._bytes:,} bytes, its bounds being {limit}{self._bounds.bytes:,} bytes"


@dataclass(frozen=True, slots=True)
class Sent:
    """A value in an outfeed, with the shape that it has there."""

    value: Value
    shape: Shape

    def raw(self) -> Any:
        """The memory of its arrays, each in the layout of its shape."""
        return _raw(self.value, self.shape)


def _raw(value: Value, shape: Shape) -> Any:
    if shape.is_tuple:
        return tuple(_raw(v, s) for v, s in zip(value, shape.tuple_shapes, strict=True))
    return Literal(shape, np.asarray(value)).to_linear().tobytes()


def frozen(value: object) -> object:
    """A copy of a host value, so that the host may change its arrays afterwards."""
    if isinstance(value, tuple):
        return tuple(frozen(v) for v in cast("tuple[object, ...]", value))
    if isinstance(value, list):
        return [frozen(v) for v in cast("list[object]", value)]
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, Literal):
        return value
    return to_host(value) if hasattr(value, "__array__") else value


def byte_count(value: object) -> int:
    """About how many bytes a frozen value takes."""
    if isinstance(value, (tuple, list)):
        return sum(map(byte_count, cast("tuple[object, ...]", value)))
    if isinstance(value, Literal):
        return value.shape.byte_size
    if isinstance(value, bytes):
        return len(value)
    # A Python number counts as eight bytes.
    return value.nbytes if isinstance(value, np.ndarray) else 0 if value is None or value is TOKEN else 8


def from_host(value: object, shape: Shape, what: str) -> Value:
    """A value of the host, converted to a device's value of ``shape``; ArgumentError if it does not fit."""
    if shape.is_tuple and isinstance(value, (tuple, list)):
        parts = cast("tuple[object, ...]", value)
        if len(parts) == len(shape.tuple_shapes):
            pairs = zip(parts, shape.tuple_shapes, strict=True)
            return tuple(from_host(v, s, f"element {i} of {what}") for i, (v, s) in enumerate(pairs))
    if isinstance(value, bytes) and shape.is_array:
        return _from_memory(value, shape, what)
    return to_device(value, shape, what)


def _from_memory(memory: bytes, shape: Shape, what: str) -> Value:
    if shape.is_dynamic:
        raise UnsupportedError(f"{what} of the dynamic {shape} cannot be given as memory", hint="give an array")
    dtype = shape.element_type.dtype
    try:
        return Literal.from_linear(shape, np.frombuffer(memory, dtype)).array
    except (LiteralError, ValueError) as error:
        rule = error.rule if isinstance(error, LiteralError) else str(error)
        raise ArgumentError(
            f"{what} takes the memory of {shape}, got {len(memory)} bytes: {rule}",
            hint=f"give elements of {dtype.itemsize} bytes in the layout of the shape, or an array",
        ) from None
