"""Recognizes stacks: concatenations of pieces of equal size, whose pieces are computed side by side in one loop.

``concatenate(f(x, y), g(x, y))`` is one loop that computes the elements of both pieces at an index, and shares common
subexpressions. The fusion pass and the code generator both use this module.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlakit.ir.instruction import Instruction
from xlakit.ir.traits import Elementwise
from xlakit.ops.movement import Concatenate, Reshape, Transpose
from xlakit.options import knob

# The largest number of pieces that are computed side by side.
MOST_PIECES = knob("stacking.most_pieces", 16, 2)
# How many instructions the search visits for one result.
_MOST_VISITED = 64


def pieces_of(root: Instruction) -> dict[int, int]:
    """Maps each dimension of a result that consists of equal pieces to their number; empty if the result is no stack.

    A stack is a concatenation followed by elementwise operations, reshapes and transposes.
    """
    counts: dict[int, int] = {}
    if not root.shape.is_array:
        return {}
    # Each instruction with the dimension of the root that each of its dimensions corresponds to, or None.
    stack: list[tuple[Instruction, tuple[int | None, ...]]] = [(root, tuple(range(root.shape.rank)))]
    seen = {root}
    while stack and len(seen) < _MOST_VISITED:
        node, dims = stack.pop()
        if isinstance(node.op, Concatenate):
            dimension = dims[node.op.dimension]
            if dimension is None:
                continue
            count = math.lcm(counts.get(dimension, 1), _count(node.operands, node.op.dimension))
            if count > MOST_PIECES.value:
                continue
            counts[dimension] = count
            dims = tuple(None if d == node.op.dimension else p for d, p in enumerate(dims))
        elif isinstance(node.op, Reshape):
            moved = _through_reshape(node, dims)
            if moved is None:
                continue
            dims = moved
        elif isinstance(node.op, Transpose):
            dims = tuple([dims[node.op.dimensions.index(d)] for d in range(len(dims))])
        elif not isinstance(node.op, Elementwise):
            continue
        for operand in node.operands:
            if operand not in seen and operand.shape.rank == len(dims):
                seen.add(operand)
                stack.append((operand, dims))
    return counts if 1 < math.prod(counts.values()) <= MOST_PIECES.value else {}


def _count(operands: Sequence[Instruction], dimension: int) -> int:
    """The number of equal pieces of a concatenation such that no piece crosses operands."""
    sizes = [o.shape.dimensions[dimension] for o in operands]
    return sum(sizes) // max(1, math.gcd(*sizes))


def _through_reshape(reshape: Instruction, dims: Sequence[int | None]) -> tuple[int | None, ...] | None:
    """The dimensions of the root for those of a reshape's operand; None unless it only adds or drops sizes of 1."""
    sizes, operand_sizes = reshape.shape.dimensions, reshape.operands[0].shape.dimensions
    if [n for n in sizes if n != 1] != [n for n in operand_sizes if n != 1]:
        return None
    proper = iter([p for p, size in zip(dims, sizes, strict=True) if size != 1])
    return tuple(None if size == 1 else next(proper) for size in operand_sizes)
