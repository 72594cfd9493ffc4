"""The structures of XLA's typed FFI, as its C interface (version 0.3) lays them out.

Names and the order of fields are those of the interface, so that a reader finds them in its header. Fields of kinds
(stages, types, codes) are C enumerations, 32 bits wide.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Any, Final

from xlakit.data.primitive import PrimitiveType as P

MAJOR: Final = 0
MINOR: Final = 3

_WORD = ctypes.c_size_t
_POINTER = ctypes.c_void_p
_ENUM = ctypes.c_int32
_NUMBER = ctypes.c_int64


def _extensible(**fields: Any) -> list[tuple[str, Any]]:
    """The fields of a structure that begins with its size and the address of its extensions."""
    return [("struct_size", _WORD), ("extension_start", _POINTER), *fields.items()]


class Stage(IntEnum):
    """When a handler is called."""

    INSTANTIATE = 0
    PREPARE = 1
    INITIALIZE = 2
    EXECUTE = 3


class AttributeKind(IntEnum):
    """The forms of an attribute."""

    ARRAY = 1
    DICTIONARY = 2
    SCALAR = 3
    STRING = 4


BUFFER: Final = 1
METADATA_EXTENSION: Final = 1

_UNKNOWN_TYPES: Final = {P.TUPLE, P.OPAQUE, P.BUFFER, P.S1, P.U1, P.F6E2M3FN, P.F6E3M2FN}
# The interface's numbers of element types are those of XLA's PrimitiveType.
DATA_TYPES: Final = {kind: kind.value for kind in P if kind not in _UNKNOWN_TYPES}

# The codes of errors, by number.
CODES: Final = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)


class ByteSpan(ctypes.Structure):
    """Bytes: where they begin, and how many there are."""

    _fields_ = (("ptr", _POINTER), ("len", _WORD))


class Scalar(ctypes.Structure):
    """A number as an attribute."""

    _fields_ = (("dtype", _ENUM), ("value", _POINTER))


class Array(ctypes.Structure):
    """Numbers as an attribute."""

    _fields_ = (("dtype", _ENUM), ("size", _WORD), ("data", _POINTER))


class Buffer(ctypes.Structure):
    """An operand or a result."""

    _fields_ = _extensible(dtype=_ENUM, data=_POINTER, rank=_NUMBER, dims=_POINTER)


class Buffers(ctypes.Structure):
    """The operands (``XLA_FFI_Args``) or the results (``XLA_FFI_Rets``) of a call."""

    _fields_ = _extensible(size=_NUMBER, types=_POINTER, buffers=_POINTER)


class Attributes(ctypes.Structure):
    """The attributes of a call, in the order of their names."""

    _fields_ = _extensible(size=_NUMBER, types=_POINTER, names=_POINTER, attrs=_POINTER)


class CallFrame(ctypes.Structure):
    """The single argument of a handler: operands, results, attributes and the context."""

    _fields_ = _extensible(
        api=_POINTER, ctx=_POINTER, stage=_ENUM, args=Buffers, rets=Buffers, attrs=Attributes, future=_POINTER
    )


# The structure's size as the interface defines it does not count the field that a handler fills in.
CALL_FRAME_BYTES: Final = CallFrame.future.offset


class ApiVersion(ctypes.Structure):
    """A version of the interface."""

    _fields_ = _extensible(major=_ENUM, minor=_ENUM)


class Metadata(ctypes.Structure):
    """The data that a handler reports about itself: the version of the interface, and its traits."""

    _fields_ = (
        ("struct_size", _WORD),
        ("api_version", ApiVersion),
        ("traits", ctypes.c_uint32),
        ("state_type_id", _NUMBER),
    )


class MetadataExtension(ctypes.Structure):
    """An extension of a call frame that asks a handler for its metadata, and for nothing else."""

    _fields_ = (
        ("struct_size", _WORD),
        ("type", _ENUM),
        ("next", _POINTER),
        ("metadata", _POINTER),
    )


class TypeInfo(ctypes.Structure):
    """How objects of a registered type are freed."""

    _fields_ = _extensible(deleter=_POINTER)


class Context(ctypes.Structure):
    """What a call frame's ``ctx`` points at. Its contents are ours: handlers hand it back to functions of the table.

    ordinal: the number of the device. states: the address of a Python object's identity in
    :mod:`xlakit.execution.calls.ffi.interface`, 0 where the call has no states.
    """

    _fields_ = (("ordinal", _NUMBER), ("states", _NUMBER))
