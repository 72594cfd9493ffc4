"""Prefix sums along a split dimension, and scans by other reducers: windows that reach to one end of the dimension.

Each member computes the scan of its part. The totals of the parts, one number each, are gathered, and each member adds
those of the parts before its own, and the initial value::

    parts          | 1  2  3  4 | 5  6  7  8 |
    running sums   | 1  3  6 10 | 5 11 18 26 |     sums of parts: 10, 26
    with those     | 1  3  6 10 |15 21 28 36 |     the second member adds 10
"""

from __future__ import annotations

import dataclasses

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.ir.attributes import Window, WindowDimension
from xlakit.ir.instruction import Instruction
from xlakit.ops.data import Iota
from xlakit.ops.elementwise.select import Select
from xlakit.ops.reduction import Reduce, identity_of
from xlakit.ops.windows import ReduceWindow
from xlakit.passes.spmd.shardings.factors import can_be_in_parts, factors_of
from xlakit.passes.spmd.shardings.tilings import local_sizes, parts, unequal_dims
from xlakit.passes.spmd.shardings.values import Piece
from xlakit.passes.spmd.split_dimensions.halo import Halo
from xlakit.passes.spmd.split_dimensions.selections import combiner
from xlakit.passes.spmd.split_dimensions.splitter import Splitter
from xlakit.passes.spmd.split_dimensions.windows import RANGES, windowed, with_ranges


def reduce_window(s: Splitter) -> Piece | None:
    """A scan, or another reduction of moving windows."""
    found = _running(s)
    return windowed(s) if found is None else found


@dataclass(frozen=True)
class _Scan:
    """The dimension of a scan. back: whether windows reach from each element to the last one, not the first."""

    dimension: int
    back: bool


def _scan_of(old: Instruction) -> _Scan | None:
    op = old.op_as(ReduceWindow)
    kind, moving = old.shape.element_type, [d for d, w in enumerate(op.window.dimensions) if w != WindowDimension(1)]
    is_known = len(old.operands) == 2 and old.operands[0].shape.element_type is kind
    if len(moving) != 1 or not is_known or not can_be_in_parts(op.to_apply, kind):
        return None
    window = op.window.dimensions[moving[0]]
    if window.size < max(2, old.operands[0].shape.dimensions[moving[0]]):
        return None
    for back in (False, True):
        low, high = (0, window.size - 1) if back else (window.size - 1, 0)
        if window == WindowDimension(window.size, padding_low=low, padding_high=high):
            return _Scan(moving[0], back)
    return None


def _running(s: Splitter) -> Piece | None:
    old, scan, rule = s.old, _scan_of(s.old), factors_of(s.old)
    if scan is None or rule is None or old.shape.num_elements == 0:
        return None
    op = old.op_as(ReduceWindow)
    known, sizes = s.known()[0], old.shape.dimensions
    split, length = known[scan.dimension], local_sizes(known, sizes)[scan.dimension]
    if split is None or length < 2:
        return None
    odd = unequal_dims(known, sizes)
    first = {RANGES + d: own for d in {scan.dimension, *odd} if (own := known[d]) is not None}
    factors = with_ranges(rule, [(factor - RANGES, factor - RANGES) for factor in first])
    operands, (tiling,) = s.tilings(factors, first)
    value, make = s.at(s.given[0], operands[0]), s.make
    identity = make.constant(np.asarray(identity_of(op.to_apply, old.shape.element_type)))
    halo = s.halo(tiling, scan.dimension, split, sizes[scan.dimension])
    if scan.back and scan.dimension in odd:
        # A scan from the end reads the elements after the end of the dimension first, so they must be the identity.
        value = halo.padding_filled(value, identity)
    low, high = (0, length - 1) if scan.back else (length - 1, 0)
    windows = list(op.window.dimensions)
    windows[scan.dimension] = WindowDimension(length, padding_low=low, padding_high=high)
    local = dataclasses.replace(op, window=Window(tuple(windows)))
    made = make.like(old, local, [value, identity], value.shape)
    before = _before(halo, old, made, scan, (identity, s.at(s.given[1], ())))
    return s.finished(tiling, make.add(combiner(op.to_apply), before, made))


def _before(
    halo: Halo, old: Instruction, made: Instruction, scan: _Scan, numbers: tuple[Instruction, Instruction]
) -> Instruction:
    """The initial value combined with the totals of the parts before each member's own, broadcast to its elements.

    made: the scan of a part; numbers: the identity and the initial value.
    """
    make, d, count = halo.make, scan.dimension, parts(halo.split)
    (identity, init), dims = numbers, made.shape.dimensions
    sums = halo.between(made, 0 if scan.back else dims[d] - 1, 1)
    sums = make.all_gather(sums, d, halo.groups)
    numbered = make.add(Iota(iota_dimension=0), shape=Shape(PrimitiveType.S32, (count,)))
    own = make.broadcast(make.number(halo.split, halo.scope), (count,))
    counts = halo.along(make.compare(numbered, own, "GT" if scan.back else "LT"), sums)
    sums = make.add(Select(), counts, sums, make.broadcast(identity, sums.shape.dimensions))
    total = make.add(Reduce(dimensions=(d,), to_apply=old.op_as(ReduceWindow).to_apply), sums, init)
    return make.broadcast(total, dims, [e for e in range(len(dims)) if e != d])
