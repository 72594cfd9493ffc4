"""The builder for the program of one partition: instructions, collectives, and values that depend on the partition."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import field

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.errors import UnsupportedError
from xlakit.ir.attributes import Annotations, ReplicaGroups
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.communication.collective_moves import AllToAll, CollectivePermute
from xlakit.ops.communication.collectives import AllGather, AllReduce, CollectiveBroadcast, PartitionId, ReduceScatter
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import Parameter
from xlakit.ops.dynamic import DynamicSlice
from xlakit.ops.elementwise.binary import Add
from xlakit.ops.reduction import identity_element
from xlakit.passes.core.computation_builder import ComputationBuilder, binary_computation
from xlakit.passes.core.framework import PassContext
from xlakit.passes.spmd.shardings.scopes import Scope


@dataclass
class Channels:
    """State shared by the collectives of a program: channel numbers, devices, reducer computations."""

    last: int
    replicas: int
    partitions: int
    combiners: dict[tuple[Op, PrimitiveType], Computation] = field(default_factory=dict)

    def new(self) -> int:
        """A new channel."""
        self.last += 1
        return self.last

    def everywhere(self, groups: Sequence[Sequence[int]]) -> ReplicaGroups:
        """Groups of partitions as groups of devices, in each replica."""
        return ReplicaGroups(
            tuple(tuple(r * self.partitions + p for p in group) for r in range(self.replicas) for group in groups)
        )


class Emitter(ComputationBuilder):
    """Builds a computation of one partition; unused collectives are dropped."""

    def __init__(self, context: PassContext, channels: Channels) -> None:
        super().__init__(context)
        self.channels = channels
        self._numbers: dict[tuple[int, ...], Instruction] = {}
        # Collectives that the partitioner has added, which are dropped if unused.
        self._own: set[Instruction] = set()
        # The control predecessors of the instructions that are emitted now.
        self.predecessors: tuple[Instruction, ...] = ()
        # The operation for which collectives are emitted, whose metadata they have.
        self.cause: Instruction | None = None

    def like(self, old: Instruction, op: Op, operands: Sequence[Instruction], shape: Shape) -> Instruction:
        """Emit the replacement of an old instruction."""
        annotations = dataclasses.replace(Annotations(), metadata=old.annotations.metadata)
        if isinstance(old.op, CustomCall):
            annotations = dataclasses.replace(old.annotations, sharding=None)
        name = self.names.keep_or_new(old.name)
        before = [p for p in self.predecessors if p not in operands]
        return self.append(Instruction(op, operands, shape, name, control_predecessors=before, annotations=annotations))

    def build(self, name: str, root: Instruction) -> Computation:
        """The computation, without unused instructions."""
        live = {root}
        for instruction in reversed(self._order):
            kept = instruction.op.has_side_effect and instruction not in self._own
            if instruction in live or kept or isinstance(instruction.op, Parameter):
                live.add(instruction)
                live.update(instruction.operands)
                live.update(instruction.control_predecessors)
        return Computation(name, tuple(i for i in self._order if i in live), root)

    # -- the number of a partition -----------------------------------------------------------------

    def number(self, of_member: Sequence[int], scope: Scope) -> Instruction:
        """An S32 scalar with a value for each member of a team."""
        table = tuple(scope.of_partitions(list(of_member)))
        found = self._numbers.get(table)
        if found is None:
            values = self.constant(np.asarray(table, np.int32))
            one = self.add(DynamicSlice(dynamic_slice_sizes=(1,)), values, self.add(PartitionId()))
            found = self._numbers[table] = self.reshape(one, ())
        return found

    # -- moving elements ---------------------------------------------------------------------------

    def part(self, value: Instruction, dimension: int, count: int, indices: Sequence[int], scope: Scope) -> Instruction:
        """One of ``count`` equal parts of a dimension: that with this member's index."""
        sizes = list(value.shape.dimensions)
        sizes[dimension] //= count
        start = self.number([index * sizes[dimension] for index in indices], scope)
        zero = self.scalar(0, PrimitiveType.S32)
        starts = [start if d == dimension else zero for d in range(len(sizes))]
        return self.add(DynamicSlice(dynamic_slice_sizes=tuple(sizes)), value, *starts)

    def zeros(self, kind: PrimitiveType, sizes: Sequence[int] = ()) -> Instruction:
        """An array of zeros."""
        return self.full(np.zeros((), kind.dtype), Shape(kind, tuple(sizes)))

    def additive_identity(self, kind: PrimitiveType) -> Instruction:
        """The identity of addition, which changes no bit of a number: 0 of integers, -0 of others.

        Raises UnsupportedError for formats without a zero.
        """
        number = identity_element(Add(), kind)
        if number is None:
            raise UnsupportedError(
                f"partial sums of {kind.name.lower()}, which has no zero", hint="say no unreduced axes of this array"
            )
        return self.constant(np.asarray(number))

    # -- collectives -------------------------------------------------------------------------------

    def all_gather(self, value: Instruction, dimension: int, groups: Sequence[Sequence[int]]) -> Instruction:
        """The parts of all members of a group, concatenated."""
        op = AllGather(
            all_gather_dimension=dimension,
            channel_id=self.channels.new(),
            replica_groups=self.channels.everywhere(groups),
            use_global_device_ids=True,
        )
        sizes = list(value.shape.dimensions)
        sizes[dimension] *= len(groups[0])
        return self._collective(op, value, Shape(value.shape.element_type, tuple(sizes)))

    def all_reduce(self, value: Instruction, combining: Op, groups: Sequence[Sequence[int]]) -> Instruction:
        """The values of all members of a group, combined by a binary operation."""
        op = AllReduce(
            to_apply=self._combiner(combining, value.shape.element_type),
            channel_id=self.channels.new(),
            replica_groups=self.channels.everywhere(groups),
            use_global_device_ids=True,
        )
        return self._collective(op, value)

    def reduce_scatter(self, value: Instruction, dimension: int, groups: Sequence[Sequence[int]]) -> Instruction:
        """The sum over all members of a group, scattered in the order of the group."""
        op = ReduceScatter(
            to_apply=self._combiner(Add(), value.shape.element_type),
            scatter_dimension=dimension,
            channel_id=self.channels.new(),
            replica_groups=self.channels.everywhere(groups),
            use_global_device_ids=True,
        )
        sizes = list(value.shape.dimensions)
        sizes[dimension] //= len(groups[0])
        return self._collective(op, value, Shape(value.shape.element_type, tuple(sizes)))

    def all_to_all(self, value: Instruction, groups: Sequence[Sequence[int]]) -> Instruction:
        """All-to-all of blocks in dimension 0, one for each member of the group."""
        among = ReplicaGroups(tuple(map(tuple, groups)))
        op = AllToAll(split_dimension=0, channel_id=self.channels.new(), replica_groups=among)
        return self._collective(op, value)

    def permute(self, value: Instruction, pairs: Sequence[tuple[int, int]]) -> Instruction:
        """The value of another partition."""
        op = CollectivePermute(channel_id=self.channels.new(), source_target_pairs=tuple(pairs))
        return self._collective(op, value)

    def broadcast_from_first(self, value: Instruction, groups: Sequence[Sequence[int]]) -> Instruction:
        """The value of the first in each group."""
        among = ReplicaGroups(tuple(map(tuple, groups)))
        op = CollectiveBroadcast(channel_id=self.channels.new(), replica_groups=among)
        return self._collective(op, value)

    def _combiner(self, op: Op, kind: PrimitiveType) -> Computation:
        """The reducer computation of a binary operation, shared by all uses."""
        known = self.channels.combiners
        found = known.get((op, kind))
        if found is None:
            name = f"combine-{op.opcode}-{kind.hlo_name}"
            found = known[op, kind] = binary_computation(name, op, kind, self.context)
        return found

    def _collective(self, op: Op, value: Instruction, shape: Shape | None = None) -> Instruction:
        made = self.add(op, value, like=self.cause, shape=shape)
        self._own.add(made)
        return made
