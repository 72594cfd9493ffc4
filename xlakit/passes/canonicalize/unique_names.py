"""Makes the names of instructions unique in a program that spans processes."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.formats.unique_names import unique_names
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.passes.core.framework import Pass, PassContext, with_callees, with_computations


class UniqueNames(Pass):
    """Rename instructions that have the name of one in another computation, as the compile cache does.

    Processes identify collectives by their names, so a process that compiled a program must use the same names as one
    that loaded it from the cache.
    """

    name = "unique-names"
    is_needed = True
    left_out_by = ""

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """The module with unique names; the same object if they are unique already."""
        names = unique_names(i for i in module.instructions)
        if all(i.name == name for i, name in names.items()):
            return module
        made: dict[Computation, Computation] = {}
        for old in module.computations:
            made[old] = _renamed(with_callees(old, made), [names[i] for i in old.instructions])
        return with_computations(module, [made[c] for c in module.computations])


def _renamed(computation: Computation, names: Sequence[str]) -> Computation:
    made: dict[Instruction, Instruction] = {}
    for old, name in zip(computation.instructions, names, strict=True):
        made[old] = old.replace(
            operands=[made[o] for o in old.operands],
            control_predecessors=[made[p] for p in old.control_predecessors],
            name=name,
        )
    root = made[computation.root]
    return Computation(computation.name, tuple(made.values()), root, computation.execution_thread)
