"""The SPMD partitioner: rewrites a program with shardings into the program of one partition.

Reading order: ``tilings`` and ``scopes`` (which part of an array each partition has), ``factors`` (how operations may
be split), ``values`` and ``pieces`` (operations on parts), ``walk`` (the traversal of a program); then the special
cases.
"""

from __future__ import annotations

from xlakit.ir.attributes import Sharding
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import CollectivePermute
from xlakit.ops.communication.collectives import PartitionId
from xlakit.ops.custom_call import MANUAL_BOUNDARIES, CustomCall
from xlakit.passes.core.framework import Pass, PassContext

__all__ = ["Partition", "is_split", "is_to_be_split", "split_over"]


def is_split(module: HloModule) -> bool:
    """Whether a program is already the program of one partition.

    :func:`split_over` sets the shardings of arguments and results; XLA schedules only partitioned programs, and its
    partitioner appends ``_spmd`` to the names of computations, but leaves the shardings of parameters in place.
    """
    return (
        module.is_scheduled
        or module.spmd_output_sharding is not None
        or bool(module.spmd_parameters_shardings)
        or module.entry.name.endswith("_spmd")
    )


def is_to_be_split(module: HloModule, partitions: int) -> bool:
    """Whether a program is one for all partitions, with shardings, that has to be partitioned."""
    if is_split(module):
        return False
    instructions = [i for c in module.computations for i in c.instructions]
    if any(map(_is_boundary, instructions)):
        return True
    # Outside of manual computations only partitioned programs have collectives between partitions.
    return (
        partitions > 1
        and any(_is_tiled(i.annotations.sharding) for i in instructions)
        and not any(map(_tells_partitions_apart, instructions))
    )


def _is_boundary(instruction: Instruction) -> bool:
    """Whether a manual computation begins or ends here; the older form has a sharding."""
    own = instruction.annotations
    if not isinstance(instruction.op, CustomCall) or (own.sharding is None and not own.frontend_attributes):
        return False
    return instruction.op.custom_call_target in MANUAL_BOUNDARIES


def _tells_partitions_apart(instruction: Instruction) -> bool:
    """Whether the result of an instruction depends on the partition."""
    return isinstance(instruction.op, PartitionId) or (
        isinstance(instruction.op, (Collective, CollectivePermute)) and instruction.op.channel_id is not None
    )


def _is_tiled(sharding: Sharding | None) -> bool:
    return sharding is not None and (sharding.kind == "OTHER" or any(map(_is_tiled, sharding.elements)))


class Partition(Pass):
    """Rewrite a program with shardings into that of one partition, with collectives.

    An operation is split as its rule allows; without a rule it is computed whole on every partition. Afterwards the
    module's ``spmd_parameters_shardings`` and ``spmd_output_sharding`` have the shardings of arguments and results.
    Raises ShapeError for shardings that are of other devices or sizes, UnsupportedError for feeds of split programs.
    """

    name = "partition"

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """The program of one partition; the same module if it has no shardings."""
        if not is_to_be_split(module, module.num_partitions) or not context.spend("partition"):
            return module
        return split_over(module, module.num_partitions, context=context)


def split_over(
    module: HloModule, partitions: int, replicas: int | None = None, *, context: PassContext | None = None
) -> HloModule:
    """The program of one partition, given the number of partitions of each replica.

    replicas: the number of replicas; by default that of the module.
    """
    # Imported here, since most programs are not partitioned.
    from xlakit.passes.spmd.splitting import split

    return split(module, partitions, replicas, PassContext() if context is None else context)
