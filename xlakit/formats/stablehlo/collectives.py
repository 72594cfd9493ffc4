"""Conversion of StableHLO's collectives to HLO; in a program for one device they become their operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xlakit.data.shape import Shape
from xlakit.formats.stablehlo.adaptor import Adaptor, Rule
from xlakit.formats.stablehlo.attributes import named, operation_of
from xlakit.formats.stablehlo.bytecode import ForeignProgram
from xlakit.ir.instruction import Instruction
from xlakit.ops.communication.collective_moves import AllToAll, CollectivePermute
from xlakit.ops.communication.collectives import AllGather, AllReduce, CollectiveBroadcast, ReduceScatter
from xlakit.ops.movement import Reshape, Transpose


def _collective(rule: Rule) -> Rule:
    """The rule of a collective: ``rule`` for several devices."""

    def of_any_count(x: Adaptor) -> Sequence[Instruction]:
        if x.module.has_several_devices:
            return rule(x)
        if [operand.shape for operand in x.operands] != list(x.shapes):
            raise ForeignProgram(f"{x.operation.name} of several devices")
        return x.operands

    return of_any_count


def _all_to_all(x: Adaptor) -> Sequence[Instruction]:
    """HLO's all-to-all concatenates along the split dimension; a transpose then moves the blocks to the other one."""
    channel, concat, groups, count, split = x.properties()
    op = _ALL_TO_ALL(channel, groups, split)
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


_ALL_TO_ALL: Final = operation_of(AllToAll, "channel_id", "replica_groups", "split_dimension")
_GROUPS: Final = ("channel_id", "replica_groups")
_GLOBAL: Final = "use_global_device_ids"

COLLECTIVES: Final[dict[str, Rule]] = {
    "vhlo.all_gather_v2": _collective(named(AllGather, "all_gather_dimension", *_GROUPS, _GLOBAL)),
    "vhlo.all_reduce_v2": _collective(named(AllReduce, "to_apply", *_GROUPS, _GLOBAL)),
    "vhlo.reduce_scatter_v1": _collective(named(ReduceScatter, "to_apply", *_GROUPS, "scatter_dimension", _GLOBAL)),
    "vhlo.all_to_all_v2": _collective(_all_to_all),
    "vhlo.collective_permute_v1": named(CollectivePermute, "channel_id", "source_target_pairs"),
    "vhlo.collective_broadcast_v1": named(CollectiveBroadcast, *_GROUPS),
}
"""The rules of collectives, by the operations of VHLO."""
