"""The first elements in sorted order of a split dimension: those of each part are candidates, which are gathered.

Candidates are in the order of the parts, and of equal ones in a part the one at the lower position goes first. So of
equal candidates, too, the one at the lower position goes first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Instruction
from xlakit.ops.gather import Gather
from xlakit.ops.sort import TopK
from xlakit.passes.dynamic.padded_reductions import last_in_total_order
from xlakit.passes.spmd.along.halo import Halo
from xlakit.passes.spmd.along.windows import RANGES, parts_known, with_factor
from xlakit.passes.spmd.pieces.emit import Emitter
from xlakit.passes.spmd.pieces.pieces import Pieces
from xlakit.passes.spmd.shardings.factors import Factors, factors_of
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Tiling, local_sizes, parts, teams_over, with_split
from xlakit.passes.spmd.shardings.values import Piece, Value


def top_k(pieces: Pieces, old: Instruction, given: Sequence[Piece], scope: Scope, hint: Tiling | None) -> Value | None:
    """The first k elements along a split dimension; None where gathering the array is cheaper."""
    (array,), op, rule = given, old.op_as(TopK), factors_of(old)
    kind, sizes, d = array.shape.element_type, array.shape.dimensions, array.shape.rank - 1
    known = parts_known(array, scope)
    split, length = known[d], local_sizes(known, sizes)[d]
    taken = min(op.k, length)
    last = last_in_total_order(kind, greatest=not op.largest)
    if rule is None or split is None or not taken or (sizes[d] % parts(split) and last is None):
        return None
    if taken * (kind.bit_width + PrimitiveType.S32.bit_width) >= length * kind.bit_width:
        return None
    factors = Factors((with_factor(rule.operands[0], d),), rule.results)
    (tiling,), results = pieces.tilings_for(old, factors, given, scope, hint=hint, first={RANGES + d: split})
    make, halo = pieces.make, Halo(pieces.make, scope, tiling, d, split, sizes[d])
    value = pieces.at(array, tiling, scope)
    if sizes[d] % parts(split) and last is not None:
        # What is behind the end comes last, of equal ones, too.
        value = halo.ended(value, make.constant(last))
    local = dataclasses.replace(op, k=taken)
    made = make.add(local, value, like=old)
    places = make.element(made, 1)
    start = make.number([part * length for part in split], scope)
    places = make.apply("add", places, make.broadcast(start, places.shape.dimensions))
    groups = scope.groups(teams_over(split, with_split(tiling, d, None)))
    candidates, places = (make.all_gather(one, d, groups) for one in (make.element(made, 0), places))
    first = make.like(
        old,
        op,
        [candidates],
        old.shape.with_leaves(lambda s: s.with_dimensions((*candidates.shape.dimensions[:-1], op.k))),
    )
    found = make.tuple(make.element(first, 0), _taken(make, places, make.element(first, 1)))
    return pieces.unbundle(found, old.shape, iter(results), scope)


def _taken(make: Emitter, rows: Instruction, numbers: Instruction) -> Instruction:
    """Of each row the elements at these numbers."""
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
