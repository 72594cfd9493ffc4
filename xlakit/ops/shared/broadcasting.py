"""Broadcasting of operands with different dimensions to common ones.

Source: XLA's two documents on broadcasting. XLA infers no mapping between different ranks: a scalar is broadcast to
any shape, and any other operand of lower rank needs ``broadcast_dimensions``.
"""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.data.shape import Shape
from xlakit.errors import ShapeError
from xlakit.ops.handle import XlaOp, emit
from xlakit.ops.shared.hints import below


def check_broadcast_dimensions(operand: Shape, rank: int, broadcast_dimensions: Sequence[int]) -> None:
    """Raise ShapeError unless the dimensions map those of ``operand`` into ``rank``, strictly increasing."""
    if len(broadcast_dimensions) != operand.rank:
        raise ShapeError(
            f"broadcast_dimensions {list(broadcast_dimensions)} has {len(broadcast_dimensions)} entries, the operand "
            f"of lower rank {operand} has rank {operand.rank}",
            hint="say for each of its dimensions which dimension of the higher-rank operand it matches",
        )
    for i, dimension in enumerate(broadcast_dimensions):
        if not 0 <= dimension < rank:
            raise ShapeError(f"broadcast dimension {dimension} is out of range for rank {rank}", hint=below(rank))
        if i and dimension <= broadcast_dimensions[i - 1]:
            raise ShapeError(
                f"broadcast_dimensions {list(broadcast_dimensions)} must be strictly increasing",
                hint=f"give {sorted(set(broadcast_dimensions))}; transpose the operand for another order",
            )


def broadcast_shapes(lhs: Shape, rhs: Shape, broadcast_dimensions: Sequence[int] = ()) -> tuple[int, ...]:
    """The dimensions of an element-wise binary operation on ``lhs`` and ``rhs``; raises ShapeError."""
    if not lhs.is_array or not rhs.is_array:
        raise ShapeError(
            "element-wise operations take arrays", hint="take the arrays out of a tuple with get_tuple_element"
        )
    if lhs.rank == rhs.rank:
        if broadcast_dimensions and list(broadcast_dimensions) != list(range(lhs.rank)):
            raise ShapeError(
                f"broadcast_dimensions {list(broadcast_dimensions)} given for operands of the same rank {lhs.rank}",
                hint="leave them out",
            )
        return _degenerate(lhs.dimensions, rhs.dimensions)
    low, high = (lhs, rhs) if lhs.rank < rhs.rank else (rhs, lhs)
    if low.rank == 0:
        if broadcast_dimensions:
            raise ShapeError(
                "a scalar takes no broadcast_dimensions",
                hint="leave broadcast_dimensions out; a scalar matches any shape",
            )
        return high.dimensions
    if not broadcast_dimensions:
        raise ShapeError(
            f"operands of rank {lhs.rank} and {rhs.rank} need broadcast_dimensions",
            hint="XLA infers nothing between different ranks, as NumPy does; say which dimensions match",
        )
    check_broadcast_dimensions(low, high.rank, broadcast_dimensions)
    widened = [1] * high.rank
    for size, dimension in zip(low.dimensions, broadcast_dimensions, strict=True):
        if size not in (1, high.dimensions[dimension]) and high.dimensions[dimension] != 1:
            raise ShapeError(
                f"dimension of size {size} cannot match dimension {dimension} of size {high.dimensions[dimension]}",
                hint=f"name a dimension of size {size} in broadcast_dimensions, or make one of the two 1",
            )
        widened[dimension] = size
    return _degenerate(tuple(widened), high.dimensions)


def _degenerate(lhs: Sequence[int], rhs: Sequence[int]) -> tuple[int, ...]:
    out: list[int] = []
    for i, (a, b) in enumerate(zip(lhs, rhs, strict=True)):
        if a != b and 1 not in (a, b):
            raise ShapeError(
                f"dimension {i} has size {a} on one side and {b} on the other",
                hint="sizes must be equal, or one of them 1",
            )
        out.append(b if a == 1 else a)
    return tuple(out)


def broadcast_together(lhs: XlaOp, rhs: XlaOp, broadcast_dimensions: Sequence[int] = ()) -> tuple[XlaOp, XlaOp]:
    """Both operands of a binary operation, with the instructions added that give them the same dimensions."""
    try:
        dimensions = broadcast_shapes(lhs.shape, rhs.shape, broadcast_dimensions)
    except ShapeError as error:
        # Said here, where arrays and numbers among the operands have become constants.
        raise error.at(shapes=(lhs.shape, rhs.shape)) from None
    rank = len(dimensions)

    def widen(operand: XlaOp) -> XlaOp:
        if operand.shape.dimensions == dimensions:
            return operand
        own = operand.shape.rank
        mapping = tuple(range(rank)) if own == rank else tuple(broadcast_dimensions) if own else ()
        return expand(operand, dimensions, mapping)

    return widen(lhs), widen(rhs)


def expand(operand: XlaOp, dimensions: Sequence[int], broadcast_dimensions: Sequence[int]) -> XlaOp:
    """``operand`` spread to ``dimensions``; its dimension i becomes ``broadcast_dimensions[i]``, stretched from 1."""
    from xlakit.ops.movement import Broadcast, reshape

    shape = operand.shape
    kept = [
        i
        for i, d in enumerate(broadcast_dimensions)
        if shape.dimensions[i] == dimensions[d] and not (shape.dimensions[i] == 1 and dimensions[d] != 1)
    ]
    if len(kept) < shape.rank:
        # HLO's broadcast does not stretch, so the dimensions of size 1 go first.
        operand = reshape(operand, [shape.dimensions[i] for i in kept])
    result_dynamic = [False] * len(dimensions)
    for i in kept:
        result_dynamic[broadcast_dimensions[i]] = shape.dynamic_dimensions[i]
    result = shape.with_dimensions(dimensions, result_dynamic)
    return emit(Broadcast(dimensions=tuple(broadcast_dimensions[i] for i in kept)), operand, shape=result)
