"""Dispatch to the functions that split operations along dimensions that they work along."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from xlakit.ir.attributes import PaddingDimension
from xlakit.ir.instruction import Instruction
from xlakit.ops.fft import Fft
from xlakit.ops.linear_algebra import Cholesky, TriangularSolve
from xlakit.ops.movement import Pad, Slice
from xlakit.ops.reduction import Reduce
from xlakit.ops.sort import Sort, TopK
from xlakit.ops.windows import ReduceWindow
from xlakit.passes.spmd.pieces.pieces import Pieces
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Tiling
from xlakit.passes.spmd.shardings.values import Piece, Value
from xlakit.passes.spmd.split_dimensions import (
    all_to_all,
    concatenation,
    kernel_gradients,
    products,
    reductions,
    reshapes,
    rows,
    scans,
    selections,
    windows,
)
from xlakit.passes.spmd.split_dimensions.splitter import Splitter

# Gives None if it does not apply, or if gathering is cheaper.
_Rule = Callable[[Splitter], Value | None]


def _convolution(s: Splitter) -> Value | None:
    found = kernel_gradients.convolution(s)
    return products.product(s) if found is None else found


_RULES: Final[dict[str, _Rule]] = {
    "concatenate": concatenation.concatenate,
    "convolution": _convolution,
    "dot": products.product,
    "dynamic-slice": rows.dynamic_slice,
    "dynamic-update-slice": rows.dynamic_update_slice,
    "gather": rows.gather,
    "pad": windows.windowed,
    "reduce": reductions.reduce,
    "reduce-window": scans.reduce_window,
    "reshape": reshapes.reshape,
    "reverse": windows.windowed,
    "scatter": rows.scatter,
    "select-and-scatter": selections.select_and_scatter,
    "slice": windows.windowed,
    "topk": reductions.top_k,
}

# Operations whose operands may be resplit along other dimensions, by an all-to-all.
_RESPLIT: Final = (Cholesky, Fft, Reduce, ReduceWindow, Sort, TopK, TriangularSolve)


def along_split_dimensions(
    pieces: Pieces, old: Instruction, operands: Sequence[Value], scope: Scope, hint: Tiling | None
) -> Value | None:
    """The result of an operation whose operands are split along dimensions that it works along; None if it is computed
    by its factors.
    """
    function = _RULES.get(old.opcode)
    given = [v for v in operands if isinstance(v, Piece)]
    if len(given) != len(operands) or any(p.shape.is_dynamic for p in given if p.shape.is_array):
        return None
    splitter = Splitter(pieces, old, given, scope, hint)
    found = None if function is None else function(splitter)
    if found is None and isinstance(old.op, _RESPLIT):
        found = all_to_all.resplit(splitter)
    return found


def repadded(old: Instruction, operands: Sequence[Value]) -> tuple[Instruction, Sequence[Value]]:
    """slice(pad(x)) -> pad(x) with other padding, which may be negative; other instructions are unchanged.

    The parts of x and of the slice mostly are the same elements; those of the padded array between them are not.
    """
    piece = operands[0] if isinstance(old.op, Slice) else None
    if not isinstance(old.op, Slice) or not isinstance(piece, Piece) or piece.padded is None:
        return old, operands
    pad, given = piece.padded
    if any(i.shape.is_dynamic for i in (old, pad, *pad.operands)):
        return old, operands
    found: list[PaddingDimension] = []
    for cut, own, size in zip(old.op.slice, pad.op_as(Pad).padding, pad.operands[0].shape.dimensions, strict=True):
        low, high = own.edge_padding_low - cut.start, cut.limit - size - own.edge_padding_low
        # Some elements of the array must remain, because their dimension determines the split.
        if own.interior_padding or cut.stride != 1 or min(low, high) <= -size:
            return old, operands
        found.append(PaddingDimension(low, high))
    return old.replace(op=Pad(padding=tuple(found)), operands=pad.operands), given


def range_of(old: Instruction, operands: Sequence[Value]) -> tuple[Piece, int, int] | None:
    """The sliced piece, the dimension and the start of a slice of adjacent elements along one dimension; else None."""
    if not isinstance(old.op, Slice) or not isinstance(operands[0], Piece):
        return None
    sizes = operands[0].shape.dimensions
    cut = [d for d, (s, size) in enumerate(zip(old.op.slice, sizes, strict=True)) if (s.start, s.limit) != (0, size)]
    if len(cut) != 1 or any(s.stride != 1 for s in old.op.slice):
        return None
    return operands[0], cut[0], old.op.slice[cut[0]].start
