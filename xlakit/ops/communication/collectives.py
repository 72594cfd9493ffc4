"""Collectives: operations in which the devices of a group take part together.

Source: XLA's document "Operation semantics", sections AllGather, AllReduce, CrossReplicaSum, ReduceScatter and
ReplicaId; CollectiveBroadcast and CollectiveReduce are operations of today's HLO.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import ExecutionError, ShapeError
from xlakit.ir.instruction import Computation
from xlakit.ir.operation import Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ops.communication.collective import (
    Collective,
    GroupsLike,
    OperandsLike,
    as_groups,
    bundle,
    bundle_shapes,
    check_combiner,
    check_operator,
    concatenated,
    reduce_members,
    repack,
    unpack,
)
from xlakit.ops.elementwise import binary
from xlakit.ops.handle import Builder, ComputationLike, XlaOp, building, scalar_shapes
from xlakit.ops.shared.calling import zero_value
from xlakit.ops.shared.checks import check_channel, check_dimension
from xlakit.ops.shared.hints import below, multiple


def _resized(shape: Shape, dimension: int, size: int) -> Shape:
    sizes = list(shape.dimensions)
    # An unbounded size stays unbounded.
    sizes[dimension] = size if sizes[dimension] >= 0 else sizes[dimension]
    return shape.with_dimensions(sizes, shape.dynamic_dimensions)


def _declared_size(declared: Shape | None, dimension: int) -> int:
    first = declared.tuple_shapes[0] if declared is not None and declared.tuple_shapes else declared
    if first is None or not first.is_array or not 0 <= dimension < first.rank:
        raise ShapeError(
            "the result shape must be given; it says how many devices a group has",
            hint="declare the result, or list the replica_groups",
        )
    return first.dimensions[dimension]


def _check_count(op: Collective, count: int, *, is_whole: bool) -> None:
    if not is_whole or count < 1 or op.group_size not in (None, count):
        size = op.group_size if op.group_size is not None else "a whole number of"
        raise ShapeError(
            f"operand and result differ by a factor of {count}, groups have {size} devices",
            hint="declare a result whose dimension differs by the size of a group",
        )


def _check_shard_count(op: Collective, count: int) -> None:
    """Raise ShapeError unless a caller's shard_count is the size of the groups."""
    if count < 1 or op.group_size not in (None, count):
        size = "at least 1" if op.group_size is None else f"{op.group_size}, the size of a replica group"
        raise ShapeError(f"shard_count {count} must be {size}", hint="each device of a group has one block")


# -- all-gather ------------------------------------------------------------------------------------


@operation("all-gather", documents=("AllGather",))
class AllGather(Collective):
    """Concatenate the operands of a group's devices along one dimension."""

    all_gather_dimension: int = attribute(Kind.SINGLE_DIMENSION, text="dimensions", proto="dimensions")
    use_global_device_ids: bool = attribute(Kind.BOOL, default=False)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        return self.gathered_shape(operands, declared)

    def gathered_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        """The shape of the gathered value; raises ShapeError."""
        self.check_groups(operands)
        dimension = self.all_gather_dimension
        for operand in operands:
            check_dimension("all_gather_dimension", dimension, operand)
        own, count = operands[0].dimensions[dimension], self.group_size
        if count is None or declared is not None:
            size = _declared_size(declared, dimension)
            count = size // own if own > 0 else count or 1
            _check_count(self, count, is_whole=own <= 0 or size == count * own)
        return bundle_shapes([_resized(o, dimension, o.dimensions[dimension] * count) for o in operands])

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return self.gather(context, operands, context.shape)

    def gather(self, context: Evaluation, operands: Sequence[Value], declared: Shape) -> Value:
        """Exchange the operands within the group and concatenate them."""
        gathered = self.all_gather_members(context, operands)
        results = [
            concatenated(context, arrays, self.all_gather_dimension, number)
            for number, arrays in enumerate(zip(*gathered, strict=True))
        ]
        for result, shape in zip(results, declared.tuple_shapes or (declared,), strict=True):
            if not shape.is_dynamic and result.shape != shape.dimensions:
                raise ExecutionError(
                    f"{len(gathered)} devices gathered {list(result.shape)}, {shape} is declared",
                    hint="run with the num_replicas and num_partitions that the program was written for",
                )
        return bundle(results)


