"""The proof of a memory plan, with what the checker has to know of this backend: its kernels, and who meets whom."""

from __future__ import annotations

from xlakit.cpu.collectives.groups import groups_of
from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.entry.in_place_proof import Refusals
from xlakit.errors import ExecutionError, UnsupportedError
from xlakit.execution.groups import Grid
from xlakit.ir.instruction import Instruction
from xlakit.memory.checker.check import check_memory_plan
from xlakit.memory.plan import MemoryPlan
from xlakit.ops.collective_moves import Permuting, RaggedAllToAll
from xlakit.ops.shared.collective import Collective


def prove_memory_plan(plan: MemoryPlan, grid: Grid) -> None:
    """Prove a plan; raises MemoryPlanError where it is wrong."""

    def is_identity(instruction: Instruction) -> bool:
        """Whether each device meets itself alone, and takes what it gives."""
        op = instruction.op
        if not isinstance(op, (Collective, Permuting)) or isinstance(op, RaggedAllToAll):
            return False
        try:
            groups = groups_of(op, grid)
        except (DeclinedError, ExecutionError, UnsupportedError):
            return False
        return all(len(group.members) == 1 and group.sources == (0,) for group in groups)

    check_memory_plan(plan, Refusals().refusal, is_identity)
