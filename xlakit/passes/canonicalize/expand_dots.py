"""Expansions of dots: of vectors into multiply and reduce, which become parallel loops; and of packed operands."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Instruction
from xlakit.ops.convolution import Convolution
from xlakit.ops.dot import Dot
from xlakit.ops.elementwise.binary import Add
from xlakit.ops.movement import Concatenate
from xlakit.ops.reduction import Reduce
from xlakit.ops.shared.contraction import free_dimensions
from xlakit.ops.shared.nibbles import BITS
from xlakit.options import knob
from xlakit.passes.core.computation_builder import ReplacementBuilder, binary_computation
from xlakit.passes.core.hlo_builder import HloBuilder

# A single sum of fewer products takes less time than starting another thread for it.
_LEAST_PRODUCTS = knob("expand_dots.least_products", 1 << 17, 8)


def is_of_vectors(dot: Instruction) -> bool:
    """Whether no element of a dot's operands is used twice (a sum for each batch), or each result is one product.

    Then the blocking of a matrix product has nothing to reuse.
    """
    op, count = dot.op_as(Dot), dot.shape.num_elements
    lhs, rhs = (o.shape for o in dot.operands)
    depth = math.prod(lhs.dimensions[d] for d in op.lhs_contracting_dims)
    if not count or not depth:
        return False
    if lhs.num_elements == rhs.num_elements == count * depth:
        # A single short sum of real numbers is faster in the kernels of dots.
        return count > 1 or depth >= _LEAST_PRODUCTS.value or dot.shape.element_type.is_complex
    return depth == 1


def dot_of_vectors(operands: Sequence[Instruction], make: ReplacementBuilder) -> Instruction | None:
    """dot(x, y) of vectors -> reduce(multiply(x, y)), or multiply(x, y) for an outer product."""
    kind = sum_type(make.old)
    if kind is None or not is_of_vectors(make.old) or not make.context.spend("dot-of-vectors"):
        return None
    return sums_of_products(operands, kind, make)


def sums_of_products(operands: Sequence[Instruction], kind: PrimitiveType, make: ReplacementBuilder) -> Instruction:
    """A dot, ``make.old``, as reduce(multiply(..)), in ``kind``, the type that the dot sums in.

    Like those of a dot, the sums begin with +0, so that none is -0.
    """
    op, lhs = make.old.op_as(Dot), operands[0].shape.dimensions
    # Batch and contracting dimensions stay in the order in which they lie in the left operand.
    pairs = zip(
        (*op.lhs_batch_dims, *op.lhs_contracting_dims), (*op.rhs_batch_dims, *op.rhs_contracting_dims), strict=True
    )
    shared = sorted(pairs)
    sizes = [lhs[d] for d, _ in shared]

    def factor(operand: Instruction, first: Sequence[int]) -> tuple[Instruction, list[int]]:
        """An operand in the type of the sum, its dimensions ``first`` moved to the front; the sizes of the others."""
        free = free_dimensions(operand.shape.rank, first, ())
        turned = make.transpose(make.convert(operand, kind), [*first, *free])
        return turned, [operand.shape.dimensions[d] for d in free]

    left, rows = factor(operands[0], [d for d, _ in shared])
    right, columns = factor(operands[1], [d for _, d in shared])
    whole, ahead = [*sizes, *rows, *columns], range(len(shared))
    middle = len(shared) + len(rows)
    left = make.broadcast(left, whole, [*ahead, *range(len(shared), middle)])
    right = make.broadcast(right, whole, [*ahead, *range(middle, len(whole))])
    summed = tuple(n for n, (d, _) in enumerate(shared) if d in op.lhs_contracting_dims)
    if summed and kind.is_complex:
        products = _complex_sums(left, right, summed, make)
    elif summed:
        products = _sums(make.apply("multiply", left, right), summed, make)
    else:
        products = make.apply("multiply", left, right)
        if not kind.is_integral:
            products = make.apply("add", products, make.full(0, products.shape))
    batch = [d for d, _ in shared if d in op.lhs_batch_dims]
    order = [batch.index(d) for d in op.lhs_batch_dims]
    found = make.transpose(products, [*order, *range(len(order), products.shape.rank)])
    return make.convert(found, make.old.shape.element_type)


def _sums(products: Instruction, over: tuple[int, ...], make: ReplacementBuilder) -> Instruction:
    kind = products.shape.element_type
    total = binary_computation("sum", Add(), kind, make.context)
    return make.add(Reduce(dimensions=over, to_apply=total), products, make.scalar(0, kind))


def _complex_sums(
    left: Instruction, right: Instruction, over: tuple[int, ...], make: ReplacementBuilder
) -> Instruction:
    """The sums of complex products as two real reductions, which code generation vectorizes."""
    (a, b), (c, d) = ([make.apply(part, x) for part in ("real", "imag")] for x in (left, right))
    real = make.apply("subtract", make.apply("multiply", a, c), make.apply("multiply", b, d))
    imaginary = make.apply("add", make.apply("multiply", a, d), make.apply("multiply", b, c))
    return make.apply("complex", _sums(real, over, make), _sums(imaginary, over, make))


def sum_type(dot: Instruction) -> PrimitiveType | None:
    """The type that a dot sums in; None for mixed types, of which dots are not expanded."""
    kinds = [x.shape.element_type for x in (*dot.operands, dot)]
    if all(k.is_complex for k in kinds):
        return PrimitiveType.C128 if PrimitiveType.C128 in kinds else PrimitiveType.C64
    if all(k.is_floating for k in kinds):
        return PrimitiveType.F64 if PrimitiveType.F64 in kinds else PrimitiveType.F32
    return dot.shape.element_type if all(k.is_integral for k in kinds) else None


def packed_product(operands: Sequence[Instruction], make: ReplacementBuilder) -> Instruction | None:
    """product(packed x, packed y) -> product(nibbles of x, nibbles of y), with twice the contracted size."""
    if not make.context.spend("packed-product"):
        return None
    op = make.old.op
    if isinstance(op, Dot):
        new, dimensions = op.unpacked([o.shape.rank for o in operands])
    else:
        op = make.old.op_as(Convolution)
        numbers, new = op.dim_labels, dataclasses.replace(op, operand_precision=())
        dimensions = numbers.input_feature_dimension, numbers.kernel_input_feature_dimension
    lhs, rhs = (_unpacked(array, d, make) for array, d in zip(operands, dimensions, strict=True))
    return make.add(new, lhs, rhs, shape=make.old.shape.without_layout())


def _unpacked(array: Instruction, dimension: int, make: HloBuilder) -> Instruction:
    """Low and high nibbles interleaved along a dimension; one behind the last dimension is appended with size 1."""
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
