"""What a compiled program is made of: its memory, its LLVM IR and its assembly."""

from __future__ import annotations

from xlakit.cpu.compile import Code
from xlakit.cpu.entry.buffers import Buffer, byte_size
from xlakit.cpu.entry.steps import used_in
from xlakit.cpu.kernels.shared import common
from xlakit.cpu.llvm import Effort, engine
from xlakit.data.shape import Shape
from xlakit.execution.analysis import Holder, MemoryAnalysis
from xlakit.ir.instruction import HloModule, Instruction


def analyze_memory(code: Code, code_bytes: int, in_place: tuple[tuple[int, int], ...]) -> MemoryAnalysis:
    """The memory of a program; ``code_bytes`` is the size of its machine code."""
    entry = code.module.entry
    arguments = sum(map(_bytes, (p.shape for p in entry.parameters)))
    results = _arrays(entry.root.shape)
    aliased = sum(byte_size(results[result]) for result, _ in in_place)
    output = _bytes(entry.root.shape)
    return MemoryAnalysis(
        arguments,
        output,
        code.arena_bytes,
        aliased,
        code_bytes,
        arguments + output + code.arena_bytes,
        _holders(code),
    )


def _holders(code: Code) -> tuple[Holder, ...]:
    """The buffers of the arena that are in use at the step at which they are most."""
    buffers = [b for b in used_in(code.lowered.steps) if b.place == "temporary" and b.offset >= 0]
    changes: dict[int, int] = {}
    for buffer in buffers:
        changes[buffer.first] = changes.get(buffer.first, 0) + buffer.bytes
        changes[buffer.last + 1] = changes.get(buffer.last + 1, 0) - buffer.bytes
    held, most, fullest = 0, -1, 0
    for place in sorted(changes):
        held += changes[place]
        if held > most:
            most, fullest = held, place
    named = _by_name(code.module)
    there = [b for b in buffers if b.first <= fullest <= b.last]
    there.sort(key=lambda b: (-b.bytes, b.first, b.name))
    return tuple(_holder(code.module, named, b) for b in there)


def _holder(module: HloModule, named: dict[str, Instruction], buffer: Buffer) -> Holder:
    # Parts of tuples and scratch have the instruction's name and more behind a dot.
    name = buffer.name
    while name not in named and "." in name:
        name = name.rpartition(".")[0]
    instruction = named.get(name)
    if instruction is None:
        return Holder(buffer.name, "buffer", buffer.bytes, None)
    return Holder(buffer.name, instruction.opcode, buffer.bytes, module.location_of(instruction))


def _by_name(module: HloModule) -> dict[str, Instruction]:
    return {i.name: i for c in module.computations for i in c.instructions}


def _arrays(shape: Shape) -> list[Shape]:
    return [leaf for _, leaf in shape.leaves() if leaf.is_array]


def _bytes(shape: Shape) -> int:
    return sum(map(byte_size, _arrays(shape)))


def llvm_ir(code: Code, *, optimized: bool) -> str:
    """The program and the common functions that it calls as LLVM IR, before or after LLVM's own passes."""
    if not optimized:
        return "\n".join([code.text, *(text for _, text in _common(code))])
    return "\n".join(engine.optimized(text, effort) for effort, text in _parts(code))


def assembly(code: Code) -> str:
    """The program and the common functions that it calls as this machine's assembly."""
    return "\n".join(engine.assembly(text, effort) for effort, text in _parts(code))


def _parts(code: Code) -> list[tuple[Effort, str]]:
    return [*code.llvm.parts(), *_common(code)]


def _common(code: Code) -> list[tuple[Effort, str]]:
    return [(Effort.ALL, common.text(name)) for name in code.imports if name.startswith(common.PREFIX)]
