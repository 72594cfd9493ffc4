"""From an optimised module to code: lowering, the entry, and LLVM."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from xlakit.cpu.entry.aliases import honoured_aliases
from xlakit.cpu.entry.buffers import assign_offsets
from xlakit.cpu.entry.emit import ENTRY, EntryWriter, place_buffers
from xlakit.cpu.entry.lowering import Lowered, Lowering
from xlakit.cpu.entry.steps import number_uses, used_in
from xlakit.cpu.kernels.library import KernelLibrary
from xlakit.cpu.llvm import Module, engine
from xlakit.cpu.program import Program
from xlakit.ir.instruction import HloModule

# Fusions have at most a few hundred operations in a row.
_FRAMES = 10_000


@dataclass(slots=True)
class Code:
    """A lowered module and its code."""

    module: HloModule
    lowered: Lowered
    arena_bytes: int
    text: str
    object_data: bytes = b""
    entry: str = ENTRY
    imports: list[str] = field(default_factory=list)

    def program(self) -> Program:
        """What running it takes."""
        hosts = tuple(self.lowered.host_instructions)
        return Program(
            self.object_data,
            self.entry,
            tuple(self.imports),
            self.arena_bytes,
            tuple(self.lowered.constants),
            hosts,
            self.module if hosts else None,
            honoured_aliases(self.module, self.lowered),
        )


@contextmanager
def _deep_calls() -> Generator[None]:
    """Room for the functions that follow a fusion from its result to its operands, a few frames for each operation."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def generate(module: HloModule) -> Code:
    """The LLVM IR of an optimised module."""
    llvm = Module(module.name)
    with _deep_calls():
        lowered = Lowering(module, KernelLibrary(llvm)).lower()
    number_uses(lowered.steps)
    _, placed = place_buffers(list(used_in(lowered.steps)))
    arena_bytes = assign_offsets(placed)
    EntryWriter(llvm).write(lowered.steps)
    imports = [name for name in llvm.declared if not name.startswith("llvm.")]
    return Code(module, lowered, arena_bytes, llvm.text(), imports=imports)


def make_object(code: Code) -> None:
    """Compile the code's text."""
    code.object_data = engine.emit_object(engine.optimize(code.text))
