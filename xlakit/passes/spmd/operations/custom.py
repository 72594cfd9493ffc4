"""Custom calls that a registered function splits: JAX's ``custom_partitioning``.

The sharding rule of the call relates dimensions of operands and results, and gives each a sharding; without a rule
other functions give those of the results. The function returns a program for one partition, on parts, and the
shardings that it needs. That program replaces the call, like a manual computation over all partitions.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Final

from xlakit.data.nesting import nested
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.ir.attributes import Sharding
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import CollectivePermute
from xlakit.ops.custom_call import CustomCall
from xlakit.passes.core.framework import with_callees
from xlakit.passes.spmd.pieces.pieces import smallest
from xlakit.passes.spmd.prepare import prepared
from xlakit.passes.spmd.program import Program
from xlakit.passes.spmd.shardings.annotations import as_sharding
from xlakit.passes.spmd.shardings.rules import sharding_rule
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Tiling, is_proper, local_sizes, parts, whole
from xlakit.passes.spmd.shardings.values import Piece, Value, leaf_shapes, leaves
from xlakit.passes.spmd.walk import Walk


@dataclass(frozen=True)
class SplitCall:
    """The replacement of a call: the program of one partition, with the shardings of operands and results."""

    module: HloModule
    operands: Sequence[Sharding]
    results: Sequence[Sharding]


@dataclass(frozen=True)
class Partitioner:
    """The functions of a custom call target.

    ``split`` is called with a call, and the shardings of its operands and results. The others are called for a call
    that has no sharding rule, and give shardings of its results: ``infer`` from those of its operands, or None, and
    ``take`` from those that its users have for the results. A result gets the splits of both.
    """

    split: Callable[[Instruction, Sequence[Sharding], Sequence[Sharding]], SplitCall]
    infer: Callable[[Instruction, Sequence[Sharding]], Sequence[Sharding] | None]
    take: Callable[[Instruction, Sequence[Sharding]], Sequence[Sharding]]


# By custom call target.
PARTITIONERS: Final[dict[str, Partitioner]] = {}


def partitioned(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """The results of the program of one partition on its parts of the operands."""
    scope = smallest(walk.scope, operands)
    given = [piece for operand in operands for piece in leaves(operand)]
    partitioner = PARTITIONERS[old.op_as(CustomCall).custom_call_target]
    made = partitioner.split(old, *_shardings(walk, old, partitioner, given, scope))
    partition = _as_computation(made.module, walk.program)
    inner = scope.inside(tuple(range(scope.count)))
    arguments: list[Value] = []
    for piece, sharding, parameter in zip(given, made.operands, partition.parameters, strict=True):
        part = walk.pieces.at(piece, _tiling(walk, sharding, piece.shape.dimensions, scope), scope)
        _check_part(old, "operand", part.shape.dimensions, parameter.shape.dimensions)
        arguments.append(Piece(part, whole(part.shape.rank), inner, part.shape))
    found = list(leaves(walk.inside(inner, partition, arguments, None)))
    pieces: list[Piece] = []
    for piece, sharding, shape in zip(found, made.results, leaf_shapes(old.shape), strict=True):
        tiling = _tiling(walk, sharding, shape.dimensions, scope)
        _check_part(old, "result", local_sizes(tiling, shape.dimensions), piece.shape.dimensions)
        pieces.append(Piece(piece.instruction, tiling, scope, shape))
    return nested(old.shape, iter(pieces))


def _shardings(
    walk: Walk, old: Instruction, partitioner: Partitioner, given: Sequence[Piece], scope: Scope
) -> tuple[list[Sharding], list[Sharding]]:
    """The shardings of operands and results: by the rule of the call, or as they are and as its functions say."""
    rule = sharding_rule(old)
    if rule is not None:
        hint = walk.hint(old, scope)
        # The call is not computed again in parts: the hint holds for whole operands, too.
        wanted = walk.annotation(old, scope) or hint
        tilings, results = walk.pieces.tilings_for(old, rule.factors(), given, scope, wanted, hint)
        return _of_partitions(tilings, scope), _of_partitions(results, scope)
    own = _of_partitions([p.tiling if p.scope == scope else whole(p.shape.rank) for p in given], scope)
    shapes = leaf_shapes(old.shape)
    results = list(partitioner.infer(old, own) or [as_sharding(whole(s.rank)) for s in shapes])
    hints = (walk.frame and walk.frame.hints(old, scope)) or [whole(s.rank) for s in shapes]
    preferred = [walk.pieces.usable(hint, s.dimensions) for hint, s in zip(hints, shapes, strict=True)]
    if any(map(any, preferred)):
        taken = partitioner.take(old, _of_partitions(preferred, scope))
        results = [
            _merged(walk, *pair, s.rank) for pair, s in zip(zip(taken, results, strict=True), shapes, strict=True)
        ]
    return own, results


def _merged(walk: Walk, one: Sharding, other: Sharding, rank: int) -> Sharding:
    """The splits of both shardings where these fit together; else the one with more parts, the first of equals."""
    pairs = [walk.program.annotations.splits(s, rank) or whole(rank) for s in (one, other)]
    both = tuple(max(splits, key=parts) for splits in zip(*pairs, strict=True))
    return as_sharding(both if is_proper(both) else max(pairs, key=lambda splits: math.prod(map(parts, splits))))


def _of_partitions(tilings: Sequence[Tiling], scope: Scope) -> list[Sharding]:
    """Tilings over the teams of a scope as shardings over all partitions: each team splits its own values."""
    if scope.size == scope.count:
        return [*map(as_sharding, tilings)]
    return [
        as_sharding(tuple(None if split is None else tuple(scope.of_partitions([*split])) for split in tiling))
        for tiling in tilings
    ]


def _tiling(walk: Walk, sharding: Sharding, sizes: Sequence[int], scope: Scope) -> Tiling:
    """The tiling of a sharding over the teams of a scope, with equal parts."""
    splits = walk.program.annotations.splits(sharding, len(sizes)) or whole(len(sizes))
    over_teams = tuple(map(scope.agreed, splits))
    if [s is None for s in over_teams] != [s is None for s in splits]:
        raise UnsupportedError(
            f"{list(sizes)} split along an axis over which the computation is manual",
            hint="have the function give shardings along the other axes",
        )
    tiling = walk.pieces.usable(over_teams, sizes)
    if tiling != over_teams:
        raise UnsupportedError(
            f"{list(sizes)} in unequal parts", hint="have the function give shardings that divide each dimension"
        )
    return tiling


def _check_part(old: Instruction, what: str, sizes: Sequence[int], own: Sequence[int]) -> None:
    if tuple(sizes) != tuple(own):
        raise ShapeError(
            f"{what} parts are {list(sizes)} by their sharding, {list(own)} in the program of one partition",
            operation=f"{old.opcode} '{old.name}'",
            hint="have the function that splits the call give the shardings that its program is for",
        )


def _as_computation(module: HloModule, program: Program) -> Computation:
    """A module as a computation of the program, with names and channels that are unique there."""
    made: dict[Computation, Computation] = {}
    channels: dict[int, int] = {}

    def adopted(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        metadata = old.annotations.metadata
        if metadata is not None and metadata.stack_frame_id:
            # It is an index into a table of the module, which the computation loses.
            annotations = dataclasses.replace(old.annotations, metadata=dataclasses.replace(metadata, stack_frame_id=0))
            old = old.replace(annotations=annotations)
        channel = old.op.channel_id if isinstance(old.op, (Collective, CollectivePermute)) else None
        if channel is None:
            return old.replace(operands=operands)
        if channel not in channels:
            channels[channel] = program.channels.new()
        return old.replace(op=dataclasses.replace(old.op, channel_id=channels[channel]), operands=operands)

    module = prepared(module, program.context)
    for old in module.computations:
        new = with_callees(old, made).rebuild(adopted)
        name = program.context.computation_name(new.name)
        made[old] = Computation(name, new.instructions, new.root, new.execution_thread)
    return made[module.entry]
