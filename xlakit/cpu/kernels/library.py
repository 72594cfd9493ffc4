"""The kernels of one module: who makes which instruction's code, each kernel once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from xlakit.cpu.kernels.fingerprint import fingerprint
from xlakit.cpu.kernels.makers import MAKERS
from xlakit.cpu.llvm import Module
from xlakit.cpu.loops.fusion import emit_fusion
from xlakit.cpu.loops.kernel import Phase
from xlakit.cpu.loops.tracer import is_traced
from xlakit.errors import UnsupportedError
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.control import Fusion
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import Parameter


@dataclass(frozen=True, slots=True)
class Kernel:
    """The phases of a kernel. Its table has the operands' arrays, the results', and scratch if it wants some.

    updates: results that are an operand changed in place, by the numbers of their arrays.
    """

    phases: tuple[Phase, ...]
    updates: dict[int, int] = field(default_factory=dict)
    scratch_bytes: int = 0


class KernelLibrary:
    """Makes the kernels of a module as they are asked for."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._made: dict[Any, Kernel | None] = {}

    def kernel(self, instruction: Instruction) -> Kernel | None:
        """The kernel of an instruction; None where there is none, and the interpreter has to do it."""
        key = fingerprint(instruction)
        if key not in self._made:
            before = len(self.module.functions)
            try:
                self._made[key] = self._make(instruction)
            except UnsupportedError:
                # What was begun before it was clear that it would not do.
                for name in list(self.module.functions)[before:]:
                    del self.module.functions[name]
                self._made[key] = None
        return self._made[key]

    def _make(self, instruction: Instruction) -> Kernel | None:
        acts = instruction.op.has_side_effect or isinstance(instruction.op, CustomCall)
        if not acts and not any(s.num_elements for _, s in instruction.shape.leaves() if s.is_array):
            return Kernel(())
        if isinstance(instruction.op, Fusion):
            return Kernel(*emit_fusion(self.module, instruction.op.calls, _symbol(instruction)))
        maker = MAKERS.get(instruction.opcode)
        made = maker(self.module, instruction) if maker is not None else None
        if made is not None:
            return Kernel(*made)
        if (is_traced(instruction.opcode) and not instruction.shape.is_tuple) or instruction.opcode in (
            "dynamic-update-slice",
            "reduce",
            "reduce-window",
        ):
            return Kernel(*emit_fusion(self.module, alone(instruction), _symbol(instruction)))
        return None


def alone(instruction: Instruction) -> Computation:
    """A computation of one instruction, its operands being the parameters."""
    parameters = [
        Instruction(Parameter(number=number), (), operand.shape, f"p{number}")
        for number, operand in enumerate(instruction.operands)
    ]
    root = instruction.replace(operands=parameters, control_predecessors=())
    return Computation(instruction.name, (*parameters, root), root)


def _symbol(instruction: Instruction) -> str:
    name = instruction.name or instruction.opcode
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name).replace("-", "_")
