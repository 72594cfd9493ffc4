"""PrimitiveType: the type of an array's elements.

Source: the enumeration PrimitiveType of ``xla_data.proto``; the numbers are its numbers.
"""

from __future__ import annotations

import enum
from functools import cache, cached_property

import ml_dtypes
import numpy as np

from xlakit.errors import ArgumentError, ShapeError, UnsupportedError


class PrimitiveType(enum.Enum):
    """The type of one element of an array, or one of the kinds of value that are not arrays."""

    PRED = 1
    S8 = 2
    S16 = 3
    S32 = 4
    S64 = 5
    U8 = 6
    U16 = 7
    U32 = 8
    U64 = 9
    F16 = 10
    F32 = 11
    F64 = 12
    TUPLE = 13
    OPAQUE = 14
    C64 = 15
    BF16 = 16
    TOKEN = 17
    C128 = 18
    F8E5M2 = 19
    F8E4M3FN = 20
    S4 = 21
    U4 = 22
    F8E4M3B11FNUZ = 23
    F8E5M2FNUZ = 24
    F8E4M3FNUZ = 25
    S2 = 26
    U2 = 27
    F8E4M3 = 28
    F8E3M4 = 29
    S1 = 30
    U1 = 31
    F4E2M1FN = 32
    F8E8M0FNU = 33
    BUFFER = 34
    F6E3M2FN = 35
    F6E2M3FN = 36

    # Members are compared by identity, so hashing by it too is right, and far cheaper than Enum's own.
    __hash__ = object.__hash__

    @cached_property
    def hlo_name(self) -> str:
        """The name in HLO text: ``f32``, ``pred``, ``token``."""
        return self.name.lower()

    @cached_property
    def is_array(self) -> bool:
        """Whether shapes of this type have dimensions."""
        return self not in _NOT_ARRAYS

    @cached_property
    def bit_width(self) -> int:
        """Bits of one element in XLA's sense: PRED is 8, S4 is 4."""
        if not self.is_array:
            raise ShapeError(f"{self.hlo_name} has no element size", hint="ask for the elements of a tuple one by one")
        return _BITS[self]

    @cached_property
    def byte_width(self) -> int:
        """Bytes of one element of an unpacked literal (sub-byte types take a byte each)."""
        return max(1, self.bit_width // 8)

    @cached_property
    def is_signed(self) -> bool:
        """Whether this is a signed integer type."""
        return self.name[0] == "S" and self.name[1:].isdigit()

    @cached_property
    def is_unsigned(self) -> bool:
        """Whether this is an unsigned integer type (PRED is not)."""
        return self.name[0] == "U" and self.name[1:].isdigit()

    @cached_property
    def is_integral(self) -> bool:
        """Whether this is an integer type (PRED is not)."""
        return self.is_signed or self.is_unsigned

    @cached_property
    def is_floating(self) -> bool:
        """Whether this is a real floating point type."""
        return self.name[0] == "F" or self is PrimitiveType.BF16

    @cached_property
    def has_nan_for_negative_zero(self) -> bool:
        """Whether the bits that are -0 in other floats are the only NaN of this one."""
        return self.name.endswith("FNUZ")

    @cached_property
    def has_one_nan(self) -> bool:
        """Whether all NaNs of this floating point type have the same bits."""
        return self.has_nan_for_negative_zero or self is PrimitiveType.F8E8M0FNU

    @cached_property
    def is_complex(self) -> bool:
        """Whether this is a complex type."""
        return self in (PrimitiveType.C64, PrimitiveType.C128)

    @cached_property
    def dtype(self) -> np.dtype[np.generic]:
        """The NumPy dtype of a literal of this type."""
        if self is PrimitiveType.TOKEN or not self.is_array:
            raise ShapeError(f"{self.hlo_name} has no NumPy dtype", hint="ask for the elements of a tuple one by one")
        return _dtypes()[self]

    @cached_property
    def real_part(self) -> PrimitiveType:
        """The type of the real part: C64 -> F32, C128 -> F64, others themselves."""
        return {PrimitiveType.C64: PrimitiveType.F32, PrimitiveType.C128: PrimitiveType.F64}.get(self, self)

    @staticmethod
    def from_name(name: str) -> PrimitiveType:
        """The type with this HLO name (``f32``); raises ShapeError for an unknown one."""
        found = _by_name().get(str(name))
        if found is None:
            raise ShapeError(f"unknown primitive type '{name}'", hint="known: " + ", ".join(sorted(_by_name())))
        return found

    @staticmethod
    def from_dtype(dtype: object) -> PrimitiveType:
        """The primitive type of a NumPy or ml_dtypes dtype, of anything that ``np.dtype`` accepts, or of an HLO name.

        Raises ArgumentError for a value that is neither, or a string that means two types (``u8`` is NumPy's uint64),
        UnsupportedError for a dtype without a primitive type.
        """
        if isinstance(dtype, PrimitiveType):
            return dtype
        # The fast path: the interpreter calls this for each step, nearly always with a dtype of the table.
        known = _by_dtype().get(dtype) if isinstance(dtype, np.dtype) else None
        if known is not None:
            return known
        try:
            # NumPy takes None for float64, which is not what None means here.
            numpy_dtype: np.dtype[np.generic] | None = None if dtype is None else np.dtype(dtype)  # pyright: ignore
        except (TypeError, ValueError):
            numpy_dtype = None
        named = _by_name().get(dtype.lower()) if isinstance(dtype, str) else None
        if named is not None:
            # NumPy's strings, such as U8 with eight characters, are nobody's element type.
            if numpy_dtype is not None and numpy_dtype.kind not in "SU":
                raise ArgumentError(
                    f"{dtype!r} is {named.name} in HLO and {numpy_dtype} in NumPy",
                    hint=f"write xlakit.{named.name} or np.{numpy_dtype}",
                )
            return named
        if numpy_dtype is None:
            raise ArgumentError(
                f"{dtype!r} is neither a PrimitiveType nor a dtype",
                hint="give one such as xlakit.F32, np.float32 or 'f32'",
            )
        found = _by_dtype().get(numpy_dtype.newbyteorder("="))
        if found is None:
            raise UnsupportedError(
                f"no primitive type holds NumPy's {numpy_dtype}",
                hint="convert the array with astype to a type such as float32",
            )
        return found

    def __repr__(self) -> str:
        return self.name


_NOT_ARRAYS = frozenset({PrimitiveType.TUPLE, PrimitiveType.OPAQUE, PrimitiveType.TOKEN, PrimitiveType.BUFFER})

_BITS = {
    member: 8
    if member is PrimitiveType.PRED or member.name.startswith("F8")
    else int(member.name.lstrip("BFSUC").split("E")[0])
    for member in PrimitiveType
    if member not in _NOT_ARRAYS
}


@cache
def _dtypes() -> dict[PrimitiveType, np.dtype[np.generic]]:
    special: dict[PrimitiveType, object] = {
        PrimitiveType.PRED: np.bool_,
        PrimitiveType.BF16: ml_dtypes.bfloat16,
        PrimitiveType.F8E5M2: ml_dtypes.float8_e5m2,
        PrimitiveType.F8E4M3: ml_dtypes.float8_e4m3,
        PrimitiveType.F8E4M3FN: ml_dtypes.float8_e4m3fn,
        PrimitiveType.F8E4M3B11FNUZ: ml_dtypes.float8_e4m3b11fnuz,
        PrimitiveType.F8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
        PrimitiveType.F8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
        PrimitiveType.F8E3M4: ml_dtypes.float8_e3m4,
        PrimitiveType.F8E8M0FNU: ml_dtypes.float8_e8m0fnu,
        PrimitiveType.F4E2M1FN: ml_dtypes.float4_e2m1fn,
        PrimitiveType.F6E2M3FN: ml_dtypes.float6_e2m3fn,
        PrimitiveType.F6E3M2FN: ml_dtypes.float6_e3m2fn,
        PrimitiveType.S1: ml_dtypes.int1,
        PrimitiveType.S2: ml_dtypes.int2,
        PrimitiveType.S4: ml_dtypes.int4,
        PrimitiveType.U1: ml_dtypes.uint1,
        PrimitiveType.U2: ml_dtypes.uint2,
        PrimitiveType.U4: ml_dtypes.uint4,
        PrimitiveType.C64: np.complex64,
        PrimitiveType.C128: np.complex128,
    }
    table: dict[PrimitiveType, np.dtype[np.generic]] = {}
    for member in PrimitiveType:
        if member in _NOT_ARRAYS:
            continue
        kind = {"S": "int", "U": "uint", "F": "float"}.get(member.name[0], "")
        table[member] = np.dtype(special.get(member, f"{kind}{_BITS[member]}"))  # pyright: ignore
    return table


@cache
def _by_dtype() -> dict[np.dtype[np.generic], PrimitiveType]:
    return {dtype: member for member, dtype in _dtypes().items()}


@cache
def _by_name() -> dict[str, PrimitiveType]:
    return {member.hlo_name: member for member in PrimitiveType}


def same_type_family(a: PrimitiveType, b: PrimitiveType) -> bool:
    """Whether one operation may take operands of both types: equal types, or floats of any precision."""
    return a is b or (a.is_floating and b.is_floating)


def higher_precision(a: PrimitiveType, b: PrimitiveType) -> PrimitiveType:
    """The type of a result of mixed operands: complex first, then range, precision, width and sign, as XLA orders."""
    return max(a, b, key=_precision)


@cache
def _precision(kind: PrimitiveType) -> tuple[bool, int, int, int, bool]:
    part = kind.real_part
    exponent = digits = -1
    if part.is_floating:
        info = ml_dtypes.finfo(part.dtype)
        exponent, digits = int(info.maxexp), int(info.nmant)
    return (kind.is_complex, exponent, digits, part.bit_width, part.is_signed)


# The members as names of the module, which the package exports.
PRED = PrimitiveType.PRED
S1, S2, S4, S8 = PrimitiveType.S1, PrimitiveType.S2, PrimitiveType.S4, PrimitiveType.S8
S16, S32, S64 = PrimitiveType.S16, PrimitiveType.S32, PrimitiveType.S64
U1, U2, U4, U8 = PrimitiveType.U1, PrimitiveType.U2, PrimitiveType.U4, PrimitiveType.U8
U16, U32, U64 = PrimitiveType.U16, PrimitiveType.U32, PrimitiveType.U64
F16, BF16, F32, F64 = PrimitiveType.F16, PrimitiveType.BF16, PrimitiveType.F32, PrimitiveType.F64
F8E5M2, F8E4M3, F8E4M3FN = PrimitiveType.F8E5M2, PrimitiveType.F8E4M3, PrimitiveType.F8E4M3FN
F8E4M3B11FNUZ, F8E5M2FNUZ = PrimitiveType.F8E4M3B11FNUZ, PrimitiveType.F8E5M2FNUZ
F8E4M3FNUZ, F8E3M4, F8E8M0FNU = PrimitiveType.F8E4M3FNUZ, PrimitiveType.F8E3M4, PrimitiveType.F8E8M0FNU
F4E2M1FN, F6E2M3FN, F6E3M2FN = PrimitiveType.F4E2M1FN, PrimitiveType.F6E2M3FN, PrimitiveType.F6E3M2FN
C64, C128 = PrimitiveType.C64, PrimitiveType.C128
TOKEN, TUPLE, OPAQUE = PrimitiveType.TOKEN, PrimitiveType.TUPLE, PrimitiveType.OPAQUE
