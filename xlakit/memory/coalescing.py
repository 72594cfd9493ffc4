"""Coalescing: aliases whose values do not interfere become one memory.

Two values interfere where both live at one point, but for the point of an alias between them. A *set* is the values
that share a memory; two sets may become one if no value of the one interferes with one of the other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from xlakit.memory.aliasing import Alias
from xlakit.memory.live_ranges import Interval, LiveRanges
from xlakit.memory.values import HloValue

_Entry = tuple[int, int, HloValue]


class ValueSet:
    """Values that share one memory, with their live ranges in order. given: the argument or constant that it is."""

    __slots__ = ("entries", "given", "starts", "values")

    def __init__(self, value: HloValue, intervals: Iterable[Interval]) -> None:
        self.values = [value]
        self.given = value if value.is_given else None
        self.entries: list[_Entry] = [(low, high, value) for low, high in intervals]
        self.starts = [low for low, _, _ in self.entries]

    @property
    def bytes(self) -> int:
        """The size of its memory; all its values have it."""
        return self.values[0].bytes

    @property
    def first(self) -> int:
        """The point at which the first of its values begins to live."""
        return self.starts[0]

    @property
    def last(self) -> int:
        """The point up to which the last of its values lives."""
        # Values of one set meet at most at a point, so the one that begins last ends last.
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
    """The sets of a program's values, as they become fewer."""

    def __init__(self, ranges: LiveRanges, aliases: Iterable[Alias]) -> None:
        self.intervals: dict[HloValue, Sequence[Interval]] = dict(ranges.intervals)
        self._sets = {value: ValueSet(value, intervals) for value, intervals in ranges.intervals.items()}
        self._points: dict[tuple[HloValue, HloValue], set[int]] = {}
        for alias in aliases:
            self.allow(alias.source, alias.target, alias.point)

    def add(self, value: HloValue, intervals: Sequence[Interval]) -> ValueSet:
        """A set for a new value."""
        self.intervals[value] = intervals
        made = self._sets[value] = ValueSet(value, intervals)
        return made

    def allow(self, source: HloValue, target: HloValue, point: int) -> None:
        """Let two values live at a point that is a copy of the one to the other."""
        self._points.setdefault((source, target), set()).add(point)

    def set_of(self, value: HloValue) -> ValueSet:
        """The set that a value is in."""
        return self._sets[value]

    def sets(self) -> list[ValueSet]:
        """All sets, in the order in which their first values were defined."""
        return list(dict.fromkeys(self._sets.values()))

    def join(self, a: HloValue, b: HloValue) -> bool:
        """Make the sets of two values one, if they are not and if nothing stands against it; gives whether they are."""
        one, other = self._sets[a], self._sets[b]
        if one is other:
            return True
        if one.given is not None or other.given is not None or self.interfere(one, other):
            return False
        if len(one.values) < len(other.values):
            one, other = other, one
        one.absorb(other)
        self._sets.update(dict.fromkeys(other.values, one))
        return True

    def interfere(self, one: ValueSet, other: ValueSet) -> bool:
        """Whether some value of the one set and some value of the other live at the same time."""
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
        """Whether two values may both live at a point, since the one becomes the other there."""
        return point in self._points.get((a, b), ()) or point in self._points.get((b, a), ())
