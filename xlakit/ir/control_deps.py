"""Calls of ``control_dep(first, second)``, by which JAX says which of two instructions comes first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from xlakit.ir.instruction import Computation, Instruction

_TARGET: Final = "control_dep"


def is_control_dep(instruction: Instruction) -> bool:
    """Whether an instruction only says which of its operands comes first."""
    return instruction.opcode == "custom-call" and getattr(instruction.op, "custom_call_target", "") == _TARGET


def control_deps(computation: Computation) -> Mapping[Instruction, Sequence[Instruction]]:
    """For each instruction what calls of two operands say is to come before it."""
    edges: dict[Instruction, list[Instruction]] = {}
    for call in computation.instructions:
        if is_control_dep(call) and len(call.operands) == 2:
            first, second = call.operands
            edges.setdefault(second, []).extend((first, *call.control_predecessors))
    return edges


def ordered(
    computation: Computation, edges: Mapping[Instruction, Sequence[Instruction]]
) -> Iterator[Instruction | tuple[Instruction, Instruction]]:
    """The instructions in their order, but with what edges say before what needs it.

    Where that cannot be, a pair of instructions comes of which each needs the other; they follow in some order.
    """
    done: set[Instruction] = set()
    for instruction in computation.instructions:
        # The instructions on the way from here to what is looked at, each needed by the one before it.
        path: dict[Instruction, None] = {}
        stack = [instruction]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
            elif node in path:
                del path[node]
                done.add(node)
                yield node
            else:
                path[node] = None
                for before in (*node.operands, *node.control_predecessors, *edges.get(node, ())):
                    if before in path:
                        yield before, node
                    elif before not in done:
                        stack.append(before)
