"""What the makers of single operations see of the walk that calls them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from xlakit.ir.attributes import Sharding
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.passes.core.framework import PassContext
from xlakit.passes.spmd.annotations import Annotations
from xlakit.passes.spmd.emit import Channels
from xlakit.passes.spmd.pieces import Hint, Pieces
from xlakit.passes.spmd.scopes import Scope
from xlakit.passes.spmd.tilings import Split, Tiling
from xlakit.passes.spmd.values import Value


@dataclass
class Program:
    """What all walks through the computations of a module share."""

    module: HloModule
    annotations: Annotations
    channels: Channels
    context: PassContext
    # How the operands of calls are split that ask for it.
    inspected: dict[Instruction, Sharding] = field(default_factory=dict[Instruction, Sharding])


@dataclass(eq=False)
class Frame:
    """The values of a computation, as one way of calls leads to it: for each instruction a node for each leaf."""

    tilings: list[Tiling]
    nodes: dict[Instruction, tuple[int, ...]] = field(default_factory=dict)
    inner: dict[tuple[Instruction, Computation], Frame] = field(default_factory=dict)

    def hints(self, instruction: Instruction) -> list[Tiling] | None:
        """A tiling for each array and token that an instruction gives; whole where nothing is known."""
        nodes = self.nodes.get(instruction)
        return None if nodes is None else [self.tilings[n] for n in nodes]


class Walking(Protocol):
    """A walk through a computation that makes the one of a partition; see :mod:`xlakit.passes.spmd.walk`."""

    program: Program
    pieces: Pieces
    scope: Scope
    # The hints for the computation; manual computations have none.
    frame: Frame | None

    def hint(self, old: Instruction, scope: Scope) -> Hint | None:
        """How the result of an instruction had better be split."""
        ...

    def wanted(self, old: Instruction, scope: Scope) -> Sequence[Split | None] | None:
        """How the array that an instruction gives is said to be split."""
        ...

    def inside(self, scope: Scope, computation: Computation, operands: Sequence[Value], frame: Frame | None) -> Value:
        """What a computation gives that the teams of a scope run; ``frame`` has the hints for it."""
        ...

    def region(
        self,
        computation: Computation,
        scope: Scope,
        tilings: Sequence[Sequence[Tiling]],
        wanted: Sequence[Tiling] | None = None,
        *,
        of: Instruction,
    ) -> tuple[Computation, list[Tiling]]:
        """A computation for arguments in these tilings, and the tilings of its result: the wanted ones, or its own.

        of: the instruction that calls it.
        """
        ...
