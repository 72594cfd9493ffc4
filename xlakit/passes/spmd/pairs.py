"""Async pairs before partitioning: start and done become one synchronous operation at the done.

Devices share the processors, which work for other devices while one waits, so asynchrony gains nothing; and the rules
of the partitioner are for synchronous operations.
"""

from __future__ import annotations

from xlakit.ir.def_use import use_counts
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.traits import Done
from xlakit.passes.core.async_operations import has_whole, whole_of
from xlakit.passes.core.framework import PassContext, change_computations


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
