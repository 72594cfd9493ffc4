"""Integers of 64 bits as pairs of 32 bits, in programs that XLA compiled for TPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xlakit.data.primitive import PrimitiveType
from xlakit.errors import UnsupportedError
from xlakit.execution.calls.foreign.meaning import Foreign
from xlakit.ops.data import constant
from xlakit.ops.elementwise.binary import or_, shift_left, shift_right_logical
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.handle import XlaOp
from xlakit.ops.movement import broadcast

_WHOLE: Final = (PrimitiveType.S64, PrimitiveType.U64)
_PART: Final = (PrimitiveType.S32, PrimitiveType.U32)
_BITS: Final = 32


def low(foreign: Foreign) -> XlaOp:
    """The low 32 bits of each element."""
    (whole,) = foreign.need_operands(["whole"])
    _need(foreign, [whole], _WHOLE, _PART)
    return foreign.finished(convert_element_type(_unsigned(whole), foreign.result.element_type))


def high(foreign: Foreign) -> XlaOp:
    """The high 32 bits of each element."""
    (whole,) = foreign.need_operands(["whole"])
    _need(foreign, [whole], _WHOLE, _PART)
    bits = _unsigned(whole)
    return foreign.finished(convert_element_type(shift_right_logical(bits, _shift(bits)), foreign.result.element_type))


def combined(foreign: Foreign) -> XlaOp:
    """Elements of 64 bits of the low and the high 32 bits of each."""
    parts = foreign.need_operands(["low", "high"])
    _need(foreign, parts, _PART, _WHOLE)
    # Converted through U32, so that the sign of a signed part is not extended.
    below, above = (convert_element_type(convert_element_type(p, PrimitiveType.U32), PrimitiveType.U64) for p in parts)
    return foreign.finished(
        convert_element_type(or_(below, shift_left(above, _shift(above))), foreign.result.element_type)
    )


def _unsigned(whole: XlaOp) -> XlaOp:
    return convert_element_type(whole, PrimitiveType.U64)


def _shift(like: XlaOp) -> XlaOp:
    return broadcast(constant(like.builder, _BITS, PrimitiveType.U64), like.shape.dimensions)


def _need(
    foreign: Foreign, values: Sequence[XlaOp], operands: Sequence[PrimitiveType], results: Sequence[PrimitiveType]
) -> None:
    types = [x.shape.element_type for x in values]
    if not all(t in operands for t in types) or foreign.result.element_type not in results:
        raise UnsupportedError(
            f"'{foreign.op.custom_call_target}' of {', '.join(t.hlo_name for t in types)} that gives "
            f"{foreign.result.element_type.hlo_name} has no meaning here",
            hint="integers are supported: s64 or u64 and their parts, s32 or u32; how a TPU splits f64 is not public",
        )
