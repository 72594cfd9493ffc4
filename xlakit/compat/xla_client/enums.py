"""The enumerations of xla_client whose names, numbers or types are not those of :mod:`xlakit.ir.enums`."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from xlakit.data.primitive import PrimitiveType as OurPrimitiveType


class _Named(enum.Enum):
    """An enumeration whose members print as ``Name.MEMBER``."""

    __repr__ = enum.Enum.__str__


class _NamedInt(enum.IntEnum):
    """An enumeration of integers whose members print as ``Name.MEMBER``."""

    __repr__ = __str__ = enum.Enum.__str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


class PrimitiveType(_NamedInt):
    """The type of one element of an array, or a kind of value that is no array."""

    PRIMITIVE_TYPE_INVALID = 0
    PRED = 1
    S4 = 21
    S8 = 2
    S16 = 3
    S32 = 4
    S64 = 5
    U4 = 22
    U8 = 6
    U16 = 7
    U32 = 8
    U64 = 9
    F16 = 10
    F4E2M1FN = 32
    F8E3M4 = 29
    F8E4M3 = 28
    F8E4M3FN = 20
    F8E4M3B11FNUZ = 23
    F8E4M3FNUZ = 25
    F8E5M2 = 19
    F8E5M2FNUZ = 24
    F8E8M0FNU = 33
    BF16 = 16
    F32 = 11
    F64 = 12
    C64 = 15
    C128 = 18
    TUPLE = 13
    OPAQUE_TYPE = 14
    TOKEN = 17

    @property
    def wrapped(self) -> OurPrimitiveType:
        """Xlakit's member of the same number."""
        return OurPrimitiveType(int(self))


class PrecisionConfig_Precision(_Named):
    """How exactly a product is wanted."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2


class ResultAccuracy_Mode(_Named):
    """How exactly an elementary function is wanted."""

    DEFAULT = 0
    HIGHEST = 1


class OpSharding_Type(_NamedInt):
    """The kinds of shardings."""

    REPLICATED = 0
    MAXIMAL = 1
    MANUAL = 4
    TUPLE = 2
    OTHER = 3
    UNKNOWN = 5


class OpSharding_ShardGroupType(_Named):
    """How the values of a shard group are split: all as one, or alike."""

    AS = 0
    LIKE = 1


class AutotuneCacheMode(_Named):
    """The use of XLA's cache of tuned kernels on GPUs; stored, and without effect on CPUs."""

    UNSPECIFIED = 0
    UPDATE = 1
    READ = 2


class ArrayCopySemantics(_NamedInt):
    """The treatment of the source when arrays are copied to devices."""

    ALWAYS_COPY = 0
    REUSE_INPUT = 1
    DONATE_INPUT = 2


class HostBufferSemantics(_Named):
    """The promise of a caller about the memory of an array that becomes a buffer."""

    IMMUTABLE_ONLY_DURING_CALL = 0
    IMMUTABLE_UNTIL_TRANSFER_COMPLETES = 1
    ZERO_COPY = 2


class PaddingType(enum.Enum):
    """The named paddings of windows."""

    VALID = 1
    SAME = 2


class CustomCallTargetTraits(enum.IntFlag):
    """The traits of a custom call's function; they matter on GPUs only."""

    DEFAULT = 0
    COMMAND_BUFFER_COMPATIBLE = 1


class CustomCallApiVersion(_NamedInt):
    """How a custom call's function takes its arguments."""

    API_VERSION_ORIGINAL = 1
    API_VERSION_STATUS_RETURNING = 2
    API_VERSION_STATUS_RETURNING_UNIFIED = 3
    API_VERSION_TYPED_FFI = 4


class TriangularSolveOptions_Transpose(_Named):
    """What is done to the matrix before a triangular system is solved."""

    TRANSPOSE_INVALID = 0
    NO_TRANSPOSE = 1
    TRANSPOSE = 2
    ADJOINT = 3


class RandomAlgorithm(_NamedInt):
    """The algorithms of random bits."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2


class TransferGuardLevel(_Named):
    """The transfers between host and device that are allowed."""

    ALLOW = 0
    LOG = 1
    DISALLOW = 2
    LOG_EXPLICIT = 3
    DISALLOW_EXPLICIT = 4


class GarbageCollectionGuardLevel(_Named):
    """The reaction to arrays that the garbage collector frees."""

    ALLOW = 0
    LOG = 1
    FATAL = 2


# -- element types and NumPy's dtypes ---------------------------------------------------------------


def _dtype(kind: PrimitiveType) -> np.dtype[Any]:
    return kind.wrapped.dtype if kind.wrapped.is_array else np.dtype(object)


_WITHOUT = (PrimitiveType.PRIMITIVE_TYPE_INVALID, PrimitiveType.OPAQUE_TYPE)

XLA_ELEMENT_TYPE_TO_DTYPE = {kind: _dtype(kind) for kind in PrimitiveType if kind not in _WITHOUT}

# Keyed by the names of dtypes.
DTYPE_TO_XLA_ELEMENT_TYPE = {str(dtype): kind for kind, dtype in XLA_ELEMENT_TYPE_TO_DTYPE.items()}


def dtype_to_etype(dtype: Any) -> PrimitiveType:
    """The element type of a dtype, or of what NumPy takes for one. Raises KeyError for one that there is not."""
    return DTYPE_TO_XLA_ELEMENT_TYPE[str(np.dtype(dtype))]
