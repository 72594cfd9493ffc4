"""Values: the arrays that steps read and write according to HLO, as symbols.

A value is one array of one instruction, in one call of its computation and one iteration of the loops around it. Two
names of the same array (a reshape, an element of a tuple, an argument of a call) are the same value.
"""

from __future__ import annotations

from collections.abc import Iterator
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
            # A reference to the array is held, so that its id stays unique.
            found = self._by_array[id(array)] = (array, value)
        return found[1]
