"""Rewrites batches of products of small matrices as multiply and reduce.

A product kernel would be called for each matrix, with a micro-tile that is larger than the matrix and masked, which
takes longer than a few multiplications. A reduction is vectorized over the elements of the result, and fused with
operands and users.
"""

from __future__ import annotations

import math

from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.dot import Dot
from xlakit.options import knob
from xlakit.passes.canonicalize.expand_dots import sum_type, sums_of_products
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import ComputationPass, PassContext

# The most products of real numbers for each matrix of a batch, and the longest sum, whose loop is unrolled.
_MOST_PRODUCTS = knob("small_products.most_products", 256, 0, 1024)
_LONGEST_SUM = 16


class SmallProducts(ComputationPass):
    """Write batches of products of small matrices as multiply and reduce, which fuse into loops."""

    name = "small-products"
    # Without fusion the multiply would be stored whole.
    left_out_by = "fusion"

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Rewrite the dots of one computation."""
        ordered = {p for i in computation.instructions for p in i.control_predecessors}
        found = {i for i in computation.instructions if _is_small(i) and i not in ordered}
        if not found:
            return computation
        cloner = ComputationCloner(computation, context)
        for old in computation.instructions:
            kind = sum_type(old) if old in found else None
            if kind is None or not context.spend("small-product"):
                cloner.clone(old)
                continue
            operands = [cloner.clones[o] for o in old.operands]
            cloner.substitute(old, sums_of_products(old, operands, kind, cloner.at(old), context))
        return cloner.build()


def _is_small(dot: Instruction) -> bool:
    if not isinstance(dot.op, Dot) or dot.control_predecessors or any(x.shape.is_dynamic for x in (dot, *dot.operands)):
        return False
    lhs = dot.operands[0].shape
    batch = math.prod(lhs.dimensions[d] for d in dot.op.lhs_batch_dims)
    depth = math.prod(lhs.dimensions[d] for d in dot.op.lhs_contracting_dims)
    # A complex multiplication is four real ones.
    products = dot.shape.num_elements * depth * (4 if lhs.element_type.is_complex else 1)
    return batch > 1 and 1 <= depth <= _LONGEST_SUM and 1 <= products <= batch * _MOST_PRODUCTS.value
