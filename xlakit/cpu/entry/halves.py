"""Collectives in two halves: which first half belongs to which second one, where nothing is in between."""

from __future__ import annotations

from collections import Counter

from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.asynchronous import AsyncStart

# The opcode of the first half of each.
SECOND_HALVES = {
    "all-gather-done": "all-gather-start",
    "all-reduce-done": "all-reduce-start",
    "collective-permute-done": "collective-permute-start",
    "async-done": "async-start",
}


def halves_of(computation: Computation) -> dict[Instruction, Instruction]:
    """The first half of each second half, where both are here and nobody else has what the first one gives."""
    users: Counter[Instruction] = Counter(o for i in computation.instructions for o in i.operands)
    users[computation.root] += 1
    found: dict[Instruction, Instruction] = {}
    for done in computation.instructions:
        wanted = SECOND_HALVES.get(done.opcode)
        if wanted is None:
            continue
        chain = [done.operands[0]]
        while chain[-1].opcode == "async-update" and len(chain[-1].operands) == 1:
            chain.append(chain[-1].operands[0])
        if chain[-1].opcode == wanted and all(users[link] == 1 for link in chain):
            found[done] = chain[-1]
    return found


def collective_of(start: Instruction) -> Instruction:
    """The collective that a first half begins; an instruction of another kind as it is."""
    return start.op.calls.root if isinstance(start.op, AsyncStart) else start
