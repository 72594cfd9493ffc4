"""ComputationBuilder makes computations instruction by instruction; ComputationCloner copies one and changes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.ir.attributes import NO_ANNOTATIONS, Annotations
from xlakit.ir.enums import FusionKind
from xlakit.ir.instruction import Computation, Instruction, infer_shape
from xlakit.ir.names import unused_name
from xlakit.ir.operation import Op
from xlakit.ops.control import Fusion
from xlakit.ops.data import GetTupleElement, Parameter, Tuple
from xlakit.passes.core.framework import Names, PassContext, inherited, with_operands
from xlakit.passes.core.hlo_builder import HloBuilder


class ComputationBuilder(HloBuilder):
    """A computation under construction."""

    def __init__(self, context: PassContext, old: Computation | None = None) -> None:
        self.context = context
        self.names = Names(old, context)
        self._order: list[Instruction] = []

    def add(
        self, op: Op, *operands: Instruction, like: Instruction | None = None, shape: Shape | None = None
    ) -> Instruction:
        """Append a new instruction; its metadata is that of ``like``. Raises ShapeError if it is malformed."""
        inferred = infer_shape(op, [o.shape for o in operands], shape)
        annotations = NO_ANNOTATIONS if like is None else inherited(like.annotations, metadata_only=True)
        return self.append(Instruction(op, operands, inferred, self.names.new(op.opcode), annotations=annotations))

    def at(self, old: Instruction) -> ReplacementBuilder:
        """A builder of what replaces ``old``, which appends here."""
        return ReplacementBuilder(self, old)

    def append(self, new: Instruction) -> Instruction:
        """Append an existing instruction."""
        self._order.append(new)
        return new

    def parameter(self, number: int, shape: Shape) -> Instruction:
        """A parameter."""
        return self.add(Parameter(number=number), shape=shape)

    def computation(self, name: str, root: Instruction) -> Computation:
        """The instructions appended so far, as a computation whose name begins with ``name``."""
        return Computation(self.context.computation_name(name), tuple(self._order), root)


class ReplacementBuilder(HloBuilder):
    """Makes the instructions that replace ``old`` in a computation under construction; they have its metadata."""

    def __init__(self, builder: ComputationBuilder, old: Instruction) -> None:
        self.builder = builder
        self.context = builder.context
        self.old = old

    def add(self, op: Op, *operands: Instruction, shape: Shape | None = None) -> Instruction:
        """Append a new instruction."""
        return self.builder.add(op, *operands, like=self.old, shape=shape)


class ComputationCloner(ComputationBuilder):
    """A copy of a computation, in which single instructions are replaced."""

    def __init__(self, computation: Computation, context: PassContext) -> None:
        super().__init__(context, computation)
        # The instruction of the new computation for each one of the old.
        self.clones: dict[Instruction, Instruction] = {}
        self._computation = computation

    def clone(self, old: Instruction) -> Instruction:
        """Append ``old`` on the clones of its operands and control predecessors."""
        new = with_operands(old, tuple([self.clones[o] for o in old.operands]))
        if new.control_predecessors:
            new = new.replace(control_predecessors=[self.clones[p] for p in new.control_predecessors])
        self.clones[old] = new
        return self.append(new)

    def copy(self, source: Instruction, operands: Sequence[Instruction]) -> Instruction:
        """Append an instruction of another computation, on other operands and under a name that is free here."""
        name = self.names.keep_or_new(source.name)
        return self.append(Instruction(source.op, operands, source.shape, name, annotations=source.annotations))

    def copy_all(self, source: Instruction) -> Instruction:
        """Append an instruction of another computation and, first, copies of all that it depends on.

        Recursive, and copies a shared operand once per use: only for small expressions.
        """
        return self.copy(source, [self.copy_all(o) for o in source.operands])

    def substitute(self, old: Instruction, new: Instruction) -> None:
        """Make ``new`` the clone of ``old``: later clones that read ``old`` read ``new``."""
        self.clones[old] = new

    def build(self, root: Instruction | None = None, *, name: str | None = None) -> Computation:
        """The new computation; ``root`` and ``name`` are by default the clone of the old root and the old name."""
        old = self._computation
        new_root = self.clones[old.root] if root is None else root
        return Computation(name or old.name, tuple(self._order), new_root, old.execution_thread)


class StateCloner(ComputationCloner):
    """A copy of the condition or the body of a while loop that takes a state of another shape."""

    def __init__(self, computation: Computation, state: Shape, context: PassContext) -> None:
        super().__init__(computation, context)
        (self.old_state,) = computation.parameters
        annotations = inherited(self.old_state.annotations, metadata_only=True)
        self.state = self.append(
            Instruction(Parameter(number=0), (), state, self.old_state.name, annotations=annotations)
        )

    def finish(self, root: Instruction | None = None) -> Computation:
        """The new computation, under a name of its own; ``root`` is by default the clone of the old root."""
        return self.build(root, name=self.context.computation_name(self._computation.name))


def binary_computation(name: str, op: Op, kind: PrimitiveType, context: PassContext) -> Computation:
    """The computation of an operation on two numbers."""
    builder, scalar = ComputationBuilder(context), Shape(kind)
    root = builder.add(op, builder.parameter(0, scalar), builder.parameter(1, scalar))
    return builder.computation(name, root)


class Fused(NamedTuple):
    """A fusion that is to be made: it computes the instructions ``results`` of a computation from its ``operands``.

    calls: the fused computation; its root is a tuple if there are several results.
    """

    name: str
    kind: FusionKind
    calls: Computation
    operands: Sequence[Instruction]
    results: Sequence[Instruction]

    def on(self, operands: Sequence[Instruction]) -> tuple[Instruction, list[Instruction]]:
        """The fusion on these operands, and the replacement of each result: the fusion, or an element of its tuple."""
        annotations = Annotations(metadata=self.results[-1].annotations.metadata)
        op, shape = Fusion(kind=self.kind, calls=self.calls), self.calls.root.shape
        fusion = Instruction(op, operands, shape, self.name, annotations=annotations)
        if len(self.results) == 1:
            return fusion, [fusion]
        return fusion, [
            Instruction(GetTupleElement(index=i), [fusion], r.shape, r.name, annotations=r.annotations)
            for i, r in enumerate(self.results)
        ]


def with_results(
    name: str, lines: Sequence[Instruction], results: Sequence[Instruction], taken: set[str], thread: str = "main"
) -> Computation:
    """The computation of ``lines`` whose root is the only result, or a tuple of several, of a name not in ``taken``."""
    root = results[-1]
    if len(results) > 1:
        shape = make_tuple_shape([r.shape for r in results])
        root = Instruction(Tuple(), results, shape, unused_name("result", taken))
        lines = [*lines, root]
    return Computation(name, tuple(lines), root, thread)


def with_fusions(computation: Computation, nodes: Iterable[Instruction | Fused]) -> Computation:
    """The computation with only these instructions and fusions, which are given in an order with operands first."""
    rebuilt: dict[Instruction, Instruction] = {}
    result: list[Instruction] = []
    for node in nodes:
        operands = tuple(rebuilt[o] for o in node.operands)
        if isinstance(node, Fused):
            fusion, parts = node.on(operands)
            rebuilt.update(zip(node.results, parts, strict=True))
            result += dict.fromkeys([fusion, *parts])
        else:
            rebuilt[node] = with_operands(node, operands, tuple(rebuilt.get(p, p) for p in node.control_predecessors))
            result.append(rebuilt[node])
    return Computation(computation.name, tuple(result), rebuilt[computation.root], computation.execution_thread)
