"""Making: computations made instruction by instruction, new ones, and old ones again with others put in between."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.ir.attributes import NO_ANNOTATIONS
from xlakit.ir.instruction import Computation, Instruction, infer_shape
from xlakit.ir.operation import Op
from xlakit.ops.data import Constant, GetTupleElement, Parameter, Tuple
from xlakit.passes.core.framework import Names, PassContext, inherited, with_operands


class Making:
    """A computation in the making."""

    def __init__(self, context: PassContext, old: Computation | None = None) -> None:
        self.names = Names(old, context)
        self._order: list[Instruction] = []

    def add(
        self, op: Op, *operands: Instruction, like: Instruction | None = None, shape: Shape | None = None
    ) -> Instruction:
        """A new instruction, which comes from where ``like`` came from."""
        inferred = infer_shape(op, [o.shape for o in operands], shape)
        annotations = NO_ANNOTATIONS if like is None else inherited(like.annotations, place_only=True)
        return self.append(Instruction(op, operands, inferred, self.names.new(op.opcode), annotations=annotations))

    def append(self, new: Instruction) -> Instruction:
        """Put an instruction that is made already at the end."""
        self._order.append(new)
        return new

    def parameter(self, number: int, shape: Shape) -> Instruction:
        """A parameter."""
        return self.add(Parameter(number=number), shape=shape)

    def scalar(self, value: object, kind: PrimitiveType) -> Instruction:
        """A constant of one number."""
        return self.add(Constant(literal=Literal.from_value(value, kind)))

    def element(self, value: Instruction, number: int, like: Instruction | None = None) -> Instruction:
        """An element of a tuple."""
        if isinstance(value.op, Tuple) and not value.control_predecessors:
            return value.operands[number]
        return self.add(GetTupleElement(index=number), value, like=like)

    def computation(self, name: str, root: Instruction) -> Computation:
        """What has been made, as a computation."""
        return Computation(name, tuple(self._order), root)


class Remaking(Making):
    """A computation that is made again."""

    def __init__(self, computation: Computation, context: PassContext) -> None:
        super().__init__(context, computation)
        # What stands in the places of the old instructions.
        self.made: dict[Instruction, Instruction] = {}
        self._computation = computation

    def keep(self, old: Instruction) -> Instruction:
        """The instruction itself, on what its operands have become."""
        new = with_operands(old, tuple([self.made[o] for o in old.operands]))
        if new.control_predecessors:
            new = new.replace(control_predecessors=[self.made[p] for p in new.control_predecessors])
        self.made[old] = new
        return self.append(new)

    def copy(self, source: Instruction, operands: Sequence[Instruction]) -> Instruction:
        """An instruction of another computation, on other operands."""
        name = self.names.keep_or_new(source.name)
        return self.append(Instruction(source.op, operands, source.shape, name, annotations=source.annotations))

    def copy_all(self, source: Instruction) -> Instruction:
        """An instruction of another computation that needs no parameters, with the few that it needs."""
        return self.copy(source, [self.copy_all(o) for o in source.operands])

    def stands_for(self, old: Instruction, new: Instruction) -> None:
        """Say what stands in the place of an old instruction."""
        self.made[old] = new

    def finished(self, root: Instruction | None = None, *, name: str | None = None) -> Computation:
        """The new computation; ``root`` and ``name`` where they are not the old one's."""
        old = self._computation
        made = self.made[old.root] if root is None else root
        return Computation(name or old.name, tuple(self._order), made, old.execution_thread)
