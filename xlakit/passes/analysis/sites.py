"""Sites of collectives: at which of them devices may arrive in different orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from xlakit.ir.instruction import Computation, HloModule, Instruction, computations_callees_first
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import CollectivePermute
from xlakit.ops.communication.sites import is_collective, site_of
from xlakit.ops.control import Conditional, While
from xlakit.passes.analysis.loops import loop_of, trip_count

# Operations that may be reordered with each other where all devices do so alike.
COLLECTIVES = (Collective, CollectivePermute)


def sites_met_apart(module: HloModule, *, by_caller: bool = False) -> Set[str]:
    """The sites (:mod:`xlakit.ops.communication.sites`) at which devices may arrive in different orders.

    A site may have several collectives, as all of one shape that JAX's ``shard_map`` makes. Devices may arrive at
    different ones where one is in a branch of a conditional, or in a loop of unknown trip count, and others are
    in other computations. At the collectives of one computation devices arrive in the same order anyway.

    by_caller: whether a computation with several callers counts as several, because it may change for one of them.
    """
    sites = {c: {site_of(i) for i in c.instructions if is_collective(i)} for c in module.computations}
    if not any(sites.values()):
        return frozenset()
    places = _places(module) if by_caller else dict.fromkeys(sites, 1)
    counts = Counter[str]()
    for computation, own in sites.items():
        counts.update(dict.fromkeys(own, places[computation]))
    callers = [i for computation in module.computations for i in computation.calling_instructions]
    apart = [i for i in callers if isinstance(i.op, Conditional) or (isinstance(i.op, While) and not _is_counted(i))]
    within = computations_callees_first([c for i in apart for c in i.op.called_computations])
    return {site for computation in within for site in sites[computation] if counts[site] > 1}


def _places(module: HloModule) -> Counter[Computation]:
    """In how many places of the program each computation is; 2 stands for any number from there on."""
    places = Counter[Computation]({module.entry: 1})
    # Callers are last.
    for computation in reversed(module.computations):
        for caller in computation.calling_instructions:
            for called in caller.op.called_computations:
                places[called] = min(2, places[called] + places[computation])
    return places


def _is_counted(loop: Instruction) -> bool:
    """Whether a loop has a known trip count, so that all devices run it equally often."""
    known = loop_of(loop)
    return known is not None and trip_count(known) is not None
