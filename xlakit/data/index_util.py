"""IndexUtil: multi-dimensional indices to linear ones and back, under any layout and padding.

Source: XLA's document "Shapes and layout", section on indexing into arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.arguments import converting
from xlakit.data.shape import Shape
from xlakit.errors import ShapeError


def padded_sizes(shape: Shape) -> tuple[int, ...]:
    """The width of each dimension in memory: its padded width where the layout pads, else its size."""
    layout = shape.layout_or_default
    return layout.padded_dimensions or shape.dimensions


@converting
def linear_size(shape: Shape) -> int:
    """How many elements the linear buffer of ``shape`` has, padding included."""
    return int(np.prod([1, *padded_sizes(shape)], dtype=object))


@converting
def multidimensional_index_to_linear_index(shape: Shape, multi_index: Sequence[int]) -> int:
    """The position in the linear buffer of the element at ``multi_index`` (int64 numbers).

    Raises ShapeError where the index has the wrong length or lies outside the array.
    """
    if len(multi_index) != shape.rank:
        raise ShapeError(
            f"index {list(multi_index)} has {len(multi_index)} numbers for rank {shape.rank}",
            hint=f"give {shape.rank} numbers, one for each dimension",
        )
    for position, size in zip(multi_index, shape.dimensions, strict=True):
        if not 0 <= position < size:
            raise ShapeError(
                f"index {list(multi_index)} lies outside {shape}",
                hint=f"give a number from 0 to {size - 1} for a dimension of size {size}",
            )
    widths = padded_sizes(shape)
    linear, scale = 0, 1
    for dimension in shape.layout_or_default.minor_to_major:
        linear += scale * multi_index[dimension]
        scale *= widths[dimension]
    return linear


@converting
def linear_index_to_multidimensional_index(shape: Shape, linear_index: int) -> tuple[int, ...]:
    """The element at a position of the linear buffer.

    Raises ShapeError where the position lies outside the buffer or in the padding.
    """
    if not 0 <= linear_index < linear_size(shape):
        raise ShapeError(
            f"linear index {linear_index} lies outside {shape} with {linear_size(shape)} positions",
            hint=f"give a position from 0 to {linear_size(shape) - 1}",
        )
    widths = padded_sizes(shape)
    multi_index = [0] * shape.rank
    rest = linear_index
    for dimension in shape.layout_or_default.minor_to_major:
        rest, multi_index[dimension] = divmod(rest, widths[dimension])
        if multi_index[dimension] >= shape.dimensions[dimension]:
            raise ShapeError(
                f"linear index {linear_index} of {shape} is padding of dimension {dimension}",
                hint="only positions that multidimensional_index_to_linear_index gives hold elements",
            )
    return tuple(multi_index)
