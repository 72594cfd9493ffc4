"""A program of several partitions as one of several replicas, whose collectives have the same groups of devices."""

from __future__ import annotations

import dataclasses
from typing import Any

from xlakit.errors import UnsupportedError
from xlakit.ir.attributes import ReplicaGroups
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ir.operation import OPERATIONS, Op
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import Permuting
from xlakit.ops.communication.collectives import PartitionId, ReplicaId
from xlakit.passes.core.framework import change_computations


def as_replicas(module: HloModule) -> HloModule:
    """The program whose replicas do what the partitions of a program with one replica do.

    Raises UnsupportedError if there are several of both, since replica numbers alone cannot say both.
    """
    count = module.num_partitions
    if count == 1:
        return module
    if module.replica_count > 1:
        raise UnsupportedError(
            "programs of several replicas and several partitions are not compared with jaxlib",
            hint="compare them with the interpreter",
        )

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        # Shardings describe the split of whole arrays, which do not exist in a program of replicas.
        annotations = dataclasses.replace(old.annotations, sharding=None, frontend_attributes=())
        return old.replace(op=_for_replicas(old.op, count), operands=operands, annotations=annotations)

    return change_computations(module, lambda computation: computation.rebuild(change)).replace(
        replica_count=count,
        num_partitions=1,
        frontend_attributes=(),
        spmd_parameters_shardings=(),
        spmd_output_sharding=None,
    )


def _for_replicas(op: Op, count: int) -> Op:
    if isinstance(op, PartitionId):
        return OPERATIONS["replica-id"]()
    if isinstance(op, ReplicaId):
        raise UnsupportedError(
            "a program of partitions that asks for its replica is not compared with jaxlib",
            hint="compare it with the interpreter",
        )
    if isinstance(op, Permuting):
        # Without a channel it is among replicas, of which there is one.
        own_pairs = [(source, target) for source, target in op.source_target_pairs if source == target == 0]
        pairs = (
            op.source_target_pairs if op.channel_id is not None else tuple((p, p) for p in range(count) if own_pairs)
        )
        return dataclasses.replace(op, channel_id=None, source_target_pairs=pairs)
    if isinstance(op, Collective):
        return dataclasses.replace(op, **_groups(op, count))
    return op


def _groups(op: Collective, count: int) -> dict[str, Any]:
    """The fields of a collective that say which devices take part."""
    changed: dict[str, Any] = {"channel_id": None, "replica_groups": ReplicaGroups(op.replica_groups.groups)}
    if op.global_ids is not None:
        changed["use_global_device_ids"] = False
    if op.channel_id is None:
        changed["replica_groups"] = ReplicaGroups(tuple((p,) for p in range(count)))
    elif op.global_ids is False:
        changed["replica_groups"] = ReplicaGroups((tuple(range(count)),))
    return changed
