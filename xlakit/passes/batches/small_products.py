"""Rewrites batches of products of small matrices, or of vectors and gathered rows, as multiply and reduce.

A product kernel would be called for each matrix, with a micro-tile that is larger than the matrix and masked, which
takes longer than a few multiplications. A reduction is vectorized over the elements of the result, and fused with
operands and users: with a gather, so that the rows that it finds are added up where they are, and never stored.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.dot import Dot
from xlakit.ops.gather import Gather
from xlakit.options import knob
from xlakit.passes.canonicalize.expand_dots import sum_type, sums_of_products
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import ComputationPass, PassContext

# The most products of real numbers for each matrix of a batch, and the longest sum, whose loop is unrolled.
_MOST_PRODUCTS = knob("small_products.most_products", 256, 0, 1024)
_LONGEST_SUM = 16
# Shorter rows are gathered element by element.
_SHORTEST_ROW = knob("small_products.shortest_row", 16, 1)


class SmallProducts(ComputationPass):
    """Write batches of products of small matrices as multiply and reduce, which fuse into loops."""

    name = "small-products"
    # Without fusion the multiply would be stored whole.
    left_out_by = "fusion"

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Rewrite the dots of one computation."""
        ordered = {p for i in computation.instructions for p in i.control_predecessors}
        users = Counter(o for i in computation.instructions for o in i.operands)
        users[computation.root] += 1
        dots = (i for i in computation.instructions if _is_candidate(i) and i not in ordered)
        found = {i for i in dots if _is_small(i) or _weights_gathered_rows(i, users)}
        if not found:
            return computation
        cloner = ComputationCloner(computation, context)
        for old in computation.instructions:
            kind = sum_type(old) if old in found else None
            if kind is None or not context.spend("small-product"):
                cloner.clone(old)
                continue
            operands = [cloner.clones[o] for o in old.operands]
            cloner.substitute(old, sums_of_products(operands, kind, cloner.at(old)))
        return cloner.build()


def _is_candidate(dot: Instruction) -> bool:
    """Whether this is a batch of products that are not empty."""
    if not isinstance(dot.op, Dot) or dot.control_predecessors or any(x.shape.is_dynamic for x in (dot, *dot.operands)):
        return False
    return _batch(dot) > 1 and dot.shape.num_elements > 0 and _depth(dot) > 0


def _batch(dot: Instruction) -> int:
    return math.prod(dot.operands[0].shape.dimensions[d] for d in dot.op_as(Dot).lhs_batch_dims)


def _depth(dot: Instruction) -> int:
    return math.prod(dot.operands[0].shape.dimensions[d] for d in dot.op_as(Dot).lhs_contracting_dims)


def _is_small(dot: Instruction) -> bool:
    depth = _depth(dot)
    # A complex multiplication is four real ones.
    products = dot.shape.num_elements * depth * (4 if dot.operands[0].shape.element_type.is_complex else 1)
    return depth <= _LONGEST_SUM and products <= _batch(dot) * _MOST_PRODUCTS.value


def _weights_gathered_rows(dot: Instruction, users: Counter[Instruction]) -> bool:
    """Whether a dot adds up whole rows, which a gather finds for it alone, each multiplied by a number."""
    op = dot.op_as(Dot)
    if dot.operands[0].shape.element_type.is_complex:
        return False
    sides = ((*op.lhs_batch_dims, *op.lhs_contracting_dims), (*op.rhs_batch_dims, *op.rhs_contracting_dims))
    for (numbers, used), (rows, shared) in itertools.permutations(zip(dot.operands, sides, strict=True)):
        is_vector = len(used) == numbers.shape.rank
        if is_vector and isinstance(rows.op, Gather) and users[rows] == 1 and rows.shape.rank - 1 not in shared:
            return rows.shape.dimensions[-1] >= _SHORTEST_ROW.value
    return False
