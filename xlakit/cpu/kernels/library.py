"""The kernels of one module: chooses how each instruction is computed, and makes each distinct kernel once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.kernels.c_call import emit_c_call, is_ffi_call, is_native_ffi_call, lies_major_to_minor
from xlakit.cpu.kernels.makers import MAKERS, OF_FUSIONS
from xlakit.cpu.kernels.shared.fingerprint import fingerprint, is_constant_scalar, kernel_digest
from xlakit.cpu.kernels.shared.parallel import as_chosen
from xlakit.cpu.llvm import Module
from xlakit.cpu.loops.emit.kernel import Kernel, Phase, kernel_function
from xlakit.cpu.loops.ir.tracer import is_traced
from xlakit.cpu.loops.nests.fusion import check_arrays, emit_fusion
from xlakit.errors import UnsupportedError
from xlakit.execution.calls.lapack import split_target
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.control import Fusion
from xlakit.ops.custom_call import UNWRITTEN, CustomCall
from xlakit.ops.data import Parameter
from xlakit.ops.dynamic import DynamicUpdateSlice, SetDimensionSize
from xlakit.ops.reduction import Reduce
from xlakit.ops.windows import ReduceWindow
from xlakit.options import compiling, current


class KernelLibrary:
    """Makes the kernels of a module on demand.

    c_functions: the names of custom calls that are C functions.
    """

    def __init__(self, module: Module, c_functions: Collection[str] = ()) -> None:
        self.module = module
        self._c_functions = c_functions
        self._made: dict[Any, Kernel | None] = {}

    def kernel(self, instruction: Instruction) -> Kernel | None:
        """The kernel of an instruction; None if there is none, so that the interpreter must execute it."""
        key: Any = fingerprint(instruction)
        if isinstance(instruction.op, CustomCall):
            # The kernel of a custom call also depends on layouts and on backend_config.
            key = key, lies_major_to_minor(instruction), instruction.annotations.backend_config
        if key not in self._made:
            before = len(self.module.functions)
            try:
                self._made[key] = self._make_as_chosen(instruction)
            except (DeclinedError, UnsupportedError):
                # Remove functions that were begun before the strategy was declined.
                for name in list(self.module.functions)[before:]:
                    del self.module.functions[name]
                self._made[key] = None
        return self._made[key]

    def ffi_call(self, instruction: Instruction) -> str:
        """The name of the function that calls a custom call's FFI handler; "" if machine code cannot call it."""
        if not is_native_ffi_call(instruction, self._c_functions):
            return ""
        # Imported here: few programs have one.
        from xlakit.cpu.kernels.ffi_call import emit_ffi_call

        return emit_ffi_call(self.module, instruction).name

    def _make_as_chosen(self, instruction: Instruction) -> Kernel | None:
        """The kernel of an instruction, with the knobs that tuning has chosen for it."""
        options = current()
        chosen = options.kernels.get(kernel_digest(instruction)) if options.kernels else None
        if not chosen:
            return self._make(instruction)
        with compiling(replace(options, knobs={**options.knobs, **chosen})):
            kernel = self._make(instruction)
            return None if kernel is None else replace(kernel, phases=tuple(map(as_chosen, kernel.phases)))

    def _make(self, instruction: Instruction) -> Kernel | None:
        # set-dimension-size may refuse a size, which is a runtime error even if the array has no elements.
        acts = instruction.op.has_side_effect or isinstance(instruction.op, (CustomCall, SetDimensionSize))
        if not acts and not any(s.num_elements for _, s in instruction.shape.leaves() if s.is_array):
            return Kernel(())
        if isinstance(instruction.op, Fusion):
            check_arrays(instruction.op.calls)
            kinds = tuple({type(i.op) for i in instruction.op.calls.instructions})
            for members, special in OF_FUSIONS:
                if any(issubclass(kind, members) for kind in kinds):
                    emitted = special(self.module, instruction.op.calls, _symbol(instruction))
                    if emitted is not None:
                        return emitted
            return emit_fusion(self.module, instruction.op.calls, _symbol(instruction))
        if isinstance(instruction.op, CustomCall):
            return self._make_call(instruction, instruction.op.custom_call_target)
        maker = MAKERS.get(instruction.opcode)
        kernel = maker(self.module, instruction) if maker is not None else None
        if kernel is not None:
            return kernel
        if (is_traced(instruction.opcode) and not instruction.shape.is_tuple) or isinstance(
            instruction.op, (DynamicUpdateSlice, Reduce, ReduceWindow)
        ):
            return emit_fusion(self.module, alone(instruction), _symbol(instruction))
        return None

    def _make_call(self, instruction: Instruction, target: str) -> Kernel | None:
        """The kernel of a custom call that is a C function, a routine of LAPACK, or nothing."""
        if target == UNWRITTEN:
            return _unwritten(self.module, instruction)
        if not lies_major_to_minor(instruction):
            return None
        if target in self._c_functions:
            # A handler may return an error, which ends the program; kernels cannot do that: see ffi_call.
            return None if is_ffi_call(instruction.op_as(CustomCall)) else emit_c_call(self.module, instruction)
        if split_target(target) is None:
            return None
        # Imported here: few programs call LAPACK, and it loads SciPy's library.
        from xlakit.cpu.kernels.linalg.lapack import emit_lapack

        return emit_lapack(self.module, instruction)


def _unwritten(module: Module, instruction: Instruction) -> Kernel:
    """No code; for the sanitizer, what is NaN in all types, which results show if they are not overwritten."""
    if not current().sanitize:
        return Kernel(())
    fn, table, *_ = kernel_function(module, _symbol(instruction))
    fn.fill(fn.pointer(table, 0), 0xFF, instruction.shape.byte_size)
    return Kernel((Phase(fn.name, 1, 0),))


def alone(instruction: Instruction) -> Computation:
    """A computation of one instruction, whose operands are parameters.

    A constant scalar stays a constant, although it also keeps its parameter: so a sum that starts from zero can be
    split.
    """
    parameters = [
        Instruction(Parameter(number=number), (), operand.shape, f"p{number}")
        for number, operand in enumerate(instruction.operands)
    ]
    constants = [operand for operand in instruction.operands if is_constant_scalar(operand)]
    operands = [o if is_constant_scalar(o) else p for o, p in zip(instruction.operands, parameters, strict=True)]
    root = instruction.replace(operands=operands, control_predecessors=())
    return Computation(instruction.name, (*parameters, *dict.fromkeys(constants), root), root)


def _symbol(instruction: Instruction) -> str:
    """The name of a kernel's function: derived from that of the instruction, and distinct from all other symbols.

    Without the prefix a function named ``memcpy`` would replace the one that LLVM calls to copy memory, and a function
    named as the entry would replace the entry.
    """
    name = instruction.name or instruction.opcode
    return "hlo." + "".join(c if (c.isascii() and c.isalnum()) or c in "._-" else "_" for c in name).replace("-", "_")
