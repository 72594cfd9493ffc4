"""Geometry of windows: their rules, their sizes, and the elements that each window position covers.

Source: XLA's document "Operation semantics", section ReduceWindow; OpenXLA's inference of window shapes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from xlakit.data.shape import UNBOUNDED, Shape
from xlakit.errors import ShapeError
from xlakit.ir.attributes import Window, WindowDimension


def make_window(
    sizes: Sequence[int],
    strides: Sequence[int] = (),
    padding: Sequence[tuple[int, int]] = (),
    base_dilations: Sequence[int] = (),
    window_dilations: Sequence[int] = (),
    reversal: Sequence[bool] = (),
) -> Window:
    """A window of these sizes; what is empty takes its default. Raises ShapeError where the numbers disagree."""
    rank = len(sizes)
    for what, given in (
        ("window_strides", strides),
        ("padding", padding),
        ("base dilations", base_dilations),
        ("window dilations", window_dilations),
        ("window_reversal", reversal),
    ):
        if given and len(given) != rank:
            raise ShapeError(
                f"{what} has {len(given)} entries for a window of {rank} dimensions",
                hint=f"give {rank} entries, or none",
            )
    pairs = padding or [(0, 0)] * rank
    return Window(
        tuple(
            WindowDimension(size, stride, low, high, window_dilation, base_dilation, bool(turned))
            for size, stride, (low, high), window_dilation, base_dilation, turned in zip(
                sizes,
                strides or [1] * rank,
                pairs,
                window_dilations or [1] * rank,
                base_dilations or [1] * rank,
                reversal or [False] * rank,
                strict=True,
            )
        )
    )


def check_window_dimension(number: int, window: WindowDimension) -> None:
    """Raise ShapeError unless size, stride and dilations are positive."""
    for what, value in (
        ("size", window.size),
        ("stride", window.stride),
        ("base dilation", window.base_dilation),
        ("window dilation", window.window_dilation),
    ):
        if value < 1:
            raise ShapeError(
                f"the {what} {value} of window dimension {number} must be at least 1",
                hint=f"give 1 for the usual {what}",
            )


def window_output(size: int, window: WindowDimension) -> int:
    """The number of outputs of a window over a dimension of ``size``."""
    return UNBOUNDED if size == UNBOUNDED else window.output_size(size)


def window_shape(base: Shape, window: Window) -> Shape:
    """The shape, of the base's element type, of one element for each placement; raises ShapeError."""
    if len(window.dimensions) != base.rank:
        raise ShapeError(
            f"the window has {len(window.dimensions)} dimensions, the array has rank {base.rank}",
            hint=f"give {base.rank} window dimensions; size 1 for those that the window does not span",
        )
    for number, dimension in enumerate(window.dimensions):
        check_window_dimension(number, dimension)
    sizes = [window_output(size, d) for size, d in zip(base.dimensions, window.dimensions, strict=True)]
    return base.with_dimensions(sizes, base.dynamic_dimensions)


def window_positions(
    sizes: Sequence[int], window: Sequence[WindowDimension]
) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """For each position within the window, in order: the outputs that read an element there, and these elements.

    Both are tuples of slices that select boxes of equal sizes, without the outputs for which the position is padding or
    a hole. Positions at which no output reads an element are omitted.
    """
    axes = [[_overlap(size, d, position) for position in range(d.size)] for size, d in zip(sizes, window, strict=True)]
    for pairs in itertools.product(*axes):
        if all(pair is not None for pair in pairs):
            outputs = tuple(pair[0] for pair in pairs if pair is not None)
            yield outputs, tuple(pair[1] for pair in pairs if pair is not None)


def _overlap(size: int, window: WindowDimension, position: int) -> tuple[slice, slice] | None:
    """The placements o whose ``position`` is on an element i, and those elements: o * stride + shift = i * dilation."""
    outputs = window.output_size(size)
    shift = position * window.window_dilation - window.padding_low
    stride, dilation = window.stride, window.base_dilation
    common = math.gcd(stride, dilation)
    if shift % common:
        return None
    # Solutions repeat every `period` placements, `step` elements apart.
    period, step = dilation // common, stride // common
    first = (-shift // common * pow(step, -1, period)) % period if period > 1 else 0
    element = (first * stride + shift) // dilation
    if element < 0:
        skipped = -(element // step)
        first, element = first + skipped * period, element + skipped * step
    if first >= outputs or element >= size:
        return None
    count = min((outputs - 1 - first) // period, (size - 1 - element) // step) + 1
    return (
        slice(first, first + count * period, period),
        slice(element, element + count * step, step),
    )
