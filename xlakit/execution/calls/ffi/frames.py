"""Call frames of XLA's typed FFI as values: the structures that tell a handler its operands, results and attributes.

A frame is the same for a call that Python makes and for one in machine code; both write it to memory of their own. The
value of a field is a number or an address. For a field that is an address it may also be what the address points to:
bytes, a structure, or a list of such.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import UnsupportedError
from xlakit.execution.calls.ffi import structures
from xlakit.execution.calls.ffi.attributes import Attribute
from xlakit.execution.calls.ffi.structures import AttributeKind


class Structure:
    """A structure: its kind, and fields; ``struct_size`` is set, and other fields that are not given are 0."""

    def __init__(self, kind: type[ctypes.Structure], **fields: Any) -> None:
        self.kind = kind
        self.fields = fields
        if hasattr(kind, "struct_size"):
            self.fields = {"struct_size": ctypes.sizeof(kind), **fields}


def call_frame(
    operands: Iterable[tuple[Shape, Any]],
    results: Iterable[tuple[Shape, Any]],
    attributes: Mapping[str, Attribute],
    **fields: Any,
) -> Structure:
    """A call frame; operands and results are shapes, each with the address of its array."""
    return Structure(
        structures.CallFrame,
        struct_size=structures.CALL_FRAME_BYTES,
        args=_buffers(operands),
        rets=_buffers(results),
        attrs=_attributes(attributes),
        **fields,
    )


def _buffers(arrays: Iterable[tuple[Shape, Any]]) -> Structure:
    buffers = [_buffer(shape, address) for shape, address in arrays]
    types = _numbers([structures.BUFFER] * len(buffers), 4)
    return Structure(structures.Buffers, size=len(buffers), types=types, buffers=buffers)


def _buffer(shape: Shape, address: Any) -> Structure:
    number = structures.DATA_TYPES.get(shape.element_type)
    if number is None:
        raise UnsupportedError(
            f"XLA's typed FFI has no number for {shape.element_type.hlo_name}", hint="convert it before the call"
        )
    sizes = shape.dimensions if shape.is_array else ()
    return Structure(structures.Buffer, dtype=number, data=address, rank=len(sizes), dims=_numbers(sizes, 8))


def _attributes(attributes: Mapping[str, Attribute]) -> Structure:
    kinds, values = zip(*map(_attribute, attributes.values()), strict=True) if attributes else ((), ())
    return Structure(
        structures.Attributes,
        size=len(attributes),
        types=_numbers(kinds, 4),
        names=[_span(name) for name in attributes],
        attrs=list(values),
    )


def _attribute(value: Attribute) -> tuple[AttributeKind, Structure]:
    if isinstance(value, str):
        return AttributeKind.STRING, _span(value)
    if isinstance(value, Mapping):
        return AttributeKind.DICTIONARY, _attributes(value)
    number, data = structures.DATA_TYPES[PrimitiveType.from_dtype(value.dtype)], value.tobytes()
    if value.ndim:
        return AttributeKind.ARRAY, Structure(structures.Array, dtype=number, size=value.size, data=data)
    return AttributeKind.SCALAR, Structure(structures.Scalar, dtype=number, value=data)


def _span(text: str) -> Structure:
    data = text.encode("utf-8", "surrogateescape")
    return Structure(structures.ByteSpan, ptr=data + b"\0", len=len(data))


def _numbers(numbers: Sequence[int], width: int) -> bytes:
    return b"".join(number.to_bytes(width, "little", signed=True) for number in numbers)
