"""Expansions of operations that reorder or thin out arrays: shuffles, and the kernels of sparse convolutions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.ir.attributes import SparsitySide
from xlakit.ir.instruction import Instruction
from xlakit.ops.convolution import Convolution
from xlakit.ops.gather import Gather
from xlakit.ops.movement import Concatenate
from xlakit.ops.shuffle import Shuffle, ShuffleMode
from xlakit.passes.core.computation_builder import ReplacementBuilder


def shuffle(operands: Sequence[Instruction], make: ReplacementBuilder) -> Instruction | None:
    """Concatenations of two slices, one for each rotated dimension; for a permutation gather(x, indices)."""
    if not make.context.spend("shuffle"):
        return None
    op, (array,) = make.old.op_as(Shuffle), operands
    if not op.dimensions or 0 in array.shape.dimensions:
        return array
    if op.mode is ShuffleMode.PERMUTE and op.indices is not None:
        return _permuted(op, op.indices, array, make)
    for dimension, shift in zip(op.dimensions, op.shifts, strict=True):
        size = array.shape.dimensions[dimension]
        if shift % size:
            parts = [make.slice_along(array, dimension, a, b) for a, b in ((shift % size, size), (0, shift % size))]
            array = make.add(Concatenate(dimension=dimension), *parts)
    return array


def _permuted(op: Shuffle, indices: Literal, array: Instruction, make: ReplacementBuilder) -> Instruction:
    """The gather of a permutation; dimensions along which the indices are constant are moved as whole slices."""
    sizes, numbers = array.shape.dimensions, np.asarray(indices.array)
    if numbers.ndim == len(sizes):
        numbers = numbers[..., None]
    indexed = [d for d in range(len(sizes)) if d in op.dimensions or numbers.shape[d] > 1]
    batching = tuple(d for d in indexed if d not in op.dimensions)
    own = [d for d in indexed if numbers.shape[d] == sizes[d]]
    numbers = numbers.astype(np.int64).reshape(*(sizes[d] for d in own), numbers.shape[-1])
    wide = (*(sizes[d] for d in indexed), len(op.dimensions))
    positions = make.broadcast(make.constant(numbers), wide, (*(indexed.index(d) for d in own), len(indexed)))
    gather = Gather(
        offset_dims=tuple(d for d in range(len(sizes)) if d not in indexed),
        collapsed_slice_dims=tuple(sorted(op.dimensions)),
        start_index_map=op.dimensions,
        operand_batching_dims=batching,
        start_indices_batching_dims=tuple(indexed.index(d) for d in batching),
        index_vector_dim=len(indexed),
        slice_sizes=tuple(min(1, n) if d in indexed else n for d, n in enumerate(sizes)),
    )
    return make.add(gather, array, positions, shape=make.old.shape.without_layout())


def sparse_convolution(operands: Sequence[Instruction], make: ReplacementBuilder) -> Instruction | None:
    """sparse convolution(x, k) -> convolution(x, dense k), with the zeros inserted into the kernel."""
    op, spend = make.old.op_as(Convolution), make.context.spend
    config = op.sparsity_config
    if config is None or (config.lhs is not None and not _is_dense(config.lhs)):
        return None
    kernel, side = operands[1], config.rhs
    if side is not None and not _is_dense(side):
        positions = operands[side.idx]
        known = side.num_non_zero == 1 and side.stride == 1 and side.block_size >= 1
        features = side.dimension == op.dim_labels.kernel_input_feature_dimension
        if not (known and features) or positions.shape.dimensions != kernel.shape.dimensions:
            return None
        if not spend("sparse-convolution"):
            return None
        kernel = _with_zeros(kernel, positions, side, make)
    elif not spend("sparse-convolution"):
        return None
    dense = dataclasses.replace(op, sparsity_config=None)
    return make.add(dense, operands[0], kernel, shape=make.old.shape.without_layout())


def _is_dense(side: SparsitySide) -> bool:
    return side.block_size == 1 and side.num_non_zero == 1 and side.stride == 1


def _with_zeros(
    values: Instruction, positions: Instruction, side: SparsitySide, make: ReplacementBuilder
) -> Instruction:
    """The dense kernel: select(iota == positions, values, 0) over (blocks, block), whose dimensions are then merged."""
    sizes, block = values.shape.dimensions, side.block_size
    split = (*sizes[: side.dimension + 1], block, *sizes[side.dimension + 1 :])
    merged = tuple(n * block if d == side.dimension else n for d, n in enumerate(sizes))
    across = tuple(d + (d > side.dimension) for d in range(len(sizes)))

    number = make.iota(Shape(PrimitiveType.S64, split), side.dimension + 1)
    where = make.broadcast(make.convert(positions, PrimitiveType.S64), split, across)
    own = make.compare(number, where, "EQ")
    zero = make.full(0, Shape(values.shape.element_type, split))
    return make.reshape(make.apply("select", own, make.broadcast(values, split, across), zero), merged)
