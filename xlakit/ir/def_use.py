"""Def-use chains: the users of each instruction, use counts, and the live instructions of a computation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from xlakit.ir.instruction import Computation, Instruction


def users_of(instructions: Iterable[Instruction], *, control: bool = False) -> dict[Instruction, list[Instruction]]:
    """The users, among ``instructions``, of each instruction that has any: each once, in their order.

    control: whether an instruction uses its control predecessors, too.
    """
    users: dict[Instruction, list[Instruction]] = {}
    for user in instructions:
        for used in dict.fromkeys((*user.operands, *user.control_predecessors) if control else user.operands):
            users.setdefault(used, []).append(user)
    return users


def use_counts(
    instructions: Iterable[Instruction], root: Instruction | None = None, *, control: bool = False
) -> Counter[Instruction]:
    """The number of uses of each instruction by ``instructions``; ``root`` has one more.

    control: whether control predecessors count as operands.
    """
    counts = Counter(o for user in instructions for o in user.operands)
    if control:
        counts.update(p for user in instructions for p in user.control_predecessors)
    if root is not None:
        counts[root] += 1
    return counts


def evaluated_instructions(computation: Computation) -> list[Instruction]:
    """The instructions that have to run, in order: those that the result or a side effect depends on.

    Passes keep more, namely parameters, which are part of the signature, and control predecessors
    (:func:`xlakit.passes.core.framework.live_instructions`).
    """
    needed = {computation.root}
    for instruction in reversed(computation.instructions):
        if instruction in needed or instruction.op.has_side_effect:
            needed.add(instruction)
            needed.update(instruction.operands)
    return [instruction for instruction in computation.instructions if instruction in needed]
