"""Preparation of a program for the partitioner."""

from __future__ import annotations

from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.custom_call import CustomCall
from xlakit.passes.canonicalize.control_dependencies import ControlDependencies
from xlakit.passes.canonicalize.normalize_layouts import NormalizeLayouts
from xlakit.passes.core.framework import PassContext, programs, with_callees, with_computations
from xlakit.passes.simplify.dead_code import DeadCode
from xlakit.passes.spmd.pairs import with_whole_operations


def prepared(module: HloModule, context: PassContext) -> HloModule:
    """The module with its arrays major to minor, asynchronous operations whole, and no hints inside elements.

    Without what is not needed: partial sums are added up early for the second of two users.
    """
    module = DeadCode().run(module, context)
    module = _without_hints_on_elements(NormalizeLayouts().run(module, context))
    context.computation_names |= {c.name for c in module.computations}
    return with_whole_operations(ControlDependencies().run(module, context), context)


def _without_hints_on_elements(module: HloModule) -> HloModule:
    """Remove sharding hints from computations that are applied to elements, so that these are recognized."""
    split = programs(module)
    made: dict[Computation, Computation] = {}
    for old in module.computations:
        new = with_callees(old, made)
        made[old] = new if old in split else _without_hints(new)
    return with_computations(module, [made[c] for c in module.computations])


def _without_hints(computation: Computation) -> Computation:
    def is_hint(op: Op) -> bool:
        return isinstance(op, CustomCall) and op.custom_call_target == "Sharding"

    if not any(is_hint(i.op) for i in computation.instructions):
        return computation

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        if is_hint(old.op) and len(operands) == 1:
            return operands[0]
        return old if operands == old.operands else old.replace(operands=operands)

    return computation.rebuild(change)
