"""Products of packed operands: each element of eight bits has two numbers of four, whose products are added.

Source: PrecisionConfig::PACKED_NIBBLE, as OpenXLA's evaluator reads it: both operands are packed, or none. The product
of two elements is low * low + high * high; nibbles of signed types have a sign, those of unsigned types have none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.ir.enums import Precision
from xlakit.ir.operation import Array, Op

BITS = 4


def is_packed(op: Op) -> bool:
    """Whether it is a product of operands that have two numbers in each element."""
    return Precision.PACKED_NIBBLE in getattr(op, "operand_precision", ())


def unpacked(op: Op, operands: Sequence[Array], dimensions: Sequence[int]) -> Sequence[Array]:
    """The operands of a product, each with the nibbles of its elements side by side along its dimension.

    The dimension doubles, with each low nibble before the high one; a dimension number behind the last adds a new
    dimension of size 2. Operands that are not packed are returned unchanged.
    """
    if not is_packed(op):
        return operands
    return [_unpacked(array, d) for array, d in zip(operands, dimensions, strict=True)]


def _unpacked(array: Array, dimension: int) -> Array:
    sizes = array.shape if dimension < array.ndim else (*array.shape, 1)
    bits = array.dtype.type(BITS)
    # A shift to the right keeps the sign of a type that has one.
    pairs = [((array << bits) >> bits).reshape(sizes), (array >> bits).reshape(sizes)]
    doubled = [n * 2 if d == dimension else n for d, n in enumerate(sizes)]
    return np.stack(pairs, dimension + 1).reshape(doubled)
