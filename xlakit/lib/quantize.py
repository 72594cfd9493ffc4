"""Numbers that are packed into words of 32 bits.

Source: ``xla/hlo/builder/lib/quantize.h``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from xlakit.arguments import converting
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import make_shape
from xlakit.errors import ArgumentError, ShapeError
from xlakit.ops.data import constant, iota
from xlakit.ops.elementwise.binary import add, and_, mul, shift_right_logical, sub
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.handle import XlaOp, building
from xlakit.ops.movement import broadcast_in_dim, reshape, transpose

_PACKED = (PrimitiveType.U8, PrimitiveType.U16)


@dataclass(frozen=True)
class QuantizedRange:
    """The numbers that the least and the greatest integer stand for, rounded to BF16. Source: QuantizedRange."""

    min: float
    max: float

    @converting
    def __init__(self, min: float = 0.0, max: float = 0.0) -> None:
        for name, value in (("min", min), ("max", max)):
            object.__setattr__(self, name, float(ml_dtypes.bfloat16(value)))


def pack_to_uint32(input: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """A vector of uint8 or uint16 in words of 32 bits, the first number in the highest bits; zeros fill the last word.

    Raises ArgumentError for other arrays. Source: PackToUint32.
    """
    array = np.asarray(input)
    if array.ndim != 1 or array.dtype.name not in ("uint8", "uint16"):
        raise ArgumentError(
            f"takes a vector of uint8 or uint16, got {array.dtype} of {array.shape}", hint="convert it with astype"
        )
    size = 4 // array.itemsize
    words = np.zeros((-(-array.size // size), size), np.uint32)
    words.reshape(-1)[: array.size] = array
    shifts = np.arange(size - 1, -1, -1, dtype=np.uint32) * np.uint32(8 * array.itemsize)
    return np.bitwise_or.reduce(words << shifts, axis=1)


@building
def dequantize(
    input: XlaOp,
    quantized_range: QuantizedRange,
    mode_string: str = "MIN_COMBINED",
    transpose_output: bool = False,
    *,
    type: PrimitiveType = PrimitiveType.U8,
) -> XlaOp:
    """BF16 numbers of packed integers: ``integer * (max - min) / greatest + min``, each step rounded to BF16.

    input: U32[d0, .., dn], n >= 0, packed as :func:`pack_to_uint32` does along the last dimension.
    quantized_range: what the integers 0 and greatest stand for.
    mode_string: "MIN_COMBINED", the only mode.
    transpose_output: whether the dimensions of the result are in the opposite order.
    type: the type of the integers, U8 or U16, of which a word has p = 4 or 2.

    Gives BF16[d0, .., dn * p]. Raises ShapeError, ArgumentError. Source: Dequantize.
    """
    shape = input.shape
    if shape.element_type is not PrimitiveType.U32 or not shape.rank or type not in _PACKED:
        raise ShapeError(f"{type.hlo_name} of {shape} is not what can be unpacked", hint="give u32[..] of u8 or u16")
    if mode_string != "MIN_COMBINED":
        raise ArgumentError(f"mode {mode_string!r}", hint='the only mode is "MIN_COMBINED"')
    builder, rank, bits = input.builder, shape.rank, type.bit_width
    count, greatest = 32 // bits, (1 << bits) - 1
    sizes = [*shape.dimensions, count]
    place = iota(builder, make_shape(PrimitiveType.U32, sizes), rank)
    shift = mul(sub(np.uint32(count - 1), place), np.uint32(bits))
    words = broadcast_in_dim(input, sizes, list(range(rank)))
    integers = and_(shift_right_logical(words, shift), np.uint32(greatest))
    low: Any = np.asarray(quantized_range.min, ml_dtypes.bfloat16)
    scale = (np.asarray(quantized_range.max, ml_dtypes.bfloat16) - low) / np.asarray(greatest, ml_dtypes.bfloat16)
    numbers = convert_element_type(integers, PrimitiveType.BF16)
    result = add(mul(numbers, constant(builder, np.asarray(scale))), constant(builder, low))
    *before, last = shape.dimensions
    flat = reshape(result, new_sizes=[*before, last * count])
    return transpose(flat, list(reversed(range(rank)))) if transpose_output else flat
