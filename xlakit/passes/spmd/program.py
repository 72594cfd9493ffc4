"""State shared by the traversals of a program's computations, and the hints of propagation."""

from __future__ import annotations

from dataclasses import field

from xlakit.dataclass import dataclass
from xlakit.ir.attributes import Sharding
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.passes.core.framework import PassContext
from xlakit.passes.spmd.pieces.emit import Channels
from xlakit.passes.spmd.shardings.annotations import Annotations
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Tiling


@dataclass
class Program:
    """State shared by all traversals of a module's computations."""

    module: HloModule
    annotations: Annotations
    channels: Channels
    context: PassContext
    # The shardings that InspectSharding calls have recorded.
    inspected: dict[Instruction, Sharding] = field(default_factory=dict[Instruction, Sharding])


@dataclass(eq=False)
class Frame:
    """The hints for a computation in one calling context: for each instruction a node for each leaf of its value.

    tilings: of all nodes. inner: the frames of called computations.
    """

    tilings: list[Tiling]
    nodes: dict[Instruction, tuple[int, ...]] = field(default_factory=dict)
    inner: dict[tuple[Instruction, Computation], Frame] = field(default_factory=dict)

    def hints(self, instruction: Instruction, scope: Scope) -> list[Tiling] | None:
        """A tiling over the members of a scope's teams for each array and token of an instruction's value, whole if
        nothing is known; None if the instruction has no nodes.
        """
        nodes = self.nodes.get(instruction)
        if nodes is None:
            return None
        found = [self.tilings[n] for n in nodes]
        return found if scope.size == scope.count else [tuple(map(scope.agreed, tiling)) for tiling in found]
