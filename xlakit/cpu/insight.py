"""What a compiled program is made of: its memory, its LLVM IR and its assembly."""

from __future__ import annotations

from xlakit.cpu.codegen import Code
from xlakit.cpu.kernels import common_families
from xlakit.cpu.kernels.shared.common_code import PREFIX
from xlakit.cpu.llvm import Effort, engine
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


def llvm_ir(code: Code, *, optimized: bool) -> str:
    """The program and the common functions that it calls as LLVM IR, before or after LLVM's own passes."""
    if not optimized:
        return "\n".join([code.text, *(text for _, text in _common(code))])
    return "\n".join(engine.optimized_text(text, effort) for effort, text in _parts(code))


def assembly(code: Code) -> str:
    """The program and the common functions that it calls as this machine's assembly."""
    return "\n".join(engine.assembly(text, effort) for effort, text in _parts(code))


def _parts(code: Code) -> list[tuple[Effort, str]]:
    return [*code.llvm.parts(), *_common(code)]


def _common(code: Code) -> list[tuple[Effort, str]]:
    return [common_families.part(name) for name in code.imports if name.startswith(PREFIX)]
