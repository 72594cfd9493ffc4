"""Preparation of a program for the partitioner: canonicalizations that it relies on."""

from __future__ import annotations

from xlakit.ir.def_use import use_counts
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Op
from xlakit.ir.traits import Done
from xlakit.ops.custom_call import CustomCall
from xlakit.passes.canonicalize.control_dependencies import ControlDependencies
from xlakit.passes.canonicalize.normalize_layouts import NormalizeLayouts
from xlakit.passes.core.async_operations import has_whole, whole_of
from xlakit.passes.core.framework import PassContext, change_computations, programs, with_callees, with_computations
from xlakit.passes.simplify.dead_code import DeadCode
from xlakit.passes.spmd.joined_slices import without_joined_slices


def with_whole_operations(module: HloModule, context: PassContext) -> HloModule:
    """The module without asynchronous operations whose done is the only user of their start."""
    return change_computations(module, lambda computation: _changed(computation, context))


def _changed(computation: Computation, context: PassContext) -> Computation:
    uses = use_counts(computation.instructions)
    starts = {
        i.operands[0]: i
        for i in computation.instructions
        if isinstance(i.op, Done) and uses[i.operands[0]] == 1 and has_whole(i.operands[0])
    }
    if not starts:
        return computation
    made: dict[Instruction, Instruction] = {}

    def predecessors(of: Instruction) -> list[Instruction]:
        # Control dependencies on a start become ones on its operands, since the operation is now at the done.
        found: dict[Instruction, None] = {}
        for before in of.control_predecessors:
            behind = before.operands if before in starts else (before,)
            found.update(dict.fromkeys(made[x] for x in behind))
            if before in starts:
                found.update(dict.fromkeys(predecessors(before)))
        return list(found)

    for old in computation.instructions:
        if old in starts:
            continue
        start = old.operands[0] if old.operands and old.operands[0] in starts else None
        source = old if start is None else start
        before = [*predecessors(old), *(() if start is None else predecessors(start))]
        made[old] = old.replace(
            op=old.op if start is None else whole_of(start, context),
            operands=[made[o] for o in source.operands],
            control_predecessors=list(dict.fromkeys(before)),
        )
    return Computation(computation.name, tuple(made.values()), made[computation.root], computation.execution_thread)


def prepared(module: HloModule, context: PassContext) -> HloModule:
    """The module without layouts and async pairs, without sharding hints in computations applied to elements, and
    without concatenations that are only sliced.

    Dead code is removed first, because a dead second user would make partial sums be added up early.
    """
    module = DeadCode().run(module, context)
    module = _without_hints_on_elements(NormalizeLayouts().run(module, context))
    context.computation_names |= {c.name for c in module.computations}
    module = with_whole_operations(ControlDependencies().run(module, context), context)
    return without_joined_slices(module, context)


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
