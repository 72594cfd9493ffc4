"""Channels of collectives: at which of them devices may arrive in different orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Set

from xlakit.ir.instruction import Computation, HloModule, Instruction, computations_callees_first
from xlakit.ir.operation import Op
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import CollectivePermute
from xlakit.ops.control import Conditional, While
from xlakit.passes.analysis.loops import loop_of, trip_count

# Operations that may be reordered with each other, since all devices do so alike.
COLLECTIVES = (Collective, CollectivePermute)


def channels_met_apart(module: HloModule) -> Set[Hashable]:
    """The channels, as :func:`channel_of` gives them, at whose collectives devices may arrive in different orders.

    A channel may occur several times, as all of JAX's ``shard_map`` do. Devices may arrive at different ones where one
    is in a branch of a conditional, or some are in a loop of unknown trip count and some outside of it.
    """
    channels = {computation: tuple(channels_of(computation)) for computation in module.computations}
    counts = Counter(channel for own in channels.values() for channel in own)
    callers = [i for computation in module.computations for i in computation.callers]
    branches = [c for i in callers if isinstance(i.op, Conditional) for c in i.op.called_computations]
    apart = {channel for channel in _within(branches) if counts[channel] > 1}
    apart |= {
        channel
        for i in callers
        if isinstance(i.op, While) and not _is_counted(i)
        for channel in _within(i.op.called_computations)
        # If one computation has all collectives of a channel, devices arrive at them in the same order anyway.
        if sum(channel in own for own in channels.values()) > 1
    }
    apart.discard(None)
    return apart


def channels_of(computation: Computation) -> Iterator[Hashable]:
    """The channels of the collectives of a computation."""
    return (channel_of(i.op) for i in computation.instructions if isinstance(i.op, COLLECTIVES))


def channel_of(op: Op) -> Hashable:
    """The channel of a collective, which identifies its rendezvous; None for one without a channel."""
    channel: int | None = getattr(op, "channel_id", None)
    return None if channel is None else (op.opcode, channel)


def _within(computations: Iterable[Computation]) -> set[Hashable]:
    """The channels of the collectives in computations and their callees."""
    return {channel for called in computations_callees_first(list(computations)) for channel in channels_of(called)}


def _is_counted(loop: Instruction) -> bool:
    """Whether a loop has a known trip count, so that all devices run it equally often."""
    known = loop_of(loop)
    return known is not None and trip_count(known) is not None
