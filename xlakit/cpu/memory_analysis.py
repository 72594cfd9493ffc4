"""The memory analysis of a compiled program: how much it takes, and which arrays take it at the peak."""

from __future__ import annotations

from xlakit.cpu.codegen import Code
from xlakit.execution.analysis import Holder, MemoryAnalysis
from xlakit.ir.instruction import HloModule
from xlakit.memory.assignment import BufferSlice, Space
from xlakit.memory.timeline import ArenaUse


def analyze_memory(code: Code, code_bytes: int, in_place: tuple[tuple[int, int], ...]) -> MemoryAnalysis:
    """The memory of a program; ``code_bytes`` is the size of its machine code."""
    entry = code.module.entry
    arguments = sum(p.shape.byte_size for p in entry.parameters)
    results = [leaf for _, leaf in entry.root.shape.leaves() if leaf.is_array]
    aliased = sum(results[result].byte_size for result, _ in in_place)
    output = entry.root.shape.byte_size
    return MemoryAnalysis(
        arguments,
        output,
        code.plan.arena_bytes,
        aliased,
        code_bytes,
        arguments + output + code.plan.arena_bytes,
        _holders(code),
    )


def _holders(code: Code) -> tuple[Holder, ...]:
    """The slices of the arena that are in use at the point at which they are most."""
    slices = [s for s in code.plan.slices if s.space is Space.ARENA]
    fullest = ArenaUse(slices).fullest()
    there = [own for own in slices if own.first <= fullest <= own.last]
    there.sort(key=lambda own: (-own.size, own.first, own.values[0].name))
    return tuple(_holder(code.module, own) for own in there)


def _holder(module: HloModule, own: BufferSlice) -> Holder:
    value = own.values[0]
    instruction = value.instruction
    if instruction is None:
        return Holder(value.name, "buffer", own.size, None)
    return Holder(value.name, instruction.opcode, own.size, module.location_of(instruction))
