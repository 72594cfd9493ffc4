"""Calls become what they call: calls, composites, fusions, and maps of operations on elements."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from xlakit.data.shape import Shape
from xlakit.ir.attributes import Annotations
from xlakit.ir.enums import FusionKind
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.control import Call, Fusion
from xlakit.ops.data import Constant, Parameter
from xlakit.ops.reduction import Map
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import ComputationPass, PassContext
from xlakit.passes.core.rewriter import same_layouts

# Calls of calls multiply: a program does not grow beyond this, or beyond so many times what it was.
_MOST_INSTRUCTIONS = 100_000
_MOST_GROWTH = 10


class InlineCalls(ComputationPass):
    """Replace calls, fusions, and maps of plain operations by the instructions of their computations."""

    name = "inline-calls"
    left_out_by = "inline"

    def __init__(self) -> None:
        self._room = 0

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Callees first, so that one step is enough for calls in calls."""
        self._room = max(_MOST_INSTRUCTIONS, _MOST_GROWTH * module.instruction_count())
        return super().run(module, context)

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Replace the calls of one computation."""
        if not computation.callers:
            return computation
        ordered = {p for i in computation.instructions for p in i.control_predecessors}
        chosen = {i for i in computation.callers if i not in ordered and _can_be_inlined(i)}
        if not chosen:
            return computation
        body = _Body(computation, context)
        for instruction in computation.instructions:
            callee = _callee(instruction) if instruction in chosen else None
            if callee is not None and len(callee.instructions) <= self._room and context.spend(instruction.opcode):
                self._room -= len(callee.instructions)
                body.inline(instruction, callee)
            else:
                body.clone(instruction)
        return body.build() if body.has_inlined else computation


def _callee(instruction: Instruction) -> Computation | None:
    op = instruction.op
    if isinstance(op, (Call, Map)):
        return op.to_apply
    return op.calls if isinstance(op, Fusion) else None


def _can_be_inlined(instruction: Instruction) -> bool:
    callee = _callee(instruction)
    if callee is None or instruction.control_predecessors:
        return False
    if isinstance(instruction.op, Map):
        return all(i.op.pointwise and i.shape.is_array for i in callee.instructions)
    if isinstance(instruction.op, Fusion) and (
        instruction.op.kind is FusionKind.CUSTOM or instruction.op.output_to_operand_aliasing
    ):
        return False
    if ("inlineable", "false") in instruction.annotations.frontend_attributes:
        return False
    # A fusion may have more operands than its computation takes.
    pairs = [*zip(callee.parameters, instruction.operands, strict=False), (callee.root, instruction)]
    return callee.execution_thread == "main" and all(_same(a.shape, b.shape) for a, b in pairs)


def _same(a: Shape, b: Shape) -> bool:
    return a == b or (a.without_layout() == b.without_layout() and same_layouts(a, b))


class _Body(ComputationCloner):
    """A computation whose calls are inlined."""

    def __init__(self, computation: Computation, context: PassContext) -> None:
        super().__init__(computation, context)
        self.has_inlined = False
        # The constants of computations that were called before: they serve for all calls.
        self._constants: dict[Instruction, Instruction] = {}

    def inline(self, call: Instruction, callee: Computation) -> None:
        """The instructions of a callee instead of its call."""
        self.has_inlined = True
        arguments = [self.clones[o] for o in call.operands]
        inside: dict[Instruction, Instruction] = {}
        if isinstance(call.op, Map):
            sizes, make = call.shape.dimensions, self.at(call)
            arguments = [
                make.broadcast(make.convert(a, p.shape.element_type), sizes)
                for a, p in zip(arguments, callee.parameters, strict=True)
            ]
            self._copy(call, callee, arguments, inside, sizes)
            result = make.convert(inside[callee.root], call.shape.element_type)
        else:
            self._copy(call, callee, arguments, inside, None)
            result = inside[callee.root]
        self.clones[call] = result

    def _copy(
        self,
        call: Instruction,
        callee: Computation,
        arguments: Sequence[Instruction],
        inside: dict[Instruction, Instruction],
        sizes: Sequence[int] | None,
    ) -> None:
        """Copy all instructions but the parameters; with ``sizes``, those of scalars become those of whole arrays."""
        for parameter, argument in zip(callee.parameters, arguments, strict=False):
            inside[parameter] = argument
        for old in callee.instructions:
            if isinstance(old.op, Parameter):
                continue
            # Also where it is not needed: so the names that follow are those of a constant for each call.
            name = self.names.keep_or_new(old.name)
            known = self._constants.get(old) if sizes is None else None
            if known is not None:
                inside[old] = known
                continue
            new = Instruction(
                old.op,
                [inside[o] for o in old.operands],
                old.shape if sizes is None or not old.operands else old.shape.with_dimensions(tuple(sizes)),
                name,
                control_predecessors=[inside[p] for p in old.control_predecessors],
                annotations=_inlined_annotations(old.annotations, call.annotations),
            )
            made = self.append(new)
            if sizes is None and isinstance(old.op, Constant) and not old.control_predecessors:
                self._constants[old] = made
            inside[old] = made if sizes is None or old.operands else self.at(call).broadcast(made, sizes)


def _inlined_annotations(own: Annotations, call: Annotations) -> Annotations:
    """What an instruction says of itself; it comes from where the call does, where it does not say from where."""
    if own.metadata is not None or call.metadata is None:
        return own
    return dataclasses.replace(own, metadata=call.metadata)
