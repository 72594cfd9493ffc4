"""The traffic of a partitioned program: for each collective its bytes, its executions, and its source operation.

Bytes are those that one device sends, on average, in the algorithms that need the least: rings for all-reduce,
all-gather and reduce-scatter. A collective in a loop counts with the trip count (1 if that is unknown); of a
conditional the branch that sends most counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from xlakit.data.text_table import aligned
from xlakit.dataclass import dataclass
from xlakit.errors import Location
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import AllToAll, Permuting, RaggedAllToAll
from xlakit.ops.communication.collectives import AllGather, AllReduce, CollectiveBroadcast, ReduceScatter
from xlakit.ops.control import Conditional, While
from xlakit.passes.analysis.loops import loop_of, trip_count

# The trip count that XLA and the pass that unrolls loops write into a loop's backend_config.
_TRIP_COUNT: Final = re.compile(r'"known_trip_count":\s*\{\s*"n":\s*"?(\d+)')


@dataclass(frozen=True, slots=True)
class Traffic:
    """One collective: a device sends ``sent`` bytes in each of ``times`` executions.

    of: the op_name of the operation that the partitioner made it for.
    """

    opcode: str
    shape: str
    sent: float
    times: int
    of: str
    location: Location | None

    @property
    def total(self) -> float:
        """The bytes that a device sends in all executions."""
        return self.sent * self.times


def traffic(module: HloModule, computation: Computation | None = None) -> list[Traffic]:
    """The traffic of the collectives of one device's program, or of one computation, in program order."""
    return _of_computation(module, module.entry if computation is None else computation)


def _of_computation(module: HloModule, computation: Computation) -> list[Traffic]:
    traffic: list[Traffic] = []
    for instruction in computation.instructions:
        op = instruction.op
        if isinstance(op, While):
            times = _iterations(instruction)
            for inner, runs in ((op.condition, times + 1), (op.body, times)):
                traffic += [replace(t, times=t.times * runs) for t in _of_computation(module, inner)]
        elif isinstance(op, Conditional):
            branches = [_of_computation(module, b) for b in op.branch_computations]
            traffic += max(branches, key=lambda branch: sum(t.total for t in branch))
        elif isinstance(op, (Collective, Permuting)):
            traffic.append(_of_collective(module, instruction))
        else:
            for callee in op.called_computations:
                traffic += _of_computation(module, callee)
    return traffic


def _iterations(loop: Instruction) -> int:
    """The trip count of a loop: from its backend_config, or from its counter; 1 if neither tells."""
    noted = _TRIP_COUNT.search(loop.annotations.backend_config)
    if noted is not None:
        return int(noted[1])
    known = loop_of(loop)
    return (trip_count(known) if known is not None else None) or 1


def _of_collective(module: HloModule, instruction: Instruction) -> Traffic:
    # Collectives without a channel communicate between replicas.
    channel = getattr(instruction.op, "channel_id", None)
    members = module.replica_count if channel is None else module.num_partitions
    op_name = instruction.annotations.metadata.op_name if instruction.annotations.metadata else ""
    sent = sent_bytes(instruction, members)
    shape = ", ".join(str(o.shape.without_layout()) for o in instruction.operands)
    return Traffic(instruction.opcode, shape, sent, 1, op_name, module.location_of(instruction))


def sent_bytes(instruction: Instruction, members: int) -> float:
    """The bytes that a device sends in a collective.

    members: the size of its group of devices, if the attributes do not say it.
    """
    op = instruction.op
    operands = sum(o.shape.byte_size for o in instruction.operands)
    if isinstance(op, Permuting):
        return operands * sum(source != target for source, target in op.source_target_pairs) / members
    size = instruction.op_as(Collective).group_size or members
    fraction = (size - 1) / size
    if isinstance(op, AllReduce):
        return 2 * fraction * operands
    if isinstance(op, AllGather):
        return fraction * operands * size
    if isinstance(op, (ReduceScatter, AllToAll, RaggedAllToAll, CollectiveBroadcast)):
        return fraction * operands
    return float(operands)


def as_text(traffic: Sequence[Traffic]) -> str:
    """A table of collectives, those that send most first, and the total."""
    if not traffic:
        return "devices send each other nothing"
    rows = [("bytes", "times", "collective", "operands", "of", "line")]
    for t in sorted(traffic, key=lambda t: -t.total):
        location = str(t.location) if t.location is not None else ""
        rows.append((f"{t.total:,.0f}", str(t.times), t.opcode, t.shape, t.of, location))
    total = math.fsum(t.total for t in traffic)
    lines = aligned(rows)
    return f"{lines}\n\na device sends {total:,.0f} bytes in {sum(t.times for t in traffic):,} collectives"
