"""The walk through a computation: each instruction in turn becomes what one partition does of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from xlakit.data.shape import Shape
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.ir.attributes import Sharding
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.control import Call, Fusion
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import GetTupleElement, OptimizationBarrier, Parameter, Tuple
from xlakit.passes.spmd import control, custom, effects, inspection, manual
from xlakit.passes.spmd.annotations import CONSTRAINTS, GROUP, HINTS, OF_RESULT, is_open, of_leaves
from xlakit.passes.spmd.pieces import Hint, Pieces, smallest
from xlakit.passes.spmd.propagate import keeps_elements
from xlakit.passes.spmd.scopes import Scope
from xlakit.passes.spmd.tilings import Split, Tiling, is_proper, local_sizes, refines
from xlakit.passes.spmd.values import Piece, Value, leaves, placing, rebuilt
from xlakit.passes.spmd.walking import Frame, Program

_FEEDS: Final = frozenset({"infeed", "outfeed", "send", "recv", "send-done", "recv-done"})
_COLLECTIVES: Final = frozenset(
    {"all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter", "collective-broadcast"}
)

# Where their dones follow, pairs.py has made one operation of the two.
_STARTS: Final = frozenset({"all-gather-start", "all-reduce-start", "async-start", "collective-permute-start"})


class Walk:
    """A walk that makes one computation; calls are put in their place."""

    def __init__(self, program: Program, scope: Scope, frame: Frame | None = None) -> None:
        """``frame`` has the hints for the computation; manual computations have none."""
        self.program = program
        self.pieces = Pieces(program.context, program.channels)
        self.scope = scope
        self.frame = frame

    def through(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        """What a computation gives for arguments."""
        values: dict[Instruction, Value] = {}
        ends = manual.ends_of_calls(computation)
        make = self.pieces.make
        before = make.predecessors
        for old in computation.instructions:
            operands = tuple(values[o] for o in old.operands)
            if old.control_predecessors:
                also = [piece.instruction for p in old.control_predecessors for piece in leaves(values[p])]
                make.predecessors = tuple(dict.fromkeys((*before, *also)))
            with placing(self.program.module, old):
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
            (value,) = operands
            assert isinstance(value, tuple)
            return value[old.op.index]
        special = _SPECIAL.get(old.opcode)
        if special is not None:
            return special(self, old, operands)
        if isinstance(old.op, Call) and end is not None and not operands:
            return self.inside(manual.scope_of(self, end), old.op.to_apply, operands, None)
        if isinstance(old.op, (Call, Fusion)):
            callee = old.op.to_apply if isinstance(old.op, Call) else old.op.calls
            return self.inside(smallest(self.scope, operands), callee, operands, self._inner(old, callee))
        if isinstance(old.op, CustomCall):
            return self._custom_call(old, old.op.custom_call_target, operands)
        return self._plain(old, operands)

    def inside(self, scope: Scope, computation: Computation, operands: Sequence[Value], frame: Frame | None) -> Value:
        """What a computation gives that the teams of a scope run; ``frame`` has the hints for it."""
        outer, self.scope, self.frame = (self.scope, self.frame), scope, frame
        try:
            return self.through(computation, operands)
        finally:
            self.scope, self.frame = outer

    def _inner(self, old: Instruction, computation: Computation) -> Frame | None:
        """The frame of a computation that an instruction calls."""
        return None if self.frame is None else self.frame.inner.get((old, computation))

    def _plain(self, old: Instruction, operands: Sequence[Value]) -> Value:
        scope = smallest(self.scope, operands)
        wanted = self.wanted(old, scope)
        value = self.pieces.apply(old, operands, scope, wanted, self.hint(old, scope))
        if wanted is not None and isinstance(value, Piece):
            return self.pieces.retiled(value, self.pieces.usable(wanted, old.shape.dimensions), scope)
        return value

    def wanted(self, old: Instruction, scope: Scope) -> Sequence[Split | None] | None:
        """How the array that an instruction gives is said to be split."""
        return self._said(of_leaves(old)[0], old.shape.rank, scope) if old.shape.is_array else None

    def hint(self, old: Instruction, scope: Scope) -> Hint | None:
        """How the result of an instruction had better be split."""
        hints = None if self.frame is None or scope.size < scope.count else self.frame.hints(old)
        return Hint(hints[0], comes_first=keeps_elements(old)) if hints and any(hints[0]) else None

    # -- what is said ------------------------------------------------------------------------------

    def _custom_call(self, old: Instruction, target: str, operands: tuple[Value, ...]) -> Value:
        if target in CONSTRAINTS:
            return self.constrained(old, operands)
        if target in HINTS and len(operands) == 1:
            return operands[0]
        if target == inspection.TARGET and len(operands) == 1:
            return inspection.inspect(self, old, operands)
        if target == GROUP:
            # Propagation has seen it.
            return ()
        boundary = manual.BOUNDARIES.get(target)
        if boundary is not None:
            return boundary(self, old, operands)
        if target in custom.PARTITIONERS:
            return custom.partitioned(self, old, operands)
        return effects.custom_call(self, old, operands)

    def constrained(self, old: Instruction, operands: tuple[Value, ...]) -> Value:
        """The operands as an instruction says that they are to be split."""
        given = [piece for operand in operands for piece in leaves(operand)]
        said = self.program.annotations.said(old)
        if len(given) != len(said):
            raise ShapeError(f"{len(given)} values become {len(said)}", hint="say a sharding of each operand")
        return rebuilt(old.shape, map(self._as_said, given, said))

    def _as_said(self, piece: Piece, sharding: Sharding | None) -> Piece:
        scope = smallest(self.scope, [piece])
        wanted = self._said(sharding, piece.shape.rank, scope) if piece.shape.is_array else None
        if wanted is None or sharding is None:
            return piece
        # A dimension that is open keeps what it has beyond what is said, unless that is in the way.
        kept = [
            own if piece.scope == scope and is_open(sharding, d) and refines(own, split) else split
            for d, (own, split) in enumerate(zip(piece.tiling, wanted, strict=True))
        ]
        tiling = self.pieces.usable(kept if is_proper(kept) else wanted, piece.shape.dimensions)
        return self.pieces.unreduced(piece, tiling, scope.agreed(self.program.annotations.unreduced(sharding)), scope)

    def _said(self, sharding: Sharding | None, rank: int, scope: Scope) -> Sequence[Split | None] | None:
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
    ) -> tuple[Computation, list[Tiling]]:
        """A computation for arguments in these tilings, and the tilings of its result: the wanted ones, or its own.

        of: the instruction that calls it.
        """
        inner = Walk(self.program, scope, self._inner(of, computation))
        arguments: list[Value] = []
        for parameter, own in zip(computation.parameters, tilings, strict=True):
            made = inner.pieces.make.like(parameter, parameter.op, (), local_shape(parameter.shape, own))
            arguments.append(inner.pieces.unbundle(made, parameter.shape, iter(own), scope))
        result = inner.through(computation, arguments)
        found = list(wanted) if wanted is not None else inner.found(computation, result)
        root = inner.pieces.bundle(result, iter(found), scope)
        name = self.program.context.computation_name(computation.name)
        return inner.pieces.make.done(name, root), found

    def found(self, computation: Computation, result: Value) -> list[Tiling]:
        """The tilings of a result: where a value is whole, but its parts are there as they should be, these."""
        tilings = [p.tiling for p in leaves(result)]
        hints = None if self.frame is None else self.frame.hints(computation.root)
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


def is_result_sharding(instruction: Instruction) -> bool:
    """Whether an instruction says how a result of the program is to be split."""
    return isinstance(instruction.op, CustomCall) and instruction.op.custom_call_target == OF_RESULT


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


def _own_number(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """The number of the partition, which is a value of a team where that is one partition."""
    sharding = old.annotations.sharding
    if walk.scope.size > 1 and (sharding is None or sharding.kind != "MANUAL"):
        raise UnsupportedError(
            "the number of a partition in a program that is split over them",
            hint="ask for it in a manual computation (jax.shard_map)",
        )
    return walk.pieces.on_whole(old, operands, walk.scope)


def _refuse_start(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    raise UnsupportedError(
        f"{old.opcode} whose done is not its only user, in a program that is split over devices",
        hint="end it with one done in the same computation, or use the operation that is not asynchronous",
    )


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
    "partition-id": _own_number,
    "rng": effects.random,
    "rng-get-and-update-state": effects.random,
    "while": control.loop,
    **dict.fromkeys(_COLLECTIVES, effects.collective),
    **dict.fromkeys(_FEEDS, _refuse),
    **dict.fromkeys(_STARTS, _refuse_start),
}
