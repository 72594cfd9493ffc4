"""Def-use chains: which instructions use an instruction, and which are needed at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from xlakit.ir.instruction import Computation, Instruction


def users_of(instructions: Iterable[Instruction], *, control: bool = False) -> dict[Instruction, list[Instruction]]:
    """The users of each instruction that has some among ``instructions``: each once, in their order.

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
    """How often each instruction is an operand of ``instructions``; a root counts as used once more.

    control: whether control predecessors count as operands.
    """
    counts = Counter(o for user in instructions for o in user.operands)
    if control:
        counts.update(p for user in instructions for p in user.control_predecessors)
    if root is not None:
        counts[root] += 1
    return counts


def evaluated_instructions(computation: Computation) -> list[Instruction]:
    """What has to run, in order: that which the result or an effect needs.

    Passes keep more: parameters, which are part of the signature, and control predecessors
    (:func:`xlakit.passes.core.framework.live_instructions`).
    """
    needed = {computation.root}
    for instruction in reversed(computation.instructions):
        if instruction in needed or instruction.op.has_side_effect:
            needed.add(instruction)
            needed.update(instruction.operands)
    return [instruction for instruction in computation.instructions if instruction in needed]
