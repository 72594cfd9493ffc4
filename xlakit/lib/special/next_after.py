"""The number next to another one."""

from __future__ import annotations

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.errors import ShapeError
from xlakit.ops.data import constant
from xlakit.ops.elementwise.binary import add, and_, or_, sub
from xlakit.ops.elementwise.compare import eq, gt, ne
from xlakit.ops.elementwise.convert import bitcast_convert_type
from xlakit.ops.elementwise.select import select
from xlakit.ops.handle import XlaOp, building
from xlakit.ops.movement import broadcast_in_dim

_BITS = {
    PrimitiveType.F16: PrimitiveType.U16,
    PrimitiveType.BF16: PrimitiveType.U16,
    PrimitiveType.F32: PrimitiveType.U32,
    PrimitiveType.F64: PrimitiveType.U64,
}


@building
def next_after(from_: XlaOp, to: XlaOp) -> XlaOp:
    """The number next to ``from_`` in the direction of ``to``, element by element; as ``nextafter`` of C.

    Both are of one shape, of F16, BF16, F32 or F64. Raises ShapeError. Source: NextAfter.
    """
    shape = from_.shape
    kind = shape.element_type
    if kind not in _BITS or not to.shape.compatible(shape):
        raise ShapeError(
            f"takes arrays of f16, bf16, f32 or f64 of one shape, got {shape} and {to.shape}",
            hint="convert them with convert_element_type, and broadcast them",
        )
    bits = _BITS[kind]

    def filled(value: int) -> XlaOp:
        one = constant(from_.builder, np.asarray(value, bits.dtype))
        return broadcast_in_dim(one, shape.dimensions, ())

    sign = filled(1 << bits.bit_width - 1)
    start, end = bitcast_convert_type(from_, bits), bitcast_convert_type(to, bits)
    magnitude, target = (and_(value, filled((1 << bits.bit_width - 1) - 1)) for value in (start, end))
    # Bits of one sign are in the order of their magnitudes; a step towards the other sign is one towards zero.
    inward = or_(gt(magnitude, target), ne(and_(start, sign), and_(end, sign)))
    stepped = select(inward, sub(start, filled(1)), add(start, filled(1)))
    smallest = or_(and_(end, sign), filled(1))
    moved = select(eq(magnitude, filled(0)), smallest, stepped)
    result = select(eq(from_, to), end, moved)
    is_nan = or_(ne(from_, from_), ne(to, to))
    return select(is_nan, add(from_, to), bitcast_convert_type(result, kind))
