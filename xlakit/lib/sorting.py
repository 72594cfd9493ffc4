"""The greatest elements of arrays.

Source: ``xla/hlo/builder/lib/sorting.h``.
"""

from __future__ import annotations

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import make_shape
from xlakit.errors import ShapeError
from xlakit.lib.slicing import slice_in_minor_dims, torch_gather
from xlakit.ops.data import iota, tuple_
from xlakit.ops.elementwise.binary import add, mul
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.handle import XlaOp, building
from xlakit.ops.movement import concat_in_dim, reshape
from xlakit.ops.shared.numerics import limits
from xlakit.ops.sort import top_k as top_k_operation


@building
def top_k(input: XlaOp, k: int, index_type: PrimitiveType = PrimitiveType.S32) -> XlaOp:
    """The ``k`` greatest elements of the last dimension, greatest first, and their positions.

    input: an array of rank 1 or more; floating point numbers are in total order, so NaN is the greatest.
    k: at most the size of the last dimension. index_type: the integer type of the positions.

    Gives a tuple of values and positions; of equal elements the one at the lower position goes first.
    Raises ShapeError. Source: TopK.
    """
    _check(input, k, index_type)
    found = top_k_operation(input, k)
    return tuple_(input.builder, found[0], convert_element_type(found[1], index_type))


@building
def top_k_with_partitions(
    input: XlaOp, k: int, num_partitions: int = 1, index_type: PrimitiveType = PrimitiveType.S32
) -> XlaOp:
    """:func:`top_k` in two steps: of each of ``num_partitions`` parts of the last dimension, then of what they gave.

    The result is that of :func:`top_k`. Raises ShapeError. Source: TopKWithPartitions.
    """
    _check(input, k, index_type)
    if num_partitions < 1:
        raise ShapeError(f"{num_partitions} partitions", hint="give at least 1")
    *batch, size = input.shape.dimensions
    length = -(-size // num_partitions)
    if k >= length or input.shape.is_dynamic:
        return top_k(input, k, index_type)
    whole = size // length
    parts = top_k_operation(reshape(_part(input, 0, whole * length), new_sizes=[*batch, whole, length]), k)
    numbers = iota(input.builder, make_shape(PrimitiveType.S32, [*batch, whole, k]), len(batch))
    positions = add(parts[1], mul(numbers, length))
    values, places = (reshape(p, new_sizes=[*batch, whole * k]) for p in (parts[0], positions))
    if whole * length < size:
        rest = top_k_operation(_part(input, whole * length, size), min(k, size - whole * length))
        # Later positions come later, so that the first of equal elements stays the first.
        values = concat_in_dim([values, rest[0]], len(batch))
        places = concat_in_dim([places, add(rest[1], whole * length)], len(batch))
    best = top_k_operation(values, k)
    found = torch_gather(places, best[1], len(batch))
    return tuple_(input.builder, best[0], convert_element_type(found, index_type))


def _part(x: XlaOp, start: int, end: int) -> XlaOp:
    return slice_in_minor_dims(x, [start], [end])


def _check(input: XlaOp, k: int, index_type: PrimitiveType) -> None:
    shape = input.shape
    if not shape.is_array or not shape.rank or not 0 <= k <= shape.dimensions[-1]:
        raise ShapeError(f"{shape} has no {k} elements in its last dimension", hint="give an array, and a smaller k")
    if not index_type.is_integral or shape.dimensions[-1] - 1 > limits(index_type)[1]:
        raise ShapeError(
            f"{index_type.hlo_name} does not number {shape.dimensions[-1]} elements", hint="take xlakit.S32 or S64"
        )
