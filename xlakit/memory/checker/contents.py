"""The symbolic contents of memory: which values each slice holds.

All memory of a program is one line of bytes: the arena first, then every argument, result, constant and variable of the
entry with a gap after it. A write kills whatever it overlaps, so what a slice holds it holds whole.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping

from xlakit.memory.checker.values import Value

Held = frozenset[Value]
NOTHING: Held = frozenset()


class Contents:
    """The values that slices hold.

    A slice holds several values if they are equal, as the state of a loop and its initial value are before the first
    iteration.
    """

    __slots__ = ("_begins", "_slices")

    def __init__(self) -> None:
        self._begins: list[int] = []
        # By the first byte: the end, and the values. No two slices overlap.
        self._slices: dict[int, tuple[int, Held]] = {}

    def copy(self) -> Contents:
        """An independent copy."""
        other = Contents()
        other._begins = self._begins.copy()
        other._slices = self._slices.copy()
        return other

    def held(self, begin: int, end: int) -> Held:
        """The values that a slice holds completely."""
        found = self._slices.get(begin)
        return found[1] if found is not None and found[0] == end else NOTHING

    def inside(self, begin: int, end: int) -> list[tuple[int, int, Held]]:
        """The slices that lie within a range."""
        return [found for found in self._overlapping(begin, end) if begin <= found[0] and found[1] <= end]

    def around(self, begin: int, end: int) -> Held:
        """The values that a range holds, or holds parts of."""
        return NOTHING.union(*(held for _, _, held in self._overlapping(begin, end)))

    def _overlapping(self, begin: int, end: int) -> Iterator[tuple[int, int, Held]]:
        position = bisect_left(self._begins, begin)
        if position and self._slices[self._begins[position - 1]][0] > begin:
            position -= 1
        while position < len(self._begins) and self._begins[position] < end:
            first = self._begins[position]
            yield first, *self._slices[first]
            position += 1

    def write(self, begin: int, end: int, held: Held) -> None:
        """Put values into a slice; overlapping contents are dropped."""
        if begin == end:
            return
        found = self._slices.get(begin)
        if found is not None and found[0] == end:
            self._slices[begin] = end, held
            return
        for first, _, _ in list(self._overlapping(begin, end)):
            del self._slices[first]
            del self._begins[bisect_left(self._begins, first)]
        self._slices[begin] = end, held
        insort(self._begins, begin)

    def also(self, names: Mapping[Value, Collection[Value]], without: Collection[Value] = ()) -> None:
        """Add names for values: slices that hold a value also hold ``names`` of it. Values ``without`` are dropped."""
        olds, gone = names.keys(), frozenset(without)
        for begin, (end, held) in self._slices.items():
            if held.isdisjoint(olds) and held.isdisjoint(gone):
                continue
            more = [name for value in held if value in names for name in names[value]]
            self._slices[begin] = end, (held - gone).union(more)

    def meet(self, other: Contents) -> bool:
        """Intersect with other contents; gives whether that has dropped a value."""
        is_less = False
        for begin in self._begins.copy():
            end, held = self._slices[begin]
            both = held & other.held(begin, end)
            if len(both) == len(held):
                continue
            is_less = True
            if both:
                self._slices[begin] = end, both
            else:
                del self._slices[begin]
                del self._begins[bisect_left(self._begins, begin)]
        return is_less
