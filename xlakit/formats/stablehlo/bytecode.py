"""MLIR's bytecode: sections, tables of strings, attributes and types, and operations.

Source: https://mlir.llvm.org/docs/BytecodeFormat. A value is the number of its definition; each function numbers its
own. Successors, and regions of several blocks, are a ForeignProgram.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, Final

from xlakit.dataclass import dataclass

MAGIC: Final = b"ML\xefR"
_STRING, _DIALECT, _VALUES, _OFFSETS, _IR, _PROPERTIES = 0, 1, 2, 3, 4, 8
_OLDEST, _NEWEST = 5, 6
_ATTRIBUTES, _RESULTS, _OPERANDS, _SUCCESSORS, _REGIONS, _USES, _HAS_PROPERTIES = 1, 2, 4, 8, 16, 32, 64


class ForeignProgram(Exception):
    """The program has something that this reader does not support; jaxlib may."""


class Cursor:
    """A position in bytes, and the encodings of numbers."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def number(self) -> int:
        """A number, whose length is in the low bits of its first byte."""
        data, at = self.data, self.at
        first = data[at]
        if first & 1:
            self.at = at + 1
            return first >> 1
        if first:
            length = (first & -first).bit_length()
            self.at = at + length
            return int.from_bytes(data[at : at + length], "little") >> length
        self.at = at + 9
        return int.from_bytes(data[at + 1 : at + 9], "little")

    def signed(self) -> int:
        """A number whose sign is its lowest bit."""
        coded = self.number()
        return coded >> 1 ^ -(coded & 1)

    def numbers(self) -> list[int]:
        """A list of numbers after its length."""
        return [self.number() for _ in range(self.number())]

    def signed_numbers(self) -> tuple[int, ...]:
        """A list of signed numbers after its length."""
        return tuple([self.signed() for _ in range(self.number())])

    def take(self, size: int) -> bytes:
        """Bytes."""
        at = self.at
        self.at = at + size
        return self.data[at : at + size]

    def section(self) -> tuple[int, Cursor]:
        """The kind of a section and its contents."""
        kind = self.take(1)[0]
        size = self.number()
        if kind & 128:
            alignment = self.number()
            self.at = -(-self.at // alignment) * alignment
        return kind & 127, Cursor(self.take(size))


@dataclass(slots=True)
class Operation:
    """An operation. Its properties are in the order of their names.

    location, properties and the values of attributes are indices for :meth:`Bytecode.attribute`.
    """

    name: str
    location: int
    properties: tuple[int, ...]
    attributes: dict[str, int]
    operands: list[int]
    types: list[int]
    first_result: int
    regions: list[Region]


@dataclass(slots=True)
class Region:
    """The one block of a region: the numbers of its arguments' types and locations, and its operations."""

    first_argument: int
    types: list[int]
    locations: list[int | None]
    operations: list[Operation]


Decoder = Callable[["Bytecode", str, Cursor], Any]


class Bytecode:
    """A module in bytecode. Attributes and types are read when they are first asked for."""

    def __init__(self, data: bytes, attribute: Decoder, type: Decoder) -> None:
        """``attribute`` and ``type`` decode the attributes and types of a dialect. Raises ForeignProgram."""
        cursor = Cursor(data, len(MAGIC))
        version = cursor.number()
        if not data.startswith(MAGIC) or not _OLDEST <= version <= _NEWEST:
            raise ForeignProgram(f"bytecode of version {version}")
        cursor.at = data.index(b"\0", cursor.at) + 1
        sections: dict[int, Cursor] = {}
        while cursor.at < len(data):
            kind, contents = cursor.section()
            sections[kind] = contents
        self._attribute, self._type = attribute, type
        self.strings = _strings(sections[_STRING])
        self._dialects, self._operations = self._names(sections[_DIALECT])
        self._entries = self._offsets(sections[_OFFSETS], sections[_VALUES].data)
        self._properties = _properties(sections[_PROPERTIES]) if _PROPERTIES in sections else []
        self._made: dict[int, Any] = {}
        self._values = 0
        (self.module,) = self._block(sections[_IR], _Scope())[-1]

    def _names(self, cursor: Cursor) -> tuple[list[str], list[str]]:
        dialects: list[str] = []
        for _ in range(cursor.number()):
            coded = cursor.number()
            dialects.append(self.strings[coded >> 1])
            if coded & 1:
                cursor.section()
        operations: list[str] = []
        cursor.number()
        while cursor.at < len(cursor.data):
            dialect = dialects[cursor.number()]
            operations += [f"{dialect}.{self.strings[cursor.number() >> 1]}" for _ in range(cursor.number())]
        return dialects, operations

    def _offsets(self, cursor: Cursor, data: bytes) -> list[tuple[str, bool, bytes]]:
        """For each attribute, then each type: its dialect, whether the dialect encoded it (else text), its bytes."""
        self._attribute_count = cursor.number()
        count = self._attribute_count + cursor.number()
        found: list[tuple[str, bool, bytes]] = []
        at = 0
        while len(found) < count:
            dialect = self._dialects[cursor.number()]
            for _ in range(cursor.number()):
                coded = cursor.number()
                found.append((dialect, bool(coded & 1), data[at : at + (coded >> 1)]))
                at += coded >> 1
        return found

    def attribute(self, number: int) -> Any:
        """An attribute. Raises ForeignProgram."""
        return self._value(number, self._attribute)

    def type(self, number: int) -> Any:
        """A type. Raises ForeignProgram."""
        return self._value(number + self._attribute_count, self._type)

    def _value(self, number: int, decode: Decoder) -> Any:
        values = self._made
        if number not in values:
            values[number] = self.decoded(number, decode)
        return values[number]

    def decoded(self, number: int, decode: Decoder) -> Any:
        """An attribute or type decoded by ``decode``, or its text. Raises ForeignProgram."""
        dialect, is_encoded, data = self._entries[number]
        return decode(self, dialect, Cursor(data)) if is_encoded else Text(data.rstrip(b"\0").decode())

    # -- operations ------------------------------------------------------------------------------

    def _block(self, cursor: Cursor, scope: _Scope) -> tuple[list[int], list[int | None], list[Operation]]:
        """The types and locations of a block's arguments, and its operations."""
        coded = cursor.number()
        types: list[int] = []
        locations: list[int | None] = []
        if coded & 1:
            for _ in range(cursor.number()):
                argument = cursor.number()
                types.append(argument >> 1)
                locations.append(cursor.number() if argument & 1 else None)
            if cursor.take(1) != b"\0":
                _skip_uses(cursor, len(types))
            self._define(scope, len(types))
        return types, locations, [self._operation(cursor, scope) for _ in range(coded >> 1)]

    def _define(self, scope: _Scope, count: int) -> int:
        first = self._values
        self._values = first + count
        at = scope.free
        scope.free = at + count
        scope.values[at : at + count] = range(first, first + count)
        return first

    def _operation(self, cursor: Cursor, scope: _Scope) -> Operation:
        number = cursor.number
        name = self._operations[number()]
        mask = cursor.data[cursor.at]
        cursor.at += 1
        if mask & _SUCCESSORS:
            raise ForeignProgram(f"successors of {name}")
        location = number()
        attributes = self.attribute(number()) if mask & _ATTRIBUTES else {}
        properties = self._properties[number()] if mask & _HAS_PROPERTIES else ()
        types = cursor.numbers() if mask & _RESULTS else []
        values = scope.values
        operands = [values[n] for n in cursor.numbers()] if mask & _OPERANDS else []
        first = self._define(scope, len(types)) if types else 0
        if mask & _USES:
            _skip_uses(cursor, len(types))
        regions: list[Region] = []
        if mask & _REGIONS:
            coded = number()
            if coded & 1:
                # Isolated regions, which use no values of the enclosing ones.
                cursor, scope = cursor.section()[1], _Scope()
            regions = [self._region(cursor, scope) for _ in range(coded >> 1)]
        return Operation(name, location, properties, attributes, operands, types, first, regions)

    def _region(self, cursor: Cursor, outer: _Scope) -> Region:
        blocks = cursor.number()
        if blocks != 1:
            raise ForeignProgram(f"a region of {blocks} blocks")
        # The values of a region are numbered after all values of the enclosing regions, even those defined later.
        values, begin, defined = outer.values, len(outer.values), cursor.number()
        values.extend([-1] * defined)
        first = self._values
        types, locations, operations = self._block(cursor, _Scope(values, begin))
        del values[begin:]
        return Region(first, types, locations, operations)


@dataclass(slots=True)
class _Scope:
    """The values visible in a region, indexed by their numbers there, and the number of the next value it defines."""

    values: list[int] = field(default_factory=list[int])
    free: int = 0


class Text(str):
    """An attribute or a type that its dialect has written as text."""

    __slots__ = ()


def _skip_uses(cursor: Cursor, count: int) -> None:
    """Skip the orders in which ``count`` values list their uses."""
    for _ in range(cursor.number() if count > 1 else 1):
        if count > 1:
            cursor.number()
        for _ in range(cursor.number() >> 1):
            cursor.number()


def _strings(cursor: Cursor) -> list[str]:
    lengths = cursor.numbers()
    end = len(cursor.data)
    found: list[str] = []
    for length in lengths:
        found.append(cursor.data[end - length : end - 1].decode())
        end -= length
    # The last one's length comes first.
    return found[::-1]


def _properties(cursor: Cursor) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for _ in range(cursor.number()):
        entry = Cursor(cursor.take(cursor.number()))
        numbers: list[int] = []
        while entry.at < len(entry.data):
            numbers.append(entry.number())
        found.append(tuple(numbers))
    return found
