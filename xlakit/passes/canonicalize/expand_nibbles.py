"""Expansion of products of packed operands, whose elements hold two numbers of four bits each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from xlakit.ir.instruction import Instruction
from xlakit.ops.convolution import Convolution
from xlakit.ops.dot import Dot
from xlakit.ops.movement import Concatenate
from xlakit.ops.shared.nibbles import BITS
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import PassContext
from xlakit.passes.core.hlo_builder import HloBuilder


def packed_product(
    old: Instruction, operands: Sequence[Instruction], cloner: ComputationCloner, context: PassContext
) -> Instruction | None:
    """A product of packed operands is that of their nibbles, along a summed dimension that is twice as large."""
    if not context.spend("packed-product"):
        return None
    op, make = old.op, cloner.at(old)
    if isinstance(op, Dot):
        new, dimensions = op.unpacked([o.shape.rank for o in operands])
    else:
        op = old.op_as(Convolution)
        numbers, new = op.dim_labels, dataclasses.replace(op, operand_precision=())
        dimensions = numbers.input_feature_dimension, numbers.kernel_input_feature_dimension
    lhs, rhs = (_unpacked(array, d, make) for array, d in zip(operands, dimensions, strict=True))
    return make.add(new, lhs, rhs, shape=old.shape.without_layout())


def _unpacked(array: Instruction, dimension: int, make: HloBuilder) -> Instruction:
    """Low and high nibbles side by side along a dimension, which is a new one behind the last where there is none."""
    sizes = list(array.shape.dimensions)
    if dimension == len(sizes):
        sizes.append(1)
    bits = make.full(BITS, array.shape)
    right = "shift-right-arithmetic" if array.shape.element_type.is_signed else "shift-right-logical"
    low = make.apply(right, make.apply("shift-left", array, bits), bits)
    split = [*sizes[: dimension + 1], 1, *sizes[dimension + 1 :]]
    nibbles = [make.reshape(nibble, split) for nibble in (low, make.apply(right, array, bits))]
    sizes[dimension] *= 2
    return make.reshape(make.add(Concatenate(dimension=dimension + 1), *nibbles), sizes)
