"""Asynchronous collectives: which start belongs to which done, where nothing else uses what the start gives."""

from __future__ import annotations

from collections import Counter

from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.communication.asynchronous import AsyncStart

# The opcode of the start that each done has.
STARTS = {
    "all-gather-done": "all-gather-start",
    "all-reduce-done": "all-reduce-start",
    "collective-permute-done": "collective-permute-start",
    "async-done": "async-start",
}


def async_pairs(computation: Computation) -> dict[Instruction, Instruction]:
    """The done of each start, where both are here and no other instruction has what the start gives."""
    if not any(i.opcode in STARTS for i in computation.instructions):
        return {}
    users: Counter[Instruction] = Counter(o for i in computation.instructions for o in i.operands)
    users[computation.root] += 1
    found: dict[Instruction, Instruction] = {}
    for done in computation.instructions:
        wanted = STARTS.get(done.opcode)
        if wanted is None:
            continue
        chain = [done.operands[0]]
        while chain[-1].opcode == "async-update" and len(chain[-1].operands) == 1:
            chain.append(chain[-1].operands[0])
        if chain[-1].opcode == wanted and all(users[link] == 1 for link in chain):
            found[chain[-1]] = done
    return found


def collective_of(start: Instruction) -> Instruction:
    """The collective that a start begins; an instruction of another kind as it is."""
    return start.op.calls.root if isinstance(start.op, AsyncStart) else start
