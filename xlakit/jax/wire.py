"""Reads and writes serialized protocol buffer messages field by field, without message classes.

Making the classes takes longer than loading a program from the compile cache, and such a program needs only a few
fields of small messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from xlakit.errors import FormatError

# The format of a HloModuleProtoWithConfig, in which JAX gets programs back.
DESCRIBED: Final = "hlo_with_config"

_VARINT: Final = 0
_LENGTH_DELIMITED: Final = 2
_REPLICA_COUNT: Final = 1
_COMPUTATION_COUNT: Final = 2
_COMPUTATION_DEVICES: Final = 3
_REPLICA_DEVICE_IDS: Final = 1


def written(number: int, value: bytes | int) -> bytes:
    """A serialized field: bytes, a message, or a nonnegative number."""
    if isinstance(value, int):
        return _written_varint(number << 3 | _VARINT) + _written_varint(value)
    return _written_varint(number << 3 | _LENGTH_DELIMITED) + _written_varint(len(value)) + value


def packed(numbers: Iterable[int]) -> bytes:
    """The contents of a packed repeated field of nonnegative numbers."""
    return b"".join(map(_written_varint, numbers))


def _written_varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message that has only numbers, bytes and messages: their numbers and values.

    Raises FormatError for data that is not such a message.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        size, at = _varint(data, at)
        if tag & 7 != _LENGTH_DELIMITED or at + size > len(data):
            raise FormatError("this is no message of numbers, bytes and messages")
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at an offset, and the offset behind it."""
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at
    raise FormatError("a number ends with the message that it is in")


def device_assignment(data: bytes) -> list[list[int]]:
    """The devices in a DeviceAssignmentProto: for each computation (partition) those of its replicas, by their ids."""
    columns = [value for number, value in fields(data) if number == _COMPUTATION_DEVICES and isinstance(value, bytes)]
    return [list(_device_ids(column)) for column in columns]


def written_assignment(rows: Sequence[Sequence[int]]) -> bytes:
    """The DeviceAssignmentProto of a program that runs, for each replica, on the devices of a row, by their ids."""
    columns = [packed(column) for column in zip(*rows, strict=True)]
    fields = [written(_REPLICA_COUNT, len(rows)), written(_COMPUTATION_COUNT, len(columns))]
    fields += [written(_COMPUTATION_DEVICES, written(_REPLICA_DEVICE_IDS, column)) for column in columns]
    return b"".join(fields)


def _device_ids(column: bytes) -> Iterator[int]:
    for number, value in fields(column):
        if number != _REPLICA_DEVICE_IDS:
            continue
        if isinstance(value, int):
            yield value
            continue
        at = 0
        while at < len(value):
            id, at = _varint(value, at)
            yield id
