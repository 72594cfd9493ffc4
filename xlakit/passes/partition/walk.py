"""The walk through a computation: each instruction in turn becomes what one partition does of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from xlakit.data.shape import Shape
from xlakit.errors import UnsupportedError, XlakitError
from xlakit.ir.attributes import Sharding
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.control import Call, Fusion
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import GetTupleElement, OptimizationBarrier, Parameter
from xlakit.passes.framework import PassContext
from xlakit.passes.partition import control, effects, manual
from xlakit.passes.partition.annotations import SHARDINGS, Annotations, Stated
from xlakit.passes.partition.emit import Channels
from xlakit.passes.partition.pieces import Pieces, smallest
from xlakit.passes.partition.scopes import Scope
from xlakit.passes.partition.tilings import Split, Tiling, is_proper, local_sizes, refines
from xlakit.passes.partition.values import Piece, Value, leaves, mapped, rebuilt

_OF_RESULT: Final = "xla.sdy.FuncResultSharding"
_CONSTRAINTS: Final = frozenset({"Sharding", _OF_RESULT})
# They say something about their operand, and give it as it is.
_HINTS: Final = frozenset(
    {"LayoutConstraint", "MoveToDevice", "MoveToHost", "annotate_device_placement", "xla.sdy.PropagationBarrier"}
)
_FEEDS: Final = frozenset({"infeed", "outfeed", "send", "recv", "send-done", "recv-done"})
_COLLECTIVES: Final = frozenset(
    {"all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter", "collective-broadcast"}
)


@dataclass
class Program:
    """What all walks through the computations of a module share."""

    module: HloModule
    annotations: Annotations
    channels: Channels
    context: PassContext


class Walk:
    """A walk that makes one computation; calls are put in their place."""

    def __init__(self, program: Program, scope: Scope) -> None:
        self.program = program
        self.pieces = Pieces(program.context, program.channels)
        self.scope = scope

    def through(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        """What a computation gives for arguments."""
        values: dict[Instruction, Value] = {}
        ends = manual.ends_of_calls(computation)
        for old in computation.instructions:
            operands = tuple(values[o] for o in old.operands)
            try:
                values[old] = self._step(old, operands, arguments, ends.get(old))
            except XlakitError as error:
                raise error.at(
                    operation=f"{old.opcode} '{old.name}'", location=self.program.module.location_of(old)
                ) from None
        return values[computation.root]

    def _step(
        self, old: Instruction, operands: tuple[Value, ...], arguments: Sequence[Value], end: Instruction | None
    ) -> Value:
        if isinstance(old.op, Parameter):
            return arguments[old.op.number]
        if old.opcode == "tuple":
            return operands
        if isinstance(old.op, GetTupleElement):
            value = operands[0]
            return value[old.op.index] if isinstance(value, tuple) else value
        special = _SPECIAL.get(old.opcode)
        if special is not None:
            return special(self, old, operands)
        if isinstance(old.op, Call) and end is not None and not operands:
            return self._inside(manual.scope_of(self, end), old.op.to_apply, operands)
        if isinstance(old.op, (Call, Fusion)):
            callee = old.op.to_apply if isinstance(old.op, Call) else old.op.calls
            return self._inside(smallest(self.scope, operands), callee, operands)
        if isinstance(old.op, CustomCall):
            return self._custom_call(old, old.op.custom_call_target, operands)
        return self._plain(old, operands)

    def _inside(self, scope: Scope, computation: Computation, operands: Sequence[Value]) -> Value:
        outer, self.scope = self.scope, scope
        try:
            return self.through(computation, operands)
        finally:
            self.scope = outer

    def _plain(self, old: Instruction, operands: Sequence[Value]) -> Value:
        scope = smallest(self.scope, operands)
        shardings = _shardings(old)
        wanted = None
        if len(shardings) == 1 and old.shape.is_array:
            wanted = self._said(shardings[0], old.shape.rank, scope)
        value = self.pieces.apply(old, operands, scope, wanted)
        if wanted is not None and isinstance(value, Piece):
            return self.pieces.retiled(value, self.pieces.usable(wanted, old.shape.dimensions), scope)
        return value

    # -- what is said ------------------------------------------------------------------------------

    def _custom_call(self, old: Instruction, target: str, operands: tuple[Value, ...]) -> Value:
        if target in _CONSTRAINTS:
            return self.constrained(old, operands)
        if target in _HINTS and len(operands) == 1:
            return operands[0]
        boundary = manual.BOUNDARIES.get(target)
        if boundary is not None:
            return boundary(self, old, operands)
        return effects.custom_call(self, old, operands)

    def constrained(self, old: Instruction, operands: tuple[Value, ...]) -> Value:
        """The operands as an instruction says that they are to be split."""
        stated = self.program.annotations.stated(old, SHARDINGS)
        said = _shardings(old)
        given = [piece for operand in operands for piece in leaves(operand)]
        made: list[Piece] = []
        for number, piece in enumerate(given):
            own = stated[number] if stated is not None and number < len(stated) else None
            sharding = said[number] if number < len(said) else (said[0] if said else None)
            made.append(self._as_stated(piece, own, sharding))
        return rebuilt(old.shape, iter(made))

    def _as_stated(self, piece: Piece, stated: Stated | None, sharding: Sharding | None) -> Piece:
        if not piece.shape.is_array:
            return piece
        scope = smallest(self.scope, [piece])
        wanted: Sequence[Split | None] | None
        numbers = self.program.annotations.unreduced(sharding)
        if stated is not None and len(stated.dimensions) == piece.shape.rank:
            wanted = self._open(piece, stated, scope)
            numbers = stated.split(stated.unreduced) if stated.unreduced else None
        else:
            wanted = self._said(sharding, piece.shape.rank, scope)
        if wanted is None:
            return piece
        agreed = None if numbers is None else scope.agreed(numbers)
        return self.pieces.unreduced(piece, self.pieces.usable(wanted, piece.shape.dimensions), agreed, scope)

    def _open(self, piece: Piece, stated: Stated, scope: Scope) -> Sequence[Split | None] | None:
        """What is said of each dimension; one that is open keeps what it has beyond that."""
        wanted: list[Split | None] = []
        for dimension, (axes, is_open) in enumerate(stated.dimensions):
            split = scope.agreed(stated.split(axes))
            own = piece.tiling[dimension] if piece.scope == scope else None
            wanted.append(own if is_open and refines(own, split) else split)
        # What is kept must not be in the way of what is said.
        if not is_proper(wanted):
            wanted = [scope.agreed(stated.split(axes)) for axes, _ in stated.dimensions]
        return wanted

    def _said(self, sharding: Sharding | None, rank: int, scope: Scope) -> Sequence[Split | None] | None:
        splits = self.program.annotations.splits(sharding, rank)
        return None if splits is None else [s if s is None else scope.agreed(s) for s in splits]

    # -- other computations --------------------------------------------------------------------------

    def region(
        self, computation: Computation, tilings: Sequence[Sequence[Tiling]], wanted: Sequence[Tiling] | None
    ) -> tuple[Computation, list[Tiling]]:
        """A computation for arguments in these tilings, and the tilings of its result: the wanted ones, or its own."""
        inner = Walk(self.program, self.scope)
        arguments: list[Value] = []
        for parameter, own in zip(computation.parameters, tilings, strict=True):
            made = inner.pieces.make.like(parameter, parameter.op, (), local_shape(parameter.shape, own))
            arguments.append(inner.pieces.unbundle(made, parameter.shape, iter(own), self.scope))
        result = inner.through(computation, arguments)
        found = list(wanted) if wanted is not None else [p.tiling for p in leaves(result)]
        root = inner.pieces.bundle(result, iter(found), self.scope)
        name = self.program.context.computation_name(computation.name)
        return inner.pieces.make.done(name, root), found


def local_shape(shape: Shape, tilings: Sequence[Tiling]) -> Shape:
    """The shape of one partition's part of a value."""
    remaining = iter(tilings)

    def part(leaf: Shape) -> Shape:
        tiling = next(remaining)
        return Shape(leaf.element_type, local_sizes(tiling, leaf.dimensions)) if any(tiling) else leaf

    return mapped(shape, part)


