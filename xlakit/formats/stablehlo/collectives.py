"""Conversion of StableHLO's collectives to HLO; in a program for one device they become their operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from xlakit.data.shape import Shape
from xlakit.formats.stablehlo.adaptor import Adaptor, Rule
from xlakit.formats.stablehlo.bytecode import ForeignProgram
from xlakit.formats.stablehlo.values import Dense
from xlakit.ir.attributes import ReplicaGroups
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.communication.collective_moves import AllToAll, CollectivePermute
from xlakit.ops.communication.collectives import AllGather, AllReduce, CollectiveBroadcast, ReduceScatter
from xlakit.ops.movement import Reshape, Transpose


def _collective(make: Callable[..., Op]) -> Rule:
    """The rule of a collective that is a single HLO operation.

    ``make`` is called with the computations of the operation's regions and its properties.
    """

    def rule(x: Adaptor) -> Sequence[Instruction]:
        if not x.module.has_several_devices:
            return _alone(x)
        return x.results(make(*map(x.module.region_computation, x.operation.regions), *x.properties()))

    return rule


def _alone(x: Adaptor) -> Sequence[Instruction]:
    if [operand.shape for operand in x.operands] != list(x.shapes):
        raise ForeignProgram(f"{x.operation.name} of several devices")
    return x.operands


def _rows(dense: Dense) -> list[tuple[int, ...]]:
    """The rows of a matrix of integers."""
    numbers, (count, size) = dense.integers(), dense.shape.dimensions
    return [numbers[row * size : (row + 1) * size] for row in range(count)]


def _groups(dense: Dense) -> ReplicaGroups:
    """The replica groups in the rows of a matrix, in which short groups are padded with -1."""
    return ReplicaGroups(tuple(tuple(number for number in row if number >= 0) for row in _rows(dense)))


def _channel(channel: int) -> int | None:
    """The number of a channel; StableHLO has 0 and less for none."""
    return channel if channel > 0 else None


def _all_gather(dimension: int, channel: int, groups: Dense, is_global: bool) -> Op:
    return AllGather(
        channel_id=_channel(channel),
        replica_groups=_groups(groups),
        all_gather_dimension=dimension,
        use_global_device_ids=is_global,
    )


def _all_reduce(body: Computation, channel: int, groups: Dense, is_global: bool) -> Op:
    return AllReduce(
        channel_id=_channel(channel), replica_groups=_groups(groups), use_global_device_ids=is_global, to_apply=body
    )


def _reduce_scatter(body: Computation, channel: int, groups: Dense, dimension: int, is_global: bool) -> Op:
    return ReduceScatter(
        channel_id=_channel(channel),
        replica_groups=_groups(groups),
        use_global_device_ids=is_global,
        scatter_dimension=dimension,
        to_apply=body,
    )


def _all_to_all(x: Adaptor) -> Sequence[Instruction]:
    """HLO's all-to-all concatenates along the split dimension; a transpose then moves the blocks to the other one."""
    if not x.module.has_several_devices:
        return _alone(x)
    channel, concat, groups, count, split = x.properties()
    op = AllToAll(channel_id=_channel(channel), replica_groups=_groups(groups), split_dimension=split)
    if len(x.operands) != 1:
        raise ForeignProgram("several arrays in one all-to-all")
    if split == concat:
        return x.results(op)
    (operand,), (result,) = x.operands, x.shapes
    exchanged = x.emit(op, shape=operand.shape)
    sizes = list(operand.shape.dimensions)
    sizes[split : split + 1] = count, sizes[split] // count
    blocks = x.emit(Reshape(), [exchanged], Shape(result.element_type, tuple(sizes)))
    order = [dimension for dimension in range(len(sizes)) if dimension != split]
    order.insert(order.index(concat + (concat > split)), split)
    moved = Shape(result.element_type, tuple(sizes[dimension] for dimension in order))
    return [x.emit(Reshape(), [x.emit(Transpose(dimensions=tuple(order)), [blocks], moved)])]


def _permute(x: Adaptor) -> Sequence[Instruction]:
    channel, pairs = x.properties()
    rows = tuple((source, target) for source, target in _rows(pairs))
    return x.results(CollectivePermute(channel_id=_channel(channel), source_target_pairs=rows))


def _broadcast(x: Adaptor) -> Sequence[Instruction]:
    channel, groups = x.properties()
    return x.results(CollectiveBroadcast(channel_id=_channel(channel), replica_groups=_groups(groups)))


COLLECTIVES: Final[dict[str, Rule]] = {
    "vhlo.all_gather_v2": _collective(_all_gather),
    "vhlo.all_reduce_v2": _collective(_all_reduce),
    "vhlo.reduce_scatter_v1": _collective(_reduce_scatter),
    "vhlo.all_to_all_v2": _all_to_all,
    "vhlo.collective_permute_v1": _permute,
    "vhlo.collective_broadcast_v1": _broadcast,
}
"""The rules of collectives, by the operations of VHLO."""
