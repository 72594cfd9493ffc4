"""Convolution: a kernel that moves over n spatial dimensions.

Source: XLA's document "Operation semantics", sections Conv and ConvWithGeneralPadding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import UNBOUNDED, Shape
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.ir.attributes import (
    ConvolutionDimensionNumbers,
    PaddingDimension,
    SparsityConfig,
    Window,
    WindowDimension,
)
from xlakit.ir.enums import ConvolutionKind, Precision, PrecisionAlgorithm
from xlakit.ir.operation import Array, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ops.dot import PrecisionConfig, emit_product, result_type
from xlakit.ops.handle import OperandLike, XlaOp, as_ops, building
from xlakit.ops.shared.checks import check_dimension, need_array
from xlakit.ops.shared.contraction import common_part, multiply_matrices
from xlakit.ops.shared.hints import below, multiple
from xlakit.ops.shared.nibbles import unpacked
from xlakit.ops.shared.numerics import that_can_be_zero, zeros
from xlakit.ops.shared.padding import Padding, make_padding, pad_array
from xlakit.ops.shared.sparsity import expand_sparse
from xlakit.ops.shared.window_geometry import check_window_dimension, make_window, window_output

# Patches of the input are laid out for one matrix product at a time; this many elements of them at once.
_PATCH_ELEMENTS = 1 << 22


@operation("convolution", documents=("Conv", "ConvWithGeneralPadding"))
class Convolution(Op):
    """Sums of products of a kernel with every placement of it on the input.

    A sparse operand has a further operand with the positions of its elements. ``convolution_kind`` is the direction
    that the convolution computes; ``dgrad`` also reverses the kernel.
    """

    window: Window = attribute(Kind.WINDOW, default=Window())
    dim_labels: ConvolutionDimensionNumbers = attribute(
        Kind.CONVOLUTION_DIMENSION_NUMBERS, proto="convolution_dimension_numbers", always=True
    )
    feature_group_count: int = attribute(Kind.INT64, default=1)
    batch_group_count: int = attribute(Kind.INT64, default=1)
    convolution_kind: ConvolutionKind = attribute(
        Kind.ENUM, enum=ConvolutionKind, default=ConvolutionKind.CONVOLUTION_KIND_UNSET, proto="conv_kind"
    )
    operand_precision: tuple[Precision, ...] = attribute(
        Kind.PRECISION_LIST, default=(), proto="precision_config.operand_precision"
    )
    algorithm: PrecisionAlgorithm = attribute(
        Kind.ENUM, enum=PrecisionAlgorithm, default=PrecisionAlgorithm.ALG_UNSET, proto="precision_config.algorithm"
    )
    sparsity_config: SparsityConfig | None = attribute(Kind.SPARSITY_CONFIG, default=None)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        if len(operands) < 2:
            raise ShapeError(
                f"takes an input and a kernel, got {len(operands)} operands",
                hint="give the input first, then the kernel",
            )
        lhs, rhs = need_array(operands[0]), need_array(operands[1])
        self._check_sparsity(operands)
        self._check_numbers(lhs, rhs)
        self._check_groups(lhs, rhs)
        # Gradients, too, are checked as the convolution that their window and dimension numbers describe.
        numbers = self.dim_labels
        inputs = rhs.dimensions[numbers.kernel_input_feature_dimension]
        if self.sparsity_config and self.sparsity_config.rhs:
            inputs *= self.sparsity_config.rhs.block_size
        self._check_features(lhs, inputs)
        self._check_kernel(rhs)
        base = [lhs.dimensions[d] for d in numbers.input_spatial_dimensions]
        for d, dimension in enumerate(self.window.dimensions):
            check_window_dimension(d, dimension)
        sizes = [window_output(size, d) for size, d in zip(base, self.window.dimensions, strict=True)]
        return self._result(lhs, rhs, sizes, result_type(lhs, rhs, declared))

    def _check_sparsity(self, operands: Sequence[Shape]) -> None:
        config = self.sparsity_config
        sides = [side for side in (config.lhs, config.rhs) if side is not None] if config else []
        for side in sides:
            if not 2 <= side.idx < len(operands):
                raise ShapeError(
                    f"sparsity index {side.idx} names no operand after the first two",
                    hint=below(len(operands), "operand") + ", not 0 or 1, which are input and kernel",
                )
            need_array(operands[side.idx])
        if len(sides) == 2 and sides[0].idx == sides[1].idx:
            raise ShapeError(
                "both sparse operands name the same indices",
                hint="give each sparse operand an operand of its own that says where its elements are",
            )
        if config and config.rhs and config.rhs.num_non_zero != 1:
            raise ShapeError(
                "only sparsity of one element in each block is known", hint="give num_non_zero 1, or a dense kernel"
            )

    def _check_numbers(self, lhs: Shape, rhs: Shape) -> None:
        numbers, spatial = self.dim_labels, len(self.window.dimensions)
        for count in (len(d) for d in _spatial(numbers)):
            if count != spatial:
                raise ShapeError(
                    f"the window has {spatial} dimensions, the dimension numbers have {count} spatial ones",
                    hint="input, kernel, output and window must have the same number of spatial dimensions",
                )
        for what, shape in (("input", lhs), ("kernel", rhs)):
            if shape.rank != spatial + 2:
                raise ShapeError(
                    f"the {what} {shape} must have rank {spatial + 2}",
                    hint=f"give it batch, feature and {spatial} spatial dimensions",
                )
        for what, order in zip(("input", "kernel", "output"), _orders(numbers), strict=True):
            if sorted(order) != list(range(spatial + 2)):
                raise ShapeError(
                    f"the {what} dimension numbers {order} must name each of 0 .. {spatial + 1} once",
                    hint="give batch, feature and the spatial dimensions different numbers",
                )

    def _check_groups(self, lhs: Shape, rhs: Shape) -> None:
        features, batches = self.feature_group_count, self.batch_group_count
        if features < 1 or batches < 1:
            raise ShapeError(
                f"feature_group_count {features} and batch_group_count {batches} must be at least 1",
                hint="give 1 where nothing is grouped",
            )
        if features > 1 and batches > 1:
            raise ShapeError(
                "feature_group_count and batch_group_count cannot both be greater than 1", hint="set one of them to 1"
            )
        numbers = self.dim_labels
        outputs = rhs.dimensions[numbers.kernel_output_feature_dimension]
        batch = lhs.dimensions[numbers.input_batch_dimension]
        for name, groups in (("batch_group_count", batches), ("feature_group_count", features)):
            if outputs % groups:
                raise ShapeError(
                    f"{outputs} output features are not divisible by {name} {groups}", hint=multiple(outputs, groups)
                )
        if batch != UNBOUNDED and batch % batches:
            raise ShapeError(
                f"batch {batch} of the input is not divisible by batch_group_count {batches}",
                hint=multiple(batch, batches),
            )

    def _check_features(self, lhs: Shape, expected: int) -> None:
        inputs, groups = lhs.dimensions[self.dim_labels.input_feature_dimension], self.feature_group_count
        if UNBOUNDED not in (inputs, expected) and inputs != expected * groups:
            raise ShapeError(
                f"the input has {inputs} features; the kernel's {expected} times feature_group_count {groups} "
                f"make {expected * groups}",
                hint=f"give a kernel of {inputs // groups} input features",
            )

    def _check_kernel(self, rhs: Shape) -> None:
        sizes = [rhs.dimensions[d] for d in self.dim_labels.kernel_spatial_dimensions]
        wanted = [d.size for d in self.window.dimensions]
        if any(a not in (b, UNBOUNDED) for a, b in zip(sizes, wanted, strict=True)):
            raise ShapeError(
                f"the window has sizes {wanted}, the kernel {sizes}",
                hint=f"give the window the kernel's spatial sizes {sizes}",
            )

    def _result(self, lhs: Shape, rhs: Shape, spatial: Sequence[int], kind: PrimitiveType) -> Shape:
        numbers = self.dim_labels
        if rhs.dynamic_dimensions[numbers.kernel_output_feature_dimension]:
            raise ShapeError(
                f"the output features of the kernel {rhs} cannot be dynamic",
                hint="make them static with set_dimension_size or pad",
            )
        sizes, dynamic = [0] * lhs.rank, [False] * lhs.rank
        batch = lhs.dimensions[numbers.input_batch_dimension]
        sizes[numbers.output_batch_dimension] = batch if batch == UNBOUNDED else batch // self.batch_group_count
        dynamic[numbers.output_batch_dimension] = lhs.dynamic_dimensions[numbers.input_batch_dimension]
        sizes[numbers.output_feature_dimension] = rhs.dimensions[numbers.kernel_output_feature_dimension]
        for i, (base, kernel, output) in enumerate(zip(*_spatial(numbers), strict=True)):
            sizes[output] = spatial[i]
            dynamic[output] = lhs.dynamic_dimensions[base] or rhs.dynamic_dimensions[kernel]
        return Shape(kind, tuple(sizes), None, tuple(dynamic))

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        numbers = self.dim_labels
        inputs, kernel, output = _orders(numbers)
        features = numbers.input_feature_dimension, numbers.kernel_input_feature_dimension
        arrays = unpacked(self, operands, features)
        # Padding is zero, so the input needs a type that has a zero.
        lhs, rhs = self._dense([*map(that_can_be_zero, arrays[:2]), *arrays[2:]])
        lhs, rhs = lhs.transpose(inputs), rhs.transpose(kernel)
        if self.feature_group_count == 1:
            lhs, rhs = common_part(lhs, rhs, [1], [1])
        # A kernel of dynamic size has its current size.
        window = [replace(d, size=size) for d, size in zip(self.window.dimensions, rhs.shape[2:], strict=True)]
        if self.convolution_kind is ConvolutionKind.CONVOLUTION_KIND_DGRAD:
            # The operand is the forward convolution's kernel; the gradient of the input reverses it.
            window = [replace(d, window_reversal=not d.window_reversal) for d in window]
        groups = max(self.feature_group_count, self.batch_group_count)
        result = _convolve(
            _grouped_input(lhs, self.feature_group_count, self.batch_group_count),
            _grouped_kernel(rhs, window, groups),
            window,
            context.shape.element_type,
        )
        return result.transpose(np.argsort(output))

    def _dense(self, operands: Sequence[Array]) -> tuple[Array, Array]:
        """Input and kernel as dense arrays."""
        lhs, rhs = operands[:2]
        config = self.sparsity_config or SparsityConfig()
        if config.lhs is not None:
            if config.lhs.block_size != 1:
                raise UnsupportedError("a sparse input has no agreed shape", hint="only the kernel may be sparse")
            lhs = expand_sparse(lhs, operands[config.lhs.idx], config.lhs)
        if config.rhs is not None:
            features = self.dim_labels.kernel_input_feature_dimension
            if config.rhs.block_size != 1 and config.rhs.dimension != features:
                raise UnsupportedError(
                    f"a kernel that is sparse along dimension {config.rhs.dimension} has no agreed shape",
                    hint=f"only its input features, dimension {features}, may be sparse",
                )
            rhs = expand_sparse(rhs, operands[config.rhs.idx], config.rhs)
        return lhs, rhs


def _spatial(numbers: ConvolutionDimensionNumbers) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The spatial dimensions of input, kernel and output."""
    return numbers.input_spatial_dimensions, numbers.kernel_spatial_dimensions, numbers.output_spatial_dimensions


