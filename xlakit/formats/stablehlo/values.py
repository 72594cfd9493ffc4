"""Attributes and types in bytecode, of MLIR itself and of VHLO, the dialect of portable artifacts.

Types are read as shapes and primitive types; attributes as numbers, strings, tuples, dicts and the classes below; an
enumeration as its number.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.formats.stablehlo.bytecode import Bytecode, Cursor, ForeignProgram
from xlakit.formats.stablehlo.shardy import read_shardy
from xlakit.ir.attributes import OutputOperandAliasing

_ELEMENT_TYPES: Final = {
    0: PrimitiveType.PRED,
    2: PrimitiveType.BF16,
    3: PrimitiveType.F16,
    4: PrimitiveType.F32,
    5: PrimitiveType.F64,
    6: PrimitiveType.F8E4M3FN,
    7: PrimitiveType.F8E5M2,
    10: PrimitiveType.S4,
    11: PrimitiveType.S8,
    12: PrimitiveType.S16,
    13: PrimitiveType.S32,
    14: PrimitiveType.S64,
    15: PrimitiveType.U4,
    16: PrimitiveType.U8,
    17: PrimitiveType.U16,
    18: PrimitiveType.U32,
    19: PrimitiveType.U64,
    27: PrimitiveType.F8E4M3FNUZ,
    28: PrimitiveType.F8E5M2FNUZ,
    29: PrimitiveType.F8E4M3B11FNUZ,
    31: PrimitiveType.S2,
    32: PrimitiveType.U2,
    35: PrimitiveType.F8E4M3,
    36: PrimitiveType.F8E3M4,
    37: PrimitiveType.F4E2M1FN,
    40: PrimitiveType.F8E8M0FNU,
}
_COMPLEX: Final = {PrimitiveType.F32: PrimitiveType.C64, PrimitiveType.F64: PrimitiveType.C128}
# Types of MLIR; integers by their width, and whether they are signless, signed or unsigned.
_BUILTIN_INTEGER, _BUILTIN_COMPLEX, _BUILTIN_TENSOR = 0, 9, 13
_BUILTIN_FLOATS: Final = {3: PrimitiveType.BF16, 4: PrimitiveType.F16, 5: PrimitiveType.F32, 6: PrimitiveType.F64}
_BUILTIN_INTEGERS: Final = {
    (kind.bit_width, 0 if kind.is_signed else 2): kind
    for kind in _ELEMENT_TYPES.values()
    if kind.is_integral and kind is not PrimitiveType.PRED
} | {(1, 0): PrimitiveType.PRED}
_COMPLEX_TYPE, _FUNCTION, _INDEX, _TENSOR, _TOKEN, _NONE = 1, 8, 9, 20, 22, 33
# Of attributes of VHLO.
_ENUMERATIONS: Final = frozenset({3, 4, 5, 7, 11, 12, 13, 16, 19})
_ARRAY, _BOOLEAN, _DICTIONARY, _INTEGER, _ALIAS, _WORDS, _DENSE, _TYPE, _ACCURACY = 1, 2, 6, 9, 10, 14, 15, 17, 20
_PLAIN_NAME: Final = r"[a-zA-Z_][a-zA-Z0-9_$.]*"
_PLAIN_WORDS: Final = r"[ !#-\[\]-~]*"
# Of attributes of MLIR.
_LIST, _NAMED, _STRING, _UNIT, _NUMBER = 0, 1, 2, 7, 8
_SYMBOL: Final = 4
_CALL_SITE, _FILE_LINE, _NAME, _UNKNOWN, _RANGE = 10, 11, 14, 15, 22


@dataclass(frozen=True, slots=True)
class Function:
    """The type of a function."""

    inputs: tuple[Any, ...]
    results: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Dense:
    """The elements of an array; of an array whose elements are all the same, one."""

    shape: Shape
    data: bytes

    def integers(self) -> tuple[int, ...]:
        """Integers of 64 bits, flat."""
        if self.shape.element_type is not PrimitiveType.S64:
            raise ForeignProgram(f"{self.shape} where 64-bit integers are expected")
        found: tuple[int, ...] = tuple(np.frombuffer(self.data, np.int64).tolist())
        count = self.shape.num_elements
        return found * count if len(found) == 1 else found


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy asked of a function, by the number of its mode; 0 is the usual one."""

    mode: int


