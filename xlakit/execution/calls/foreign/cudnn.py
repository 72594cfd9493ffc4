"""Convolutions of cuDNN: forward, their gradients, and with a bias and an activation.

The window, the dimension numbers and the groups are attributes of the call. Those of a gradient describe the forward
convolution, of which it computes the gradient with respect to the input or to the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from xlakit.data.shape import Shape
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.execution.calls.foreign import activations
from xlakit.execution.calls.foreign.meaning import Foreign
from xlakit.ir.attributes import ConvolutionDimensionNumbers, Window, WindowDimension
from xlakit.ops.convolution import Convolution
from xlakit.ops.elementwise.binary import add, mul
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.elementwise.elementary import logistic, tanh
from xlakit.ops.handle import XlaOp, emit
from xlakit.ops.movement import broadcast_in_dim, reshape, rev, transpose

_FUNCTIONS: Final[dict[str, activations.Activation | None]] = {
    "kNone": None,
    "kRelu": activations.relu,
    "kRelu6": activations.relu6,
    "kSigmoid": lambda _, x: logistic(x),
    "kTanh": lambda _, x: tanh(x),
    "kElu": activations.elu(1.0),
    "kLeakyRelu": None,
}


def forward(foreign: Foreign) -> XlaOp:
    """The convolution of an input with a kernel, times ``conv_result_scale``."""
    lhs, rhs = _two(foreign, ("input", "kernel"))
    window, numbers = _attributes(foreign)
    return foreign.finished(_scaled(foreign, _convolution(foreign, lhs, rhs, window, numbers)))


def with_bias(foreign: Foreign) -> XlaOp:
    """activation(conv_result_scale conv + side_input_scale side + bias), with a bias for each output feature."""
    config = foreign.config
    factor = config.number("side_input_scale")
    names = ["input", "kernel", "bias", *(["side input"] if factor else [])]
    lhs, rhs, bias, *side = foreign.need_operands(names)
    window, numbers = _attributes(foreign)
    kind = foreign.sum_type()
    value = _scaled(foreign, _convolution(foreign, lhs, rhs, window, numbers))
    if side:
        value = add(value, mul(foreign.scalar(factor, value), convert_element_type(side[0], kind)))
    bias = convert_element_type(bias, kind)
    value = add(value, broadcast_in_dim(bias, value.shape.dimensions, [numbers.output_feature_dimension]))
    name = config.choice("activation_mode", tuple(_FUNCTIONS))
    function = activations.leaky_relu(config.number("leakyrelu_alpha")) if name == "kLeakyRelu" else _FUNCTIONS[name]
    if function is not None:
        activations.need_floats(foreign, f"the activation {name}", value)
        value = function(foreign, value)
    return foreign.finished(value)


def backward_input(foreign: Foreign) -> XlaOp:
    """The gradient of the input: the output's gradient, spread by the strides, with the kernel reversed."""
    gradient, kernel = _two(foreign, ("gradient of the output", "kernel"))
    window, numbers = _attributes(foreign)
    groups = foreign.op.feature_group_count
    sizes = _spatial(foreign.result, numbers.input_spatial_dimensions)
    steps = _spatial(gradient.shape, numbers.output_spatial_dimensions)
    dimensions: list[WindowDimension] = []
    for d, size, count in zip(window.dimensions, sizes, steps, strict=True):
        reach = (d.size - 1) * d.window_dilation
        low = reach - d.padding_low
        high = size - 1 + reach - (count - 1) * d.stride - low
        dimensions.append(
            replace(
                d,
                stride=1,
                base_dilation=d.stride,
                padding_low=low,
                padding_high=high,
                window_reversal=not d.window_reversal,
            )
        )
    into, out = numbers.kernel_input_feature_dimension, numbers.kernel_output_feature_dimension
    dimension_numbers = ConvolutionDimensionNumbers(
        input_batch_dimension=numbers.output_batch_dimension,
        input_feature_dimension=numbers.output_feature_dimension,
        input_spatial_dimensions=numbers.output_spatial_dimensions,
        kernel_input_feature_dimension=out,
        kernel_output_feature_dimension=into,
        kernel_spatial_dimensions=numbers.kernel_spatial_dimensions,
        output_batch_dimension=numbers.input_batch_dimension,
        output_feature_dimension=numbers.input_feature_dimension,
        output_spatial_dimensions=numbers.input_spatial_dimensions,
    )
    kernel = _regrouped(kernel, into, out, groups)
    convolved = _convolution(foreign, gradient, kernel, Window(tuple(dimensions)), dimension_numbers)
    return foreign.finished(_scaled(foreign, convolved))


