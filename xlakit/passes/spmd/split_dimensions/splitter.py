"""The operation that is to be split along dimensions that it works along, and what its functions share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Instruction
from xlakit.passes.spmd.pieces.emit import Emitter
from xlakit.passes.spmd.pieces.pieces import Pieces
from xlakit.passes.spmd.shardings.factors import Factors
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Split, Tiling, divides, whole
from xlakit.passes.spmd.shardings.values import Piece, array_of
from xlakit.passes.spmd.split_dimensions.halo import Halo


def parts_known(piece: Piece, scope: Scope) -> Tiling:
    """The tiling of a value (or of its partial sums) in a scope; that of its unequal parts if it has such."""
    if piece.scope == scope and piece.unequal is not None:
        return piece.unequal[0]
    return piece.tiling if piece.scope == scope else whole(len(piece.tiling))


@dataclass(frozen=True, slots=True)
class Splitter:
    """An operation on pieces in a scope.

    old: the instruction of the whole program. given: its operands. hint: the tiling that its users would like.
    """

    pieces: Pieces
    old: Instruction
    given: Sequence[Piece]
    scope: Scope
    hint: Tiling | None

    @property
    def make(self) -> Emitter:
        """The builder of the partition's program."""
        return self.pieces.make

    def known(self) -> list[Tiling]:
        """The tilings that the operands have, those of unequal parts among them."""
        return [parts_known(piece, self.scope) for piece in self.given]

    def tilings(self, factors: Factors, first: Mapping[int, Split]) -> tuple[list[Tiling], list[Tiling]]:
        """The tilings of operands and results for the chosen splits of factors; ``first`` has splits that are fixed."""
        return self.pieces.tilings_for(self.old, factors, self.given, self.scope, hint=self.hint, first=first)

    def at(self, piece: Piece, tiling: Tiling) -> Instruction:
        """This partition's part of a value in a tiling."""
        return self.pieces.at(piece, tiling, self.scope)

    def local(self, tilings: Sequence[Tiling]) -> list[Instruction]:
        """This partition's parts of the operands in these tilings."""
        return [self.at(piece, own) for piece, own in zip(self.given, tilings, strict=True)]

    def halo(self, tiling: Tiling, dimension: int, split: Split, size: int) -> Halo:
        """A dimension of an array of which parts fetch ranges."""
        return Halo(self.make, self.scope, tiling, dimension, split, size)

    def finished(self, tiling: Tiling, part: Instruction) -> Piece:
        """The result of the operation, given its part in a tiling.

        If the tiling has unequal parts, the value itself is gathered from them, or computed from the operands if these
        are smaller; the parts are kept beside it.
        """
        shape = self.old.shape
        if divides(tiling, shape.dimensions):
            return Piece(part, tiling, self.scope, shape)
        if shape.num_elements <= sum(p.shape.num_elements for p in self.given if p.shape.rank):
            return self.pieces.evened(part, tiling, shape, self.scope)
        value = array_of(self.pieces.apply(self.old, self.given, self.scope, None, self.hint))
        value.unequal = (tiling, part)
        return value
