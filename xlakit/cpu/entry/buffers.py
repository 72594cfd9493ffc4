"""Buffers: the memory that the arrays of a program live in, and where in the arena each has its place."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any, Union

from xlakit.data.shape import Shape
from xlakit.options import current, is_plain

ALIGNMENT = 64
# What lies behind a buffer, for what writes too far, where the program is sanitized.
GUARD_BYTES = 64


class Buffer:
    """The memory of one array.

    place: ``"temporary"``, ``"argument"``, ``"result"`` or ``"constant"``; number: which argument, result, constant.
    A buffer that was made one with another points at it; ask :meth:`resolved`.
    """

    __slots__ = ("_target", "bytes", "first", "last", "name", "number", "offset", "place")

    def __init__(self, size: int, place: str = "temporary", number: int = 0, name: str = "") -> None:
        self.bytes = size
        self.place = place
        self.number = number
        self.name = name
        self.offset = -1
        # The steps that use it first and last.
        self.first = -1
        self.last = -1
        self._target: Buffer | None = None

    def resolved(self) -> Buffer:
        """The buffer that this one stands for."""
        buffer = self
        while buffer._target is not None:
            buffer = buffer._target
        return buffer

    def merge_into(self, other: Buffer) -> None:
        """Make this temporary the same memory as another buffer."""
        own, target = self.resolved(), other.resolved()
        if own is not target:
            own._target = target

    def __repr__(self) -> str:
        own = self.resolved()
        return f"<{own.place} {own.name or own.number}: {own.bytes} bytes>"


# What an instruction's value lives in: a buffer for an array, a tuple of trees, None for a token.
Tree = Union[Buffer, "tuple[Any, ...]", None]


def leaves(tree: Tree) -> list[Buffer]:
    """The buffers of a tree, in order."""
    if isinstance(tree, Buffer):
        return [tree]
    return [leaf for part in tree or () for leaf in leaves(part)]


def byte_size(shape: Shape) -> int:
    """How many bytes an array takes in memory."""
    return shape.num_elements * shape.element_type.byte_width


def new_tree(shape: Shape, name: str) -> Tree:
    """New temporaries for a value of a shape."""
    if shape.is_tuple:
        return tuple(new_tree(s, f"{name}.{i}") for i, s in enumerate(shape.tuple_shapes))
    return Buffer(byte_size(shape), name=name) if shape.is_array else None


def assign_offsets(buffers: Iterable[Buffer]) -> int:
    """Give each buffer a place in one arena, so that those that live at the same time do not overlap.

    Buffers are placed in the order in which they come to life, each in the smallest hole that fits it; in plain memory
    each has a place that no other one ever has. Gives the size of the arena in bytes.
    """
    reuses = not is_plain("memory")
    guard = GUARD_BYTES if current().sanitize else 0
    alive: list[tuple[int, int, int]] = []
    free = _Holes()
    for buffer in sorted(buffers, key=lambda b: (b.first, -b.bytes)):
        while reuses and alive and alive[0][0] < buffer.first:
            _, offset, size = heapq.heappop(alive)
            free.give(offset, size)
        size = -(-max(1, buffer.bytes) // ALIGNMENT) * ALIGNMENT + guard
        buffer.offset = free.take(size)
        heapq.heappush(alive, (buffer.last, buffer.offset, size))
    return free.end


class _Holes:
    """The free parts of an arena that grows at its end."""

    def __init__(self) -> None:
        self.end = 0
        self._holes: list[tuple[int, int]] = []  # offset and size, by offset

    def take(self, size: int) -> int:
        best = min((hole for hole in self._holes if hole[1] >= size), key=lambda hole: hole[1], default=None)
        if best is None:
            if self._holes and sum(self._holes[-1]) == self.end:
                offset, _ = self._holes.pop()
            else:
                offset = self.end
            self.end = offset + size
            return offset
        place = self._holes.index(best)
        offset, room = best
        self._holes[place : place + 1] = [(offset + size, room - size)] if room > size else []
        return offset

    def give(self, offset: int, size: int) -> None:
        place = _place(self._holes, offset)
        self._holes.insert(place, (offset, size))
        for left in (place, place - 1):
            if 0 <= left < len(self._holes) - 1 and sum(self._holes[left]) == self._holes[left + 1][0]:
                joined = (self._holes[left][0], self._holes[left][1] + self._holes[left + 1][1])
                self._holes[left : left + 2] = [joined]


def _place(holes: Sequence[tuple[int, int]], offset: int) -> int:
    low, high = 0, len(holes)
    while low < high:
        middle = (low + high) // 2
        if holes[middle][0] < offset:
            low = middle + 1
        else:
            high = middle
    return low
