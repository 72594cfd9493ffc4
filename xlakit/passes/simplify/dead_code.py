"""Dead code elimination: removes unused instructions, and computations that nothing calls."""

from __future__ import annotations

from xlakit.ir.instruction import Computation, HloModule, computations_callees_first
from xlakit.passes.core.framework import ComputationPass, PassContext, change_computations, live_instructions


class DeadCode(ComputationPass):
    """Leave out instructions that neither the result nor an effect needs, and computations that are not called."""

    name = "dead-code"

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Remove uncalled computations first, to spend no time on their instructions."""
        reached = computations_callees_first([module.entry])
        if len(reached) < len(module.computations) and context.spend("uncalled-computation"):
            module = module.replace(computations=())
        return change_computations(module, lambda computation: self.change(computation, context))

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Keep the live instructions, and all parameters, which are the computation's signature."""
        live = live_instructions(computation)
        unused = len(computation.instructions) - len(live)
        if not unused or not context.spend("unused-instruction", unused):
            return computation
        instructions = tuple(i for i in computation.instructions if i in live)
        return Computation(computation.name, instructions, computation.root, computation.execution_thread)
