"""The types of LLVM values. Types are compared by identity: each is created once."""

from __future__ import annotations

import struct
from typing import Final

from xlakit.errors import InternalError


class Type:
    """An LLVM type: ``float``, ``i32``, ``ptr``, ``<8 x float>``."""

    __slots__ = ("bits", "element", "is_float", "is_int", "lanes", "name")

    def __init__(self, name: str, bits: int, *, is_float: bool = False, is_int: bool = False) -> None:
        self.name = name
        self.bits = bits
        self.is_float = is_float
        self.is_int = is_int
        self.lanes = 1
        self.element: Type = self

    @property
    def bytes(self) -> int:
        """The size of one value in memory, in bytes."""
        return max(1, self.element.bits // 8) * self.lanes

    def constant(self, number: float) -> str:
        """The text of a constant of this type."""
        if self.lanes > 1:
            return f"splat ({self.element.name} {self.element.constant(number)})"
        if self.is_int:
            if self is I1:
                return "true" if number else "false"
            return str(int(number))
        if not self.is_float:
            raise InternalError(f"{self.name} has no constants")
        if self is F16:
            return f"0xH{int.from_bytes(struct.pack('>e', number), 'big'):04X}"
        # LLVM spells a float as the double of the same value.
        exact = struct.unpack("f", struct.pack("f", number))[0] if self is F32 else number
        return f"0x{int.from_bytes(struct.pack('>d', exact), 'big'):016X}"

    @property
    def mangled(self) -> str:
        """The type's spelling in the names of intrinsics."""
        lanes = f"v{self.lanes}" if self.lanes > 1 else ""
        return lanes + _MANGLED.get(self.element.name, self.element.name)

    def with_element(self, element: Type) -> Type:
        """The type with the same number of lanes and another element."""
        return element if self.lanes == 1 else vector(element, self.lanes)

    def __repr__(self) -> str:
        return self.name


VOID: Final = Type("void", 0)
PTR: Final = Type("ptr", 64)
I1: Final = Type("i1", 1, is_int=True)
I8: Final = Type("i8", 8, is_int=True)
I16: Final = Type("i16", 16, is_int=True)
I32: Final = Type("i32", 32, is_int=True)
I64: Final = Type("i64", 64, is_int=True)
I128: Final = Type("i128", 128, is_int=True)
F16: Final = Type("half", 16, is_float=True)
BF16: Final = Type("bfloat", 16, is_float=True)
F32: Final = Type("float", 32, is_float=True)
F64: Final = Type("double", 64, is_float=True)

_MANGLED = {"float": "f32", "double": "f64", "half": "f16"}
_INTEGERS = {t.bits: t for t in (I1, I8, I16, I32, I64, I128)}


# Several threads compile: if two create a type at once, both use the first.
_VECTORS: dict[tuple[Type, int], Type] = {}


def integer(bits: int) -> Type:
    """The integer type with this number of bits."""
    return _INTEGERS.get(bits) or _INTEGERS.setdefault(bits, Type(f"i{bits}", bits, is_int=True))


def vector(element: Type, lanes: int) -> Type:
    """The vector of ``lanes`` elements; for one lane, the element type itself."""
    if lanes == 1:
        return element
    cached = _VECTORS.get((element, lanes))
    if cached is None:
        new = Type(f"<{lanes} x {element.name}>", element.bits, is_float=element.is_float, is_int=element.is_int)
        new.lanes, new.element = lanes, element
        cached = _VECTORS.setdefault((element, lanes), new)
    return cached


def check_memory(type: Type) -> None:
    """Raise InternalError for a vector whose elements lie in memory otherwise than one after the other.

    LLVM packs the bits of a vector of truth values into bytes, so that vectors of other widths find others there.
    """
    if type.lanes > 1 and type.element.bits % 8:
        raise InternalError(f"a vector {type.name} in memory", hint="keep its elements as bytes")
