"""The symbolic contents of memory: which values each slice holds.

All memory of a program is one address range: the arena first, then every argument, result, constant and variable of the
entry with a gap after it. A write drops all values that it overlaps, so a slice holds only complete values.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Union

from xlakit.data.shape import Shape
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import Array


class Value:
    """An array of HLO, equal only to itself. ``what`` describes it, ``path`` is its index in the tuple."""

    __slots__ = ("bytes", "instruction", "path", "what")

    def __init__(self, size: int, instruction: Instruction | None, path: tuple[int, ...] = (), what: str = "") -> None:
        self.bytes = size
        self.instruction = instruction
        self.path = path
        self.what = what

    def __str__(self) -> str:
        name = f"%{self.instruction.name}" if self.instruction is not None else ""
        index = "{" + ",".join(map(str, self.path)) + "}" if self.path else ""
        return " ".join(filter(None, (self.what, name + index)))


# The arrays of an HLO value: one for an array, a tuple of trees, None for a token.
Tree = Union[Value, "tuple[Any, ...]", None]


def arrays(tree: Tree) -> Iterator[Value]:
    """The arrays of a tree, in order."""
    if isinstance(tree, Value):
        yield tree
    else:
        for part in tree or ():
            yield from arrays(part)


def new_tree(shape: Shape, instruction: Instruction, what: str = "", path: tuple[int, ...] = ()) -> Tree:
    """New values of a shape."""
    if shape.is_tuple:
        return tuple(new_tree(s, instruction, what, (*path, i)) for i, s in enumerate(shape.tuple_shapes))
    return Value(shape.byte_size, instruction, path, what) if shape.is_array else None


class ConstantValues:
    """The values of constants: those with the same bytes are the same value, wherever they are written."""

    __slots__ = ("_by_array", "_by_bytes")

    def __init__(self) -> None:
        self._by_array: dict[int, tuple[Array, Value]] = {}
        self._by_bytes: dict[bytes, Value] = {}

    def of(self, array: Array) -> Value:
        """The value of an array of a constant."""
        found = self._by_array.get(id(array))
        if found is None:
            content = array.tobytes()
            value = self._by_bytes.setdefault(content, Value(len(content), None, (), "a constant"))
            # Keyed by id(array); the entry holds the array, so that no other array can get the same id.
            found = self._by_array[id(array)] = (array, value)
        return found[1]


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
        # Keyed by the first byte: the end of the slice, and its values. No two slices overlap.
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
