"""Conversions: removes converts that change nothing, and parts of complex numbers that were just built."""

from __future__ import annotations

from functools import cache

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Instruction
from xlakit.ops.data import Copy
from xlakit.ops.elementwise.binary import Complex
from xlakit.ops.elementwise.convert import Convert
from xlakit.ops.elementwise.unary import Real
from xlakit.ops.shared.numerics import convert, wrap
from xlakit.passes.core.rewriter import Rewriter
from xlakit.passes.core.rules import Rules

CONVERSIONS = Rules("conversions")
_rule = CONVERSIONS.rule


@_rule("convert", "copy", "real")
def convert_to_itself(x: Instruction, make: Rewriter) -> Instruction | None:
    """convert(x) -> x to the type that it has; copy(x) -> x; real(x) -> x of real numbers.

    If a result needs separate memory, memory planning inserts the copy.
    """
    (inner,) = x.operands
    if isinstance(x.op, Copy) and x.op.cross_program_prefetch_index is not None:
        return None
    return inner if inner.shape.element_type is x.shape.element_type else None


@_rule("convert", of=Convert)
def convert_twice(x: Instruction, make: Rewriter) -> Instruction | None:
    """convert_C(convert_B(x)) -> convert_C(x), where B holds every value of x's type.

    The second conversion is then of the same number, so it rounds and saturates alike. But integers that pass through
    floats saturate where a direct conversion wraps, so an integer result type must hold every value of x's type.
    """
    (inner,) = x.operands
    source = inner.operands[0]
    first, middle, last = source.shape.element_type, inner.shape.element_type, x.shape.element_type
    if not holds_all(middle, first):
        return None
    if middle.is_floating and not first.is_floating and last.is_integral and not holds_all(last, first):
        return None
    return make.convert(source, last)


@cache
def holds_all(wide: PrimitiveType, narrow: PrimitiveType) -> bool:
    """Whether every value of ``narrow`` is a value of ``wide``, so that converting there and back changes nothing."""
    if wide is narrow:
        return True
    if narrow.is_complex or wide.is_complex:
        return wide.is_complex and holds_all(wide.real_part, narrow.real_part)
    if wide is PrimitiveType.PRED:
        return False
    if narrow.bit_width <= 8:
        return _survives(_all_values(narrow), wide)
    if narrow.is_integral and wide.is_integral:
        if narrow.is_signed and not wide.is_signed:
            return False
        return wide.bit_width - wide.is_signed >= narrow.bit_width - narrow.is_signed
    if narrow.is_integral:
        # A float holds exactly the integers of at most as many bits as its significand; F32 and F64 have the range.
        digits = {PrimitiveType.F32: 24, PrimitiveType.F64: 53}.get(wide, 0)
        return narrow.bit_width - narrow.is_signed <= digits
    floats = {
        PrimitiveType.F16: (PrimitiveType.F32, PrimitiveType.F64),
        PrimitiveType.BF16: (PrimitiveType.F32, PrimitiveType.F64),
        PrimitiveType.F32: (PrimitiveType.F64,),
    }
    return wide in floats.get(narrow, ())


def _all_values(kind: PrimitiveType) -> np.ndarray:
    if kind is PrimitiveType.PRED:
        return np.array([False, True])
    if kind.is_integral:
        least = -(1 << (kind.bit_width - 1)) if kind.is_signed else 0
        return wrap(np.arange(least, least + (1 << kind.bit_width)), kind.dtype)
    return np.arange(1 << kind.bit_width, dtype=np.uint8).view(kind.dtype)


def _survives(values: np.ndarray, wide: PrimitiveType) -> bool:
    kind = PrimitiveType.from_dtype(values.dtype)
    converted = convert(values, wide)
    back = convert(converted, kind)
    if not kind.is_floating:
        exact = np.array_equal(np.asarray(back, np.int64), np.asarray(values, np.int64))
        return exact and np.array_equal(np.asarray(converted, np.float64), np.asarray(values, np.float64))
    a, b, middle = (np.asarray(v, dtype=np.float64) for v in (values, back, converted))
    same = np.array_equal(a, b, equal_nan=True) and np.array_equal(a, middle, equal_nan=True)
    numbers = ~np.isnan(a)
    return same and np.array_equal(np.signbit(a[numbers]), np.signbit(middle[numbers]))


# -- complex numbers -------------------------------------------------------------------------------


@_rule("real", "imag", of=Complex)
def part_of_complex(x: Instruction, make: Rewriter) -> Instruction | None:
    """real(complex(a, b)) -> a, imag(complex(a, b)) -> b."""
    (inner,) = x.operands
    return inner.operands[0 if isinstance(x.op, Real) else 1]