def backward_filter(foreign: Foreign) -> XlaOp:
    """The gradient of the kernel: the input with the output's gradient as the kernel; batches are summed."""
    inputs, gradient = _two(foreign, ("input", "gradient of the output"))
    window, numbers = _attributes(foreign)
    sizes = _spatial(inputs.shape, numbers.input_spatial_dimensions)
    steps = _spatial(gradient.shape, numbers.output_spatial_dimensions)
    dimensions = [
        WindowDimension(
            size=count,
            stride=d.window_dilation,
            padding_low=d.padding_low,
            padding_high=(d.size - 1) * d.window_dilation + (count - 1) * d.stride + 1 - size - d.padding_low,
            window_dilation=d.stride,
        )
        for d, size, count in zip(window.dimensions, sizes, steps, strict=True)
    ]
    dimension_numbers = ConvolutionDimensionNumbers(
        input_batch_dimension=numbers.input_feature_dimension,
        input_feature_dimension=numbers.input_batch_dimension,
        input_spatial_dimensions=numbers.input_spatial_dimensions,
        kernel_input_feature_dimension=numbers.output_batch_dimension,
        kernel_output_feature_dimension=numbers.output_feature_dimension,
        kernel_spatial_dimensions=numbers.output_spatial_dimensions,
        output_batch_dimension=numbers.kernel_input_feature_dimension,
        output_feature_dimension=numbers.kernel_output_feature_dimension,
        output_spatial_dimensions=numbers.kernel_spatial_dimensions,
    )
    groups = foreign.op.feature_group_count
    convolved = _convolution(
        foreign, inputs, gradient, Window(tuple(dimensions)), dimension_numbers, batch_groups=groups
    )
    backward = [
        axis for axis, d in zip(numbers.kernel_spatial_dimensions, window.dimensions, strict=True) if d.window_reversal
    ]
    return foreign.finished(_scaled(foreign, rev(convolved, backward)))


def graph(foreign: Foreign) -> XlaOp:
    """Raise UnsupportedError."""
    raise UnsupportedError(
        "graphs of cuDNN have no meaning here", hint="register a function for the call with xlakit.register_custom_call"
    )


def _two(foreign: Foreign, names: Sequence[str]) -> tuple[XlaOp, XlaOp]:
    foreign.config.refuse("side_input_scale")
    if foreign.config.choice("activation_mode", tuple(_FUNCTIONS)) != "kNone":
        raise UnsupportedError(
            f"'{foreign.op.custom_call_target}' with an activation_mode has no meaning here",
            hint="__cudnn$convBiasActivationForward has activations",
        )
    first, second = foreign.need_operands(names)
    return first, second


def _attributes(foreign: Foreign) -> tuple[Window, ConvolutionDimensionNumbers]:
    """The window and the dimension numbers of the forward convolution. Raises ShapeError where there are none."""
    window, numbers = foreign.op.window or Window(), foreign.op.dim_labels
    if numbers is None:
        raise ShapeError("the call has no dim_labels", hint="write dim_labels=bf01_oi01->bf01 or the like")
    if len(numbers.input_spatial_dimensions) != len(window.dimensions):
        raise ShapeError(
            f"dim_labels have {len(numbers.input_spatial_dimensions)} spatial dimensions, "
            f"the window has {len(window.dimensions)}",
            hint="give the window a size for each spatial dimension",
        )
    if foreign.op.batch_group_count != 1 or any(d.base_dilation != 1 for d in window.dimensions):
        raise UnsupportedError(
            "a call of cuDNN with batch groups or base dilation has no meaning here",
            hint="cuDNN has neither; write a convolution instead",
        )
    return window, numbers


def _spatial(shape: Shape, dimensions: Sequence[int]) -> list[int]:
    for dimension in dimensions:
        if not 0 <= dimension < shape.rank:
            raise ShapeError(f"dim_labels name dimension {dimension} of {shape}", hint="compare the ranks")
    return [shape.dimensions[d] for d in dimensions]


def _convolution(
    foreign: Foreign,
    lhs: XlaOp,
    rhs: XlaOp,
    window: Window,
    numbers: ConvolutionDimensionNumbers,
    *,
    batch_groups: int | None = None,
) -> XlaOp:
    """A convolution whose sums have the type in which the call computes."""
    op = Convolution(
        window=window,
        dim_labels=numbers,
        feature_group_count=foreign.op.feature_group_count if batch_groups is None else 1,
        batch_group_count=1 if batch_groups is None else batch_groups,
    )
    kind = foreign.sum_type()
    return emit(op, lhs, rhs, shape=op.result_shape([lhs.shape, rhs.shape], None).with_element_type(kind))


def _scaled(foreign: Foreign, value: XlaOp) -> XlaOp:
    """The value times ``conv_result_scale``, where the config has one."""
    factor = foreign.config.number("conv_result_scale", 1.0)
    if factor == 1:
        return value
    if value.shape.element_type.is_integral:
        raise foreign.config.error("conv_result_scale", "1 for integers")
    return mul(value, foreign.scalar(factor, value))


def _regrouped(kernel: XlaOp, input_feature: int, output_feature: int, groups: int) -> XlaOp:
    """The kernel with its feature groups moved from the output features (which shrink) to the input features."""
    sizes = list(kernel.shape.dimensions)
    if groups == 1:
        return kernel
    if not (0 <= output_feature < len(sizes) and 0 <= input_feature < len(sizes)) or sizes[output_feature] % groups:
        raise ShapeError(
            f"{groups} groups do not divide the output features of the kernel {kernel.shape}",
            hint="feature_group_count divides the output features",
        )
    split = reshape(
        kernel, [*sizes[:output_feature], groups, sizes[output_feature] // groups, *sizes[output_feature + 1 :]]
    )
    # The dimensions after the split, in the order that puts the groups directly before the input features.
    order = [d for d in range(len(sizes) + 1) if d != output_feature]
    position = order.index(input_feature if input_feature < output_feature else input_feature + 1)
    split = transpose(split, [*order[:position], output_feature, *order[position:]])
    sizes[output_feature] //= groups
    sizes[input_feature] *= groups
    return reshape(split, sizes)
