"""Products: rules that absorb transposes and conversions into them. The same numbers are multiplied and added."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from xlakit.ir.instruction import Instruction
from xlakit.ops.dot import Dot
from xlakit.ops.elementwise.convert import Convert
from xlakit.ops.movement import Transpose
from xlakit.ops.shared.nibbles import is_packed
from xlakit.options import knob
from xlakit.passes.core.matching import one_type
from xlakit.passes.core.rewriter import Rewriter
from xlakit.passes.core.rules import Rules
from xlakit.passes.simplify.conversions import holds_all

# Smaller operands do not justify a kernel of mixed types.
_LARGE = knob("dots.large", 1 << 10, 1)
# A product with more rows and more columns than this is large.
_LONG = knob("dots.long", 512, 1)
# A complex product with fewer rows or columns than this counts as one of a matrix and vectors: packing the matrix with
# a conversion takes as long as multiplying it by about so many vectors.
_VECTORS = knob("dots.complex_vectors", 8, 0, 64)

DOTS = Rules("dots")
_rule = DOTS.rule


@_rule("dot")
def dot_of_transpose(x: Instruction, make: Rewriter) -> Instruction | None:
    """dot(transpose(x), y) -> dot(x, y) with renumbered dimensions, where the transpose keeps free ones in order."""
    op = x.op_as(Dot)
    left, right = x.operands
    if (permutation := _permutation(left, (*op.lhs_batch_dims, *op.lhs_contracting_dims))) is not None:
        batch, contracting = _renumbered(permutation, op.lhs_batch_dims, op.lhs_contracting_dims)
        changed = dataclasses.replace(op, lhs_batch_dims=batch, lhs_contracting_dims=contracting)
        return make.add(changed, left.operands[0], right, shape=x.shape)
    if (permutation := _permutation(right, (*op.rhs_batch_dims, *op.rhs_contracting_dims))) is not None:
        batch, contracting = _renumbered(permutation, op.rhs_batch_dims, op.rhs_contracting_dims)
        changed = dataclasses.replace(op, rhs_batch_dims=batch, rhs_contracting_dims=contracting)
        return make.add(changed, left, right.operands[0], shape=x.shape)
    return None


@_rule("dot", "convolution")
def product_of_convert(x: Instruction, make: Rewriter) -> Instruction | None:
    """dot(convert(x), y) -> dot(x, y) with the same result type, where the conversion loses nothing.

    A product converts its operands block by block, so the converted array is never stored. A large float product is
    left alone: it takes much longer than the conversions, and libraries have kernels for its own type. So is a complex
    matrix that is multiplied by few vectors: it is read in place, which a real matrix would not be.
    """
    if isinstance(x.op, Dot) and x.shape.element_type.is_floating and min(_sides(x)) > _LONG.value:
        return None
    if is_packed(x.op):
        return None
    operands = [
        operand if _is_read_in_place(x, number) else _unconverted(operand, make)
        for number, operand in enumerate(x.operands)
    ]
    if operands == list(x.operands):
        return None
    return make.add(x.op, *operands, shape=x.shape)


@_rule("dot")
def vector_times_matrix(x: Instruction, make: Rewriter) -> Instruction | None:
    """dot(matrix, vector) that contracts the rows' dimension -> dot(vector, matrix), which adds up whole rows.

    Both results have the same dimensions, since the vector has no free dimension.
    """
    op = x.op_as(Dot)
    left, right = x.operands
    free_dimensions = left.shape.rank - len(op.lhs_batch_dims) - len(op.lhs_contracting_dims)
    is_vector = right.shape.rank == len(op.rhs_batch_dims) + len(op.rhs_contracting_dims)
    if not is_vector or not free_dimensions or not op.lhs_contracting_dims or is_packed(op):
        return None
    if left.shape.rank - 1 in (*op.lhs_batch_dims, *op.lhs_contracting_dims):
        return None
    exchanged = op.swapped()
    return None if exchanged is None else make.add(exchanged, right, left, shape=x.shape)


def _sides(dot: Instruction) -> tuple[int, int]:
    """The numbers of rows and columns of a dot, for each batch."""
    op = dot.op_as(Dot)
    left, right = (o.shape for o in dot.operands)
    shared = (*op.lhs_batch_dims, *op.lhs_contracting_dims)
    depth = math.prod(left.dimensions[d] for d in shared)
    return left.num_elements // max(1, depth), right.num_elements // max(1, depth)


def _is_read_in_place(product: Instruction, number: int) -> bool:
    """Whether an operand is a complex matrix with contiguous rows along k, and the other one a few vectors."""
    if not isinstance(product.op, Dot) or not product.shape.element_type.is_complex:
        return False
    op = product.op_as(Dot)
    contracting = (op.lhs_contracting_dims, op.rhs_contracting_dims)[number]
    last = product.operands[number].shape.rank - 1
    return last in contracting and _sides(product)[1 - number] < _VECTORS.value


def _unconverted(operand: Instruction, make: Rewriter) -> Instruction:
    """The source of an operand that is a lossless, widening convert, large, and read by this product only; else
    the operand.
    """
    if not isinstance(operand.op, Convert) or make.uses(operand) > 1 or operand.shape.num_elements < _LARGE.value:
        return operand
    source = operand.operands[0]
    wide, narrow = operand.shape.element_type, source.shape.element_type
    return source if narrow.bit_width < wide.bit_width and holds_all(wide, narrow) else operand


def _permutation(operand: Instruction, used: Sequence[int]) -> tuple[int, ...] | None:
    """The permutation of a transposed operand, if its free dimensions (those not ``used``) keep their order."""
    if not isinstance(operand.op, Transpose) or not one_type(operand):
        return None
    permutation = operand.op_as(Transpose).dimensions
    free = [permutation[d] for d in range(len(permutation)) if d not in used]
    return permutation if free == sorted(free) else None


def _renumbered(permutation: Sequence[int], *groups: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(permutation[d] for d in group) for group in groups)


@_rule("transpose", of=Dot)
def transpose_of_dot(x: Instruction, make: Rewriter) -> Instruction | None:
    """transpose(dot(x, y)) -> dot(y, x), where the transpose swaps the free dimensions of x and of y.

    For another transpose whose last dimension is the last free one of x: transpose(dot(y, x)), which moves whole rows.
    """
    (inner,) = x.operands
    if make.uses(inner) > 1 or not one_type(x):
        return None
    op = inner.op_as(Dot)
    left, right = inner.operands
    batch = len(op.lhs_batch_dims)
    of_left = left.shape.rank - batch - len(op.lhs_contracting_dims)
    of_right = right.shape.rank - batch - len(op.rhs_contracting_dims)
    swapped = (
        *range(batch),
        *range(batch + of_left, batch + of_left + of_right),
        *range(batch, batch + of_left),
    )
    permutation = x.op_as(Transpose).dimensions
    if permutation != swapped and not (of_left and of_right and permutation[-1] == batch + of_left - 1):
        return None
    exchanged = op.swapped()
    if exchanged is None:
        return None
    product = inner.shape.without_layout().with_dimensions(tuple(inner.shape.dimensions[d] for d in swapped))
    exchanged_dot = make.add(exchanged, right, left, shape=product)
    return make.transpose(exchanged_dot, [swapped.index(d) for d in permutation])
