"""The proof of a memory plan: calls the checker with this backend's in-place proofs and groups of collectives."""

from __future__ import annotations

from xlakit.cpu.collectives.groups import groups_of
from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.entry.in_place import Refusals
from xlakit.errors import ExecutionError, UnsupportedError
from xlakit.execution.groups import Grid
from xlakit.ir.instruction import Instruction
from xlakit.memory.checker.check import check_memory_plan
from xlakit.memory.checker.faults import MemoryPlanError
from xlakit.memory.plan import MemoryPlan
from xlakit.memory.steps import CollectiveStep, KernelStep, walk
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import Permuting, RaggedAllToAll


def prove_memory_plan(plan: MemoryPlan, grid: Grid) -> None:
    """Prove a plan, and all pairs that its steps allow in place, used or not.

    Raises MemoryPlanError if the proof fails.
    """

    def is_identity(instruction: Instruction) -> bool:
        """Whether every group has one device, so that the result is the operand."""
        op = instruction.op
        if not isinstance(op, (Collective, Permuting)) or isinstance(op, RaggedAllToAll):
            return False
        try:
            groups = groups_of(op, grid)
        except (DeclinedError, ExecutionError, UnsupportedError):
            return False
        return all(len(group.members) == 1 and group.sources == (0,) for group in groups)

    refusals = Refusals()
    for step in walk(plan.steps):
        if isinstance(step, KernelStep | CollectiveStep):
            _prove_hints(step, refusals)
    check_memory_plan(plan, refusals.refusal, is_identity)


def _prove_hints(step: KernelStep | CollectiveStep, refusals: Refusals) -> None:
    """Prove the pairs of results and operands that a step allows to share memory."""
    for result, operand in sorted(step.in_place):
        refusal = refusals.refusal(step, result, operand)
        if refusal:
            rule = f"allows result {result} in the memory of operand {operand}: {refusal}"
            name = f"the step of {step.instruction.opcode} %{step.instruction.name}"
            raise MemoryPlanError(rule, step=name, instruction=step.instruction)
