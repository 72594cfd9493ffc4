"""Reductions along split dimensions that the factors do not cover: unequal parts, and reducers without identity.

If the reducer has an identity, elements after the end of a dimension are set to it. With other reducers, such as those
of argmax, each part is reduced alone; the few results are gathered, in order, and reduced with the initial values.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import make_tuple_shape
from xlakit.dataclass import dataclass
from xlakit.ir.attributes import SliceDimension
from xlakit.ir.instruction import Instruction
from xlakit.ops.data import Iota
from xlakit.ops.gather import Gather
from xlakit.ops.movement import Broadcast
from xlakit.ops.reduction import Reduce, identity_element, identity_of
from xlakit.ops.shared.numerics import last_in_total_order
from xlakit.ops.sort import TopK
from xlakit.passes.analysis.arg_min_max import arg_min_max_of
from xlakit.passes.core.matching import uniform
from xlakit.passes.dynamic.padded_reductions import selective
from xlakit.passes.dynamic.padded_values import Padder
from xlakit.passes.spmd.pieces.emit import Emitter
from xlakit.passes.spmd.pieces.local import splits_of
from xlakit.passes.spmd.shardings.factors import Factors, can_be_in_parts, factors_of
from xlakit.passes.spmd.shardings.tilings import (
    Split,
    Tiling,
    local_sizes,
    parts,
    split_at,
    unequal_dims,
)
from xlakit.passes.spmd.shardings.values import Piece, Value, leaf_shapes
from xlakit.passes.spmd.split_dimensions.halo import Halo
from xlakit.passes.spmd.split_dimensions.splitter import Splitter
from xlakit.passes.spmd.split_dimensions.windows import RANGES, lengths, with_factors


def reduce(s: Splitter) -> Value | None:
    """A reduction over unequal parts, or by a reducer without identity; None if gathering is cheaper."""
    found = _of_unequal_parts(s)
    return _in_stages(s) if found is None else found


def _of_unequal_parts(s: Splitter) -> Piece | None:
    old, op, rule, array = s.old, s.old.op_as(Reduce), factors_of(s.old), s.given[0]
    if rule is None or len(s.given) != 2 or array.unequal is None or array.scope != s.scope:
        return None
    kind = old.shape.element_type
    tiling, made = array.unequal
    sizes = array.shape.dimensions
    odd = unequal_dims(tiling, sizes)
    if array.shape.element_type is not kind or not can_be_in_parts(op.to_apply, kind) or set(odd) - set(op.dimensions):
        return None
    part = math.prod(local_sizes(tiling, sizes))
    result = math.prod(n for d, n in enumerate(local_sizes(tiling, sizes)) if d not in op.dimensions)
    # A sum over n members sends 2 (n - 1) / n of the result, a gather n - 1 parts.
    if 2 * result >= part * math.prod(parts(tiling[d]) for d in odd):
        return None
    identity = s.make.constant(np.asarray(identity_of(op.to_apply, kind)))
    for d in odd:
        made = s.halo(tiling, d, split_at(tiling, d), sizes[d]).padding_filled(made, identity)
    filled = Piece(made, tiling, s.scope, array.shape)
    value = s.pieces.in_parts(old, [filled, s.given[1]], s.scope, rule, splits_of(rule, [tiling, ()]))
    return value if isinstance(value, Piece) else None


# -- reducers without identity -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stages:
    """A reduction of the parts of a dimension, and then of their results.

    tilings, results: of the operands and of the results. may_repeat: whether the initial values may be combined any
    number of times; otherwise parts are reduced without them, with flags for the elements that are valid.
    """

    dimension: int
    split: Split
    tilings: list[Tiling]
    results: list[Tiling]
    may_repeat: bool


def _in_stages(s: Splitter) -> Value | None:
    stages = _stages(s)
    if stages is None:
        return None
    old, count, sizes = s.old, len(s.given) // 2, s.given[0].shape.dimensions
    make, d, op = s.make, stages.dimension, old.op_as(Reduce)
    local = s.local(stages.tilings)
    arrays, inits = local[:count], local[count:]
    halos = [s.halo(own, d, stages.split, sizes[d]) for own in stages.tilings[:count]]
    odd = sizes[d] % parts(stages.split) != 0
    if stages.may_repeat:
        if odd:
            arrays = [halo.padding_filled(array, init) for halo, array, init in zip(halos, arrays, inits, strict=True)]
        start = _start_of_positions(s, stages)
        if start is not None:
            # Positions from 0 in each part, for which argmax has a kernel; the part's start is added to the result.
            arrays[1] = make.iota(arrays[1].shape, d)
        found = _reduced(make, old, op, [*arrays, *inits])
        if start is not None:
            found[1] = make.apply("add", found[1], make.broadcast(start, found[1].shape.dimensions))
    else:
        there = make.full(True, arrays[0].shape.with_element_type(PrimitiveType.PRED))
        no = make.scalar(False, PrimitiveType.PRED)
        flagged = dataclasses.replace(op, to_apply=selective(op.to_apply, Padder(make, old, {})))
        found = _reduced(
            make, old, flagged, [*arrays, halos[0].padding_filled(there, no) if odd else there, *inits, no]
        )[:count]
    gathered = [_gathered(halos[0], one) for one in found]
    made = make.add(Reduce(dimensions=(0,), to_apply=op.to_apply), *gathered, *inits)
    return s.pieces.unbundle(made, old.shape, iter(stages.results), s.scope)


def _stages(s: Splitter) -> _Stages | None:
    """The stages of a reduction along the first dimension that it reduces, so that elements keep their order.

    None if that dimension is not split, or if gathering is cheaper.
    """
    old, given, op, rule = s.old, s.given, s.old.op_as(Reduce), factors_of(s.old)
    count, sizes = len(given) // 2, given[0].shape.dimensions
    kinds = [leaf.element_type for leaf in leaf_shapes(old.shape)]
    is_plain = kinds * 2 == [piece.shape.element_type for piece in given] and op.to_apply.is_pointwise
    reduced = [d for d in sorted(op.dimensions) if sizes[d] != 1]
    if rule is None or rule.summed or not is_plain or not reduced:
        return None
    d = reduced[0]
    known = s.known()[:count]
    split = next((tiling[d] for tiling in known if tiling[d] is not None), None)
    if split is None:
        return None
    operands = [with_factors(dims, {d: d}) for dims in rule.operands[:count]]
    factors = Factors((*operands, *rule.operands[count:]), rule.results)
    tilings, results = s.tilings(factors, {RANGES + d: split})
    part = math.prod(local_sizes(tilings[0], sizes))
    result = math.prod(local_sizes(results[0], leaf_shapes(old.shape)[0].dimensions))
    sent = sum(kind.bit_width for kind in kinds) * result
    if sent >= sum(kind.bit_width for kind, own in zip(kinds, known, strict=True) if own[d] is not None) * part:
        return None
    return _Stages(d, split, tilings, results, _may_repeat(op, old.operands[count:]))


def _start_of_positions(s: Splitter, stages: _Stages) -> Instruction | None:
    """The start of this member's part, if the second operand is the positions along the split dimension; else None."""
    positions, kind, sizes = s.old.operands[1], s.old.operands[1].shape.element_type, s.given[0].shape.dimensions
    if not _are_positions(positions, stages.dimension):
        return None
    if kind not in (PrimitiveType.S32, PrimitiveType.U32, PrimitiveType.S64) or sizes[stages.dimension] >= 1 << 31:
        return None
    if uniform(s.old.operands[3]) != 0:
        return None
    part = local_sizes(stages.tilings[1], sizes)[stages.dimension]
    return s.make.convert(s.make.number([n * part for n in stages.split], s.scope), kind)


