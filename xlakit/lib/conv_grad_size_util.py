"""The padding of convolutions that compute gradients of convolutions.

Source: ``xla/hlo/builder/lib/conv_grad_size_util.h``.
"""

from __future__ import annotations

from dataclasses import dataclass

from xlakit.arguments import converting
from xlakit.errors import ShapeError
from xlakit.ops.shared.padding import Padding, make_padding


@dataclass(frozen=True)
class SpatialDimensionOutputSizeAndPadding:
    """A dimension of a gradient that is spread by the stride of its convolution, and how that is padded."""

    output_size: int
    pad_before: int
    pad_after: int


@converting
def conv_grad_extract_and_verify_dimension(
    input_size: int, filter_size: int, output_size: int, dilation: int, stride: int, padding: Padding | str
) -> SpatialDimensionOutputSizeAndPadding:
    """How the gradient of a convolution's result is padded along one dimension, to give that of its input.

    input_size, filter_size, output_size: sizes of the convolution's operands and of its result.
    dilation, stride: of the kernel, and of the convolution. padding: SAME or VALID.

    The gradient with ``stride - 1`` zeros between its elements has ``output_size``. With ``pad_before`` and
    ``pad_after`` zeros around it, convolved with the kernel reversed and dilated, it has ``input_size``.

    Raises ShapeError where the convolution has no result of this size. Source: ConvGradExtractAndVerifyDimension.
    """
    if filter_size < 1 or dilation < 1 or stride < 1:
        raise ShapeError(
            f"a kernel of {filter_size}, a dilation of {dilation} and a stride of {stride} are given",
            hint="give sizes and steps of at least 1",
        )
    window = (filter_size - 1) * dilation + 1
    ((low, high),) = make_padding([input_size], [window], [stride], padding)
    placements = max(input_size + low + high - window, -stride) // stride + 1
    if placements != output_size:
        raise ShapeError(
            f"the convolution of {input_size} elements with a kernel of {window} at stride {stride} gives {placements}",
            hint=f"output_size is {output_size}",
        )
    spread = (output_size - 1) * stride + 1
    before = window - 1 - low
    return SpatialDimensionOutputSizeAndPadding(spread, before, input_size + window - 1 - spread - before)