def _orders(numbers: ConvolutionDimensionNumbers) -> tuple[list[int], list[int], list[int]]:
    """Input as batch, feature, spatial; kernel as output feature, input feature, spatial; output as the input."""
    inputs, kernel, output = _spatial(numbers)
    return (
        [numbers.input_batch_dimension, numbers.input_feature_dimension, *inputs],
        [numbers.kernel_output_feature_dimension, numbers.kernel_input_feature_dimension, *kernel],
        [numbers.output_batch_dimension, numbers.output_feature_dimension, *output],
    )


def _grouped_input(lhs: Array, features: int, batches: int) -> Array:
    """The input as group, batch, feature, spatial; the groups split features, or batches."""
    batch, feature, *spatial = lhs.shape
    if batches > 1:
        return lhs.reshape(batches, batch // batches, feature, *spatial)
    return np.moveaxis(lhs.reshape(batch, features, feature // features, *spatial), 1, 0)


def _grouped_kernel(rhs: Array, window: Sequence[WindowDimension], groups: int) -> Array:
    """The kernel as group, output feature, input feature, spatial; reversed as window_reversal says."""
    rhs = np.flip(rhs, tuple(axis + 2 for axis, d in enumerate(window) if d.window_reversal))
    return rhs.reshape(groups, rhs.shape[0] // groups, *rhs.shape[1:])


def _convolve(lhs: Array, rhs: Array, window: Sequence[WindowDimension], kind: PrimitiveType) -> Array:
    """Batch, feature, spatial of the output: a product of patches of the input with the kernel, for each group."""
    groups, batch, _, *base = lhs.shape
    outputs = rhs.shape[1]
    placements = [d.output_size(size) for d, size in zip(window, base, strict=True)]
    depth, count = math.prod(rhs.shape[2:]), math.prod(placements)
    result = zeros((groups, batch, count, outputs), kind)
    if result.size and depth:
        patches = _patches(lhs, window, placements)
        weights = rhs.reshape(groups, outputs, depth).transpose(0, 2, 1)
        step = max(1, _PATCH_ELEMENTS // (groups * count * depth))
        for start in range(0, batch, step):
            part = patches[:, start : start + step]
            rows = part.reshape(groups, part.shape[1] * count, depth)
            product = multiply_matrices(rows, weights, kind)
            result[:, start : start + step] = product.reshape(groups, -1, count, outputs)
    result = result.reshape(groups, batch, *placements, outputs)
    # Group and output feature become one dimension behind the batch.
    return np.moveaxis(result, (0, -1), (1, 2)).reshape(batch, groups * outputs, *placements)


def _patches(lhs: Array, window: Sequence[WindowDimension], placements: Sequence[int]) -> Array:
    """A view of the elements under each placement of the window: [group, batch, placements, feature, window]."""
    edges = [PaddingDimension(d.padding_low, d.padding_high, d.base_dilation - 1) for d in window]
    padded = pad_array(lhs, lhs.dtype.type(0), [PaddingDimension()] * 3 + edges)
    outer, spatial = padded.strides[:3], padded.strides[3:]
    # As bytes, since NumPy makes no strided views of some of ml_dtypes' types.
    cells = np.lib.stride_tricks.as_strided(
        padded.view(np.dtype((np.void, padded.dtype.itemsize))),
        (*padded.shape[:2], *placements, padded.shape[2], *(d.size for d in window)),
        (
            *outer[:2],
            *(step * d.stride for step, d in zip(spatial, window, strict=True)),
            outer[2],
            *(step * d.window_dilation for step, d in zip(spatial, window, strict=True)),
        ),
        writeable=False,
    )
    return cells.view(padded.dtype)


# -- what a person calls -------------------------------------------------------------------------


@building
def conv(
    lhs: OperandLike,
    rhs: OperandLike,
    window_strides: Sequence[int],
    padding: Padding | str | Sequence[tuple[int, int]],
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig | None = None,
    preferred_element_type: PrimitiveType | None = None,
) -> XlaOp:
    """A convolution with SAME or VALID padding, batch and features in front.

    lhs: the input, T[batch, features, spatial ..] of rank n + 2.
    rhs: the kernel, T[output features, features / feature_group_count, spatial ..].
    window_strides: n steps of the kernel.
    padding: "SAME" (the output is as large as the input at stride 1) or "VALID" (none), or n pairs (low, high).
    feature_group_count, batch_group_count: groups of features, or of batches, that are convolved apart.
    precision_config: how exactly backends should multiply.
    preferred_element_type: the element type of the result, by default T.

    Gives T[batch / batch_group_count, output features, placements ..]. Raises ShapeError.
    Source: Operation semantics, Conv.
    """
    numbers = ConvolutionDimensionNumbers.default(len(window_strides))
    return conv_with_general_dimensions(
        lhs,
        rhs,
        window_strides,
        padding,
        numbers,
        feature_group_count,
        batch_group_count,
        precision_config,
        preferred_element_type,
    )


@building
def conv_with_general_padding(
    lhs: OperandLike,
    rhs: OperandLike,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig | None = None,
    preferred_element_type: PrimitiveType | None = None,
    *,
    lhs_dilation: Sequence[int] = (),
    rhs_dilation: Sequence[int] = (),
) -> XlaOp:
    """``conv`` with explicit padding: n pairs (low, high), negative ones cut.

    lhs_dilation, rhs_dilation: n factors d, at least 1: d - 1 holes between the elements of input and kernel; 1 by
        default. They are given by name: the document's table has them behind the padding, XlaBuilder's function of this
        name has not, and so its feature_group_count is the fifth argument.

    Raises ShapeError. Source: Operation semantics, ConvWithGeneralPadding.
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        None,
        feature_group_count,
        batch_group_count,
        precision_config,
        preferred_element_type,
    )


@building
def conv_with_general_dimensions(
    lhs: OperandLike,
    rhs: OperandLike,
    window_strides: Sequence[int],
    padding: Padding | str | Sequence[tuple[int, int]],
    dimension_numbers: ConvolutionDimensionNumbers,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig | None = None,
    preferred_element_type: PrimitiveType | None = None,
) -> XlaOp:
    """``conv`` with the dimensions of input, kernel and output in any order.

    Raises ShapeError. Source: XlaBuilder::ConvWithGeneralDimensions.
    """
    if isinstance(padding, (Padding, str)):
        lhs, rhs = as_ops(lhs, rhs)
        padding = make_padding(
            _sizes(lhs.shape, dimension_numbers.input_spatial_dimensions),
            _sizes(rhs.shape, dimension_numbers.kernel_spatial_dimensions),
            window_strides,
            padding,
        )
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        (),
        (),
        dimension_numbers,
        feature_group_count,
        batch_group_count,
        precision_config,
        preferred_element_type,
    )


@building
def conv_general(
    lhs: OperandLike,
    rhs: OperandLike,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dimension_numbers: ConvolutionDimensionNumbers,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig | None = None,
    preferred_element_type: PrimitiveType | None = None,
) -> XlaOp:
    """``conv`` with explicit padding and the dimensions in any order.

    Raises ShapeError. Source: XlaBuilder::ConvGeneral.
    """
    return conv_with_general_dimensions(
        lhs,
        rhs,
        window_strides,
        padding,
        dimension_numbers,
        feature_group_count,
        batch_group_count,
        precision_config,
        preferred_element_type,
    )


@building
def conv_general_dilated(
    lhs: OperandLike,
    rhs: OperandLike,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: ConvolutionDimensionNumbers | None = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig | None = None,
    preferred_element_type: PrimitiveType | None = None,
    window_reversal: Sequence[bool] = (),
) -> XlaOp:
    """A convolution with everything said: padding, dilation, order of dimensions, groups.

    lhs: the input, of rank n + 2. rhs: the kernel, of rank n + 2.
    window_strides: n steps of the kernel, at least 1.
    padding: n pairs (low, high) of zeros around the input; negative ones cut.
    lhs_dilation, rhs_dilation: n factors d, at least 1: d - 1 holes between the elements of input and kernel.
        Empty for none.
    dimension_numbers: which dimensions are batch, features and spatial; by default those of ``conv``.
    feature_group_count, batch_group_count: groups of features, or of batches, that are convolved apart.
    precision_config: how exactly backends should multiply.
    preferred_element_type: the element type of the result, by default that of the operands.
    window_reversal: which spatial dimensions of the kernel are turned around. Empty for none.

    Gives an array in the output's order of dimensions. Raises ShapeError.
    Source: Operation semantics, ConvWithGeneralPadding (XlaBuilder::ConvGeneralDilated).
    """
    ops = as_ops(lhs, rhs)
    numbers = dimension_numbers or ConvolutionDimensionNumbers.default(len(window_strides))
    sizes = _sizes(ops[1].shape, numbers.kernel_spatial_dimensions)
    config = precision_config or PrecisionConfig()
    op = Convolution(
        window=make_window(sizes, window_strides, padding, lhs_dilation, rhs_dilation, window_reversal),
        dim_labels=numbers,
        feature_group_count=feature_group_count,
        batch_group_count=batch_group_count,
        operand_precision=config.precisions,
        algorithm=PrecisionAlgorithm.of(config.algorithm),
    )
    return emit_product(op, ops, preferred_element_type)


def _sizes(shape: Shape, dimensions: Sequence[int]) -> list[int]:
    for dimension in dimensions:
        check_dimension("spatial dimension", dimension, need_array(shape))
    return [shape.dimensions[d] for d in dimensions]
