"""The operation of one partition: tilings of operands from splits of factors, and shapes and attributes of parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from xlakit.data.shape import Shape
from xlakit.ir.attributes import SliceDimension
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import Op
from xlakit.ops.convolution import Convolution
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import Iota
from xlakit.ops.dot import Dot
from xlakit.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from xlakit.ops.fft import Fft
from xlakit.ops.gather import Gather
from xlakit.ops.linear_algebra import Cholesky, TriangularSolve
from xlakit.ops.movement import Broadcast, Concatenate, Pad, Reshape, Slice, Transpose
from xlakit.ops.reduction import Reduce
from xlakit.ops.sort import Sort, TopK
from xlakit.ops.windows import ReduceWindow
from xlakit.passes.spmd.shardings.factors import Dims, Factors
from xlakit.passes.spmd.shardings.tilings import Split, Tiling, is_whole, local_sizes, parts

# Operations, beside elementwise ones, that may be split in unequal parts.
_PLACES_KEPT: Final = (
    Broadcast,
    Cholesky,
    Concatenate,
    Convolution,
    Dot,
    DynamicSlice,
    DynamicUpdateSlice,
    Fft,
    Gather,
    Iota,
    Pad,
    Reduce,
    ReduceWindow,
    Reshape,
    Slice,
    Sort,
    TopK,
    Transpose,
    TriangularSolve,
)


def can_be_unequal(old: Instruction) -> bool:
    """Whether an operation may be split in unequal parts, whose elements after the end are unspecified.

    Each element of the result must depend only on elements at the same index along the split dimensions.
    """
    return not old.op.has_side_effect and (old.is_pointwise or isinstance(old.op, _PLACES_KEPT))


def splits_of(factors: Factors, operands: Sequence[Tiling]) -> dict[int, Split]:
    """The splits of factors, from the tilings of operands."""
    pairs = [
        pair
        for dims, tiling in zip(factors.operands, operands, strict=True)
        for pair in zip(dims, tiling, strict=False)
    ]
    return {factor: split for factor, split in pairs if factor is not None and split is not None}


def tiling_of(dims: Dims, splits: Mapping[int, Split]) -> Tiling:
    """The tiling of an array whose dimensions have these factors."""
    return tuple(None if f is None else splits.get(f) for f in dims)


def mirrored(tiling: Tiling, dimensions: Collection[int]) -> Tiling:
    """The tiling after a reversal, in which the first part is the last."""
    return tuple(
        tuple(max(split) - part for part in split) if split is not None and d in dimensions else split
        for d, split in enumerate(tiling)
    )


def local_shape(old: Instruction, whole: Shape, tiling: Tiling) -> Shape:
    """The shape of a part; that of a custom call keeps its layout, in which the function reads and writes memory."""
    shape = Shape(whole.element_type, local_sizes(tiling, whole.dimensions))
    return shape.with_layout(whole.layout) if isinstance(old.op, CustomCall) and whole.layout else shape


def local_slice(op: Slice, result: Tiling) -> Slice:
    """The slice of a part: it takes split dimensions of the operand's part whole."""
    ranges = [
        s if split is None else SliceDimension(0, -(-s.limit // parts(split)))
        for s, split in zip(op.slice, result, strict=True)
    ]
    return dataclasses.replace(op, slice=tuple(ranges))


def local_convolution(op: Convolution, image: Tiling, kernel: Tiling) -> Convolution:
    """The convolution of a part, with the number of groups that the part has."""
    labels = op.dim_labels
    if op.feature_group_count > 1:
        count = parts(image[labels.input_feature_dimension])
        return dataclasses.replace(op, feature_group_count=op.feature_group_count // count)
    count = parts(kernel[labels.kernel_output_feature_dimension]) if op.batch_group_count > 1 else 1
    return dataclasses.replace(op, batch_group_count=op.batch_group_count // count)


def local_op(old: Instruction, operands: Sequence[Tiling], results: Sequence[Tiling]) -> Op:
    """The operation with the sizes in its attributes replaced by those of parts."""
    op = old.op
    if isinstance(op, Reshape):
        return Reshape()
    if all(map(is_whole, operands)):
        return op
    if isinstance(op, Slice):
        return local_slice(op, results[0])
    if isinstance(op, CustomCall) and op.operand_layout_constraints:
        given = zip(op.operand_layout_constraints, operands, strict=True)
        return dataclasses.replace(op, operand_layout_constraints=tuple(local_shape(old, s, t) for s, t in given))
    if isinstance(op, Convolution):
        return local_convolution(op, operands[0], operands[1])
    if isinstance(op, DynamicSlice):
        return dataclasses.replace(op, dynamic_slice_sizes=local_sizes(results[0], op.dynamic_slice_sizes))
    if isinstance(op, Gather):
        whole_ones = old.operands[0].shape.dimensions
        sizes = [
            -(-size // parts(split)) if size == own else size
            for size, own, split in zip(op.slice_sizes, whole_ones, operands[0], strict=True)
        ]
        return dataclasses.replace(op, slice_sizes=tuple(sizes))
    return op
