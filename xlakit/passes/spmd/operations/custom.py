"""Custom calls that a registered function splits: JAX's ``custom_partitioning``.

The sharding rule of the call relates dimensions of operands and results, and gives each a sharding; without a rule
another function gives those of the results. The function returns a program for one partition, on parts, and the
shardings that it needs. That program replaces the call, like a manual computation over all partitions.
"""

from __future__ import annotations

import dataclasses
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
from xlakit.passes.spmd.shardings.tilings import Tiling, local_sizes, whole
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

    ``split`` is called with a call, and the shardings of its operands and results. ``infer``: called with a call that
    has no sharding rule, and the shardings of its operands; gives those of its results, or None.
    """

    split: Callable[[Instruction, Sequence[Sharding], Sequence[Sharding]], SplitCall]
    infer: Callable[[Instruction, Sequence[Sharding]], Sequence[Sharding] | None]


# By custom call target.
PARTITIONERS: Final[dict[str, Partitioner]] = {}


def partitioned(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """The results of the program of one partition on its parts of the operands."""
    scope = smallest(walk.scope, operands)
    if scope.size < scope.count:
        raise UnsupportedError(
            "a custom call that a function splits, in a computation that is manual over some axes alone",
            hint="make it manual over all axes of the mesh: jax.shard_map without axis_names",
        )
    given = [piece for operand in operands for piece in leaves(operand)]
    partitioner = PARTITIONERS[old.op_as(CustomCall).custom_call_target]
    made = partitioner.split(old, *_shardings(walk, old, partitioner, given, scope))
    partition = _as_computation(made.module, walk.program)
    inner = scope.inside(tuple(range(scope.count)))
    arguments: list[Value] = []
    for piece, sharding, parameter in zip(given, made.operands, partition.parameters, strict=True):
        part = walk.pieces.at(piece, _tiling(walk, sharding, piece.shape.dimensions), scope)
        _check_part(old, "operand", part.shape.dimensions, parameter.shape.dimensions)
        arguments.append(Piece(part, whole(part.shape.rank), inner, part.shape))
    found = list(leaves(walk.inside(inner, partition, arguments, None)))
    pieces: list[Piece] = []
    for piece, sharding, shape in zip(found, made.results, leaf_shapes(old.shape), strict=True):
        tiling = _tiling(walk, sharding, shape.dimensions)
        _check_part(old, "result", local_sizes(tiling, shape.dimensions), piece.shape.dimensions)
        pieces.append(Piece(piece.instruction, tiling, scope, shape))
    return nested(old.shape, iter(pieces))


def _shardings(
    walk: Walk, old: Instruction, partitioner: Partitioner, given: Sequence[Piece], scope: Scope
) -> tuple[list[Sharding], list[Sharding]]:
    """The shardings of operands and results: by the rule of the call, or as they are and as the function infers."""
    rule = sharding_rule(old)
    if rule is not None:
        hint = walk.hint(old, scope)
        # The call is not computed again in parts: the hint holds for whole operands, too.
        wanted = walk.annotation(old, scope) or hint
        tilings, results = walk.pieces.tilings_for(old, rule.factors(), given, scope, wanted, hint)
        return [*map(as_sharding, tilings)], [*map(as_sharding, results)]
    own = [as_sharding(p.tiling if p.scope == scope else whole(p.shape.rank)) for p in given]
    inferred = partitioner.infer(old, own)
    if inferred is not None:
        return own, list(inferred)
    return [as_sharding(whole(p.shape.rank)) for p in given], [
        as_sharding(whole(s.rank)) for s in leaf_shapes(old.shape)
    ]


def _tiling(walk: Walk, sharding: Sharding, sizes: Sequence[int]) -> Tiling:
    """The tiling of a sharding, with equal parts."""
    splits = walk.program.annotations.splits(sharding, len(sizes)) or whole(len(sizes))
    tiling = walk.pieces.usable(splits, sizes)
    if tiling != tuple(splits):
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
