"""Decompositions of small matrices in batch-minor form.

HLO has the matrices in the minor dimensions. So the operation becomes a fusion of arrays in batch-minor form,
``transpose(op(transpose(x), ..))``, of which machine code has a kernel that moves nothing.
"""

from __future__ import annotations

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.enums import FusionKind
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.control import Fusion
from xlakit.ops.data import Parameter
from xlakit.ops.linear_algebra import Cholesky, TriangularSolve
from xlakit.ops.movement import Transpose
from xlakit.options import knob
from xlakit.passes.batches.forms import Batch, Maker, minor_shape, order
from xlakit.passes.core.computation_builder import ComputationBuilder
from xlakit.passes.core.framework import PassContext
from xlakit.passes.core.matching import permutation_inverse

# Larger matrices are work for vectors by themselves.
_LARGEST = knob("batch_minor.largest_matrix", 32, 1, 1000)


def decomposition(x: Instruction, batch: Batch, own: int) -> Maker | None:
    """What makes a Cholesky decomposition, or a triangular-solve, in batch-minor form."""
    rank = x.shape.rank
    if x.shape.element_type not in (PrimitiveType.F32, PrimitiveType.F64) or own >= rank - 2:
        return None
    if x.operands[0].shape.dimensions[-1] > _LARGEST.value or any(batch.dimension(o.shape) != own for o in x.operands):
        return None

    def computation(context: PassContext) -> Computation:
        builder = ComputationBuilder(context)
        back = permutation_inverse(order(rank, own))
        given = [builder.parameter(n, minor_shape(o.shape, own)) for n, o in enumerate(x.operands)]
        turned = [builder.transpose(parameter, back) for parameter in given]
        made = builder.add(x.op, *turned, like=x, shape=x.shape.without_layout())
        root = builder.transpose(made, order(rank, own))
        return builder.computation(context.computation_name("decompositions"), root)

    return lambda operands, make, context: make.add(
        Fusion(kind=FusionKind.OUTPUT, calls=computation(context)), *operands, shape=minor_shape(x.shape, own)
    )


def decomposition_of(computation: Computation) -> Instruction | None:
    """The operation of a fusion that :func:`decomposition` makes; None for other computations."""
    root = computation.root
    if not isinstance(root.op, Transpose) or not isinstance(root.operands[0].op, (Cholesky, TriangularSolve)):
        return None
    (inner,) = root.operands
    rank, own = root.shape.rank, root.op.dimensions[-1]
    back = permutation_inverse(order(rank, own))
    if own >= rank - 2 or root.op.dimensions != order(rank, own):
        return None
    if inner.shape.element_type not in (PrimitiveType.F32, PrimitiveType.F64):
        return None
    for number, operand in enumerate(inner.operands):
        if not isinstance(operand.op, Transpose) or list(operand.op.dimensions) != list(back):
            return None
        source = operand.operands[0].op
        if not isinstance(source, Parameter) or source.number != number:
            return None
    return inner if len(computation.parameters) == len(inner.operands) else None
