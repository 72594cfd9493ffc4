"""The memory that the interpreter needs, computed from the live values of its plans at each instruction."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.data.shape import UNBOUNDED, Shape
from xlakit.execution.analysis import Holder, MemoryAnalysis
from xlakit.execution.program import Program
from xlakit.interpreter.evaluate import plan_of
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.traits import Forwarding
from xlakit.ops.control import Call, Conditional, Fusion, While
from xlakit.ops.data import Copy
from xlakit.ops.movement import Reshape

# Their results are views of the operands' memory if NumPy copies nothing.
_NO_MEMORY = (Forwarding, Copy, Reshape)


def analyze_memory(module: HloModule, program: Program) -> MemoryAnalysis:
    """The memory of a call, without NumPy's temporaries within an instruction; dynamic dimensions count as bounds."""
    entry = module.entry
    arguments = sum(_bytes(p.shape) for p in entry.parameters)
    output = _bytes(entry.root.shape)
    held = _held(program, entry)
    holders = [Holder(i.name, i.opcode, _bytes(i.shape), module.location_of(i)) for i in held]
    holders.sort(key=lambda holder: (-holder.bytes, holder.name))
    temporary = _total(held)
    return MemoryAnalysis(arguments, output, temporary, 0, 0, arguments + output + temporary, tuple(holders))


def _held(program: Program, computation: Computation) -> list[Instruction]:
    """The live values at the peak of a computation, including the computations that it calls.

    Arguments belong to the caller, as does the root, which is its result.
    """
    plan = plan_of(program, computation)
    inner = (s for s in plan.steps if s.slot != plan.root)
    made = {s.slot: s.instruction for s in inner if not isinstance(s.instruction.op, _NO_MEMORY)}
    own = {slot: _bytes(instruction.shape) for slot, instruction in made.items()}
    # For each step that runs other computations: the live values at the peak of the largest of them, as one runs at a
    # time.
    inside = {
        step.slot: max((_held(program, c) for c in step.instruction.op.called_computations), key=_total)
        for step in plan.steps
        if isinstance(step.instruction.op, (Call, Conditional, Fusion, While))
    }
    held, most, fullest = 0, -1, -1
    for step in plan.steps:
        held += own.get(step.slot, 0)
        now = held + _total(inside.get(step.slot, ()))
        if now > most:
            most, fullest = now, step.slot
        held -= sum(own.get(slot, 0) for slot in step.release)
    released_at = {slot: step.slot for step in plan.steps for slot in step.release}
    there = [i for slot, i in made.items() if slot <= fullest <= released_at.get(slot, fullest)]
    return [*(i for i in there if _bytes(i.shape)), *inside.get(fullest, ())]


def _total(instructions: Sequence[Instruction]) -> int:
    return sum(_bytes(i.shape) for i in instructions)


def _bytes(shape: Shape) -> int:
    arrays = [leaf for _, leaf in shape.leaves() if leaf.is_array and UNBOUNDED not in leaf.dimensions]
    return sum(leaf.byte_size for leaf in arrays)