def is_result_sharding(instruction: Instruction) -> bool:
    """Whether an instruction says how a result of the program is to be split."""
    return isinstance(instruction.op, CustomCall) and instruction.op.custom_call_target == _OF_RESULT


def _shardings(old: Instruction) -> Sequence[Sharding]:
    sharding = old.annotations.sharding
    if sharding is None:
        return ()
    return sharding.elements if sharding.kind == "TUPLE" else (sharding,)


def _barrier(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """An optimization barrier, on parts as they are."""
    scope = smallest(walk.scope, operands)
    tilings = [p.tiling if p.scope == scope else (None,) * len(p.tiling) for p in leaves(operands[0])]
    given = walk.pieces.bundle(operands[0], iter(tilings), scope)
    made = walk.pieces.make.like(old, OptimizationBarrier(), (given,), given.shape)
    return walk.pieces.unbundle(made, old.shape, iter(tilings), scope)


def _dependency(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """A value that waits for a token."""
    value, token = operands
    if not isinstance(value, Piece) or not isinstance(token, Piece):
        return walk.pieces.on_whole(old, operands, walk.scope)
    value = walk.pieces.summed(value)
    made = walk.pieces.make.like(old, old.op, (value.instruction, token.instruction), value.instruction.shape)
    return Piece(made, value.tiling, value.scope, value.shape)


def _refuse(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    scope = smallest(walk.scope, operands)
    if scope.size > 1:
        raise UnsupportedError(
            "feeds and channels in a program that is split over devices",
            hint="use them in a manual computation (jax.shard_map), where it is said which device does it",
        )
    return walk.pieces.on_whole(old, operands, scope)


_Step = Callable[[Walk, Instruction, tuple[Value, ...]], Value]

_SPECIAL: Final[dict[str, _Step]] = {
    "add-dependency": _dependency,
    "conditional": control.conditional,
    "opt-barrier": _barrier,
    "rng": effects.random,
    "rng-get-and-update-state": effects.random,
    "while": control.loop,
    **dict.fromkeys(_COLLECTIVES, effects.collective),
    **dict.fromkeys(_FEEDS, _refuse),
}
