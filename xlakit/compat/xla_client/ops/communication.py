"""Collectives between replicas, feeds, transfers with the host, and random numbers."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.builder import XlaBuilder, XlaComputation
from xlakit.compat.xla_client.ops.operations import (
    Builder,
    Computation,
    Op,
    Ops,
    Pairs,
    Record,
    Shaped,
    operation,
)
from xlakit.compat.xla_client.ops.records import channel_of, groups_of
from xlakit.data.primitive import PrimitiveType as OurPrimitiveType
from xlakit.data.shape import Shape as OurShape
from xlakit.errors import UnsupportedError
from xlakit.ir.enums import RandomAlgorithm as OurAlgorithm
from xlakit.ops import data, random
from xlakit.ops.communication import collective_moves, collectives, transfer
from xlakit.ops.elementwise import binary

Groups = Sequence[Record]


@operation
def ReplicaId(builder: Builder) -> Op:
    """The number of the replica, a U32."""
    return collectives.replica_id(builder)


@operation
def CrossReplicaSum(operand: Op, replica_groups: Groups = ()) -> Op:
    """The sum over the replicas of a group."""
    return collectives.all_reduce(operand, _sum(operand), groups_of(replica_groups))


def _sum(operand: Op) -> XlaComputation:
    """The sum, of PRED the disjunction, in a computation whose names are XLA's."""
    inner = XlaBuilder("sum", source_metadata=False)
    kind = next(leaf for _, leaf in operand.shape.leaves()).element_type
    x, y = (data.parameter(inner, i, OurShape(kind), name) for i, name in enumerate("xy"))
    return inner.build(binary.or_(x, y) if kind is OurPrimitiveType.PRED else binary.add(x, y))


@operation
def AllReduce(
    operand: Op,
    computation: Computation,
    replica_groups: Groups = (),
    channel_id: Record | None = None,
    shape_with_layout: Record | None = None,
    use_global_device_ids: bool | None = None,
) -> Op:
    """The values of the replicas of a group, combined by a computation."""
    return collectives.all_reduce(
        operand,
        computation,
        groups_of(replica_groups),
        channel_of(channel_id),
        use_global_device_ids=bool(use_global_device_ids),
    )


@operation
def AllGather(
    operand: Op,
    all_gather_dimension: int,
    shard_count: int,
    replica_groups: Groups = (),
    channel_id: Record | None = None,
    shape_with_layout: Record | None = None,
    use_global_device_ids: bool | None = None,
) -> Op:
    """The values of the replicas of a group, one after the other along a dimension."""
    return collectives.all_gather(
        operand,
        all_gather_dimension,
        shard_count,
        groups_of(replica_groups),
        channel_of(channel_id),
        use_global_device_ids=bool(use_global_device_ids),
    )


@operation
def ReduceScatter(
    operand: Op,
    computation: Computation,
    scatter_dimension: int,
    shard_count: int,
    replica_groups: Groups = (),
    channel_id: Record | None = None,
    layout: Record | None = None,
    use_global_device_ids: bool | None = None,
) -> Op:
    """The part of a replica of what AllReduce gives, along a dimension."""
    return collectives.reduce_scatter(
        operand,
        computation,
        scatter_dimension,
        shard_count,
        groups_of(replica_groups),
        channel_id=channel_of(channel_id),
        use_global_device_ids=bool(use_global_device_ids),
    )


@operation
def AllToAll(
    operand: Op,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    replica_groups: Groups = (),
    layout: Record | None = None,
    channel_id: Record | None = None,
) -> Op:
    """The parts that all replicas of a group have for this one, along a dimension."""
    return collective_moves.all_to_all(
        operand,
        split_dimension,
        concat_dimension,
        split_count,
        groups_of(replica_groups),
        channel_id=channel_of(channel_id),
    )


@operation
def CollectivePermute(
    operand: Op, source_target_pairs: Pairs, channel_id: Record | None = None, inplace: bool = False
) -> Op:
    """The value of the replica that sends to this one; zeros where none does."""
    _check_not_in_place(inplace)
    return collective_moves.collective_permute(operand, source_target_pairs, channel_of(channel_id))


@operation
def MultiCollectivePermute(
    operands: Ops, source_target_pairs: Pairs, channel_id: Record | None = None, inplace: bool = False
) -> Op:
    """CollectivePermute of several arrays, as a tuple."""
    _check_not_in_place(inplace)
    return collective_moves.collective_permute(list(operands), source_target_pairs, channel_of(channel_id))


def _check_not_in_place(inplace: bool) -> None:
    if inplace:
        raise UnsupportedError(
            "inplace=True needs operands that this form does not have",
            hint="leave it out, or use xlakit.collective_permute_in_place",
        )


# -- feeds and transfers ---------------------------------------------------------------------------


@operation
def InfeedWithToken(token: Op, shape: Shaped, config: str = "") -> Op:
    """The next value of the device's infeed and a token, as a tuple."""
    return transfer.infeed_with_token(token, shape, config)


@operation
def OutfeedWithToken(operand: Op, token: Op, shape_with_layout: Shaped, outfeed_config: str = "") -> Op:
    """A token that is there after a value went to the device's outfeed."""
    return transfer.outfeed_with_token(operand, token, shape_with_layout, outfeed_config)


@operation
def SendToHost(operand: Op, token: Op, shape_with_layout: Shaped, handle: Record) -> Op:
    """A token that is there after a value went to the host."""
    return transfer.send_to_host(operand, token, channel_of(handle) or 0)


@operation
def RecvFromHost(token: Op, shape: Shaped, handle: Record) -> Op:
    """A value of the host and a token, as a tuple."""
    return transfer.recv_from_host(token, shape, channel_of(handle) or 0)


# -- random numbers --------------------------------------------------------------------------------


@operation
def RngBitGenerator(algorithm: Record, initial_state: Op, shape: Shaped) -> Op:
    """The next state of a generator and random bits, unsigned integers of the size of the shape's type, as a tuple."""
    bits = OurPrimitiveType[f"U{shape.element_type.bit_width}"]
    return random.rng_bit_generator(OurAlgorithm(int(algorithm)), initial_state, shape.with_element_type(bits))


@operation
def RngNormal(mu: Op, sigma: Op, shape: Shaped) -> Op:
    """Random numbers of a normal distribution."""
    return random.rng_normal(mu, sigma, shape)


@operation
def RngUniform(a: Op, b: Op, shape: Shaped) -> Op:
    """Random numbers that are evenly distributed from ``a`` to ``b``."""
    return random.rng_uniform(a, b, shape)
