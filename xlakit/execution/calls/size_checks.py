"""Custom calls for invalid sizes of dynamic dimensions: they raise the error of the operation.

The pass ``pad-dynamic`` puts these calls into branches that are taken only if a size is invalid, so they always raise.
Their ``backend_config`` names the operation of the program and the shapes of its operands, for the error.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import XlakitError
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


def _of_program(check: Callable[..., Value]) -> Callable[..., Value]:
    """The same check, whose errors name the operation of the program."""

    def call(context: Evaluation, *operands: Value) -> Value:
        try:
            return check(context, *operands)
        except XlakitError as error:
            instruction = context.instruction
            opcode, *shapes = instruction.annotations.backend_config.split("; ")
            raise error.at(operation=f"{opcode} '{instruction.name}'", shapes=shapes) from None

    return call


SIZE_CHECKS: dict[str, Callable[..., Value]] = {
    CHECK_SIZE: _of_program(_size),
    CHECK_RESHAPE: _of_program(_reshape),
    CHECK_REGROUPING: _of_program(_regrouping),
    CHECK_GROUP: _of_program(_group),
}
