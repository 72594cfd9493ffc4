"""Packs the invariant matrices that a loop multiplies by once, before the loop, instead of in each iteration.

With the pass, the forward pass of a recurrence with 1024 states and 64 rows takes 0.79 of the time, with 512 states and
32 rows 0.9, with 256 states, 16 rows and a transposed matrix 0.8, with 128 states and 32 rows 0.92, with 256 states and
8 rows the same (one thread, vectors of 64 bytes; with vectors of 32 and 16 bytes 0.9 in the mean of these programs).
"""

from __future__ import annotations

import dataclasses
import math

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.control import While
from xlakit.ops.dot import Dot
from xlakit.ops.movement import Reshape
from xlakit.options import knob
from xlakit.passes.analysis.loops import Loop, LoopPass, loop_of, trip_count, with_loops
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import PassContext, is_fixed
from xlakit.target import vector_bytes

_KINDS = (PrimitiveType.F32, PrimitiveType.F64)
# With fewer rows a matrix is read once, unpacked; with more, packing costs little compared with the product.
_FEWEST_ROWS = knob("pack_invariants.fewest_rows", 5, 1)
_MOST_ROWS = 512
_FEWEST_ELEMENTS = knob("pack_invariants.fewest_elements", 4096, 1)
_FEWEST_ITERATIONS = knob("pack_invariants.fewest_iterations", 4, 1)


class PackInvariants(LoopPass):
    """Pack the invariant right operands of a loop's products into slivers of columns.

    ``dot(x, w[k, n]) -> reshape(dot(x, slivers[n / 32, k, 32]))``, where the slivers are a transpose of a reshape of w.
    Loop-invariant code motion then moves the packing out of the loop.
    """

    name = "pack-invariants"

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Change the loops of one computation."""
        changed: dict[Instruction, While] = {}
        for loop in map(loop_of, computation.instructions):
            products = [] if loop is None else _products(loop)
            if loop is not None and products and context.spend("pack-invariant", len(products)):
                body = _packed(loop.body, set(products), context)
                changed[loop.instruction] = dataclasses.replace(loop.instruction.op_as(While), body=body)
        return with_loops(computation, changed, context)


def _products(loop: Loop) -> list[Instruction]:
    """The products of a loop's body whose right operand is to be packed."""
    iterations = trip_count(loop)
    if not loop.unchanged or (iterations is not None and iterations < _FEWEST_ITERATIONS.value):
        return []
    return [i for i in loop.body.instructions if isinstance(i.op, Dot) and _gains(i, i.op, loop)]


def _gains(instruction: Instruction, op: Dot, loop: Loop) -> bool:
    lhs, rhs = instruction.operands
    kind = rhs.shape.element_type
    if is_fixed(instruction) or loop.element(rhs) not in loop.unchanged or kind not in _KINDS:
        return False
    if lhs.shape.element_type is not kind or instruction.shape.element_type is not kind:
        return False
    if op.rhs_batch_dims or rhs.shape.rank != 2 or len(op.rhs_contracting_dims) != 1:
        return False
    columns = rhs.shape.dimensions[1 - op.rhs_contracting_dims[0]]
    elements = rhs.shape.num_elements
    if elements < _FEWEST_ELEMENTS.value or columns % _width(kind):
        return False
    rows = math.prod(instruction.shape.dimensions) // columns
    return _FEWEST_ROWS.value <= rows <= _MOST_ROWS


def _width(kind: PrimitiveType) -> int:
    """The number of columns of a sliver: two vectors. The micro-tiles of products of slivers have their width."""
    return 2 * vector_bytes() // kind.byte_width


def _packed(body: Computation, products: set[Instruction], context: PassContext) -> Computation:
    """The body with packed operands, the packing beside each product."""
    cloner = ComputationCloner(body, context)
    for old in body.instructions:
        if old not in products:
            cloner.clone(old)
            continue
        op = old.op_as(Dot)
        lhs, rhs = (cloner.clones[o] for o in old.operands)
        (along,) = op.rhs_contracting_dims
        depth, columns = rhs.shape.dimensions[along], rhs.shape.dimensions[1 - along]
        width = _width(rhs.shape.element_type)
        cut = (depth, columns // width, width) if along == 0 else (columns // width, width, depth)
        order = (1, 0, 2) if along == 0 else (0, 2, 1)
        apart = cloner.add(Reshape(), rhs, like=old, shape=rhs.shape.with_dimensions(cut))
        slivers = cloner.at(old).transpose(apart, order)
        product = cloner.add(dataclasses.replace(op, rhs_contracting_dims=(1,)), lhs, slivers, like=old)
        cloner.substitute(old, cloner.add(Reshape(), product, like=old, shape=old.shape))
    return cloner.build(name=context.computation_name(body.name))
