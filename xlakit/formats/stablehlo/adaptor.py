"""The argument of conversion rules: an operation of StableHLO with its converted operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.formats.stablehlo.bytecode import Bytecode, Operation, Region
from xlakit.formats.stablehlo.computations import Draft
from xlakit.ir.attributes import Annotations
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Op


class Converts(Protocol):
    """The interface of the module's conversion to the rules."""

    @property
    def code(self) -> Bytecode:
        """The bytecode of the module."""
        ...

    @property
    def has_several_devices(self) -> bool:
        """Whether the module is for several devices."""
        ...

    def function(self, name: str) -> Computation:
        """The computation of a function."""
        ...

    def region_computation(self, region: Region) -> Computation:
        """The computation of a region that is applied to single elements."""
        ...


@dataclass(slots=True)
class Adaptor:
    """An operation under conversion, as MLIR's adaptors: its operands are already HLO.

    shapes: of the operation's results. draft: the computation into which the rule emits instructions.
    """

    operation: Operation
    operands: Sequence[Instruction]
    shapes: Sequence[Shape]
    annotations: Annotations
    draft: Draft
    module: Converts

    def properties(self) -> list[Any]:
        """The values of the operation's properties, in the order of their names."""
        return list(map(self.module.code.attribute, self.operation.properties))

    def emit(self, op: Op, operands: Sequence[Instruction] | None = None, shape: Shape | None = None) -> Instruction:
        """Emit an instruction; by default on the operation's operands, with the shape of its first result."""
        return self.draft.emit(
            op,
            self.operands if operands is None else operands,
            self.shapes[0] if shape is None else shape,
            self.annotations,
        )

    def results(self, op: Op, operands: Sequence[Instruction] | None = None) -> Sequence[Instruction]:
        """Emit an instruction and give its results; by default on the operation's operands."""
        used_operands = self.operands if operands is None else operands
        return self.draft.results(op, used_operands, self.shapes, self.annotations)


Rule = Callable[[Adaptor], Sequence[Instruction]]
