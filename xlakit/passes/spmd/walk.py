"""The walk through a computation, which replaces each instruction by the instructions of one partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from xlakit.data.nesting import nested
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError
from xlakit.ir.attributes import Sharding
from xlakit.ir.def_use import users_of
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.data import GetTupleElement, Parameter, Tuple
from xlakit.ops.movement import Pad
from xlakit.passes.spmd.pieces.pieces import Pieces, smallest
from xlakit.passes.spmd.program import Frame, Program
from xlakit.passes.spmd.shardings.annotations import ends_of_calls, is_open, of_leaves
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Split, Tiling, is_proper, local_sizes, parts, refines, same_teams
from xlakit.passes.spmd.shardings.values import Piece, Value, array_of, element_of, errors_located, leaves
from xlakit.passes.spmd.split_dimensions.dispatch import along_split_dimensions, range_of, repadded

# Splits an instruction: called with (walk, instruction, operands, the end of a call of a manual computation or None).
Splitter = Callable[["Walk", Instruction, tuple[Value, ...], Instruction | None], Value]


@dataclass(frozen=True)
class Region:
    """The version for one partition of a computation that a loop or a branch runs.

    tilings: of its result. result: the pieces of the result. state: those of the parameters.
    """

    computation: Computation
    tilings: list[Tiling]
    result: list[Piece]
    state: list[Piece]


class Walk:
    """Makes the computation of one partition, with calls inlined.

    Parameters and tuples are handled here, all other instructions by ``split``: see :mod:`xlakit.passes.spmd.dispatch`.
    """

    def __init__(self, program: Program, split: Splitter, scope: Scope, frame: Frame | None = None) -> None:
        """``frame`` has the hints for the computation."""
        self.program = program
        self._split = split
        self.pieces = Pieces(program.context, program.channels)
        self.scope = scope
        self.frame = frame
        # Whether the computation is one that a loop repeats.
        self.is_repeated = False
        self._asked_sums: dict[Instruction, Split] = {}
        self._users: dict[Instruction, list[Instruction]] = {}

    def through(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        """Emit the instructions of a computation for these arguments; gives the value of its root."""
        values: dict[Instruction, Value] = {}
        ends = ends_of_calls(computation)
        self._asked_sums.update(self.program.annotations.asked_sums(computation))
        self._users.update(users_of(computation.instructions))
        make = self.pieces.make
        before = make.predecessors
        for old in computation.instructions:
            operands = tuple(values[o] for o in old.operands)
            make.cause = old
            if old.control_predecessors:
                also = [piece.instruction for p in old.control_predecessors for piece in leaves(values[p])]
                make.predecessors = tuple(dict.fromkeys((*before, *also)))
            with errors_located(self.program.module, old):
                values[old] = self._step(old, operands, arguments, ends.get(old))
            make.predecessors = before
        return values[computation.root]

    def _step(
        self, old: Instruction, operands: tuple[Value, ...], arguments: Sequence[Value], end: Instruction | None
    ) -> Value:
        if isinstance(old.op, Parameter):
            return arguments[old.op.number]
        if isinstance(old.op, Tuple):
            return operands
        if isinstance(old.op, GetTupleElement):
            return element_of(operands[0], old.op.index)
        return self._split(self, old, operands, end)

    def inside(self, scope: Scope, computation: Computation, operands: Sequence[Value], frame: Frame | None) -> Value:
        """As :meth:`through`, for a computation that the teams of a scope run; ``frame`` has its hints."""
        outer, self.scope, self.frame = (self.scope, self.frame), scope, frame
        try:
            return self.through(computation, operands)
        finally:
            self.scope, self.frame = outer

    def inner(self, old: Instruction, computation: Computation) -> Frame | None:
        """The frame of a computation that an instruction calls."""
        return None if self.frame is None else self.frame.inner.get((old, computation))

    def plain(self, old: Instruction, operands: Sequence[Value]) -> Value:
        """An operation on parts of its operands, as its factors allow; the result is split as its sharding says."""
        scope = smallest(self.scope, operands)
        wanted = self.annotation(old, scope)
        hint = self.hint(old, scope)
        old, operands = repadded(old, operands)
        value = along_split_dimensions(self.pieces, old, operands, scope, hint)
        if value is None:
            later = self._moves_alone(old, operands, scope, hint)
            value = self.pieces.apply(old, operands, scope, wanted, hint, later=later)
        if isinstance(value, Piece):
            value.range_of = range_of(old, operands)
            value.padded = (old, tuple(operands)) if isinstance(old.op, Pad) else None
        if wanted is not None and isinstance(value, Piece):
            return self.pieces.retiled(value, self.pieces.usable(wanted, old.shape.dimensions), scope)
        return value

    def _moves_alone(self, old: Instruction, operands: Sequence[Value], scope: Scope, hint: Tiling | None) -> bool:
        """Whether nothing else is hinted to take what is split of an elementwise operation's operands in its tiling.

        Then moving the result is as good as moving the operand for the operation itself, and better if its users have
        other operands to move: an optimizer's step is moved once, and not each of the moments that it is made from.
        """
        if hint is None or not old.is_pointwise:
            return False
        pairs = zip(old.operands, operands, strict=True)
        split = [o for o, value in pairs if isinstance(value, Piece) and not value.is_whole]
        others = (user for o in split for user in self._users.get(o, ()) if user is not old)
        return all(isinstance(user.op, Tuple) or self.hint(user, scope) != hint for user in others)

    def later(self, old: Instruction, operands: Sequence[Value]) -> Callable[[], Piece]:
        """A function that emits an operation as :meth:`plain` would now, when it is first called."""
        place = self.scope, self.frame, old

        @cache
        def computed() -> Piece:
            before = self.scope, self.frame, self.pieces.make.cause
            self.scope, self.frame, self.pieces.make.cause = place
            try:
                return array_of(self.plain(old, operands))
            finally:
                self.scope, self.frame, self.pieces.make.cause = before

        return computed

    def annotation(self, old: Instruction, scope: Scope) -> Sequence[Split | None] | None:
        """The splits that the sharding written on an array instruction asks for; None without a sharding."""
        return self._splits(of_leaves(old)[0], old.shape.rank, scope) if old.shape.is_array else None

    def hint(self, old: Instruction, scope: Scope) -> Tiling | None:
        """The tiling that propagation found for the result of an instruction; None if it is whole or unknown."""
        hints = None if self.frame is None or scope.size == 1 else self.frame.hints(old, scope)
        return hints[0] if hints and any(hints[0]) else None

    def asked_sum(self, old: Instruction, scope: Scope) -> Split | None:
        """The numbers of the partial sums if a constraint takes an instruction's result as unreduced; else None."""
        return scope.agreed(self._asked_sums.get(old))

    # -- sharding annotations ------------------------------------------------------------------------

    def constrained(self, old: Instruction, operands: tuple[Value, ...]) -> Value:
        """The operands, split by the shardings of an instruction that constrains them."""
        given = [piece for operand in operands for piece in leaves(operand)]
        shardings = self.program.annotations.shardings(old)
        if len(given) != len(shardings):
            raise ShapeError(f"{len(given)} values become {len(shardings)}", hint="say a sharding of each operand")
        return nested(old.shape, map(self._constrained, given, shardings))

    def _constrained(self, piece: Piece, sharding: Sharding | None) -> Piece:
        scope = smallest(self.scope, [piece])
        if sharding is None or not piece.shape.is_array:
            return piece
        splits = self.program.annotations.even_splits(sharding, piece.shape.dimensions)
        if splits is None:
            return piece
        wanted = [scope.agreed(s) for s in splits]
        # A dimension that is open keeps its further splits, unless they use axes that another dimension needs.
        kept = [
            own if piece.scope == scope and is_open(sharding, d) and refines(own, split) else split
            for d, (own, split) in enumerate(zip(piece.tiling, wanted, strict=True))
        ]
        tiling = self.pieces.usable(kept if is_proper(kept) else wanted, piece.shape.dimensions)
        numbers = scope.agreed(self.program.annotations.unreduced(sharding))
        if numbers is None:
            asked = self._splits(sharding, piece.shape.rank, scope) or ()
            unequal = self._with_unequal_parts(tiling, asked, piece.shape.dimensions)
            if unequal is not None:
                return self.pieces.evened(self.pieces.at(piece, unequal, scope), unequal, piece.shape, scope)
        return self.pieces.unreduced(piece, tiling, numbers, scope)

    def _with_unequal_parts(self, tiling: Tiling, asked: Sequence[Split | None], sizes: Sequence[int]) -> Tiling | None:
        """A tiling with the splits that are asked for, besides, of dimensions that are whole in it because they have
        no equal parts; None if there is none, or if a part would be empty.
        """
        found = tuple(own if own is not None else split for own, split in zip(tiling, asked, strict=True))
        empty = any(
            (parts(s) - 1) * n >= size for s, n, size in zip(found, local_sizes(found, sizes), sizes, strict=True)
        )
        return found if found != tiling and is_proper(found) and not empty else None

    def _splits(self, sharding: Sharding | None, rank: int, scope: Scope) -> Sequence[Split | None] | None:
        splits = self.program.annotations.splits(sharding, rank)
        return None if splits is None else [scope.agreed(s) for s in splits]

    # -- other computations --------------------------------------------------------------------------

    def region(
        self,
        computation: Computation,
        scope: Scope,
        tilings: Sequence[Sequence[Tiling]],
        wanted: Sequence[Tiling] | None = None,
        *,
        of: Instruction,
        sums: Sequence[Split | None] | None = None,
    ) -> Region:
        """A computation for arguments in these tilings; its result is in the wanted ones, or in its own.

        of: the instruction that calls it. sums: of a loop's computations, the numbers of the partial sums that the
        elements of the state are.
        """
        inner = Walk(self.program, self._split, scope, self.inner(of, computation))
        inner.is_repeated = sums is not None
        arguments: list[Value] = []
        for parameter, own in zip(computation.parameters, tilings, strict=True):
            made = inner.pieces.make.like(parameter, parameter.op, (), local_shape(parameter.shape, own))
            arguments.append(inner.pieces.carried(made, parameter.shape, own, scope, sums or ()))
        state = [piece for argument in arguments for piece in leaves(argument)]
        for number, piece in enumerate(state if sums is not None else ()):
            piece.accumulates = number, None
        result = inner.through(computation, arguments)
        kept: list[Split | None] | None = None
        if sums is not None and wanted is None:
            pairs = list(zip(leaves(result), sums, strict=True))
            kept = [numbers if same_teams(p.unreduced, numbers) else None for p, numbers in pairs]
            settled = [
                p if n is not None or p.without_partial_sums is None else p.without_partial_sums()
                for (p, _), n in zip(pairs, kept, strict=True)
            ]
            result = nested(computation.root.shape, iter(settled))
        found = list(wanted) if wanted is not None else inner.found(computation, result)
        root = inner.pieces.bundle(result, iter(found), scope, None if kept is None else iter(kept))
        name = self.program.context.computation_name(computation.name)
        return Region(inner.pieces.make.build(name, root), found, list(leaves(result)), state)

    def found(self, computation: Computation, result: Value) -> list[Tiling]:
        """The tilings of a result; for a whole value that of the hint, if its parts have been made in it already."""
        tilings = [p.kept if p.scope == self.scope else p.tiling for p in leaves(result)]
        hints = None if self.frame is None else self.frame.hints(computation.root, self.scope)
        if hints is None:
            return tilings
        return [
            hint if p.is_whole and p.scope == self.scope and hint in p.parts else own
            for p, own, hint in zip(leaves(result), tilings, hints, strict=True)
        ]


def local_shape(shape: Shape, tilings: Sequence[Tiling]) -> Shape:
    """The shape of one partition's part of a value."""
    remaining = iter(tilings)

    def part(leaf: Shape) -> Shape:
        tiling = next(remaining)
        return Shape(leaf.element_type, local_sizes(tiling, leaf.dimensions)) if any(tiling) else leaf

    return shape.with_leaves(part)
