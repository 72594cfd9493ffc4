"""Calls become what they call: calls, composites, fusions, and maps of operations on elements."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from xlakit.data.shape import Shape
from xlakit.ir.attributes import Annotations
from xlakit.ir.enums import FusionKind
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.control import Call, Fusion
from xlakit.ops.data import Parameter
from xlakit.ops.elementwise.convert import Convert
from xlakit.ops.movement import Broadcast
from xlakit.ops.reduction import Map
from xlakit.passes.core.framework import ComputationPass, Names, PassContext, inherited, with_operands
from xlakit.passes.core.rewriter import same_layouts

# Calls of calls multiply: a program does not grow beyond this, or beyond so many times what it was.
_MOST_INSTRUCTIONS = 100_000
_MOST_GROWTH = 10


class InlineCalls(ComputationPass):
    """Put the instructions of called computations in the place of calls, fusions, and maps of plain operations."""

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
        ordered = {p for i in computation.instructions for p in i.control_predecessors}
        chosen = {i for i in computation.instructions if i not in ordered and _can_be_inlined(i)}
        if not chosen:
            return computation
        body = _Body(computation, context)
        for instruction in computation.instructions:
            callee = _callee(instruction) if instruction in chosen else None
            if callee is not None and len(callee.instructions) <= self._room and context.spend(instruction.opcode):
                self._room -= len(callee.instructions)
                body.inline(instruction, callee)
            else:
                body.keep(instruction)
        return body.finished() if body.has_inlined else computation


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


class _Body:
    """A computation under construction."""

    def __init__(self, computation: Computation, context: PassContext) -> None:
        self._computation = computation
        self._names = Names(computation, context)
        self._made: dict[Instruction, Instruction] = {}
        self._order: list[Instruction] = []
        self.has_inlined = False

    def keep(self, instruction: Instruction) -> None:
        """The instruction itself, on the new operands."""
        new = with_operands(instruction, tuple(self._made[o] for o in instruction.operands))
        if new.control_predecessors:
            new = new.replace(control_predecessors=[self._made[p] for p in new.control_predecessors])
        self._made[instruction] = self._add(new)

    def inline(self, call: Instruction, callee: Computation) -> None:
        """The instructions of a callee in the place of its call."""
        self.has_inlined = True
        arguments = [self._made[o] for o in call.operands]
        inside: dict[Instruction, Instruction] = {}
        if isinstance(call.op, Map):
            sizes = call.shape.dimensions
            arguments = [
                self._spread(self._converted(a, p.shape, call), sizes, call)
                for a, p in zip(arguments, callee.parameters, strict=True)
            ]
            self._copy(call, callee, arguments, inside, sizes)
            result = self._converted(inside[callee.root], call.shape, call)
        else:
            self._copy(call, callee, arguments, inside, None)
            result = inside[callee.root]
        self._made[call] = result

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
            new = Instruction(
                old.op,
                [inside[o] for o in old.operands],
                old.shape if sizes is None or not old.operands else old.shape.with_dimensions(tuple(sizes)),
                self._names.keep_or_new(old.name),
                control_predecessors=[inside[p] for p in old.control_predecessors],
                annotations=_placed(old.annotations, call.annotations),
            )
            made = self._add(new)
            inside[old] = made if sizes is None or old.operands else self._spread(made, sizes, call)

    def _converted(self, operand: Instruction, like: Shape, call: Instruction) -> Instruction:
        kind = like.element_type
        if operand.shape.element_type is kind:
            return operand
        return self._new(Convert(), operand, operand.shape.without_layout().with_element_type(kind), call)

    def _spread(self, operand: Instruction, sizes: Sequence[int], call: Instruction) -> Instruction:
        if operand.shape.dimensions or not sizes:
            return operand
        return self._new(Broadcast(dimensions=()), operand, operand.shape.with_dimensions(tuple(sizes)), call)

    def _new(self, op: Convert | Broadcast, operand: Instruction, shape: Shape, call: Instruction) -> Instruction:
        annotations = inherited(call.annotations, place_only=True)
        return self._add(Instruction(op, (operand,), shape, self._names.new(op.opcode), annotations=annotations))

    def _add(self, instruction: Instruction) -> Instruction:
        self._order.append(instruction)
        return instruction

    def finished(self) -> Computation:
        """The new computation."""
        old = self._computation
        return Computation(old.name, tuple(self._order), self._made[old.root], old.execution_thread)


def _placed(own: Annotations, call: Annotations) -> Annotations:
    """What an instruction says of itself; it comes from where the call does, where it does not say from where."""
    if own.metadata is not None or call.metadata is None:
        return own
    return dataclasses.replace(own, metadata=call.metadata)
