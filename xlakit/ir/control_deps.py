"""Custom calls ``control_dep(first, second)``, by which JAX orders two instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from xlakit.ir.instruction import Computation, Instruction

_TARGET: Final = "control_dep"


def is_control_dep(instruction: Instruction) -> bool:
    """Whether an instruction is a custom call that only orders its operands."""
    return instruction.opcode == "custom-call" and getattr(instruction.op, "custom_call_target", "") == _TARGET


def control_deps(computation: Computation) -> Mapping[Instruction, Sequence[Instruction]]:
    """For each instruction the instructions that must precede it, according to ``control_dep`` calls."""
    edges: dict[Instruction, list[Instruction]] = {}
    for call in computation.instructions:
        if is_control_dep(call) and len(call.operands) == 2:
            first, second = call.operands
            edges.setdefault(second, []).extend((first, *call.control_predecessors))
    return edges


def ordered(
    computation: Computation, edges: Mapping[Instruction, Sequence[Instruction]]
) -> Iterator[Instruction | tuple[Instruction, Instruction]]:
    """The instructions in an order that satisfies ``edges``, and otherwise in that of the computation.

    A cycle yields two of its instructions as a pair; all of them are yielded as well, in some order.
    """
    done: set[Instruction] = set()
    for instruction in computation.instructions:
        # The path of the depth-first search, whose instructions each depend on the next one.
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
