"""Broadcasts that repeat.

Source: ``xla/hlo/builder/lib/broadcast.h``.
"""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.errors import ShapeError
from xlakit.ops.handle import XlaOp, building
from xlakit.ops.movement import broadcast_in_dim, reshape


@building
def broadcast_to(input: XlaOp, output_dims: Sequence[int]) -> XlaOp:
    """An array repeated until it has the sizes ``output_dims``.

    input: an array of static dimensions. Its last dimension belongs to the last of ``output_dims``, and so on.
    output_dims: at least as many sizes. Each is a multiple of the input's size, whose elements in their order are
        repeated so often: [a, b] becomes [a, b, a, b].

    Raises ShapeError. Source: BroadcastTo.
    """
    shape = input.shape
    if not shape.is_array or shape.is_dynamic or len(output_dims) < shape.rank:
        raise ShapeError(
            f"cannot broadcast {shape} to {list(output_dims)}", hint="give at least as many sizes, of a static array"
        )
    padded = [1] * (len(output_dims) - shape.rank) + list(shape.dimensions)
    split: list[int] = []
    kept: list[int] = []
    for size, wanted in zip(padded, output_dims, strict=True):
        if wanted < 0 or (wanted != size and (size == 0 or wanted % size)):
            raise ShapeError(
                f"cannot broadcast a dimension of {size} to {wanted}",
                hint="each size must be a multiple of the input's",
            )
        if size == wanted:
            kept.append(len(split))
            split.append(size)
        elif size == 1:
            split.append(wanted)
        else:
            kept.append(len(split) + 1)
            split += [wanted // size, size]
    # A size of 1 that becomes another one has no dimension to map.
    sizes = [size for size, wanted in zip(padded, output_dims, strict=True) if size == wanted or size != 1]
    return reshape(broadcast_in_dim(reshape(input, new_sizes=sizes), split, kept), new_sizes=list(output_dims))