@dataclass(frozen=True, slots=True)
class Name:
    """A name around another location, which is given by its number."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class CallSite:
    """A location in a function, and the location of the function's call, both by their numbers."""

    callee: int
    caller: int


@dataclass(frozen=True, slots=True)
class Range:
    """A place in a file; lines and columns count from 1."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int


UNKNOWN: Final = object()
"""The location of what has none."""


def read_type(code: Bytecode, dialect: str, cursor: Cursor) -> Any:
    """A type: a Shape, a PrimitiveType, a Function, or None for none. Raises ForeignProgram."""
    number = cursor.number()
    if dialect == "builtin":
        return _builtin_type(code, number, cursor)
    if dialect != "vhlo":
        raise ForeignProgram(f"a type of the dialect {dialect}")
    if number in _ELEMENT_TYPES:
        return _ELEMENT_TYPES[number]
    if number == _TENSOR:
        dimensions = cursor.signed_numbers()
        element = code.type(cursor.number())
        if min(dimensions, default=0) < 0 or not isinstance(element, PrimitiveType):
            raise ForeignProgram("an array of unknown size, or of unknown elements")
        return _array(element, dimensions)
    if number == _COMPLEX_TYPE:
        return _COMPLEX[code.type(cursor.number())]
    if number == _FUNCTION:
        inputs = tuple(map(code.type, cursor.numbers()))
        return Function(inputs, tuple(map(code.type, cursor.numbers())))
    if number == _TOKEN:
        return _TOKEN_SHAPE
    if number == _INDEX:
        return PrimitiveType.S64
    if number == _NONE:
        return None
    raise ForeignProgram(f"a type of VHLO with the number {number}")


def _builtin_type(code: Bytecode, number: int, cursor: Cursor) -> Any:
    """A type of MLIR: those of the arguments and results of Shardy's operations; others are None."""
    if number == _BUILTIN_INTEGER:
        coded = cursor.number()
        return _BUILTIN_INTEGERS.get((coded >> 2, coded & 3))
    if number == _BUILTIN_COMPLEX:
        return _COMPLEX.get(code.type(cursor.number()))
    if number == _BUILTIN_TENSOR:
        dimensions = cursor.signed_numbers()
        element = code.type(cursor.number())
        if min(dimensions, default=0) >= 0 and isinstance(element, PrimitiveType):
            return _array(element, dimensions)
        raise ForeignProgram("an array of unknown size, or of unknown elements")
    return _BUILTIN_FLOATS.get(number)


_TOKEN_SHAPE: Final = Shape(PrimitiveType.TOKEN)


@cache
def _array(element: PrimitiveType, dimensions: tuple[int, ...]) -> Shape:
    return Shape(element, dimensions)


def read_attribute(code: Bytecode, dialect: str, cursor: Cursor) -> Any:
    """An attribute. Raises ForeignProgram."""
    number = cursor.number()
    if dialect == "vhlo":
        return _vhlo_attribute(code, number, cursor)
    if dialect == "builtin":
        return _builtin_attribute(code, number, cursor)
    if dialect == "sdy":
        cursor.at = 0
        return read_shardy(code, cursor)
    raise ForeignProgram(f"an attribute of the dialect {dialect}")


