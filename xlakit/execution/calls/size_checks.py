"""Custom calls for invalid sizes of dynamic dimensions: they raise the error of the operation.

The pass ``pad-dynamic`` puts these calls into branches that are taken in that case alone, so they never give anything.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.ir.operation import Evaluation, Value
from xlakit.ops.communication.collective import different_sizes
from xlakit.ops.dynamic import CHECK_GROUP, CHECK_REGROUPING, CHECK_RESHAPE, CHECK_SIZE, check_reshape, check_size
from xlakit.ops.shared.regrouping import sizes_after_reshape

_NOTHING = np.asarray(0, np.int32)


def _size(context: Evaluation, *operands: Value) -> Value:
    """For set-dimension-size: the size, its dimension and its bound."""
    check_size(*map(int, operands))
    return _NOTHING


def _reshape(context: Evaluation, *operands: Value) -> Value:
    """For dynamic-reshape: how many elements there are, the sizes and their bounds."""
    count, sizes, bounds = operands
    check_reshape(int(count), sizes.tolist(), bounds.tolist())
    return _NOTHING


def _regrouping(context: Evaluation, *operands: Value) -> Value:
    """For reshape: the sizes of the operand and its bounds, the bounds of the result, and which of them are dynamic."""
    sizes, bounds, new_bounds, marks = (operand.tolist() for operand in operands)
    sizes_after_reshape(sizes, bounds, Shape(PrimitiveType.F32, tuple(new_bounds), None, tuple(map(bool, marks))))
    return _NOTHING


def _group(context: Evaluation, *operands: Value) -> Value:
    """For collectives: the least sizes that devices of a group bring, and the greatest ones."""
    least, greatest = operands
    raise different_sizes(least.tolist(), greatest.tolist())


SIZE_CHECKS: dict[str, Callable[..., Value]] = {
    CHECK_SIZE: _size,
    CHECK_RESHAPE: _reshape,
    CHECK_REGROUPING: _regrouping,
    CHECK_GROUP: _group,
}