def _are_positions(array: Instruction, dimension: int) -> bool:
    """Whether each element of an array is its own index along a dimension."""
    if isinstance(array.op, Broadcast):
        own = [n for n, d in enumerate(array.op.dimensions) if d == dimension]
        return bool(own) and _are_positions(array.operands[0], own[0])
    return isinstance(array.op, Iota) and array.op.iota_dimension == dimension


def _may_repeat(op: Reduce, inits: Sequence[Instruction]) -> bool:
    """Whether a reducer is that of argmax or argmin, and its initial element is the identity of max or min."""
    chosen, number = arg_min_max_of(op.to_apply), uniform(inits[0])
    nothing = None if chosen is None else identity_element(chosen, inits[0].shape.element_type)
    return number is not None and nothing is not None and bool(number == nothing)


def _reduced(make: Emitter, old: Instruction, op: Reduce, operands: Sequence[Instruction]) -> list[Instruction]:
    """The results of reducing a member's part."""
    count = len(operands) // 2
    dims = [size for d, size in enumerate(operands[0].shape.dimensions) if d not in op.dimensions]
    shapes = [operand.shape.with_dimensions(dims) for operand in operands[:count]]
    return make.elements(make.like(old, op, operands, shapes[0] if count == 1 else make_tuple_shape(shapes)))


