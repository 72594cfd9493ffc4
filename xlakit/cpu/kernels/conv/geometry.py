"""A convolution as sums over strides: the stride of every array for groups, batches, features and spatial dimensions.

Zeros between the elements of the input (base dilation) are never read. With base dilation b and stride s, the window
positions whose numbers have the same remainder modulo b / gcd(b, s) form a phase. They read the input at a constant
stride, with the same taps of the kernel; their other taps fall on zeros.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from xlakit.data.layout import row_major_strides
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.ir.attributes import WindowDimension
from xlakit.ir.enums import ConvolutionKind
from xlakit.ops.convolution import Convolution
from xlakit.options import knob

# With more phases than this, the input is copied with its zeros between elements written out.
_MOST_PHASES = knob("convolution_geometry.most_phases", 16, 1)


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial dimension in one phase.

    Output ``o`` and tap ``t`` read element ``o * stride + t * dilation + shift`` of the input, which has ``size``
    elements and zeros around them. ``input``, ``kernel`` and ``output`` are the strides of the arrays in memory;
    ``first_kernel`` and ``first_output`` are the offsets at which this phase begins in kernel and result.
    """

    outputs: int
    taps: int
    stride: int
    dilation: int
    shift: int
    size: int
    input: int
    kernel: int
    output: int
    first_kernel: int
    first_output: int

    @property
    def reach(self) -> tuple[int, int]:
        """The first and the last input element that is read; they may be outside of the input."""
        span, taps = (self.outputs - 1) * self.stride, (self.taps - 1) * self.dilation
        return self.shift + min(0, taps), self.shift + span + max(0, taps)

    @property
    def low(self) -> int:
        """The number of zeros needed before the first element."""
        return max(0, -self.reach[0]) if self.outputs and self.taps else 0

    @property
    def high(self) -> int:
        """The number of zeros needed after the last element."""
        return max(0, self.reach[1] - self.size + 1) if self.outputs and self.taps else 0

    def with_reversed_taps(self) -> Axis:
        """The same axis with its taps numbered from the last one to the first."""
        if not self.taps:
            return self
        last = self.taps - 1
        return replace(
            self,
            dilation=-self.dilation,
            shift=self.shift + last * self.dilation,
            kernel=-self.kernel,
            first_kernel=self.first_kernel + last * self.kernel,
        )


@dataclass(frozen=True, slots=True)
class Step:
    """A non-spatial dimension: its size, and its strides in input, kernel and result (0 if the array lacks it)."""

    size: int
    input: int
    kernel: int
    output: int


@dataclass(frozen=True, slots=True)
class Geometry:
    """A convolution. ``phases`` has the axes of each phase; ``inputs`` are the features that are summed over."""

    kinds: tuple[PrimitiveType, PrimitiveType, PrimitiveType]
    groups: Step
    batch: Step
    inputs: Step
    features: Step
    phases: tuple[tuple[Axis, ...], ...]
    # The number of zeros written between elements, for each spatial dimension of the input.
    holes: tuple[int, ...]

    @property
    def products(self) -> int:
        """The number of multiplications."""
        elements = sum(math.prod(a.outputs * a.taps for a in axes) for axes in self.phases)
        return elements * self.groups.size * self.batch.size * self.inputs.size * self.features.size


def convolution_geometry(op: Convolution, lhs: Shape, rhs: Shape, result: Shape) -> Geometry:
    """The geometry of a convolution of row-major arrays of static shapes."""
    numbers = op.dim_labels
    left, right, out = (
        row_major_strides(lhs.dimensions),
        row_major_strides(rhs.dimensions),
        row_major_strides(result.dimensions),
    )
    batch, inputs = numbers.input_batch_dimension, numbers.kernel_input_feature_dimension
    feature = numbers.kernel_output_feature_dimension
    count = max(op.feature_group_count, op.batch_group_count)
    batches = lhs.dimensions[batch] // op.batch_group_count
    features = rhs.dimensions[feature] // count
    of_input = left[numbers.input_feature_dimension]
    of_output = out[numbers.output_feature_dimension]
    # The offset of the next group in the input: other members of the batch, or other features.
    group = batches * left[batch] if op.batch_group_count > 1 else rhs.dimensions[inputs] * of_input
    window = list(op.window.dimensions)
    if op.convolution_kind is ConvolutionKind.CONVOLUTION_KIND_DGRAD:
        window = [replace(d, window_reversal=not d.window_reversal) for d in window]
    spatial = list(zip(numbers.input_spatial_dimensions, numbers.kernel_spatial_dimensions, strict=True))
    sizes = [lhs.dimensions[d] for d, _ in spatial]
    phases = math.prod(d.base_dilation // math.gcd(d.stride, d.base_dilation) for d in window)
    holes = [d.base_dilation - 1 if phases > _MOST_PHASES.value else 0 for d in window]
    axes: list[list[Axis]] = []
    for number, (d, size, (i, k)) in enumerate(zip(window, sizes, spatial, strict=True)):
        o = out[numbers.output_spatial_dimensions[number]]
        outputs = d.output_size(size)
        if holes[number]:
            size, d = max(0, (size - 1) * d.base_dilation + 1), replace(d, base_dilation=1)
        axes.append(_axis_phases(d, size, outputs, (left[i], right[k], o)))
    return Geometry(
        kinds=(lhs.element_type, rhs.element_type, result.element_type),
        groups=Step(count, group, features * right[feature], features * of_output),
        batch=Step(batches, left[batch], 0, out[numbers.output_batch_dimension]),
        inputs=Step(rhs.dimensions[inputs], of_input, right[inputs], 0),
        features=Step(features, 0, right[feature], of_output),
        phases=tuple(itertools.product(*axes)),
        holes=tuple(holes),
    )


def _axis_phases(d: WindowDimension, size: int, outputs: int, strides: Sequence[int]) -> list[Axis]:
    """The phases of a spatial dimension; ``strides`` are those of input, kernel and output, in elements."""
    of_input, of_kernel, of_output = strides
    common = math.gcd(d.stride, d.base_dilation)
    period = d.base_dilation // common
    phases: list[Axis] = []
    for phase in range(min(period, outputs)):
        start = phase * d.stride - d.padding_low
        taps = [k for k in range(d.size) if (start + k * d.window_dilation) % d.base_dilation == 0]
        first = taps[0] if taps else 0
        step = taps[1] - taps[0] if len(taps) > 1 else 1
        kernel_step, kernel_first = of_kernel * step, of_kernel * first
        if d.window_reversal:
            kernel_step, kernel_first = -kernel_step, of_kernel * (d.size - 1 - first)
        axis = Axis(
            outputs=-(-(outputs - phase) // period),
            taps=len(taps),
            stride=d.stride // common,
            dilation=step * d.window_dilation // d.base_dilation if len(taps) > 1 else 1,
            shift=(start + first * d.window_dilation) // d.base_dilation,
            size=size,
            input=of_input,
            kernel=kernel_step,
            output=of_output * period,
            first_kernel=kernel_first,
            first_output=of_output * phase,
        )
        # Taps in the order of the kernel's memory.
        phases.append(axis if axis.kernel >= 0 else axis.with_reversed_taps())
    return phases
