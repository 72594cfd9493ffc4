"""Dispatch to the function that splits an operation: by class, by the target of a custom call, or by its factors."""

from __future__ import annotations

from xlakit.errors import UnsupportedError
from xlakit.ir.instruction import Instruction
from xlakit.ops.communication.asynchronous import AsyncStart
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import CollectivePermute
from xlakit.ops.communication.collective_pairs import AllGatherStart, AllReduceStart, CollectivePermuteStart
from xlakit.ops.communication.collectives import PartitionId
from xlakit.ops.communication.transfer import Transfer
from xlakit.ops.control import Call, Conditional, Fusion, While
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import AddDependency, OptimizationBarrier
from xlakit.ops.random import Rng, RngGetAndUpdateState
from xlakit.passes.spmd.operations import control, custom, effects, inspection, manual, partial_sums
from xlakit.passes.spmd.pieces.pieces import smallest
from xlakit.passes.spmd.shardings.annotations import CONSTRAINTS, GROUP, HINTS
from xlakit.passes.spmd.shardings.values import Piece, Value, leaves
from xlakit.passes.spmd.walk import Walk


def split(walk: Walk, old: Instruction, operands: tuple[Value, ...], end: Instruction | None) -> Value:
    """The value of an instruction in the program of one partition.

    end: the end of a call of a manual computation; None for other instructions.
    """
    match old.op:
        case Call() if end is not None and not operands:
            return walk.inside(manual.scope_of(walk, end), old.op.to_apply, operands, walk.inner(old, old.op.to_apply))
        case Call() | Fusion():
            callee = old.op.to_apply if isinstance(old.op, Call) else old.op.calls
            return walk.inside(smallest(walk.scope, operands), callee, operands, walk.inner(old, callee))
        case CustomCall():
            return _custom_call(walk, old, old.op.custom_call_target, operands)
        case While():
            return control.loop(walk, old, operands)
        case Conditional():
            return control.conditional(walk, old, operands)
        case OptimizationBarrier():
            return _barrier(walk, old, operands)
        case AddDependency():
            return _dependency(walk, old, operands)
        case PartitionId():
            return _own_number(walk, old, operands)
        case Rng() | RngGetAndUpdateState():
            return effects.random(walk, old, operands)
        case Transfer():
            return _feed_or_channel(walk, old, operands)
        # Where the done of a start follows, prepare.py has made one operation of the two.
        case AsyncStart() | AllGatherStart() | AllReduceStart() | CollectivePermuteStart():
            raise UnsupportedError(
                f"{old.opcode} whose done is not its only user, in a program that is split over devices",
                hint="end it with one done in the same computation, or use the operation that is not asynchronous",
            )
        case Collective() | CollectivePermute():
            return effects.collective(walk, old, operands)
        case _:
            return partial_sums.plain(walk, old, operands)


def _custom_call(walk: Walk, old: Instruction, target: str, operands: tuple[Value, ...]) -> Value:
    if target in CONSTRAINTS:
        return walk.constrained(old, operands)
    if target in HINTS and len(operands) == 1:
        return operands[0]
    if target == inspection.TARGET and len(operands) == 1:
        return inspection.inspect(walk, old, operands)
    if target == GROUP:
        # Propagation has used it.
        return ()
    boundary = manual.BOUNDARIES.get(target)
    if boundary is not None:
        return boundary(walk, old, operands)
    if target in custom.PARTITIONERS:
        return custom.partitioned(walk, old, operands)
    return effects.custom_call(walk, old, operands)


def _barrier(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """An optimization barrier, applied to the parts."""
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
    """The number of the partition, which is only allowed in scopes whose teams are single partitions."""
    sharding = old.annotations.sharding
    if walk.scope.size > 1 and (sharding is None or sharding.kind != "MANUAL"):
        raise UnsupportedError(
            "the number of a partition in a program that is split over them",
            hint="ask for it in a manual computation (jax.shard_map)",
        )
    return walk.pieces.on_whole(old, operands, walk.scope)


def _feed_or_channel(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """Feeds and channels, which are only allowed in scopes whose teams are single partitions."""
    scope = smallest(walk.scope, operands)
    if scope.size > 1:
        raise UnsupportedError(
            "feeds and channels in a program that is split over devices",
            hint="use them in a manual computation (jax.shard_map), where the program says which device does it",
        )
    return walk.pieces.on_whole(old, operands, scope)
