"""Expansion of a dot of two long vectors: its only element is a sum, which many threads can share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Instruction
from xlakit.ops.dot import Dot
from xlakit.ops.elementwise.binary import Add
from xlakit.ops.reduction import Reduce
from xlakit.options import knob
from xlakit.passes.core.computation_builder import ComputationCloner, binary_computation
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
    make = cloner.at(old)

    def factor(operand: Instruction, along: Sequence[int]) -> Instruction:
        """An operand with the contracting dimensions in order, and no others, which have size 1."""
        rest = [d for d in range(operand.shape.rank) if d not in along]
        order = (*rest, *along)
        operand = make.transpose(operand, order)
        return make.convert(make.reshape(operand, operand.shape.dimensions[len(rest) :]), kind)

    pairs = zip(operands, (op.lhs_contracting_dims, op.rhs_contracting_dims), strict=True)
    products = make.apply("multiply", *(factor(x, along) for x, along in pairs))
    total = binary_computation("sum", Add(), kind, context)
    sum = Reduce(dimensions=tuple(range(products.shape.rank)), to_apply=total)
    found = make.convert(make.add(sum, products, make.scalar(0, kind)), old.shape.element_type)
    return make.reshape(found, old.shape.dimensions)


def _sum_type(lhs: PrimitiveType, rhs: PrimitiveType, result: PrimitiveType) -> PrimitiveType | None:
    """The type of the sum; None for types that are left to the dot."""
    kinds = (lhs, rhs, result)
    if all(k.is_floating for k in kinds):
        return PrimitiveType.F64 if PrimitiveType.F64 in kinds else PrimitiveType.F32
    return result if all(k.is_integral for k in kinds) else None
