"""Expansion of a dot of two long vectors: its only element is a sum, which many threads can share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.ir.instruction import Instruction
from xlakit.ops.dot import Dot
from xlakit.ops.elementwise.convert import Convert
from xlakit.ops.movement import Reshape, Transpose
from xlakit.ops.reduction import Reduce
from xlakit.ops.registry import OPERATIONS
from xlakit.options import knob
from xlakit.passes.core.computation_builder import ComputationBuilder, ComputationCloner
from xlakit.passes.core.framework import PassContext

# Fewer products take less time than handing them to another thread.
_LEAST_PRODUCTS = knob("expand_dots.least_products", 1 << 17, 8)


def long_dot(
    old: Instruction, operands: Sequence[Instruction], cloner: ComputationCloner, context: PassContext
) -> Instruction | None:
    """The sum of the products, in the type that a dot sums in."""
    op, sizes = old.op_as(Dot), operands[0].shape.dimensions
    kind = _sum_type(*(x.shape.element_type for x in (*operands, old)))
    depth = math.prod(sizes[d] for d in op.lhs_contracting_dims)
    plain = old.shape.num_elements == 1 and math.prod(sizes) == depth
    if kind is None or not plain or depth < _LEAST_PRODUCTS.value or not context.spend("long-dot"):
        return None

    def factor(operand: Instruction, along: Sequence[int]) -> Instruction:
        """An operand with the contracting dimensions in order, and no others, which have size 1."""
        rest = [d for d in range(operand.shape.rank) if d not in along]
        order = (*rest, *along)
        if order != tuple(sorted(order)):
            operand = cloner.add(Transpose(dimensions=order), operand, like=old)
        sizes = operand.shape.dimensions[len(rest) :]
        if rest:
            shape = Shape(operand.shape.element_type, sizes)
            operand = cloner.add(Reshape(), operand, like=old, shape=shape)
        return _converted(old, operand, kind, cloner)

    pairs = zip(operands, (op.lhs_contracting_dims, op.rhs_contracting_dims), strict=True)
    products = cloner.add(OPERATIONS["multiply"](), *(factor(x, along) for x, along in pairs), like=old)
    builder, scalar = ComputationBuilder(context), Shape(kind, ())
    total = builder.add(OPERATIONS["add"](), builder.parameter(0, scalar), builder.parameter(1, scalar))
    sum = Reduce(
        dimensions=tuple(range(products.shape.rank)),
        to_apply=builder.computation(context.computation_name("sum"), total),
    )
    found = cloner.add(sum, products, cloner.scalar(0, kind), like=old)
    found = _converted(old, found, old.shape.element_type, cloner)
    if not old.shape.rank:
        return found
    return cloner.add(Reshape(), found, like=old, shape=old.shape.without_layout())


def _sum_type(lhs: PrimitiveType, rhs: PrimitiveType, result: PrimitiveType) -> PrimitiveType | None:
    """The type of the sum; None for types that are left to the dot."""
    kinds = (lhs, rhs, result)
    if all(k.is_floating for k in kinds):
        return PrimitiveType.F64 if PrimitiveType.F64 in kinds else PrimitiveType.F32
    return result if all(k.is_integral for k in kinds) else None


def _converted(old: Instruction, operand: Instruction, kind: PrimitiveType, cloner: ComputationCloner) -> Instruction:
    if operand.shape.element_type is kind:
        return operand
    shape = operand.shape.without_layout().with_element_type(kind)
    return cloner.add(Convert(), operand, like=old, shape=shape)
