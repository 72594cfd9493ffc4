"""Asynchronous collectives: which start belongs to which done, where nothing else uses what the start gives."""

from __future__ import annotations

from xlakit.ir.def_use import use_counts
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.communication.asynchronous import AsyncDone, AsyncStart, AsyncUpdate
from xlakit.ops.communication.collective_pairs import (
    AllGatherDone,
    AllGatherStart,
    AllReduceDone,
    AllReduceStart,
    CollectivePermuteDone,
    CollectivePermuteStart,
)

# The start that each done has.
STARTS: dict[type[Op], type[Op]] = {
    AllGatherDone: AllGatherStart,
    AllReduceDone: AllReduceStart,
    CollectivePermuteDone: CollectivePermuteStart,
    AsyncDone: AsyncStart,
}


def async_pairs(computation: Computation) -> dict[Instruction, Instruction]:
    """The done of each start, where both are here and no other instruction has what the start gives."""
    if not any(type(i.op) in STARTS for i in computation.instructions):
        return {}
    uses = use_counts(computation.instructions, computation.root)
    found: dict[Instruction, Instruction] = {}
    for done in computation.instructions:
        wanted = STARTS.get(type(done.op))
        if wanted is None:
            continue
        chain = [done.operands[0]]
        while isinstance(chain[-1].op, AsyncUpdate) and len(chain[-1].operands) == 1:
            chain.append(chain[-1].operands[0])
        if isinstance(chain[-1].op, wanted) and all(uses[link] == 1 for link in chain):
            found[chain[-1]] = done
    return found


def collective_of(start: Instruction) -> Instruction:
    """The collective that a start begins; an instruction of another kind as it is."""
    return start.op.calls.root if isinstance(start.op, AsyncStart) else start
