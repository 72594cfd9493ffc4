"""Coalescing: merges the values of an alias into one set, which shares memory, if they do not interfere.

Two values interfere if both are live at one point, except at the point of an alias between them. A *set* is a group of
values that share memory; two sets may be merged if no value of the first interferes with a value of the second.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from xlakit.memory.aliasing import Alias
from xlakit.memory.live_ranges import Interval, LiveRanges
from xlakit.memory.values import HloValue

_Entry = tuple[int, int, HloValue]


class ValueSet:
    """Values that share memory, with their live ranges in order.

    preassigned: the argument or constant among them, if any.
    """

    __slots__ = ("entries", "preassigned", "starts", "values")

    def __init__(self, value: HloValue, intervals: Iterable[Interval]) -> None:
        self.values = [value]
        self.preassigned = value if value.is_preassigned else None
        self.entries: list[_Entry] = [(low, high, value) for low, high in intervals]
        self.starts = [low for low, _, _ in self.entries]

    @property
    def bytes(self) -> int:
        """The size in bytes, which is the same for all values of the set."""
        return self.values[0].bytes

    @property
    def first(self) -> int:
        """The first point at which a value of the set is live."""
        return self.starts[0]

    @property
    def last(self) -> int:
        """The last point at which a value of the set is live."""
        # Live ranges of one set share at most a point, so the one that begins last ends last.
        return self.entries[-1][1]

    def absorb(self, other: ValueSet) -> None:
        """Take the values of another set, which do not interfere with those of this one."""
        self.values += other.values
        is_behind = other.starts[0] >= self.starts[-1]
        self.entries += other.entries
        if not is_behind:
            self.entries.sort(key=_key)
            self.starts = [low for low, _, _ in self.entries]
        else:
            self.starts += other.starts


def _key(entry: _Entry) -> Interval:
    return entry[:2]


class Coalescing:
    """The sets of a program's values while they are merged."""

    def __init__(self, ranges: LiveRanges, aliases: Iterable[Alias]) -> None:
        self.intervals: dict[HloValue, Sequence[Interval]] = dict(ranges.intervals)
        self._sets = {value: ValueSet(value, intervals) for value, intervals in ranges.intervals.items()}
        self._points: dict[tuple[HloValue, HloValue], set[int]] = {}
        for alias in aliases:
            self.allow(alias.source, alias.target, alias.point)

    def add(self, value: HloValue, intervals: Sequence[Interval]) -> ValueSet:
        """A set for a new value."""
        self.intervals[value] = intervals
        value_set = self._sets[value] = ValueSet(value, intervals)
        return value_set

    def allow(self, source: HloValue, target: HloValue, point: int) -> None:
        """Permit two values to be live at the point at which the first is copied to the second."""
        self._points.setdefault((source, target), set()).add(point)

    def set_of(self, value: HloValue) -> ValueSet:
        """The set that a value is in."""
        return self._sets[value]

    def sets(self) -> list[ValueSet]:
        """All sets, in the order in which their first values were defined."""
        return list(dict.fromkeys(self._sets.values()))

    def join(self, a: HloValue, b: HloValue) -> bool:
        """Merge the sets of two values unless they interfere; gives whether the values are in one set."""
        one, other = self._sets[a], self._sets[b]
        if one is other:
            return True
        if one.preassigned is not None or other.preassigned is not None or self.interfere(one, other):
            return False
        if len(one.values) < len(other.values):
            one, other = other, one
        one.absorb(other)
        self._sets.update(dict.fromkeys(other.values, one))
        return True

    def interfere(self, one: ValueSet, other: ValueSet) -> bool:
        """Whether any value of the one set interferes with any value of the other."""
        if len(one.entries) < len(other.entries):
            one, other = other, one
        for low, high, value in other.entries:
            position = bisect_right(one.starts, high) - 1
            while position >= 0 and one.entries[position][1] >= low:
                first, last, own = one.entries[position]
                position -= 1
                if max(low, first) < min(high, last) or not self._is_alias(own, value, max(low, first)):
                    return True
        return False

    def _is_alias(self, a: HloValue, b: HloValue, point: int) -> bool:
        """Whether two values may both be live at a point, because an alias turns one into the other there."""
        return point in self._points.get((a, b), ()) or point in self._points.get((b, a), ())
