"""Makes a reduce-scatter of an all-reduce of which each device reads its own block alone.

A partitioner that knows no reduce-scatter, as that of XLA for processors, emits the sum on all devices and then a
dynamic slice, which starts where the number of the device says. The same blocks are combined in the same order, and a
device sends and combines half as much or less.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np

from xlakit.errors import XlakitError
from xlakit.execution.groups import Grid
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.communication.collectives import AllReduce, PartitionId, ReduceScatter, ReplicaId
from xlakit.ops.communication.sites import site_of
from xlakit.ops.dynamic import DynamicSlice
from xlakit.ops.shared.numerics import to_integer
from xlakit.passes.analysis.sites import sites_met_apart
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import Pass, PassContext, change_computations
from xlakit.passes.simplify.fold_constants import computed_from, value_of

# Starts are computed for each device, some microseconds for each.
_MOST_DEVICES = 4096
_NUMBERS = (PartitionId, ReplicaId)


class ScatterSums(Pass):
    """Replace an all-reduce whose only users slice the device's own block out of it by a reduce-scatter.

    ``dynamic-slice(all-reduce(x), start)`` is ``reduce-scatter(x)`` where the start of each device, computed from
    constants, partition-id and replica-id, is that of the block at the device's position in its group. Blocks in
    another order than that of the group are left alone, since the order of a sum would be another one.
    """

    name = "scatter-sums"

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Change every computation."""
        grid = Grid(module.replica_count, module.num_partitions)
        if not 1 < grid.num_devices <= _MOST_DEVICES:
            return module
        apart = sites_met_apart(module)
        return change_computations(module, lambda computation: _changed(computation, grid, apart, context))


def _changed(computation: Computation, grid: Grid, apart: Set[str], context: PassContext) -> Computation:
    """The computation with a reduce-scatter for each all-reduce that allows it; the same object if none does."""
    sums = [i for i in computation.instructions if isinstance(i.op, AllReduce) and site_of(i) not in apart]
    if not sums:
        return computation
    users: dict[Instruction, list[Instruction]] = {i: [] for i in sums}
    for instruction in computation.instructions:
        for needed in (*instruction.operands, *instruction.control_predecessors):
            if needed in users:
                users[needed].append(instruction)
    scattered: dict[Instruction, int] = {}
    for total, slices in users.items():
        dimension = None if total is computation.root else _scattered_dimension(total, slices, grid)
        if dimension is not None and context.spend("scatter"):
            scattered[total] = dimension
    if not scattered:
        return computation
    cloner = ComputationCloner(computation, context)
    for old in computation.instructions:
        if old in scattered:
            _scatter(cloner, old, users[old], scattered[old])
        elif old not in cloner.clones:
            cloner.clone(old)
    return cloner.build()


def _scatter(cloner: ComputationCloner, total: Instruction, slices: Sequence[Instruction], dimension: int) -> None:
    """Append the reduce-scatter in the place of the all-reduce; the slices become its result."""
    op = total.op_as(AllReduce)
    made = cloner.add(
        ReduceScatter(
            scatter_dimension=dimension,
            to_apply=op.to_apply,
            channel_id=op.channel_id,
            replica_groups=op.replica_groups,
            use_global_device_ids=op.use_global_device_ids,
        ),
        *[cloner.clones[o] for o in total.operands],
        like=total,
        shape=slices[0].shape.without_layout(),
    )
    for old in slices:
        cloner.substitute(old, made)


def _scattered_dimension(total: Instruction, slices: Sequence[Instruction], grid: Grid) -> int | None:
    """The dimension along which all users of an all-reduce take the device's own block; None if they do not."""
    if not slices or len(total.operands) != 1 or total.control_predecessors:
        return None
    whole, given = total.shape, total.operands[0].shape
    if whole != given or whole.is_dynamic or not whole.num_elements:
        return None
    found = {_own_block(total, old, grid) for old in slices}
    return found.pop() if len(found) == 1 else None


def _own_block(total: Instruction, block: Instruction, grid: Grid) -> int | None:
    """The dimension of which a user of an all-reduce slices the device's own block; None if it does not."""
    if not isinstance(block.op, DynamicSlice) or block.control_predecessors or total in block.operands[1:]:
        return None
    sizes, own = total.shape.dimensions, block.op.dynamic_slice_sizes
    cut = [d for d, (size, part) in enumerate(zip(sizes, own, strict=True)) if size != part]
    if block.operands[0] is not total or block.shape.element_type != total.shape.element_type or len(cut) != 1:
        return None
    (dimension,) = cut
    size, part, op = sizes[dimension], own[dimension], total.op_as(AllReduce)
    if not part or size % part:
        return None
    try:
        groups = [grid.members(device, op.groups) for device in range(grid.num_devices)]
    except XlakitError:
        # The program raises the error when it runs.
        return None
    if any(len(group) * part != size for group in groups):
        return None
    starts = _starts(block.operands[1:], dimension, grid)
    wanted = [group.index(device) * part for device, group in enumerate(groups)]
    if starts is None or [max(0, min(start, size - part)) for start in starts] != wanted:
        return None
    return dimension


def _starts(indices: Sequence[Instruction], dimension: int, grid: Grid) -> list[int] | None:
    """The start of a dynamic slice along a dimension on each device, before it is clamped; None if it is not known."""
    is_vector = bool(indices[0].shape.dimensions)
    index = indices[0] if is_vector else indices[dimension]
    numbers = computed_from(index, _NUMBERS)
    if numbers is None:
        return None
    starts: list[int] = []
    for device in range(grid.num_devices):
        replica, partition = divmod(device, grid.num_partitions)
        known = {i: np.asarray(replica if isinstance(i.op, ReplicaId) else partition, np.uint32) for i in numbers}
        try:
            value = np.asarray(to_integer(value_of(index, known))).reshape(-1)
        except XlakitError:
            return None
        starts.append(int(value[dimension if is_vector else 0]))
    return starts