@building
def all_gather(
    operand: OperandsLike,
    all_gather_dim: int,
    shard_count: int,
    replica_groups: GroupsLike = (),
    channel_id: int | None = None,
    *,
    use_global_device_ids: bool = False,
) -> XlaOp:
    """Concatenate across replicas.

    operand: an array, or a tuple of arrays. all_gather_dim: the dimension that grows ``shard_count`` times.
    shard_count: the size of each group. replica_groups: lists of ids in the order of concatenation; empty for all.
    channel_id: with ``use_global_device_ids`` it says what the ids are, see CollectiveOpGroupMode.

    Gives the same on all devices of a group. Raises ShapeError. Source: Operation semantics, AllGather.
    """
    op = AllGather(
        all_gather_dimension=all_gather_dim,
        replica_groups=as_groups(replica_groups),
        channel_id=channel_id,
        use_global_device_ids=use_global_device_ids,
    )
    _check_shard_count(op, shard_count)

    def grown(shape: Shape) -> Shape:
        dimension = shape.dimension_number(all_gather_dim)
        return _resized(shape, dimension, shape.dimensions[dimension] * shard_count)

    builder, operands, is_tuple = unpack(operand)
    declared = bundle_shapes([grown(o.shape) for o in operands])
    return repack(builder, builder.append(op, operands, declared), is_tuple, len(operands))


# -- all-reduce and reduce-scatter -----------------------------------------------------------------


@operation("all-reduce", documents=("AllReduce", "CrossReplicaSum"))
class AllReduce(Collective):
    """Combine the operands of a group's devices element by element, in the order of the group."""

    use_global_device_ids: bool = attribute(Kind.BOOL, default=False)
    to_apply: Computation = attribute(Kind.COMPUTATION)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        check_channel(self.channel_id, least=1)
        self.check_groups(operands, uniform=False)
        check_combiner(self.to_apply)
        return bundle_shapes(operands)

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return bundle(self.reduce(context, operands, self.to_apply))


@building
def all_reduce(
    operand: OperandsLike,
    computation: ComputationLike,
    replica_groups: GroupsLike = (),
    channel_id: int | None = None,
    *,
    use_global_device_ids: bool = False,
) -> XlaOp:
    """Combine an array, or each array of a tuple, across replicas.

    computation: (T, T) -> T on scalars, such as ``xlakit.add``. replica_groups: lists of ids; empty for all.
    channel_id, use_global_device_ids: what the ids are, see CollectiveOpGroupMode.

    Gives the shape of the operand, the same on all devices of a group. Raises ShapeError.
    Source: Operation semantics, AllReduce.
    """
    return _reducing(AllReduce, operand, computation, replica_groups, channel_id, use_global_device_ids)


def _reducing(
    cls: type[AllReduce | CollectiveReduce],
    operand: OperandsLike,
    computation: ComputationLike,
    replica_groups: GroupsLike,
    channel_id: int | None,
    use_global_device_ids: bool,
) -> XlaOp:
    builder, operands, is_tuple = unpack(operand)
    op = cls(
        to_apply=builder.subcomputation(computation, scalar_shapes(operands[:1]) * 2),
        replica_groups=as_groups(replica_groups),
        channel_id=channel_id,
        use_global_device_ids=use_global_device_ids,
    )
    check_operator(op.to_apply, [o.shape for o in operands])
    return repack(builder, builder.append(op, operands), is_tuple, len(operands))


@building
def cross_replica_sum(operand: OperandsLike, replica_groups: GroupsLike = ()) -> XlaOp:
    """The sum (for PRED the disjunction) of an array, or of each array of a tuple, across replicas.

    Raises ShapeError. Source: Operation semantics, CrossReplicaSum.
    """
    arrays = [operand] if isinstance(operand, XlaOp) else operand
    first = next((leaf for array in arrays for _, leaf in array.shape.leaves()), None)
    of_pred = first is not None and first.element_type is PrimitiveType.PRED
    return all_reduce(operand, binary.or_ if of_pred else binary.add, replica_groups)


