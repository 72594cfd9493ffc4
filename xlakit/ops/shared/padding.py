"""Padding: putting values around and between elements, and the SAME and VALID paddings of windows.

Source: XLA's document "Operation semantics", sections Pad, Conv, ReduceWindow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.arguments import converting
from xlakit.errors import ShapeError
from xlakit.ir.attributes import PaddingDimension
from xlakit.ir.enums import HloEnum
from xlakit.ir.operation import Array


class Padding(HloEnum):
    """Paddings by name. SAME gives as many placements as elements at stride 1, VALID adds nothing."""

    VALID = "VALID"
    SAME = "SAME"


@converting
def make_padding(
    input_dimensions: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding | str,
) -> list[tuple[int, int]]:
    """The (low, high) padding of each dimension for SAME or VALID; raises ShapeError.

    SAME gives ceil(input / stride) placements; of an odd amount the larger half is at the high end.
    Source: XLA's MakePadding.
    """
    if not len(input_dimensions) == len(window_dimensions) == len(window_strides):
        raise ShapeError(
            f"{len(input_dimensions)} input dimensions, {len(window_dimensions)} window dimensions and "
            f"{len(window_strides)} strides are given; their numbers must be equal",
            hint=f"give one window size and one stride for each of the {len(input_dimensions)} dimensions",
        )
    if Padding.of(padding) is Padding.VALID:
        return [(0, 0)] * len(input_dimensions)
    pairs: list[tuple[int, int]] = []
    for size, window, stride in zip(input_dimensions, window_dimensions, window_strides, strict=True):
        if stride < 1:
            raise ShapeError(f"stride {stride} must be at least 1", hint="give 1 for a window at every element")
        placements = -(-size // stride)
        total = max(0, (placements - 1) * stride + window - size)
        pairs.append((total // 2, total - total // 2))
    return pairs


def padded_size(size: int, pad: PaddingDimension) -> int:
    """The padded size of a dimension of ``size``; negative if negative padding cuts more elements than there are."""
    return size + max(size - 1, 0) * pad.interior_padding + pad.edge_padding_low + pad.edge_padding_high


def pad_array(array: Array, value: object, padding: Sequence[PaddingDimension]) -> Array:
    """``array`` with ``value`` around and between its elements; negative edges cut."""
    sizes = [max(0, padded_size(size, pad)) for size, pad in zip(array.shape, padding, strict=True)]
    result = np.full(sizes, value, dtype=array.dtype)
    source: list[slice] = []
    target: list[slice] = []
    for size, wide, pad in zip(array.shape, sizes, padding, strict=True):
        low, step = pad.edge_padding_low, pad.interior_padding + 1
        # Element i lands at low + i * step; what lands outside 0 .. wide - 1 is cut.
        first = max(0, -(low // step))
        end = max(first, min(size, (wide - 1 - low) // step + 1))
        source.append(slice(first, end))
        start = low + first * step
        target.append(slice(start, start + (end - first) * step, step))
    result[tuple(target)] = array[tuple(source)]
    return result


def zero_extend(array: Array, sizes: Sequence[int]) -> Array:
    """``array`` in the low corner of zeros of at least ``sizes``."""
    missing = [max(0, size - have) for size, have in zip(sizes, array.shape, strict=True)]
    if not any(missing):
        return array
    return pad_array(array, array.dtype.type(0), [PaddingDimension(0, more) for more in missing])
