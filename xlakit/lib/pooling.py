"""Pooling: the maximum or the average of the elements under each placement of a window.

Source: ``xla/hlo/builder/lib/pooling.h``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xlakit.arguments import converting
from xlakit.data.primitive import PrimitiveType
from xlakit.errors import ShapeError
from xlakit.lib.constants import min_value, scalar_like, zero
from xlakit.ops.data import constant
from xlakit.ops.elementwise.binary import add, div, max, mul
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.handle import XlaOp, building
from xlakit.ops.movement import broadcast_in_dim, pad
from xlakit.ops.shared.padding import Padding, make_padding
from xlakit.ops.windows import reduce_window


@dataclass(frozen=True)
class TensorFormat:
    """Which dimensions of an array count batch entries and features, and which are space. Source: TensorFormat."""

    batch_dimension: int
    feature_dimension: int
    spatial_dimensions: tuple[int, ...]

    @converting
    def __init__(self, batch_dimension: int, feature_dimension: int, spatial_dimensions: Sequence[int]) -> None:
        numbers = [batch_dimension, feature_dimension, *spatial_dimensions]
        if sorted(numbers) != list(range(len(numbers))):
            raise ShapeError(
                f"dimensions {numbers} are not those of an array of rank {len(numbers)}", hint="name each one once"
            )
        object.__setattr__(self, "batch_dimension", batch_dimension)
        object.__setattr__(self, "feature_dimension", feature_dimension)
        object.__setattr__(self, "spatial_dimensions", tuple(spatial_dimensions))

    @property
    def rank(self) -> int:
        """The rank of arrays of this format."""
        return len(self.spatial_dimensions) + 2


def _check(sizes: Sequence[int], kernel_size: Sequence[int], stride: Sequence[int], data_format: TensorFormat) -> None:
    rank = data_format.rank
    if not len(sizes) == len(kernel_size) == len(stride) == rank or min(*kernel_size, *stride) < 1:
        raise ShapeError(
            f"an array of {list(sizes)} has windows of {list(kernel_size)} at strides {list(stride)}",
            hint=f"all are of rank {rank}; windows and strides are at least 1",
        )


@building
def max_pool(
    operand: XlaOp,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Padding | str,
    data_format: TensorFormat,
) -> XlaOp:
    """The greatest element under each placement of a window, NaN if one is.

    operand: an array of integers or real floating point numbers, of the rank of ``data_format``.
    kernel_size, stride: the window's sizes and steps, one for each dimension, 1 for batch and features.
    padding: SAME or VALID; elements outside do not count.

    Gives an array with one element for each placement. Raises ShapeError. Source: MaxPool.
    """
    _check(operand.shape.dimensions, kernel_size, stride, data_format)
    least = min_value(operand.builder, operand.shape.element_type)
    return reduce_window(operand, least, max, kernel_size, stride, padding)


@converting
def make_spatial_padding(
    input_size: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Padding | str,
    data_format: TensorFormat,
) -> list[tuple[int, int]]:
    """The padding (low, high) of each spatial dimension for SAME or VALID.

    input_size, kernel_size, stride: one for each dimension. Raises ShapeError. Source: MakeSpatialPadding.
    """
    _check(input_size, kernel_size, stride, data_format)
    sizes, windows, steps = ([v[d] for d in data_format.spatial_dimensions] for v in (input_size, kernel_size, stride))
    return make_padding(sizes, windows, steps, padding)


@building
def avg_pool(
    operand: XlaOp,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[tuple[int, int]],
    data_format: TensorFormat,
    counts_include_padding: bool,
) -> XlaOp:
    """The average of the elements under each placement of a window, summed in their type.

    operand: an array of numbers, of the rank of ``data_format``; quotients of integers are cut to whole numbers.
    kernel_size, stride: the window's sizes and steps, one for each dimension, 1 for batch and features.
    padding: (low, high) for each spatial dimension, at least 0.
    counts_include_padding: whether sums are divided by the size of the window, or by how many elements it has inside;
        windows without any give 0 / 0.

    Gives an array with one element for each placement. Raises ShapeError. Source: AvgPool.
    """
    sizes = operand.shape.dimensions
    _check(sizes, kernel_size, stride, data_format)
    pairs = _all_dimensions(padding, data_format)
    sums = reduce_window(operand, zero(operand.builder, operand.shape.element_type), add, kernel_size, stride, pairs)
    return _divided(sums, sizes, kernel_size, stride, pairs, counts_include_padding)


def _all_dimensions(padding: Sequence[tuple[int, int]], data_format: TensorFormat) -> list[tuple[int, int]]:
    """Padding of spatial dimensions as padding of all."""
    spatial = data_format.spatial_dimensions
    if len(padding) != len(spatial) or any(low < 0 or high < 0 for low, high in padding):
        raise ShapeError(
            f"padding {list(padding)} for {len(spatial)} spatial dimensions",
            hint="give (low, high), at least 0, for each",
        )
    pairs = [(0, 0)] * data_format.rank
    for d, (low, high) in zip(spatial, padding, strict=True):
        pairs[d] = (low, high)
    return pairs


def _placements(size: int, window: int, stride: int, padding: tuple[int, int]) -> int:
    return (size + sum(padding) - window) // stride + 1 if size + sum(padding) >= window else 0


def _divided(
    sums: XlaOp,
    sizes: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[tuple[int, int]],
    counts_include_padding: bool,
) -> XlaOp:
    """Sums of windows, by how many elements they have."""
    shape = sums.shape
    kind = shape.element_type
    if counts_include_padding:
        return div(sums, convert_element_type(_number(sums, int(np.prod(kernel_size))), kind))
    counts = broadcast_in_dim(_number(sums, 1), shape.dimensions, ())
    for d, (size, window, step, (low, _)) in enumerate(zip(sizes, kernel_size, stride, padding, strict=True)):
        start = np.arange(shape.dimensions[d]) * step - low
        inside = np.maximum(np.minimum(start + window, size) - np.maximum(start, 0), 0)
        if (inside != 1).any():
            column = constant(sums.builder, inside.astype(np.int32))
            counts = mul(counts, broadcast_in_dim(column, shape.dimensions, [d]))
    return div(sums, convert_element_type(counts, kind))


def _number(like: XlaOp, value: int) -> XlaOp:
    return constant(like.builder, value, PrimitiveType.S32)


@building
def avg_pool_grad(
    out_backprop: XlaOp,
    gradients_size: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    spatial_padding: Sequence[tuple[int, int]],
    data_format: TensorFormat,
    counts_include_padding: bool,
) -> XlaOp:
    """The gradient of :func:`avg_pool` by its operand.

    out_backprop: the gradient by its result. gradients_size: the sizes of its operand.

    The other arguments are those of :func:`avg_pool`. Gives an array of ``gradients_size``. Raises ShapeError.
    Source: AvgPoolGrad.
    """
    _check(gradients_size, kernel_size, stride, data_format)
    pairs = _all_dimensions(spatial_padding, data_format)
    windows = list(zip(gradients_size, kernel_size, stride, pairs, strict=True))
    wanted = tuple(_placements(*window) for window in windows)
    if out_backprop.shape.dimensions != wanted:
        raise ShapeError(
            f"the gradient by the result is {out_backprop.shape}, the result has {list(wanted)}",
            hint="give the gradient of avg_pool's result, and the sizes of its operand",
        )
    shares = _divided(out_backprop, gradients_size, kernel_size, stride, pairs, counts_include_padding)
    # Each element gets the shares of the windows that it is in: a window over shares with holes of a stride.
    config: list[tuple[int, int, int]] = []
    for (size, window, step, (low, _)), count in zip(windows, wanted, strict=True):
        spread = (count - 1) * step + 1 if count else 0
        before = window - 1 - low
        config.append((before, size + window - 1 - before - spread, step - 1))
    nothing = scalar_like(shares, 0)
    return reduce_window(pad(shares, nothing, config), nothing, add, kernel_size, [1] * len(windows), Padding.VALID)