@operation("reduce-scatter", documents=("ReduceScatter",))
class ReduceScatter(Collective):
    """An all-reduce of which each device keeps its own block along one dimension."""

    use_global_device_ids: bool = attribute(Kind.BOOL, default=False)
    scatter_dimension: int = attribute(Kind.SINGLE_DIMENSION, text="dimensions", proto="dimensions")
    to_apply: Computation = attribute(Kind.COMPUTATION)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        self.check_groups(operands)
        check_combiner(self.to_apply)
        dimension = self.scatter_dimension
        for operand in operands:
            check_dimension("scatter_dimension", dimension, operand)
        count = self.group_size
        if count is None or declared is not None:
            size, whole = _declared_size(declared, dimension), operands[0].dimensions[dimension]
            count = whole // size if size > 0 else count or 1
            _check_count(self, count, is_whole=size <= 0 or whole == count * size)
        for operand in operands:
            if operand.dimensions[dimension] % count:
                raise ShapeError(
                    f"dimension {dimension} of {operand} does not divide by {count}",
                    hint=multiple(operand.dimensions[dimension], count),
                )
        return bundle_shapes([_resized(o, dimension, o.dimensions[dimension] // count) for o in operands])

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        own = context.shape.tuple_shapes[0] if context.shape.is_tuple else context.shape
        block, whole = (s.dimensions[self.scatter_dimension] for s in (own, context.instruction.operands[0].shape))
        # The number of blocks follows from the shapes; if sizes are not known, it is the size of the group.
        count = whole // block if block > 0 and whole > 0 else self.index_in_group(context)[1]
        for array in operands:
            if array.shape[self.scatter_dimension] % count:
                raise ExecutionError(
                    f"dimension {self.scatter_dimension} of {list(array.shape)} does not divide by {count}",
                    hint=multiple(array.shape[self.scatter_dimension], count),
                )
        blocks = [np.split(array, count, axis=self.scatter_dimension) for array in operands]
        received = self.all_to_all(context, list(zip(*blocks, strict=True)))
        return bundle(reduce_members(context, self.to_apply, received))


@building
def reduce_scatter(
    operand: OperandsLike,
    computation: ComputationLike,
    scatter_dimension: int,
    shard_count: int,
    replica_groups: GroupsLike = (),
    *,
    channel_id: int | None = None,
    use_global_device_ids: bool = False,
) -> XlaOp:
    """Combine across replicas, then give each replica of a group its block.

    operand: an array, or a tuple of arrays. computation: (T, T) -> T on scalars.
    scatter_dimension: the dimension that is cut into ``shard_count`` blocks. shard_count: the size of each group.
    replica_groups: lists of ids, in the order of the blocks; empty for all.

    Gives the shape of the operand with a smaller dimension. Raises ShapeError.
    Source: Operation semantics, ReduceScatter.
    """
    builder, operands, is_tuple = unpack(operand)
    op = ReduceScatter(
        scatter_dimension=scatter_dimension,
        to_apply=builder.subcomputation(computation, scalar_shapes(operands[:1]) * 2),
        replica_groups=as_groups(replica_groups),
        channel_id=channel_id,
        use_global_device_ids=use_global_device_ids,
    )
    _check_shard_count(op, shard_count)
    check_operator(op.to_apply, [o.shape for o in operands])

    def shrunk(shape: Shape) -> Shape:
        dimension = shape.dimension_number(scatter_dimension)
        if shape.dimensions[dimension] % shard_count:
            raise ShapeError(
                f"dimension {dimension} of {shape} does not divide by shard_count {shard_count}",
                hint=multiple(shape.dimensions[dimension], shard_count),
            )
        return _resized(shape, dimension, shape.dimensions[dimension] // shard_count)

    declared = bundle_shapes([shrunk(o.shape) for o in operands])
    return repack(builder, builder.append(op, operands, declared), is_tuple, len(operands))


# -- one root --------------------------------------------------------------------------------------


def _roots(op: Collective, context: Evaluation, table: Value) -> list[int]:
    """The indices of the roots in the group, for each operand: those that the group's first device names."""
    gathered = op.all_gather_members(context, table)
    roots = [int(r) for r in gathered[0]]
    for root in roots:
        if not 0 <= root < len(gathered):
            raise ExecutionError(
                f"root {root} is out of range for a group of {len(gathered)} devices",
                hint=below(len(gathered), "root"),
            )
    return roots


def _check_roots(operands: Sequence[Shape], dynamic: bool) -> Sequence[Shape]:
    """The operands that hold data; raises ShapeError unless the last one can name the roots of the others."""
    if not dynamic:
        return operands
    data = operands[:-1]
    roots = operands[-1]
    if not data or roots.element_type is not PrimitiveType.S32 or roots.dimensions != (len(data),):
        raise ShapeError(
            f"with has_dynamic_root the last operand is s32[{len(data)}], got {roots}",
            hint=f"give one root for each of the other operands, as s32[{len(data)}]",
        )
    return data


@operation("collective-broadcast", documents=("CollectiveBroadcast",))
class CollectiveBroadcast(Collective):
    """The operands of the first device of each group, on all of its devices; zeros on a device in no group.

    With ``has_dynamic_root`` the last operand has, for each other one, the index in the group of the member that sends.
    """

    has_dynamic_root: bool = attribute(Kind.BOOL, default=False)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        self.check_groups(operands, uniform=False, all_ids=False)
        return bundle_shapes(_check_roots(operands, self.has_dynamic_root))

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        index, _ = self.index_in_group(context, optional=True)
        if index < 0:
            return zero_value(context.shape)
        if not self.has_dynamic_root:
            return bundle(self._from(context, 0, operands))
        roots = _roots(self, context, operands[-1])
        return bundle([self._from(context, root, array) for root, array in zip(roots, operands, strict=False)])

    def _from(self, context: Evaluation, root: int, value: Value) -> Value:
        return context.broadcast(self.groups, value, root)


@building
def collective_broadcast(
    operand: OperandsLike, replica_groups: GroupsLike = (), channel_id: int | None = None
) -> XlaOp:
    """Send from the first replica of each group to the others; zeros on a replica in no group.

    operand: an array, or several. Raises ShapeError. Source: Operation semantics, CollectiveBroadcast.
    """
    builder, operands, is_tuple = unpack(operand)
    op = CollectiveBroadcast(replica_groups=as_groups(replica_groups), channel_id=channel_id)
    return repack(builder, builder.append(op, operands), is_tuple, len(operands))


@operation("collective-reduce")
class CollectiveReduce(Collective):
    """An all-reduce whose result only the group's first device gets.

    With ``has_dynamic_root`` the last operand has, for each other one, the index in the group of the member that gets
    the result. The other devices get zeros, where XLA leaves the value unspecified.
    """

    use_global_device_ids: bool = attribute(Kind.BOOL, default=False)
    has_dynamic_root: bool = attribute(Kind.BOOL, default=False)
    to_apply: Computation = attribute(Kind.COMPUTATION)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        self.check_groups(operands, uniform=False)
        data = _check_roots(operands, self.has_dynamic_root)
        check_combiner(self.to_apply)
        return bundle_shapes(data)

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        index, _ = self.index_in_group(context)
        data = operands[:-1] if self.has_dynamic_root else operands
        roots = _roots(self, context, operands[-1]) if self.has_dynamic_root else [0] * len(data)
        totals = self.reduce(context, data, self.to_apply)
        return bundle([t if root == index else np.zeros_like(t) for t, root in zip(totals, roots, strict=True)])


@building
def collective_reduce(
    operand: OperandsLike,
    computation: ComputationLike,
    replica_groups: GroupsLike = (),
    channel_id: int | None = None,
    *,
    use_global_device_ids: bool = False,
) -> XlaOp:
    """Combine an array, or each of several, across replicas, for the first replica of each group only.

    computation: (T, T) -> T on scalars. Gives zeros on the other replicas. Raises ShapeError.
    """
    return _reducing(CollectiveReduce, operand, computation, replica_groups, channel_id, use_global_device_ids)


# -- ids -------------------------------------------------------------------------------------------


class DeviceNumber(Op):
    """A number of the device that runs the program."""

    __slots__ = ()

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        return Shape(PrimitiveType.U32)


@operation("replica-id", arity=0, documents=("ReplicaId",))
class ReplicaId(DeviceNumber):
    """The number of the replica, from 0."""

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return np.asarray(context.replica_id, dtype=np.uint32)


@operation("partition-id", arity=0)
class PartitionId(DeviceNumber):
    """The number of the partition, from 0."""

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return np.asarray(context.partition_id, dtype=np.uint32)


@building
def replica_id(builder: Builder) -> XlaOp:
    """The number of the replica that runs the program: a U32 scalar from 0. Source: Operation semantics, ReplicaId."""
    return builder.append(ReplicaId(), ())


@building
def partition_id(builder: Builder) -> XlaOp:
    """The number of the partition that runs the program: a U32 scalar from 0."""
    return builder.append(PartitionId(), ())
