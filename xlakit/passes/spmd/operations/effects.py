"""Operations that members of a team must not execute independently: random numbers, calls with effects, collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xlakit.data.nesting import nested
from xlakit.data.shape import Shape
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import CollectivePermute
from xlakit.ops.control import Conditional
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import AfterAll
from xlakit.passes.spmd.pieces.emit import Emitter
from xlakit.passes.spmd.pieces.pieces import smallest
from xlakit.passes.spmd.shardings.annotations import SHARDINGS
from xlakit.passes.spmd.shardings.factors import factors_of
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Tiling, local_sizes
from xlakit.passes.spmd.shardings.values import Piece, Value, leaves, whole_tilings
from xlakit.passes.spmd.walk import Walk


def random(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """Random numbers, which differ between devices: all members use those of the first."""
    scope = smallest(walk.scope, operands)
    value = walk.pieces.on_whole(old, operands, scope)
    return value if scope.size == 1 else _of_member(walk, value, old.shape, scope, 0)


# Functions that are called on each device with its parts of the operands; they return no arrays.
_ON_PARTS: Final = frozenset({"xlakit_partitioned_python_callback"})


def custom_call(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """A custom call with a side effect, or with a device: one member calls the function and broadcasts the results."""
    scope = smallest(walk.scope, operands)
    if isinstance(old.op, CustomCall) and old.op.custom_call_target in _ON_PARTS:
        pieces = [walk.pieces.summed(piece) for value in operands for piece in leaves(value)]
        given = [(p if p.scope == scope else walk.pieces.in_inner_scope(p, scope)).instruction for p in pieces]
        made = walk.pieces.make.like(old, old.op, given, old.shape)
        return walk.pieces.unbundle(made, old.shape, iter(whole_tilings(old.shape)), scope)
    device = _device(walk, old)
    if scope.size == 1 or not (old.op.has_side_effect or device is not None):
        return walk.pieces.apply(old, operands, scope)
    member = scope.teams[0].index(device) if device is not None and device in scope.teams[0] else 0
    make = walk.pieces.make
    given = [
        walk.pieces.bundle(v, iter(whole_tilings(o.shape)), scope) for v, o in zip(operands, old.operands, strict=True)
    ]
    argument = make.tuple(*given)
    names = walk.program.context.computation_name
    calls = _calling(Emitter(walk.program.context, walk.program.channels), old, argument.shape, names("calls"))
    waits = _waiting(Emitter(walk.program.context, walk.program.channels), old, argument.shape, names("waits"))
    branch = make.number([int(m != member) for m in range(scope.size)], scope)
    op = Conditional(branch_computations=(calls, waits))
    made = make.add(op, branch, argument, argument)
    value = walk.pieces.unbundle(made, old.shape, iter(whole_tilings(old.shape)), scope)
    return _of_member(walk, value, old.shape, scope, member)


def _device(walk: Walk, old: Instruction) -> int | None:
    """The device of a call's sharding."""
    sharding = old.annotations.sharding
    elements = () if sharding is None else (sharding.elements or (sharding,))
    shardings = [*elements, *(walk.program.annotations.in_attribute(old, SHARDINGS) or ())]
    return next((s.devices[0] for s in shardings if s.kind == "MAXIMAL" and s.devices), None)


def _calling(make: Emitter, old: Instruction, shape: Shape, name: str) -> Computation:
    argument = make.parameter(0, shape)
    operands = [make.element(argument, n) for n in range(len(old.operands))]
    return make.build(name, make.like(old, old.op, operands, old.shape))


def _waiting(make: Emitter, old: Instruction, shape: Shape, name: str) -> Computation:
    make.parameter(0, shape)
    return make.build(name, _nothing(make, old.shape))


def _nothing(make: Emitter, shape: Shape) -> Instruction:
    if shape.is_tuple:
        return make.tuple(*[_nothing(make, s) for s in shape.tuple_shapes])
    if shape.is_token:
        return make.add(AfterAll())
    return make.zeros(shape.element_type, shape.dimensions)


def _of_member(walk: Walk, value: Value, shape: Shape, scope: Scope, member: int) -> Value:
    """The arrays of one member, broadcast to all members."""
    order = [member, *(m for m in range(scope.size) if m != member)]
    groups = scope.groups([order])

    def shared(piece: Piece) -> Piece:
        if not piece.shape.is_array:
            return piece
        made = walk.pieces.make.broadcast_from_first(piece.instruction, groups)
        return Piece(made, piece.tiling, scope, piece.shape)

    return nested(shape, map(shared, leaves(value)))


# -- collectives of the program ----------------------------------------------------------------------


def collective(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """A collective of the program: members with the same index in their teams exchange their pieces, if these are the
    same parts; else the collective is applied to whole values.
    """
    scope = smallest(walk.scope, operands)
    (first, *others) = operands
    if others or not isinstance(first, Piece) or first.scope != scope or old.shape.is_tuple:
        return walk.pieces.on_whole(old, operands, scope)
    factors = factors_of(old)
    # A whole operand is exchanged in the parts in which the result is used.
    hint = walk.hint(old, scope) if first.is_whole else None
    own = first.tiling if hint is None else walk.pieces.usable(hint, first.shape.dimensions)
    if factors is None or not _meets_alike(walk, old, own, scope):
        return walk.pieces.on_whole(old, operands, scope)
    tiling = tuple(None if f is None else split for f, split in zip(factors.results[0], own, strict=True))
    given = walk.pieces.at(first, tiling, scope)
    shape = Shape(old.shape.element_type, local_sizes(tiling, old.shape.dimensions))
    return Piece(walk.pieces.make.like(old, old.op, (given,), shape), tiling, scope, old.shape)


def _meets_alike(walk: Walk, old: Instruction, tiling: Tiling, scope: Scope) -> bool:
    """Whether all members of the collective have the same part."""
    op, count = old.op, walk.program.channels.partitions
    tables = [scope.of_partitions(list(split)) for split in tiling if split is not None]
    groups: Sequence[Sequence[int]]
    if isinstance(op, CollectivePermute):
        groups = op.source_target_pairs
    else:
        own = old.op_as(Collective)
        groups = own.replica_groups.groups or (range(count),)
        if own.channel_id is None or own.global_ids is False:
            return own.channel_id is None
    return all(len({table[i % count] for i in group}) <= 1 for table in tables for group in groups)
