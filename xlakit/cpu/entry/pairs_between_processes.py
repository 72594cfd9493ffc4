"""Async pairs that Python does beside a program, where devices of several processes meet."""

from __future__ import annotations

from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.communication.async_pairs import async_pairs
from xlakit.ops.communication.asynchronous import AsyncStart
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import Permuting
from xlakit.ops.data import Parameter


def pairs_between_processes(computation: Computation) -> dict[Instruction, Instruction]:
    """The done of each start of one collective and nothing else; Python keeps what that gives until the done."""
    pairs = async_pairs(computation)
    return {start: done for start, done in pairs.items() if done.operands[0] is start and _is_one_collective(start)}


def all_pairs_between_processes(module: HloModule) -> dict[Instruction, Instruction]:
    """Those of all computations of a module."""
    found: dict[Instruction, Instruction] = {}
    for computation in module.computations:
        found.update(pairs_between_processes(computation))
    return found


def _is_one_collective(start: Instruction) -> bool:
    if not isinstance(start.op, AsyncStart):
        return isinstance(start.op, (Collective, Permuting))
    called = start.op.calls
    others = [i for i in called.instructions if i is not called.root]
    is_one = all(isinstance(i.op, Parameter) for i in others) and len(others) == len(start.operands)
    return is_one and isinstance(called.root.op, (Collective, Permuting))
