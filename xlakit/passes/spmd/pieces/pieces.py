"""Operations on pieces: the choice of tilings, and the emission of the operation of one partition."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

from xlakit.data.nesting import nested
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.ir.attributes import PaddingDimension, SliceDimension
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import Op
from xlakit.ops.data import Iota
from xlakit.ops.dynamic import DynamicUpdateSlice
from xlakit.ops.elementwise.binary import Add
from xlakit.ops.movement import Broadcast, Pad, Reverse
from xlakit.passes.core.framework import PassContext
from xlakit.passes.spmd.pieces.choice import NO_SPLITS, Choice, chosen
from xlakit.passes.spmd.pieces.emit import Channels, Emitter
from xlakit.passes.spmd.pieces.local import can_be_unequal, local_op, local_shape, mirrored, tiling_of
from xlakit.passes.spmd.pieces.partial import combining, contribution, is_plain_sum, spread, total
from xlakit.passes.spmd.pieces.reshard import resharded
from xlakit.passes.spmd.shardings.factors import Factors, factors_of
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import (
    Split,
    Tiling,
    divides,
    is_proper,
    parts,
    refines,
    same_teams,
    split_at,
    teams_over,
    unequal_dims,
    whole,
    with_split,
)
from xlakit.passes.spmd.shardings.values import Piece, Value, leaf_shapes, leaves, whole_tilings

# The depth to which whole values are recomputed in parts; beyond that they are sliced.
_MOST_STEPS_BACK = 48


class Pieces:
    """The pieces of a computation, and operations on them."""

    def __init__(self, context: PassContext, channels: Channels) -> None:
        self.make = Emitter(context, channels)
        self._steps_back = 0

    # -- values in a requested tiling ----------------------------------------------------------------

    def at(self, piece: Piece, tiling: Tiling, scope: Scope) -> Instruction:
        """This partition's part of a value in a tiling over the teams of a scope."""
        if piece.unequal is not None and piece.scope == scope and self._keeps_unequal(piece, tiling):
            found = piece.parts.get(tiling)
            if found is None:
                own, made = piece.unequal
                odd = unequal_dims(tiling, piece.shape.dimensions)
                made, own = self._joined(made, own, piece.shape, scope, kept=odd)
                found = piece.parts[tiling] = resharded(self.make, made, own, tiling, scope)
            return found
        if piece.without_partial_sums is not None:
            piece = piece.without_partial_sums()
        piece = self._summed_in_parts(piece, tiling, scope) or self.summed(piece)
        if piece.scope != scope:
            piece = self.in_inner_scope(piece, scope)
        if piece.tiling == tiling:
            return piece.instruction
        found = piece.parts.get(tiling)
        if found is None:
            if divides(tiling, piece.shape.dimensions):
                start = self._made_in_parts(piece, tiling) or piece
                found = resharded(self.make, start.instruction, start.tiling, tiling, scope)
            else:
                found = self._in_unequal_parts(piece, tiling, scope)
            piece.parts[tiling] = found
        return found

    def _in_unequal_parts(self, piece: Piece, tiling: Tiling, scope: Scope) -> Instruction:
        """This partition's part in a tiling with unequal parts, whose elements after the end are unspecified."""
        odd = unequal_dims(tiling, piece.shape.dimensions)
        again = self._made_in_parts(piece, tiling)
        if again is not None and unequal_dims(again.tiling, piece.shape.dimensions) == odd:
            return resharded(self.make, again.instruction, again.tiling, tiling, scope)
        even = tuple(None if d in odd else split for d, split in enumerate(tiling))
        found = self.at(piece, even, scope)
        for d in odd:
            split, size = split_at(tiling, d), piece.shape.dimensions[d]
            missing = -size % parts(split)
            padding = [PaddingDimension(0, missing if e == d else 0) for e in range(len(tiling))]
            found = self.make.add(Pad(padding=tuple(padding)), found, self.make.zeros(found.shape.element_type))
            found = self.make.part(found, d, parts(split), split, scope)
        return found

    def _keeps_unequal(self, piece: Piece, tiling: Tiling) -> bool:
        """Whether the unequal parts of a tiling are some that a value already has."""
        own, sizes = piece.unequal[0] if piece.unequal is not None else (), piece.shape.dimensions
        odd = unequal_dims(tiling, sizes)
        return bool(odd) and all(own[d] == tiling[d] for d in odd)

    def evened(self, made: Instruction, tiling: Tiling, shape: Shape, scope: Scope) -> Piece:
        """An array given in unequal parts; the value itself is gathered along the unequal dimensions."""
        found, even = self._joined(made, tiling, shape, scope)
        return Piece(found, even, scope, shape, unequal=(tiling, made))

    def _joined(
        self, made: Instruction, tiling: Tiling, shape: Shape, scope: Scope, kept: Sequence[int] = ()
    ) -> tuple[Instruction, Tiling]:
        """An array gathered along its dimensions in unequal parts but those in ``kept``, and its tiling then."""
        odd = [d for d in unequal_dims(tiling, shape.dimensions) if d not in kept]
        if not odd:
            return made, tiling
        even = tuple(None if d in odd else split for d, split in enumerate(tiling))
        found = resharded(self.make, made, tiling, even, scope)
        ranges = [
            SliceDimension(0, shape.dimensions[d] if d in odd else n) for d, n in enumerate(found.shape.dimensions)
        ]
        return self.make.slice(found, ranges), even

    def summed(self, piece: Piece) -> Piece:
        """The value, after adding partial sums if it is unreduced."""
        if piece.without_partial_sums is not None:
            piece = piece.without_partial_sums()
        if piece.unreduced is None:
            return piece
        made = piece.parts.get(piece.tiling)
        if made is None:
            groups = piece.scope.groups(teams_over(piece.unreduced, piece.tiling))
            made = piece.parts[piece.tiling] = self.make.all_reduce(piece.instruction, Add(), groups)
        return Piece(made, piece.tiling, piece.scope, piece.shape, parts=piece.parts)

    def _summed_in_parts(self, piece: Piece, tiling: Tiling, scope: Scope) -> Piece | None:
        """The sum in the requested parts by reduce-scatter, if the members that add are those that share it."""
        split = piece.unreduced
        if split is None or piece.scope != scope or tiling in piece.parts or piece.tiling in piece.parts:
            return None
        for dimension, own in enumerate(piece.tiling):
            is_wanted = own is None and tiling == with_split(piece.tiling, dimension, split)
            if is_wanted and piece.shape.dimensions[dimension] % parts(split) == 0:
                groups = scope.groups(teams_over(split, piece.tiling))
                made = self.make.reduce_scatter(piece.instruction, dimension, groups)
                piece.parts[tiling] = made
                return Piece(made, tiling, scope, piece.shape)
        return None

    def unreduced(self, piece: Piece, tiling: Tiling, numbers: Split | None, scope: Scope) -> Piece:
        """Partial sums of a value in a tiling, for members with different numbers."""
        if numbers is None or not piece.shape.is_array:
            return self.retiled(piece, tiling, scope)
        if piece.scope == scope and piece.tiling == tiling and same_teams(piece.unreduced, numbers):
            return piece
        own = self.summed(piece)
        for dimension, split in enumerate(own.tiling if own.scope == scope else ()):
            # Each member already has a different part; the part with zeros around it is its partial sum.
            if split == numbers and own.tiling == with_split(tiling, dimension, split) and tiling[dimension] is None:
                made = self._among_zeros(own, dimension, numbers)
                return Piece(made, tiling, scope, piece.shape, unreduced=numbers)
        made = spread(self.make, self.at(piece, tiling, scope), numbers, scope)
        return Piece(made, tiling, scope, piece.shape, unreduced=numbers)

    def _among_zeros(self, piece: Piece, dimension: int, split: Split) -> Instruction:
        """This member's part of a dimension at its position, and zeros at those of the others."""
        make, own = self.make, piece.instruction
        sizes = list(own.shape.dimensions)
        start = make.number([part * sizes[dimension] for part in split], piece.scope)
        first = make.scalar(0, PrimitiveType.S32)
        sizes[dimension] *= parts(split)
        starts = [start if d == dimension else first for d in range(len(sizes))]
        return make.add(DynamicUpdateSlice(), make.zeros(own.shape.element_type, sizes), own, *starts)

    def in_inner_scope(self, piece: Piece, scope: Scope) -> Piece:
        """A value of an outer scope as one of an inner scope, whose teams have all of it."""
        rank = len(piece.tiling)
        return Piece(self.at(piece, whole(rank), piece.scope), whole(rank), scope, piece.shape, piece.source)

    def whole(self, piece: Piece) -> Instruction:
        """The whole value, on every member of its teams."""
        return self.at(piece, whole(len(piece.tiling)), piece.scope)

    def retiled(self, piece: Piece, tiling: Tiling, scope: Scope) -> Piece:
        """The value in another tiling."""
        if piece.tiling == tiling and piece.scope == scope:
            return piece
        return Piece(self.at(piece, tiling, scope), tiling, scope, piece.shape)

    def usable(self, wanted: Sequence[Split | None], sizes: Sequence[int]) -> Tiling:
        """The part of a tiling that is possible for these sizes: equal parts, and every tile present."""
        found = list(whole(len(sizes)))
        for dimension, split in enumerate(wanted):
            if split is not None and sizes[dimension] % parts(split) == 0:
                found[dimension] = split
                if not is_proper(found):
                    found[dimension] = None
        return tuple(found)

    def bundle(
        self, value: Value, tilings: Iterator[Tiling], scope: Scope, sums: Iterator[Split | None] | None = None
    ) -> Instruction:
        """One instruction for a value in some tilings, of which some may be partial sums."""
        if isinstance(value, Piece):
            tiling, numbers = next(tilings), None if sums is None else next(sums)
            if numbers is not None:
                return self.unreduced(value, tiling, numbers, scope).instruction
            return self.at(value, tiling, scope)
        return self.make.tuple(*[self.bundle(v, tilings, scope, sums) for v in value])

    def unbundle(self, made: Instruction, shape: Shape, tilings: Iterator[Tiling], scope: Scope) -> Value:
        """The value of an instruction whose leaves have these tilings; ``shape`` is that of the whole value."""
        if shape.is_tuple:
            pairs = zip(self.make.elements(made), shape.tuple_shapes, strict=True)
            return tuple(self.unbundle(element, s, tilings, scope) for element, s in pairs)
        return Piece(made, next(tilings), scope, shape)

    def carried(
        self,
        made: Instruction,
        shape: Shape,
        tilings: Sequence[Tiling],
        scope: Scope,
        sums: Sequence[Split | None] = (),
    ) -> Value:
        """The value of a loop's or branch's parameter or result.

        tilings: of its leaves, possibly with unequal parts. sums: the numbers of those that are partial sums.
        """
        pieces = list(map(self._evenly, leaves(self.unbundle(made, shape, iter(tilings), scope))))
        for piece, numbers in zip(pieces, sums, strict=False):
            piece.unreduced = numbers
        return nested(shape, iter(pieces))

    def _evenly(self, piece: Piece) -> Piece:
        if not piece.shape.is_array or divides(piece.tiling, piece.shape.dimensions):
            return piece
        return self.evened(piece.instruction, piece.tiling, piece.shape, piece.scope)

    # -- operations --------------------------------------------------------------------------------

    def on_whole(self, old: Instruction, operands: Sequence[Value], scope: Scope) -> Value:
        """The operation on whole operands, on every member."""
        given = [
            self.bundle(v, iter(whole_tilings(o.shape)), scope) for v, o in zip(operands, old.operands, strict=True)
        ]
        made = self.make.like(old, old.op, given, old.shape)
        return self.unbundle(made, old.shape, iter(whole_tilings(old.shape)), scope)

    def apply(
        self,
        old: Instruction,
        operands: Sequence[Value],
        scope: Scope,
        wanted: Sequence[Split | None] | None = None,
        hint: Tiling | None = None,
        *,
        later: bool = False,
    ) -> Value:
        """The operation on parts if it has a rule, else on whole operands; ``later`` is as for :func:`chosen`."""
        factors = factors_of(old)
        given = [v for v in operands if isinstance(v, Piece)]
        if factors is None or len(given) != len(operands):
            return self.on_whole(old, operands, scope)
        splits = chosen(old, factors, given, scope, wanted, hint, later=later)
        value = self.in_parts(old, given, scope, factors, splits)
        if isinstance(value, Piece) and (isinstance(old.op, Broadcast) or (value.is_whole and not splits)):
            value.source = (old, tuple(operands))
        if can_be_unequal(old):
            return self._in_unequal_parts_too(old, value, given, factors, splits, scope)
        return value

    def _in_unequal_parts_too(
        self,
        old: Instruction,
        value: Value,
        given: Sequence[Piece],
        factors: Factors,
        splits: dict[int, Split],
        scope: Scope,
    ) -> Value:
        """The value of an operation, with the result in unequal parts beside it if some operand has such parts."""
        choice = Choice(old, factors, unequal=True)
        order = sorted(range(len(given)), key=lambda n: -given[n].shape.num_elements)
        has = [n for n in order if given[n].unequal is not None and given[n].scope == scope]
        for n in has:
            own = given[n].unequal
            choice.offer(factors.operands[n], own[0] if own is not None else ())
        for factor, split in splits.items():
            if factor not in choice.splits and is_proper([*choice.splits.values(), split]):
                choice.splits[factor] = split
        tilings = [tiling_of(dims, choice.splits) for dims in factors.results]
        shapes = leaf_shapes(old.shape)
        if not has or not any(unequal_dims(t, s.dimensions) for t, s in zip(tilings, shapes, strict=True)):
            return value
        made = self.in_parts(old, given, scope, factors, choice.splits)
        if not isinstance(value, Piece) or not isinstance(made, Piece):
            for own, parts_of_it in zip(leaves(value), leaves(made), strict=True):
                own.unequal = (parts_of_it.tiling, parts_of_it.instruction)
            return value
        # Unequal parts are values, not partial sums.
        made, value = self.summed(made), self.summed(value)
        if len(has) > 1 and old.shape.num_elements <= sum(given[n].shape.num_elements for n in has):
            # Gathering the result is cheaper than gathering several operands.
            return self.evened(made.instruction, made.tiling, old.shape, scope)
        value.unequal = (made.tiling, made.instruction)
        return value

    def tilings_for(
        self,
        old: Instruction,
        factors: Factors,
        given: Sequence[Piece],
        scope: Scope,
        wanted: Sequence[Split | None] | None = None,
        hint: Tiling | None = None,
        first: Mapping[int, Split] = NO_SPLITS,
    ) -> tuple[list[Tiling], list[Tiling]]:
        """The tilings of operands and results for the chosen splits of factors; ``first`` has splits that are fixed."""
        splits = chosen(old, factors, given, scope, wanted, hint, first)
        return [tiling_of(dims, splits) for dims in factors.operands], [
            tiling_of(dims, splits) for dims in factors.results
        ]

    def _made_in_parts(self, piece: Piece, tiling: Tiling) -> Piece | None:
        """Recompute a value in the requested parts only, if it is whole, or its operand is cheaper to reshard."""
        if piece.source is None or self._steps_back >= _MOST_STEPS_BACK:
            return None
        old, operands = piece.source
        factors = factors_of(old)
        given = [v for v in operands if isinstance(v, Piece)]
        if factors is None or not (piece.is_whole or _is_cheaper_before(old, piece.tiling, tiling)):
            return None
        choice = Choice(old, factors, unequal=can_be_unequal(old))
        choice.offer(factors.results[0], tiling)
        if not choice.splits and piece.is_whole:
            return None
        self._steps_back += 1
        try:
            made = self.in_parts(old, given, piece.scope, factors, choice.splits)
        finally:
            self._steps_back -= 1
        return made if isinstance(made, Piece) else None

    def in_parts(
        self, old: Instruction, given: Sequence[Piece], scope: Scope, factors: Factors, splits: dict[int, Split]
    ) -> Value:
        """The operation with some factors split."""
        tilings = [tiling_of(dims, splits) for dims in factors.operands]
        results = [tiling_of(dims, splits) for dims in factors.results]
        summed = [splits[f] for f in sorted(factors.summed) if f in splits]
        local = [self.at(piece, tiling, scope) for piece, tiling in zip(given, tilings, strict=True)]
        shapes = [local_shape(old, s, t) for s, t in zip(leaf_shapes(old.shape), results, strict=True)]
        if isinstance(old.op, Iota):
            made = self._iota(old, shapes[0], results[0], scope)
        elif len(summed) == 1 and is_plain_sum(old, local):
            made = self.make.like(old, local_op(old, tilings, results), local, shapes[0])
            return Piece(made, results[0], scope, old.shape, unreduced=summed[0])
        elif summed:
            op = local_op(old, tilings, results)
            made = self._summed(old, op, local, shapes[0], results[0], summed, scope)
        else:
            shape = shapes[0] if not old.shape.is_tuple else dataclasses.replace(old.shape, tuple_shapes=tuple(shapes))
            made = self.make.like(old, local_op(old, tilings, results), local, shape)
            if isinstance(old.op, Reverse):
                found = Piece(made, mirrored(results[0], old.op.dimensions), scope, old.shape)
                return self.retiled(found, results[0], scope)
        return self.unbundle(made, old.shape, iter(results), scope)

    def _summed(
        self,
        old: Instruction,
        op: Op,
        local: list[Instruction],
        shape: Shape,
        tiling: Tiling,
        summed: Sequence[Split],
        scope: Scope,
    ) -> Instruction:
        """The partial results, combined over members with different parts."""
        operands = contribution(self.make, old, local)
        made = self.make.like(old, op, operands, shape)
        for number, split in enumerate(summed):
            others = (*tiling, *summed[:number], *summed[number + 1 :])
            made = self.make.all_reduce(made, combining(old), scope.groups(teams_over(split, others)))
        return total(self.make, old, made, local)

    def _iota(self, old: Instruction, shape: Shape, tiling: Tiling, scope: Scope) -> Instruction:
        dimension = old.op_as(Iota).iota_dimension
        split = tiling[dimension]
        if split is None:
            return self.make.like(old, old.op, (), shape)
        kind = shape.element_type
        counted = kind if kind.is_integral and kind.bit_width >= 32 else PrimitiveType.S32
        own = self.make.like(old, old.op, (), shape.with_element_type(counted))
        start = self.make.number([part * shape.dimensions[dimension] for part in split], scope)
        start = self.make.broadcast(self.make.convert(start, counted), shape.dimensions)
        return self.make.convert(self.make.apply("add", own, start), kind)


def _is_cheaper_before(old: Instruction, own: Tiling, tiling: Tiling) -> bool:
    """Whether gathering a broadcast's operand sends less than resharding its result."""
    moves = any(split is not None and not refines(other, split) for split, other in zip(own, tiling, strict=True))
    return moves and old.operands[0].shape.num_elements * math.prod(map(parts, own)) <= old.shape.num_elements


def smallest(scope: Scope, values: Sequence[Value]) -> Scope:
    """The innermost scope of some values, within ``scope``."""
    return min([scope, *(p.scope for v in values for p in leaves(v))], key=lambda s: s.size)
