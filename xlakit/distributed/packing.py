"""Values as bytes that tell their own shape, so that unpacking needs no knowledge of the sender.

A value is a row of 64-bit words in the order of a machine's own memory: the number of its primitive type, how many
dimensions (or, for a tuple, elements) follow, the dimensions, then the elements of the array, filled up to whole words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.operation import TOKEN, Array, Value

Bytes = npt.NDArray[np.uint8]

_WORD = 8


def packed_size(value: Value) -> int:
    """How many bytes :func:`pack` makes of a value."""
    if isinstance(value, tuple):
        return 2 * _WORD + sum(packed_size(part) for part in value)  # pyright: ignore
    if value is TOKEN:
        return 2 * _WORD
    return (2 + value.ndim) * _WORD + _whole(value.nbytes)


def pack(values: Sequence[Value]) -> Bytes:
    """Values, one behind the other."""
    room = np.empty(sum(map(packed_size, values)), np.uint8)
    pack_into(room, values)
    return room


def pack_into(room: Bytes, values: Sequence[Value]) -> None:
    """As :func:`pack`, into memory of just that size, or more."""
    place = 0
    for value in values:
        place = _put(room, place, value)


def unpack(room: Bytes, count: int) -> list[Value]:
    """``count`` values that lie one behind the other; their arrays are views of ``room``."""
    values: list[Value] = []
    place = 0
    for _ in range(count):
        value, place = _get(room, place)
        values.append(value)
    return values


def _whole(size: int) -> int:
    return -(-size // _WORD) * _WORD


def _put_words(room: Bytes, place: int, words: Sequence[int]) -> int:
    end = place + _WORD * len(words)
    room[place:end].view(np.int64)[...] = words
    return end


def _put(room: Bytes, place: int, value: Value) -> int:
    if isinstance(value, tuple):
        place = _put_words(room, place, (PrimitiveType.TUPLE.value, len(value)))  # pyright: ignore
        for part in value:  # pyright: ignore
            place = _put(room, place, part)
        return place
    if value is TOKEN:
        return _put_words(room, place, (PrimitiveType.TOKEN.value, 0))
    array: Array = value
    kind = PrimitiveType.from_dtype(array.dtype)
    place = _put_words(room, place, (kind.value, array.ndim, *array.shape))
    target = room[place : place + array.nbytes].view(array.dtype).reshape(array.shape)
    target[...] = array
    return place + _whole(array.nbytes)


def _get(room: Bytes, place: int) -> tuple[Value, int]:
    number, count = room[place : place + 2 * _WORD].view(np.int64).tolist()
    place += 2 * _WORD
    if number == PrimitiveType.TOKEN.value:
        return TOKEN, place
    if number == PrimitiveType.TUPLE.value:
        parts: list[Value] = []
        for _ in range(count):
            part, place = _get(room, place)
            parts.append(part)
        return tuple(parts), place
    dimensions = room[place : place + count * _WORD].view(np.int64).tolist()
    place += count * _WORD
    dtype = PrimitiveType(number).dtype
    size = int(np.prod(dimensions, dtype=np.int64)) * dtype.itemsize
    array = room[place : place + size].view(dtype).reshape(dimensions)
    return array, place + _whole(size)
