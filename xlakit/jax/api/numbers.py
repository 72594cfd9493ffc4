"""Numbers of PJRT's C interface: error codes and element types."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from xlakit.data.primitive import PrimitiveType


class Code(IntEnum):
    """Error codes, with the numbers that gRPC and Abseil share."""

    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


# In the order of their numbers, from 1 on.
_TYPES: Final = """
PRED S8 S16 S32 S64 U8 U16 U32 U64 F16 F32 F64 BF16 C64 C128 F8E5M2 F8E4M3FN F8E4M3B11FNUZ F8E5M2FNUZ F8E4M3FNUZ
S4 U4 TOKEN S2 U2 F8E4M3 F8E3M4 F8E8M0FNU F4E2M1FN S1 U1
"""

TYPE_NUMBERS: Final = {PrimitiveType[name]: number for number, name in enumerate(_TYPES.split(), 1)}
