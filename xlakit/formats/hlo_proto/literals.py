"""LiteralProto: values of every element type, decoded by NumPy.

The numbers of a LiteralProto are packed repeated fields or bytes; both arrive here as bytes (see ``schema``).
Integers of 32 and 64 bits are varints; elements of all other types are stored as in memory, those narrower than a byte
in one byte each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from xlakit.data.literal import Array, Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import FormatError, UnsupportedError
from xlakit.formats.hlo_proto.shapes import plainly_laid_out, read_shape, write_shape

_VARINTS = frozenset({PrimitiveType.PRED, PrimitiveType.S32, PrimitiveType.S64, PrimitiveType.U32, PrimitiveType.U64})
_CHUNK = 1 << 18


class MismatchError(FormatError):
    """The data does not have the shape's number of elements; a caller may retry with ``schema.canonical``."""


def _field(kind: PrimitiveType) -> str:
    return "preds" if kind is PrimitiveType.PRED else f"{kind.hlo_name}s"


def read_literal(proto: Any) -> Literal:
    """A Literal from a LiteralProto; checks the amount of data before it allocates memory. Raises FormatError."""
    if not proto.HasField("shape"):
        raise FormatError("shape is missing")
    return _read(proto, read_shape(proto.shape))


def _read(proto: Any, shape: Shape) -> Literal:
    if shape.is_tuple:
        if len(proto.tuple_literals) != len(shape.tuple_shapes):
            raise FormatError(f"tuple_literals has {len(proto.tuple_literals)} entries for {shape}")
        pairs = zip(proto.tuple_literals, shape.tuple_shapes, strict=True)
        return Literal(shape, None, [_read(element, part) for element, part in pairs])
    if shape.is_token:
        return Literal.token()
    if not shape.is_array:
        raise FormatError(f"a literal cannot have shape {shape}")
    name = _field(shape.element_type)
    data: bytes = getattr(proto, name)
    count = shape.num_elements
    present = len(data) if shape.element_type in _VARINTS else len(data) // shape.element_type.byte_width
    if present < count:
        raise MismatchError(f"{name} holds {len(data)} bytes, too few for {shape}")
    try:
        flat = _decode(data, shape.element_type)
    except ValueError as error:
        raise MismatchError(f"{name}: {error}") from None
    if flat.size != count:
        raise MismatchError(f"{name} holds {flat.size} elements, {shape} has {count}")
    return shaped(flat, shape, tuple(proto.dynamic_sizes))


def shaped(flat: Array, shape: Shape, dynamic_sizes: tuple[int, ...]) -> Literal:
    """The literal of elements in the order of memory. Raises FormatError for sizes that the shape cannot have."""
    order = shape.layout_or_default.minor_to_major[::-1]
    whole = flat.reshape([shape.dimensions[d] for d in order]).transpose(np.argsort(order) if order else ())
    if not shape.is_dynamic:
        return Literal(shape, whole)
    if len(dynamic_sizes) != shape.rank:
        raise FormatError(f"dynamic_sizes has {len(dynamic_sizes)} entries for {shape}")
    for size, bound in zip(dynamic_sizes, shape.dimensions, strict=True):
        if not 0 <= size <= bound:
            raise FormatError(f"dynamic size {size} is not between 0 and the bound {bound}")
    return Literal(shape, whole[tuple(slice(size) for size in dynamic_sizes)])


def write_literal(literal: Literal, proto: Any) -> None:
    """Fill a LiteralProto. Raises UnsupportedError for shapes that no literal has."""
    write_shape(plainly_laid_out(literal.shape), proto.shape)
    _write(literal, proto)


def _write(literal: Literal, proto: Any) -> None:
    shape = literal.shape
    if shape.is_tuple:
        for element in literal.elements:
            write_literal(element, proto.tuple_literals.add())
        return
    if not shape.is_array:
        return
    array = literal.array
    if shape.is_dynamic:
        if any(bound < 0 for bound in shape.dimensions):
            raise UnsupportedError(f"a literal of unbounded shape {shape} cannot be written")
        # The data has as many elements as the bound; those beyond the current sizes are zeros.
        proto.dynamic_sizes.extend(array.shape)
        whole = np.zeros(shape.dimensions, dtype=array.dtype)
        whole[tuple(slice(size) for size in array.shape)] = array
        array = whole
    order = shape.layout_or_default.minor_to_major[::-1]
    flat = np.ascontiguousarray(array.transpose(order)).reshape(-1)
    setattr(proto, _field(shape.element_type), _encode(flat, shape.element_type))


def _decode(data: bytes, kind: PrimitiveType) -> Array:
    if kind is PrimitiveType.PRED:
        return decode_varints(data) != 0
    if kind in _VARINTS:
        return decode_varints(data).astype(kind.dtype)
    return decode_plain(data, kind)


def decode_plain(data: bytes, kind: PrimitiveType) -> Array:
    """Numbers stored as in memory, those narrower than a byte in one byte each."""
    if kind is PrimitiveType.PRED:
        return np.frombuffer(data, np.uint8) != 0
    if kind.is_integral and kind.bit_width < 8:
        # Writers differ in the unused high bits of the byte: they are dropped, and the element is sign-extended.
        unused = 8 - kind.bit_width
        raw = np.frombuffer(data, dtype=np.int8 if kind.is_signed else np.uint8)
        return ((raw << unused) >> unused).astype(kind.dtype)
    return np.frombuffer(data, dtype=kind.dtype)


def _encode(flat: Array, kind: PrimitiveType) -> bytes:
    if kind is PrimitiveType.PRED:
        return flat.tobytes()
    if kind in _VARINTS:
        # A negative number travels as its 64-bit complement, also in an int32 field.
        return encode_varints(flat.astype(np.int64 if kind.is_signed else np.uint64).view(np.uint64))
    if kind.is_integral and kind.bit_width < 8:
        return (flat.astype(np.int8).view(np.uint8) & ((1 << kind.bit_width) - 1)).tobytes()
    return flat.tobytes()


def decode_varints(data: bytes) -> npt.NDArray[np.uint64]:
    """The numbers of a packed field of varints; raises ValueError where the bytes are not varints."""
    raw = np.frombuffer(data, dtype=np.uint8)
    if raw.size and raw[-1] >= 0x80:
        raise ValueError("the last number is cut off")
    if not raw.size or raw.max() < 0x80:
        return raw.astype(np.uint64)
    ends = np.flatnonzero(raw < 0x80)
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > 10:
        raise ValueError("a number takes more than 10 bytes")
    values = np.zeros(ends.size, dtype=np.uint64)
    for position in range(int(lengths.max())):
        longer = lengths > position
        bits = (raw[starts[longer] + position] & 0x7F).astype(np.uint64)
        values[longer] |= bits << np.uint64(7 * position)
    return values


def encode_varints(values: npt.NDArray[np.uint64]) -> bytes:
    """A packed field of varints."""
    return b"".join(_encode_chunk(values[i : i + _CHUNK]) for i in range(0, values.size, _CHUNK))


def _encode_chunk(values: npt.NDArray[np.uint64]) -> bytes:
    shifts = np.arange(0, 70, 7, dtype=np.uint64)
    groups = values[:, None] >> shifts
    present = groups != 0
    present[:, 0] = True
    encoded = (groups & np.uint64(0x7F)).astype(np.uint8)
    # The continuation bit: set in every byte of a varint but the last.
    encoded[:, :-1][present[:, 1:]] |= 0x80
    return encoded[present].tobytes()
