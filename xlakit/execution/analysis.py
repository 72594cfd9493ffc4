"""Analyses of an executable: its memory, and its instructions that are not machine code."""

from __future__ import annotations

from xlakit.dataclass import dataclass
from xlakit.errors import Location
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ops.custom_call import CustomCall

# Values below this fraction of the peak are not listed.
_SMALL_PART = 0.01


@dataclass(frozen=True, slots=True)
class Fallback:
    """An instruction, or a program, that is not machine code.

    name, opcode: of the instruction; where the whole program is meant, the module's name and ``module``.
    by: its executor: ``python`` for a Python function or the queues between host and devices, ``interpreter`` for the
        operation's ``evaluate`` in NumPy.
    why: the reason, in words. location: the source location, if it is known.
    """

    name: str
    opcode: str
    by: str
    why: str
    location: Location | None = None

    def __str__(self) -> str:
        where = f" at {self.location}" if self.location is not None else ""
        return f"{self.opcode} '{self.name}'{where}: by {self.by}, {self.why}"


def fallback_of(instruction: Instruction, module: HloModule | None) -> Fallback:
    """The record of an instruction that machine code calls Python for."""
    location = None if module is None else module.location_of(instruction)
    op = instruction.op
    if isinstance(op, CustomCall):
        return Fallback(instruction.name, op.opcode, "python", f"a call of '{op.custom_call_target}'", location)
    if op.has_side_effect:
        return Fallback(instruction.name, op.opcode, "python", "it talks to the host or to other processes", location)
    return Fallback(instruction.name, op.opcode, "interpreter", "no kernel makes code for it", location)


@dataclass(frozen=True, slots=True)
class Holder:
    """A temporary value that is live at the peak of memory use, and its instruction."""

    name: str
    opcode: str
    bytes: int
    location: Location | None

    def __str__(self) -> str:
        where = f"  {self.location}" if self.location is not None else ""
        return f"{self.bytes:>16,}  {self.opcode} '{self.name}'{where}"


@dataclass(frozen=True, slots=True)
class MemoryAnalysis:
    """The memory of one call, in bytes, under XLA's names.

    temp_size_in_bytes: the arena of intermediate values. alias_size_in_bytes: results that may share the memory of
    arguments. generated_code_size_in_bytes: 0 where there is no machine code.
    peak_memory_in_bytes: arguments, results and arena together. holders: the values in the arena at the peak, the
    largest first.
    """

    argument_size_in_bytes: int
    output_size_in_bytes: int
    temp_size_in_bytes: int
    alias_size_in_bytes: int
    generated_code_size_in_bytes: int
    peak_memory_in_bytes: int
    holders: tuple[Holder, ...]

    def __str__(self) -> str:
        lines = [
            f"arguments   {self.argument_size_in_bytes:>16,}",
            f"results     {self.output_size_in_bytes:>16,}",
            f"  in arguments' memory {self.alias_size_in_bytes:>5,}",
            f"temporaries {self.temp_size_in_bytes:>16,}",
        ]
        if self.generated_code_size_in_bytes:
            lines.append(f"code        {self.generated_code_size_in_bytes:>16,}")
        lines.append(f"peak        {self.peak_memory_in_bytes:>16,}")
        least = max(1, int(_SMALL_PART * self.temp_size_in_bytes))
        large = [h for h in self.holders if h.bytes >= least]
        if large:
            lines += ["", "temporaries at the peak:", *map(str, large)]
        if len(large) < len(self.holders):
            rest = self.holders[len(large) :]
            lines.append(f"{sum(h.bytes for h in rest):>16,}  in {len(rest)} others")
        return "\n".join(lines)
