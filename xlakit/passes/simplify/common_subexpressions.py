"""Common subexpression elimination: merges equal instructions, and equal computations."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from xlakit.ir.attributes import NO_ANNOTATIONS, Annotations
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.traits import Commutative, Distinct
from xlakit.ops.communication.asynchronous import Async
from xlakit.ops.data import Constant
from xlakit.passes.core.framework import ComputationPass, PassContext, is_fixed, with_callees

# The bits of constants of more bytes than this are not compared.
_LARGE_CONSTANT = 1 << 20


class CommonSubexpressions(ComputationPass):
    """Merge instructions of equal operations on the same operands, and computations that differ in names only."""

    name = "common-subexpressions"

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Merge the instructions of each computation, then computations that are equal."""
        kept_apart = {
            c
            for computation in module.computations
            for i in computation.calling_instructions
            if isinstance(i.op, Async)
            for c in i.op.called_computations
        }
        changed: dict[Computation, Computation] = {}
        known: dict[object, Computation] = {}
        for old in module.computations:
            new = self.change(with_callees(old, changed), context)
            if old is not module.entry and old not in kept_apart and not new.has_side_effect:
                first = known.setdefault(_signature(new), new)
                if first is not new and context.spend("equal-computation"):
                    new = first
            changed[old] = new
        if all(new is old for old, new in changed.items()):
            return module
        entry = changed[module.entry]
        others = tuple(c for c in dict.fromkeys(changed.values()) if c is not entry)
        return module.replace(entry=entry, computations=others)

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Replace each instruction by the first equal one (value numbering)."""
        first: dict[object, Instruction] = {}
        # Instructions that were merged, or depend on one that was, and their replacements; mostly empty.
        changed: dict[Instruction, Instruction] = {}
        for instruction in computation.instructions:
            current = instruction
            if changed:
                current = _with_changed(instruction, changed)
            if not isinstance(instruction.op, Distinct) and not is_fixed(instruction):
                known = first.setdefault(_key(current), current)
                if known is not current and context.spend("equal-instruction"):
                    if context.observer is not None:
                        context.observer("equal-instruction", computation.name, [instruction.name])
                    current = known
            if current is not instruction:
                changed[instruction] = current
        if not changed:
            return computation
        instructions = tuple(dict.fromkeys([changed.get(i, i) for i in computation.instructions]))
        root = changed.get(computation.root, computation.root)
        return Computation(computation.name, instructions, root, computation.execution_thread)


def _with_changed(x: Instruction, changed: Mapping[Instruction, Instruction]) -> Instruction:
    """The instruction with its operands and control predecessors replaced."""
    if not changed.keys().isdisjoint(x.operands):
        x = x.replace(operands=[changed.get(o, o) for o in x.operands])
    if not changed.keys().isdisjoint(x.control_predecessors):
        x = x.replace(control_predecessors=[changed.get(p, p) for p in x.control_predecessors])
    return x


def _key(x: Instruction) -> object:
    """The value number key of an instruction: equal for equal operations on the same operands."""
    operands = x.operands
    if isinstance(x.op, Commutative) and id(operands[0]) > id(operands[1]):
        operands = operands[::-1]
    return instruction_key(x, operands)


def instruction_key(x: Instruction, operands: Hashable) -> Hashable:
    """A key of an instruction, given a key of its operands; equal for equal operations, shapes and annotations."""
    return (x.op.opcode, _operation_key(x), operands, x.shape, _annotation_key(x.annotations))


def _annotation_key(annotations: Annotations) -> object:
    """The annotations that may change the meaning of an operation, for custom calls, channels or the partitioner."""
    if annotations is NO_ANNOTATIONS:
        return None
    return (annotations.sharding, annotations.frontend_attributes, annotations.backend_config)


def _operation_key(x: Instruction) -> Any:
    """The operation as a key; large constants are compared by the identity of their arrays."""
    if isinstance(x.op, Constant) and x.shape.is_array and x.shape.byte_size > _LARGE_CONSTANT:
        return id(x.op.literal.array)
    return x.op


def _signature(computation: Computation) -> object:
    """A key of a computation, equal for computations that differ in names only."""
    numbers = {instruction: number for number, instruction in enumerate(computation.instructions)}
    steps = tuple(
        (
            instruction_key(i, tuple([numbers[o] for o in i.operands])),
            tuple([numbers[p] for p in i.control_predecessors]),
        )
        for i in computation.instructions
    )
    return (steps, numbers[computation.root], computation.execution_thread)
