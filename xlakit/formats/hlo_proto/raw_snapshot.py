"""Unoptimized snapshots as XLA writes them to files: a proto with its length before it, then arguments as raw bytes.

Arguments are outside of the proto because they may exceed its limit of 2 GiB. The proto, an HloUnoptimizedSnapshot, has
the module and the number of bytes of each argument. An argument is written as the length of its ShapeProto in 8 bytes
(little-endian); its ShapeProto; and its elements in the order of memory, those narrower than a byte packed from the
lowest bits on, PRED as single bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from xlakit.data.literal import Array, Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import FormatError, UnsupportedError
from xlakit.formats.hlo_proto import schema
from xlakit.formats.hlo_proto.literals import decode_plain, shaped
from xlakit.formats.hlo_proto.shapes import read_shape

_LENGTH_BYTES = 8


class RawSnapshot(NamedTuple):
    """The parts of a file: the proto, and the bytes of all arguments."""

    message: Any
    raw: bytes


def find_raw_snapshot(data: bytes) -> RawSnapshot | None:
    """The parts of a file; None unless it parses and the declared sizes add up to the size of the file."""
    length, start = _varint(data)
    if not 0 < length <= len(data) - start:
        return None
    try:
        message = schema.parse("HloUnoptimizedSnapshot", data[start : start + length])
    except FormatError:
        return None
    raw = data[start + length :]
    sizes = [d.argument_size_bytes for device in message.partitions for d in device.arguments_descriptors]
    is_snapshot = bool(message.hlo_module.computations) and min(sizes, default=0) >= 0 and sum(sizes) == len(raw)
    return RawSnapshot(message, raw) if is_snapshot else None


def _varint(data: bytes) -> tuple[int, int]:
    """The varint at the beginning of ``data``, and the offset behind it; (0, 0) where there is none."""
    number = 0
    for position, byte in enumerate(data[:10]):
        number |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return number, position + 1
    return 0, 0


def raw_arguments(snapshot: RawSnapshot) -> tuple[tuple[Literal, ...], ...]:
    """The arguments of each device. Raises FormatError, UnsupportedError for arguments with dynamic dimensions."""
    arguments: list[tuple[Literal, ...]] = []
    start = 0
    for device in snapshot.message.partitions:
        literals: list[Literal] = []
        for descriptor in device.arguments_descriptors:
            size = descriptor.argument_size_bytes
            literals.append(_argument(snapshot.raw[start : start + size]))
            start += size
        arguments.append(tuple(literals))
    return tuple(arguments)


def _argument(data: bytes) -> Literal:
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little", signed=True)
    if not _LENGTH_BYTES <= end <= len(data):
        raise FormatError(f"a shape of {end - _LENGTH_BYTES} bytes is said to be in an argument of {len(data)}")
    shape = read_shape(schema.parse("ShapeProto", data[_LENGTH_BYTES:end]))
    literal, end = _literal(data, end, shape)
    if end != len(data):
        raise FormatError(f"an argument of shape {shape} has {len(data) - end} bytes too many")
    return literal


def _literal(data: bytes, start: int, shape: Shape) -> tuple[Literal, int]:
    """The literal that begins at a byte, and where it ends."""
    if shape.is_tuple:
        parts: list[Literal] = []
        for element_shape in shape.tuple_shapes:
            part, start = _literal(data, start, element_shape)
            parts.append(part)
        return Literal(shape, None, parts), start
    if not shape.is_array:
        raise FormatError(f"an argument cannot have shape {shape}")
    if shape.is_dynamic:
        raise UnsupportedError(
            f"the snapshot has an argument of shape {shape}, whose sizes are dynamic",
            hint="dump it with --xla_dump_hlo_as_text",
        )
    kind = shape.element_type
    bits = 1 if kind is PrimitiveType.PRED else kind.bit_width
    size = (shape.num_elements * bits + 7) // 8
    packed = data[start : start + size]
    if len(packed) < size:
        raise FormatError(f"an argument of shape {shape} has {len(packed)} of its {size} bytes")
    flat = decode_plain(_unpacked(packed, bits, shape.num_elements), kind)
    return shaped(flat, shape, ()), start + size


def _unpacked(data: bytes, bits: int, count: int) -> bytes:
    """A byte for each element."""
    if bits >= 8:
        return data
    packed: Array = np.frombuffer(data, np.uint8)
    parts = (packed[:, None] >> np.arange(0, 8, bits, dtype=np.uint8)) & ((1 << bits) - 1)
    return parts.astype(np.uint8).ravel()[:count].tobytes()
