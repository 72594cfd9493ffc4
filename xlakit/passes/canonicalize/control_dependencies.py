"""Calls of ``control_dep(first, second)``, by which JAX orders instructions, become control predecessors."""

from __future__ import annotations

from xlakit.errors import InternalError
from xlakit.ir.control_deps import control_deps, is_control_dep, ordered
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.data import Parameter, Tuple
from xlakit.passes.core.framework import ComputationPass, PassContext


class ControlDependencies(ComputationPass):
    """Make control_dep(first, second) a control dependency from the first to the second.

    It runs before all passes that replace one instruction by another, so that these see the dependency.
    """

    name = "control-dependencies"

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """The computation without calls of control_dep."""
        calls = sum(map(is_control_dep, computation.instructions))
        if not calls or not context.spend(self.name, calls):
            return computation
        needed = {n for i in computation.instructions for n in (*i.operands, *i.control_predecessors)}
        needed.add(computation.root)
        edges = control_deps(computation)
        made: dict[Instruction, Instruction] = {}
        for old in ordered(computation, edges):
            if not isinstance(old, Instruction):
                raise InternalError(
                    f"{old[0].name} and {old[1].name} must precede each other, which the verifier allows"
                )
            operands = [made[o] for o in old.operands]
            if not is_control_dep(old):
                # Parameters need no predecessors: they are available from the start.
                also = () if isinstance(old.op, Parameter) else edges.get(old, ())
                before = dict.fromkeys(made[p] for p in (*old.control_predecessors, *also))
                made[old] = old.replace(
                    operands=operands, control_predecessors=[p for p in before if p not in operands]
                )
            elif old in needed:
                made[old] = Instruction(Tuple(), (), old.shape, old.name)
        return Computation(computation.name, tuple(made.values()), made[computation.root], computation.execution_thread)