def _gathered(halo: Halo, found: Instruction) -> Instruction:
    """The results of all parts that are not empty, concatenated."""
    make = halo.make
    rows = make.all_gather(make.reshape(found, (1, *found.shape.dimensions)), 0, halo.groups)
    full = sum(n > 0 for n in lengths(halo.size, parts(halo.split)))
    return make.slice(rows, [SliceDimension(0, size if d else full) for d, size in enumerate(rows.shape.dimensions)])


def top_k(s: Splitter) -> Value | None:
    """The first k elements along a split dimension; None if gathering the array is cheaper."""
    old, (array,), op, rule = s.old, s.given, s.old.op_as(TopK), factors_of(s.old)
    kind, sizes, d = array.shape.element_type, array.shape.dimensions, array.shape.rank - 1
    (known,) = s.known()
    split, length = known[d], local_sizes(known, sizes)[d]
    taken = min(op.k, length)
    last = last_in_total_order(kind, greatest=not op.largest)
    if rule is None or split is None or not taken or (sizes[d] % parts(split) and last is None):
        return None
    if taken * (kind.bit_width + PrimitiveType.S32.bit_width) >= length * kind.bit_width:
        return None
    factors = Factors((with_factors(rule.operands[0], {d: d}),), rule.results)
    (tiling,), results = s.tilings(factors, {RANGES + d: split})
    make, halo = s.make, s.halo(tiling, d, split, sizes[d])
    value = s.at(array, tiling)
    if sizes[d] % parts(split) and last is not None:
        # Elements after the end of the dimension come last, also among equal ones.
        value = halo.padding_filled(value, make.constant(last))
    local = dataclasses.replace(op, k=taken)
    made = make.add(local, value, like=old)
    places = make.element(made, 1)
    start = make.number([part * length for part in split], s.scope)
    places = make.apply("add", places, make.broadcast(start, places.shape.dimensions))
    candidates, places = (make.all_gather(one, d, halo.groups) for one in (make.element(made, 0), places))
    first = make.like(
        old,
        op,
        [candidates],
        old.shape.with_leaves(lambda s: s.with_dimensions((*candidates.shape.dimensions[:-1], op.k))),
    )
    found = make.tuple(make.element(first, 0), _taken(make, places, make.element(first, 1)))
    return s.pieces.unbundle(found, old.shape, iter(results), s.scope)


def _taken(make: Emitter, rows: Instruction, numbers: Instruction) -> Instruction:
    """The elements of each row at these indices."""
    d = rows.shape.rank - 1
    batch = tuple(range(d))
    op = Gather(
        offset_dims=(),
        collapsed_slice_dims=(d,),
        start_index_map=(d,),
        operand_batching_dims=batch,
        start_indices_batching_dims=batch,
        index_vector_dim=d + 1,
        slice_sizes=(1,) * (d + 1),
    )
    return make.add(op, rows, make.reshape(numbers, (*numbers.shape.dimensions, 1)))