def _vhlo_attribute(code: Bytecode, number: int, cursor: Cursor) -> Any:
    if number in _ENUMERATIONS:
        return cursor.number()
    if number == _DENSE:
        return Dense(code.type(cursor.number()), cursor.take(cursor.number()))
    if number == _INTEGER:
        return _integer(code.type(cursor.number()), cursor)
    if number == _BOOLEAN:
        return bool(cursor.number())
    if number == _WORDS:
        return code.strings[cursor.number()]
    if number == _ARRAY:
        return tuple(map(code.attribute, cursor.numbers()))
    if number == _DICTIONARY:
        pairs = range(cursor.number())
        return {code.attribute(cursor.number()): code.attribute(cursor.number()) for _ in pairs}
    if number == _TYPE:
        return code.type(cursor.number())
    if number == _ALIAS:
        return OutputOperandAliasing(cursor.signed_numbers(), cursor.signed(), cursor.signed_numbers())
    if number == _ACCURACY:
        if any(cursor.signed() for _ in range(3)):
            raise ForeignProgram("a function with tolerances")
        return Accuracy(code.attribute(cursor.number()))
    raise ForeignProgram(f"an attribute of VHLO with the number {number}")


def _integer(kind: PrimitiveType, cursor: Cursor) -> int:
    count = 1 << 8 * kind.byte_width
    value = (cursor.take(1)[0] if kind.byte_width == 1 else cursor.signed()) % count
    return value - count if kind.is_signed and value >= count // 2 else value


def text_of(code: Bytecode, number: int) -> str:
    """An attribute of VHLO as MLIR writes it. Raises ForeignProgram for others than numbers, words and dictionaries."""
    return code.decoded(number, _text)


def _text(code: Bytecode, dialect: str, cursor: Cursor) -> str:
    number = cursor.number() if dialect == "vhlo" else None
    if number == _DICTIONARY:
        pairs = [(code.attribute(cursor.number()), text_of(code, cursor.number())) for _ in range(cursor.number())]
        if all(re.fullmatch(_PLAIN_NAME, name) for name in dict(pairs)):
            return f"{{{', '.join(' = '.join(pair) for pair in sorted(pairs))}}}"
    if number == _INTEGER:
        kind: PrimitiveType = code.type(cursor.number())
        return f"{_integer(kind, cursor)} : {'i' if kind.is_signed else 'ui'}{kind.bit_width}"
    if number == _BOOLEAN:
        return "true" if cursor.number() else "false"
    if number == _WORDS and re.fullmatch(_PLAIN_WORDS, words := code.strings[cursor.number()]):
        return f'"{words}"'
    raise ForeignProgram("an attribute whose text is not plain to see")


def _builtin_attribute(code: Bytecode, number: int, cursor: Cursor) -> Any:
    if number == _STRING:
        return code.strings[cursor.number()]
    if number == _SYMBOL:
        return code.attribute(cursor.number())
    if number == _NAME:
        return Name(code.attribute(cursor.number()), cursor.number())
    if number == _CALL_SITE:
        return CallSite(cursor.number(), cursor.number())
    if number == _RANGE:
        file = code.attribute(cursor.number())
        return Range(file, *_lines_and_columns(cursor.numbers()))
    if number == _FILE_LINE:
        file, line, column = code.attribute(cursor.number()), cursor.number(), cursor.number()
        return Range(file, line, column, line, column)
    if number == _UNKNOWN:
        return UNKNOWN
    if number == _NAMED:
        pairs = range(cursor.number())
        # Values stay indices, to be decoded on demand: most are never used.
        return {code.attribute(cursor.number()): cursor.number() for _ in pairs}
    if number == _LIST:
        return tuple(map(code.attribute, cursor.numbers()))
    if number == _UNIT:
        return True
    if number == _NUMBER:
        cursor.number()
        return cursor.signed()
    raise ForeignProgram(f"an attribute of MLIR with the number {number}")


def _lines_and_columns(numbers: list[int]) -> tuple[int, int, int, int]:
    """The line, column, last line and last column of a range, whose encoding omits repeated numbers."""
    line, column = (*numbers, 0, 0)[:2]
    if len(numbers) == 4:
        return line, column, numbers[2], numbers[3]
    return line, column, line, numbers[2] if len(numbers) == 3 else column
