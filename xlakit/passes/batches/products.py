"""Dots and decompositions of small matrices over batches, in batch-minor form."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.ir.enums import FusionKind
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.control import Fusion
from xlakit.ops.data import Parameter
from xlakit.ops.dot import Dot
from xlakit.ops.elementwise.binary import Add
from xlakit.ops.linear_algebra import Cholesky, TriangularSolve
from xlakit.ops.movement import Transpose
from xlakit.ops.reduction import Reduce
from xlakit.ops.shared.contraction import free_dimensions
from xlakit.options import knob
from xlakit.passes.batches.forms import Batch, Maker, minor_dimension, minor_shape, order
from xlakit.passes.core.computation_builder import ComputationBuilder, ReplacementBuilder, binary_computation
from xlakit.passes.core.framework import PassContext
from xlakit.passes.core.hlo_builder import HloBuilder
from xlakit.passes.core.matching import permutation_inverse

# Products with more multiplications for each member are faster in product kernels than as vectors of the batch. The
# limit is lower for products with an operand that all members share, which are one matrix product.
_MOST_PRODUCTS = knob("batch_minor.most_products", 1 << 12, 0, 1 << 20)
_MOST_SHARED = knob("batch_minor.most_shared_products", 64, 0, 1 << 20)


@dataclass(frozen=True, slots=True)
class _Dimensions:
    """The dimensions of a dot without that of the batch.

    own: the dimension of the batch in each operand, None for an operand that all members share. shared: the (left,
    right) pairs of other batch dimensions. rows, columns: the free dimensions of the left and the right operand. pairs:
    the (left, right) pairs of contracting dimensions.
    """

    own: tuple[int | None, int | None]
    shared: Sequence[tuple[int, int]]
    rows: Sequence[int]
    columns: Sequence[int]
    pairs: Sequence[tuple[int, int]]


def product(x: Instruction, batch: Batch, _: int) -> Maker | None:
    """The maker of a dot with one product for each member, or with an operand that all members share; else None."""
    op = x.op_as(Dot)
    lhs, rhs = (o.shape for o in x.operands)
    found = _dimensions(op, batch, x)
    if found is None:
        return None
    depth = math.prod(lhs.dimensions[a] for a, _ in found.pairs)
    products = depth * x.shape.num_elements // batch.size
    kinds = {x.shape.element_type, lhs.element_type, rhs.element_type}
    is_shared = None in found.own
    sums = depth > 0 and len(kinds) == 1 and kinds <= {PrimitiveType.F32, PrimitiveType.F64}
    if sums and products <= (_MOST_SHARED if is_shared else _MOST_PRODUCTS).value:
        return _sum_of_products(x, batch, found)
    return _one_product(x, op, batch, found) if is_shared else None


def _dimensions(op: Dot, batch: Batch, x: Instruction) -> _Dimensions | None:
    lhs, rhs = (o.shape for o in x.operands)
    rows = free_dimensions(lhs.rank, op.lhs_batch_dims, op.lhs_contracting_dims)
    columns = free_dimensions(rhs.rank, op.rhs_batch_dims, op.rhs_contracting_dims)
    left, right = batch.dimension(lhs), batch.dimension(rhs)
    if left is None or right is None:
        # One operand is shared: the members must be rows or columns of one product.
        if left not in rows and right not in columns:
            return None
    elif left not in op.lhs_batch_dims or op.rhs_batch_dims[op.lhs_batch_dims.index(left)] != right:
        return None
    shared = [(a, b) for a, b in zip(op.lhs_batch_dims, op.rhs_batch_dims, strict=True) if a != left or b != right]
    pairs = list(zip(op.lhs_contracting_dims, op.rhs_contracting_dims, strict=True))
    return _Dimensions((left, right), shared, [d for d in rows if d != left], [d for d in columns if d != right], pairs)


def _sum_of_products(x: Instruction, batch: Batch, found: _Dimensions) -> Maker:
    """dot(a, b) -> the sum of products over the contracting dimensions, each of them an array of the whole batch.

    The products have the dimensions (shared, rows, columns, contracting, batch).
    """
    lhs, rhs = (o.shape.dimensions for o in x.operands)
    pairs, shared = found.pairs, found.shared
    first = len(shared) + len(found.rows) + len(found.columns)
    sizes = [
        *[lhs[a] for a, _ in shared],
        *[lhs[d] for d in found.rows],
        *[rhs[d] for d in found.columns],
        *[lhs[a] for a, _ in pairs],
        batch.size,
    ]
    last = len(sizes) - 1
    places: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for side in (0, 1):
        places[side].update({pair[side]: n for n, pair in enumerate(shared)})
        places[side].update({pair[side]: first + n for n, pair in enumerate(pairs)})
    places[0].update({d: len(shared) + n for n, d in enumerate(found.rows)})
    places[1].update({d: len(shared) + len(found.rows) + n for n, d in enumerate(found.columns)})
    for own, at in zip(found.own, places, strict=True):
        at.update({} if own is None else {own: last})

    def factor(operand: Instruction, own: int | None, at: Mapping[int, int], make: HloBuilder) -> Instruction:
        moved = {d if own is None else minor_dimension(d, operand.shape.rank, own): n for d, n in at.items()}
        axes = sorted(moved, key=moved.__getitem__)
        return make.broadcast(make.transpose(operand, axes), sizes, [moved[d] for d in axes])

    def maker(operands: Sequence[Instruction], make: ReplacementBuilder) -> Instruction:
        factors = [factor(*each, make) for each in zip(operands, found.own, places, strict=True)]
        products = make.apply("multiply", *factors)
        if not pairs:
            return products
        kind = x.shape.element_type
        sum = Reduce(
            dimensions=tuple(range(first, last)), to_apply=binary_computation("sum", Add(), kind, make.context)
        )
        return make.add(sum, products, make.scalar(0, kind))

    return maker


def _one_product(x: Instruction, op: Dot, batch: Batch, found: _Dimensions) -> Maker | None:
    """dot(a, b), where only a or b has the batch -> dot(b, a) or dot(a, b), with the batch as the last column."""
    left, right = found.own
    lhs, rhs = x.operands
    changed = dataclasses.replace(
        op,
        lhs_batch_dims=_moved(op.lhs_batch_dims, lhs, left),
        lhs_contracting_dims=_moved(op.lhs_contracting_dims, lhs, left),
        rhs_batch_dims=_moved(op.rhs_batch_dims, rhs, right),
        rhs_contracting_dims=_moved(op.rhs_contracting_dims, rhs, right),
    )
    sizes = [lhs.shape.dimensions[a] for a, _ in found.shared]
    rows = [lhs.shape.dimensions[d] for d in found.rows]
    columns = [rhs.shape.dimensions[d] for d in found.columns]
    if left is None:
        shape = x.shape.without_layout().with_dimensions([*sizes, *rows, *columns, batch.size])
        return lambda operands, make: make.add(changed, *operands, shape=shape)
    exchanged = changed.swapped()
    if exchanged is None:
        return None
    shape = x.shape.without_layout().with_dimensions([*sizes, *columns, *rows, batch.size])
    count, many, few = len(sizes), len(columns), len(rows)
    back = [
        *range(count),
        *range(count + many, count + many + few),
        *range(count, count + many),
        count + many + few,
    ]
    return lambda operands, make: make.transpose(make.add(exchanged, *reversed(operands), shape=shape), back)


def _moved(dimensions: Sequence[int], operand: Instruction, own: int | None) -> tuple[int, ...]:
    """Dimensions of an operand, renumbered for batch-minor form."""
    rank = operand.shape.rank
    return tuple(d if own is None else minor_dimension(d, rank, own) for d in dimensions)


# Larger matrices fill vectors by themselves.
_LARGEST = knob("batch_minor.largest_matrix", 32, 1, 1000)


def decomposition(x: Instruction, batch: Batch, own: int) -> Maker | None:
    """The maker of a Cholesky decomposition or a triangular solve in batch-minor form: a fusion; None if too large.

    The fusion's computation transposes the operands back, decomposes, and transposes the result; its kernel does all of
    that in batch-minor form.
    """
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
        return builder.computation("decompositions", root)

    return lambda operands, make: make.add(
        Fusion(kind=FusionKind.OUTPUT, calls=computation(make.context)), *operands, shape=minor_shape(x.shape, own)
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
