"""Convolutions whose kernel is split along spatial dimensions, as in gradients of kernels: there the convolution's
kernel is the gradient of the split result.

Each member convolves its part of the kernel with the range of the image under it; the results are partial sums::

    image    | 0  1  2  3 | 4  5  6  7 |     member 0: a b c d over 0 to 5, which needs 4 and 5 of the next part
    kernel   | a  b  c  d | e  f  g  h |     member 1: e f g h over 4 to 9, the last two of which are padding
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.ir.attributes import Window, WindowDimension
from xlakit.ir.enums import ConvolutionKind
from xlakit.ir.instruction import Instruction
from xlakit.ops.convolution import Convolution
from xlakit.ops.elementwise.binary import Add
from xlakit.passes.spmd.pieces.local import local_convolution, splits_of
from xlakit.passes.spmd.shardings.factors import Factors, factors_of
from xlakit.passes.spmd.shardings.tilings import Split, Tiling, joint_split, local_sizes, parts, teams_over
from xlakit.passes.spmd.shardings.values import Piece
from xlakit.passes.spmd.split_dimensions.halo import Ranges, traffic
from xlakit.passes.spmd.split_dimensions.splitter import Splitter
from xlakit.passes.spmd.split_dimensions.windows import RANGES, dilated, windowed, with_factors


def convolution(s: Splitter) -> Piece | None:
    """A convolution of an image or a kernel that is split along spatial dimensions."""
    found = _by_kernel(s)
    return windowed(s) if found is None else found


@dataclass(frozen=True)
class _Dimension:
    """A spatial dimension that the kernel is split along.

    ``image``, ``kernel``: its number in them; ``ranges``: of the image, under each part; ``window``: of a part.
    """

    number: int
    image: int
    kernel: int
    split: Split
    ranges: Ranges
    window: WindowDimension


def _by_kernel(s: Splitter) -> Piece | None:
    old, given, rule = s.old, s.given, factors_of(s.old)
    is_reversed = old.op_as(Convolution).convolution_kind is ConvolutionKind.CONVOLUTION_KIND_DGRAD
    if rule is None or is_reversed or old.shape.element_type is PrimitiveType.PRED or not old.shape.num_elements:
        return None
    along = _dimensions(s)
    if not along:
        return None
    operands = (
        with_factors(rule.operands[0], {d.image: d.number for d in along}),
        with_factors(rule.operands[1], {d.kernel: d.number for d in along}),
    )
    factors = Factors(operands, rule.results, rule.summed, rule.groups)
    tilings, (tiling,) = s.tilings(factors, {RANGES + d.number: d.split for d in along})
    if not _is_cheaper(old, given, tilings, tiling, along):
        return None
    image, kernel = s.local(tilings)
    for dim in along:
        size = given[0].shape.dimensions[dim.image]
        halo = s.halo(tilings[0], dim.image, dim.split, size)
        image = halo.fetched(image, dim.ranges, s.make.zeros(image.shape.element_type))
    op = local_convolution(old.op_as(Convolution), *tilings)
    windows = {d.number: d.window for d in along}
    window = Window(tuple(windows.get(n, own) for n, own in enumerate(op.window.dimensions)))
    shape = old.shape.with_dimensions(local_sizes(tiling, old.shape.dimensions))
    made = s.make.like(old, dataclasses.replace(op, window=window), [image, kernel], shape)
    numbers = joint_split([d.split for d in along], s.scope.size)
    splits = splits_of(factors, tilings)
    for split in [splits[f] for f in rule.summed if f in splits]:
        made = s.make.all_reduce(made, Add(), s.scope.groups(teams_over(split, (*tiling, numbers))))
    return Piece(made, tiling, s.scope, old.shape, unreduced=numbers)


def _dimensions(s: Splitter) -> list[_Dimension]:
    """The spatial dimensions along which the kernel is in equal parts, and the image has the same split or none."""
    op, (image, kernel) = s.old.op_as(Convolution), s.known()
    labels = op.dim_labels
    found: list[_Dimension] = []
    for number, window in enumerate(op.window.dimensions):
        source, own = labels.input_spatial_dimensions[number], labels.kernel_spatial_dimensions[number]
        split = kernel[own]
        if split is None or window.size % parts(split) or window.window_reversal or image[source] not in (None, split):
            continue
        reading = _reading(s.old.shape.dimensions[labels.output_spatial_dimensions[number]], window, parts(split))
        if reading is not None:
            found.append(_Dimension(number, source, own, split, *reading))
    return found


def _reading(placements: int, window: WindowDimension, count: int) -> tuple[Ranges, WindowDimension] | None:
    """The range of the image under each part of a kernel, and the window of a part; None if parts differ."""
    part = window.size // count
    reach = (placements - 1) * window.stride + (part - 1) * window.window_dilation
    found = dilated(part * window.window_dilation, window.padding_low, window.base_dilation, [reach] * count)
    if found is None:
        return None
    ranges, low, high = found
    return ranges, dataclasses.replace(window, size=part, padding_low=low, padding_high=high)


def _is_cheaper(
    old: Instruction, given: Sequence[Piece], tilings: Sequence[Tiling], tiling: Tiling, along: Sequence[_Dimension]
) -> bool:
    """Whether the exchanges and the all-reduce of the results send less than gathering image and kernel."""
    count = math.prod(parts(dim.split) for dim in along)
    moved = traffic(given[0].shape.dimensions, tilings[0], [(dim.image, dim.ranges) for dim in along])
    kernel = math.prod(local_sizes(tilings[1], given[1].shape.dimensions)) * (count - 1)
    sums = 2.0 * (count - 1) / count * math.prod(local_sizes(tiling, old.shape.dimensions))
    return moved is not None and moved[0] + sums < moved[1] + kernel
