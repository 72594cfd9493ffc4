"""The enumerations that attributes choose from: XLA's names and numbers, and how HLO text spells them."""

from __future__ import annotations

import enum
from functools import cache
from typing import Any, Self

from xlakit.errors import ArgumentError, ShapeError


class _Words(enum.EnumType):
    """The classes of enumerations: what has no member's name is led to the members."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in cls.__members__:
            return cls.__members__[name]
        # XLA's enumerations in C++ have names such as kLt.
        near = [n for n in cls.__members__ if name.lower() in (n.lower(), f"k{n.lower()}")]
        more = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(cls.__members__)}"
        raise AttributeError(f"{cls.__name__} has no member '{name}'{more}")

    def __call__(cls, *args: Any, **named: Any) -> Any:
        if len(args) > 1 and cls.__members__:
            raise ArgumentError(
                f"{cls.__name__} is an enumeration with members {', '.join(cls.__members__)}",
                hint="operations are functions, with names in lower case, such as xlakit.transpose",
            )
        return super().__call__(*args, **named)


class HloEnum(enum.Enum, metaclass=_Words):
    """The base of enumerations: a member has the proto's name and number; ``text`` is its spelling in HLO text."""

    __hash__ = object.__hash__
    __repr__ = enum.Enum.__str__

    @property
    def text(self) -> str:
        """The word in HLO text."""
        return self.name

    @classmethod
    def of(cls, value: Self | str | int) -> Self:
        """The member for a member, a name or text in any case, or a number; raises ShapeError."""
        if isinstance(value, cls):
            return value
        found: Self | None = _by_word(cls).get(value.lower()) if isinstance(value, str) else None
        if found is not None:
            return found
        for member in cls:
            if value == member.value:
                return member
        raise ShapeError(f"unknown {cls.__name__} {value!r}", hint="known: " + ", ".join(m.text for m in cls))


@cache
def _by_word(kind: type[HloEnum]) -> dict[str, Any]:
    """The members by their names and their words in HLO text, in lower case."""
    found: dict[str, Any] = {}
    for member in kind:
        found.setdefault(member.name.lower(), member)
        found.setdefault(member.text.lower(), member)
    return found


class LowercaseEnum(HloEnum):
    """An enumeration that HLO text spells in lower case."""

    @property
    def text(self) -> str:
        """The word in HLO text."""
        return self.name.lower()


class FftType(HloEnum):
    """Kinds of Fourier transform: of complex numbers, inverse, of real numbers, inverse to real numbers."""

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


class ComparisonDirection(HloEnum):
    """Directions of compare; the proto stores the name."""

    EQ = 0
    NE = 1
    GE = 2
    GT = 3
    LE = 4
    LT = 5


class ComparisonType(HloEnum):
    """How compare orders values; the proto stores the name."""

    FLOAT = 0
    TOTALORDER = 1
    SIGNED = 2
    UNSIGNED = 3


class FusionKind(HloEnum):
    """Kinds of fusion; the proto stores the text."""

    LOOP = 0
    INPUT = 1
    OUTPUT = 2
    CUSTOM = 3

    @property
    def text(self) -> str:
        """The word in HLO text: ``kLoop``."""
        return "k" + self.name.capitalize()


class RandomDistribution(LowercaseEnum):
    """Distributions of rng."""

    RNG_UNIFORM = 1
    RNG_NORMAL = 2


class RandomAlgorithm(LowercaseEnum):
    """Algorithms of rng-bit-generator."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2


class Transpose(HloEnum):
    """Whether triangular-solve transposes, or also conjugates, its matrix."""

    TRANSPOSE_INVALID = 0
    NO_TRANSPOSE = 1
    TRANSPOSE = 2
    ADJOINT = 3


class PaddingType(HloEnum):
    """Padding of a dynamic convolution."""

    PADDING_INVALID = 0
    PADDING_VALID = 1
    PADDING_SAME = 2


class ConvolutionKind(HloEnum):
    """Which of a convolution's three directions this is."""

    CONVOLUTION_KIND_UNSET = 0
    CONVOLUTION_KIND_FPROP = 1
    CONVOLUTION_KIND_DGRAD = 2
    CONVOLUTION_KIND_WGRAD = 3

    @property
    def text(self) -> str:
        """The word in HLO text: ``fprop``."""
        return self.name.removeprefix("CONVOLUTION_KIND_").lower()


class Precision(LowercaseEnum):
    """Precision asked of an operand of dot or convolution.

    Operands of PACKED_NIBBLE have two numbers of four bits in each element: their product is low * low + high * high.
    """

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2
    PACKED_NIBBLE = 3


class PrecisionAlgorithm(HloEnum):
    """The algorithm asked of a dot."""

    ALG_UNSET = 0
    ALG_DOT_ANY_F8_ANY_F8_F32 = 1
    ALG_DOT_ANY_F8_ANY_F8_F32_FAST_ACCUM = 2
    ALG_DOT_F16_F16_F16 = 3
    ALG_DOT_F16_F16_F32 = 4
    ALG_DOT_BF16_BF16_BF16 = 5
    ALG_DOT_BF16_BF16_F32 = 6
    ALG_DOT_BF16_BF16_F32_X3 = 7
    ALG_DOT_BF16_BF16_F32_X6 = 8
    ALG_DOT_TF32_TF32_F32 = 9
    ALG_DOT_TF32_TF32_F32_X3 = 10
    ALG_DOT_F32_F32_F32 = 11
    ALG_DOT_F64_F64_F64 = 12
    ALG_DOT_BF16_BF16_F32_X9 = 13

    @property
    def text(self) -> str:
        """The word in HLO text: ``dot_f32_f32_f32``."""
        return self.name.removeprefix("ALG_").lower()


class CustomCallSchedule(HloEnum):
    """How early or late the scheduler should place a custom call."""

    SCHEDULE_NONE = 0
    SCHEDULE_LATEST = 1
    SCHEDULE_EARLIEST = 2


class CustomCallApiVersion(HloEnum):
    """The signature of a custom call's target."""

    API_VERSION_UNSPECIFIED = 0
    API_VERSION_ORIGINAL = 1
    API_VERSION_STATUS_RETURNING = 2
    API_VERSION_STATUS_RETURNING_UNIFIED = 3
    API_VERSION_TYPED_FFI = 4


class TriState(HloEnum):
    """Yes, no, or unspecified."""

    TRI_STATE_UNSPECIFIED = 0
    TRI_STATE_TRUE = 1
    TRI_STATE_FALSE = 2

    @property
    def text(self) -> str:
        """The word in HLO text."""
        return {0: "unspecified", 1: "true", 2: "false"}[self.value]
