"""What conditionals give: only what is read, and what the choice decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.control import Conditional
from xlakit.ops.data import GetTupleElement, Tuple
from xlakit.passes.analysis.loops import element_read, elements_read
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import CalleesPass, PassContext


class ConditionalElements(CalleesPass):
    """Let conditionals give only what is read, and not what all of their branches pass on alike."""

    name = "conditional-elements"

    def may_change(self, computation: Computation) -> bool:
        """Whether it has a conditional."""
        return any(isinstance(i.op, Conditional) for i in computation.callers)

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Change the conditionals of one computation."""
        chosen = [i for i in computation.instructions if _gives_a_tuple(i)]
        if not chosen:
            return computation
        plans: dict[Instruction, _Plan] = {}
        for conditional, read in elements_read(computation, chosen).items():
            if -1 in read:
                continue
            passed = _passed_on(conditional, read)
            if passed and not context.spend("element-passed-on", len(passed)):
                passed = {}
            kept = [n for n in sorted(read) if n not in passed]
            unread = len(conditional.shape.tuple_shapes) - len(read)
            if unread and not context.spend("unread-element", unread):
                kept = [n for n in range(len(conditional.shape.tuple_shapes)) if n not in passed]
            if len(kept) < len(conditional.shape.tuple_shapes):
                plans[conditional] = _Plan(kept, passed)
        return _with_fewer_elements(computation, plans, context) if plans else computation


class _Plan(NamedTuple):
    """What becomes of a conditional's elements: those that it still gives, and the values that are read for others."""

    kept: list[int]
    passed: dict[int, Instruction]


def _gives_a_tuple(instruction: Instruction) -> bool:
    if not isinstance(instruction.op, Conditional) or instruction.control_predecessors:
        return False
    roots = [b.root.op.opcode for b in instruction.op.branch_computations]
    return instruction.shape.is_tuple and not instruction.shape.is_dynamic and all(r == "tuple" for r in roots)


def _passed_on(conditional: Instruction, read: set[int]) -> dict[int, Instruction]:
    """The elements that are, whatever is chosen, one and the same value from outside."""
    found: dict[int, Instruction] = {}
    pairs = list(zip(conditional.op_as(Conditional).branch_computations, conditional.operands[1:], strict=True))
    for number in sorted(read):
        sources = {_source(branch, number, operand) for branch, operand in pairs}
        if len(sources) == 1 and (source := sources.pop()) is not None:
            found[number] = source
    return found


def _source(branch: Computation, number: int, operand: Instruction) -> Instruction | None:
    """What an element of a branch's result is outside of it, where the branch only passes it on."""
    given = branch.root.operands[number]
    parameter = branch.parameters[0]
    if given is parameter:
        return operand
    index = element_read(given, parameter)
    return operand.operands[index] if index is not None and isinstance(operand.op, Tuple) else None


def _with_fewer_elements(
    computation: Computation, plans: dict[Instruction, _Plan], context: PassContext
) -> Computation:
    """The computation with its conditionals changed as planned, and reads of their elements replaced."""
    cloner = ComputationCloner(computation, context)
    for old in computation.instructions:
        whole = old.operands[0] if isinstance(old.op, GetTupleElement) else old
        if old in plans:
            kept = plans[old].kept
            if kept or old.op.has_side_effect:
                op = Conditional(
                    branch_computations=tuple(
                        _narrowed(b, kept, context) for b in old.op_as(Conditional).branch_computations
                    )
                )
                made = cloner.add(op, *(cloner.clones[o] for o in old.operands), like=old)
                cloner.substitute(old, made)
        elif whole in plans and (number := element_read(old, whole)) is not None:
            plan = plans[whole]
            if number in plan.passed:
                cloner.substitute(old, cloner.clones[plan.passed[number]])
            else:
                cloner.substitute(old, cloner.at(old).element(cloner.clones[whole], plan.kept.index(number)))
        else:
            cloner.clone(old)
    return cloner.build()


def _narrowed(branch: Computation, kept: Sequence[int], context: PassContext) -> Computation:
    """A branch that gives only some elements."""
    cloner = ComputationCloner(branch, context)
    for old in branch.instructions:
        cloner.clone(old)
    root = cloner.at(branch.root).tuple(*(cloner.clones[branch.root.operands[n]] for n in kept))
    return cloner.build(root, name=context.computation_name(branch.name))
