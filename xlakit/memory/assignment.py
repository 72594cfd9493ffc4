"""Assignment: gives each set of values a buffer slice; sets with overlapping live ranges get disjoint slices."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from enum import Enum

from xlakit.dataclass import dataclass
from xlakit.memory.coalescing import ValueSet
from xlakit.memory.values import ALIGNMENT, HloValue, ValueKind
from xlakit.options import current, is_plain, knob

# The gap after a slice under the sanitizer, which detects writes beyond a slice.
GUARD_BYTES = 64
# Sets of at most so many bytes are local variables of the entry function, which LLVM can keep in registers ..
SMALL_BYTES = knob("assignment.small_bytes", 64, 0, 8, 256)
# .. if there are no more of them than this.
_MOST_SMALL = knob("assignment.most_small", 512, 0, 3)


class Space(Enum):
    """The memory that a slice is in: the caller's, the program's constants, the arena of a run, or variables of the
    entry.
    """

    ARGUMENT = "argument"
    RESULT = "result"
    CONSTANT = "constant"
    ARENA = "arena"
    VARIABLE = "variable"


@dataclass(frozen=True, slots=True, eq=False)
class BufferSlice:
    """The memory of values whose live ranges do not overlap.

    number: of the argument, result, constant or variable; offset: in the arena, in bytes. first, last: the first and
    the last point at which the slice is in use.
    """

    space: Space
    number: int
    offset: int
    size: int
    values: tuple[HloValue, ...]
    first: int
    last: int

    def __str__(self) -> str:
        if self.space is Space.ARENA:
            return f"arena[{self.offset}:{self.offset + self.size}]"
        return f"{self.space.value} {self.number}"


def assign(sets: Sequence[ValueSet], results: Sequence[ValueSet]) -> tuple[list[BufferSlice], int]:
    """A slice for each set, and the size of the arena; ``results`` are the sets that are results, in order."""
    slices: list[BufferSlice] = []
    numbers = {value_set: number for number, value_set in enumerate(results)}
    temporary: list[ValueSet] = []
    for value_set in sets:
        if value_set.preassigned is not None:
            space = Space.ARGUMENT if value_set.preassigned.kind is ValueKind.ARGUMENT else Space.CONSTANT
            slices.append(_slice(value_set, space, value_set.preassigned.number))
        elif value_set in numbers:
            slices.append(_slice(value_set, Space.RESULT, numbers[value_set]))
        else:
            temporary.append(value_set)
    small = [value_set for value_set in temporary if value_set.bytes <= SMALL_BYTES.value]
    if len(small) > _MOST_SMALL.value or is_plain("memory"):
        small = []
    slices += [_slice(value_set, Space.VARIABLE, number) for number, value_set in enumerate(small)]
    variables = set(small)
    in_arena, size = _in_arena([value_set for value_set in temporary if value_set not in variables])
    return slices + in_arena, size


def _slice(value_set: ValueSet, space: Space, number: int, offset: int = -1) -> BufferSlice:
    return BufferSlice(space, number, offset, value_set.bytes, tuple(value_set.values), value_set.first, value_set.last)


def _in_arena(sets: Sequence[ValueSet]) -> tuple[list[BufferSlice], int]:
    """Slices of one arena, and its size in bytes.

    Sets are assigned in the order in which they become live (of those that start together the largest and longest-lived
    first), each to the smallest hole that it fits in. In plain memory no two slices overlap.
    """
    reuses = not is_plain("memory")
    guard = GUARD_BYTES if current().sanitize else 0
    alive: list[tuple[int, int, int]] = []
    free_list = _FreeList()
    slices: list[BufferSlice] = []
    for value_set in sorted(sets, key=lambda s: (s.first, -s.bytes, -s.last)):
        while reuses and alive and alive[0][0] < value_set.first:
            _, offset, size = heapq.heappop(alive)
            free_list.free(offset, size)
        size = -(-max(1, value_set.bytes) // ALIGNMENT) * ALIGNMENT + guard
        offset = free_list.allocate(size)
        heapq.heappush(alive, (value_set.last, offset, size))
        slices.append(_slice(value_set, Space.ARENA, -1, offset))
    return slices, free_list.end


class _FreeList:
    """The free parts of an arena that grows at its end."""

    def __init__(self) -> None:
        self.end = 0
        self._holes: list[tuple[int, int]] = []  # offset and size, by offset

    def allocate(self, size: int) -> int:
        best = min((hole for hole in self._holes if hole[1] >= size), key=lambda hole: hole[1], default=None)
        if best is None:
            if self._holes and sum(self._holes[-1]) == self.end:
                offset, _ = self._holes.pop()
            else:
                offset = self.end
            self.end = offset + size
            return offset
        position = self._holes.index(best)
        offset, free = best
        self._holes[position : position + 1] = [(offset + size, free - size)] if free > size else []
        return offset

    def free(self, offset: int, size: int) -> None:
        position = bisect_left(self._holes, (offset, 0))
        self._holes.insert(position, (offset, size))
        for left in (position, position - 1):
            if 0 <= left < len(self._holes) - 1 and sum(self._holes[left]) == self._holes[left + 1][0]:
                joined = (self._holes[left][0], self._holes[left][1] + self._holes[left + 1][1])
                self._holes[left : left + 2] = [joined]
