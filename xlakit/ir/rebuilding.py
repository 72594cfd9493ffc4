"""Modules rebuilt from their computations, callees first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from xlakit.ir.instruction import Computation, HloModule, Instruction


def rebuilt(
    module: HloModule,
    change: Callable[[Instruction, Instruction], Instruction],
    order: Callable[[Computation], Iterable[Instruction]] = lambda computation: computation.instructions,
    name: Callable[[Computation], str] = lambda computation: computation.name,
) -> HloModule:
    """The module with changed instructions, in an order, in computations with these names.

    ``change`` gets each instruction, and a copy whose operands and called computations are the new ones.
    """
    made: dict[Computation, Computation] = {}

    def new(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        op = old.op.map_computations(made.__getitem__) if old.op.called_computations else old.op
        return change(old, old.replace(op=op, operands=operands))

    for old in module.computations:
        ordered = Computation(name(old), tuple(order(old)), old.root, old.execution_thread)
        made[old] = ordered.rebuild(new)
    return module.replace(entry=made[module.entry], computations=list(made.values()))
