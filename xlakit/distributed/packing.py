"""Values as bytes that include their shapes, so that the receiver need not know them.

A value is a sequence of 64-bit words in the machine's byte order: the number of its primitive type, the number of
dimensions (for a tuple, of elements) that follow, the dimensions, and the elements of the array, padded to whole words.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.operation import TOKEN, Array, Value

Bytes = npt.NDArray[np.uint8]

_WORD = 8
_TUPLE, _TOKEN = PrimitiveType.TUPLE.value, PrimitiveType.TOKEN.value


def _new(size: int) -> Bytes:
    return np.empty(size, np.uint8)


def packed_size(value: Value) -> int:
    """The number of bytes of a value in packed form."""
    if isinstance(value, tuple):
        return 2 * _WORD + sum(packed_size(part) for part in value)  # pyright: ignore
    if value is TOKEN:
        return 2 * _WORD
    return (2 + value.ndim) * _WORD + -(-value.nbytes // _WORD) * _WORD


def pack(values: Sequence[Value], new: Callable[[int], Bytes] = _new) -> Bytes:
    """The packed form of values, one after the other, in ``new`` memory of so many bytes."""
    buffer = new(sum(map(packed_size, values)))
    pack_into(buffer, values)
    return buffer


def pack_into(buffer: Bytes, values: Sequence[Value]) -> None:
    """Pack values into memory that is large enough."""
    offset = 0
    for value in values:
        offset = _put(buffer, offset, value)


def unpack(buffer: Bytes, count: int) -> list[Value]:
    """Unpack ``count`` consecutive values; their arrays are views of ``buffer``."""
    values: list[Value] = []
    offset = 0
    for _ in range(count):
        value, offset = _get(buffer, offset)
        values.append(value)
    return values


def _put_words(buffer: Bytes, offset: int, *words: int) -> int:
    form = _words(len(words))
    data: Any = buffer.data
    form.pack_into(data, offset, *words)
    return offset + form.size


@cache
def _words(count: int) -> struct.Struct:
    return struct.Struct(f"={count}q")


def _put(buffer: Bytes, offset: int, value: Value) -> int:
    if isinstance(value, tuple):
        offset = _put_words(buffer, offset, _TUPLE, len(value))  # pyright: ignore
        for part in value:  # pyright: ignore
            offset = _put(buffer, offset, part)
        return offset
    if value is TOKEN:
        return _put_words(buffer, offset, _TOKEN, 0)
    array: Array = value
    offset = _put_words(buffer, offset, _number_of(array.dtype), array.ndim, *array.shape)
    np.ndarray(array.shape, array.dtype, buffer, offset)[...] = array
    return offset + -(-array.nbytes // _WORD) * _WORD


@lru_cache(maxsize=256)
def _number_of(dtype: np.dtype[Any]) -> int:
    return PrimitiveType.from_dtype(dtype).value


@cache
def _dtype_of(number: int) -> np.dtype[Any]:
    return PrimitiveType(number).dtype


def _get(buffer: Bytes, offset: int) -> tuple[Value, int]:
    data: Any = buffer.data
    number, count = _words(2).unpack_from(data, offset)
    offset += 2 * _WORD
    if number == _TOKEN:
        return TOKEN, offset
    if number == _TUPLE:
        parts: list[Value] = []
        for _ in range(count):
            part, offset = _get(buffer, offset)
            parts.append(part)
        return tuple(parts), offset
    dimensions = _words(count).unpack_from(data, offset)
    offset += count * _WORD
    # The array keeps the memory of the buffer.
    array = np.ndarray(dimensions, _dtype_of(number), buffer, offset)
    return array, offset + -(-array.nbytes // _WORD) * _WORD
