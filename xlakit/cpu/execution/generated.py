"""GeneratedProgram: the compiler's results for a program before LLVM compiles it, for inspection."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from xlakit import options
from xlakit.collector import collecting_less
from xlakit.execution.analysis import Fallback, MemoryAnalysis, fallback_of
from xlakit.ir.instruction import HloModule, Instruction

if TYPE_CHECKING:
    from xlakit.cpu.codegen import Code
    from xlakit.cpu.program import Program, Target
    from xlakit.memory.plan import MemoryPlan
    from xlakit.memory.timeline import MemoryTimeline


class GeneratedProgram:
    """The optimized HLO of a program, its memory plan and its LLVM IR. It has no machine code, and cannot be called."""

    def __init__(
        self,
        target: Target,
        generate: Callable[[], Code],
        *,
        program: Program | None = None,
        optimized: HloModule | None = None,
    ) -> None:
        self._target = target
        self._generate = generate
        self._options = options.current()
        if program is not None:
            self._program = program
        if optimized is not None:
            self._optimized = optimized

    @cached_property
    def _generated_code(self) -> Code:
        """The program as LLVM IR, generated on first use."""
        with options.compiling(self._options), collecting_less():
            return self._generate()

    @cached_property
    def _program(self) -> Program:
        return self._generated_code.program()

    @cached_property
    def _optimized(self) -> HloModule:
        return self._generated_code.module

    @property
    def host_instructions(self) -> tuple[Instruction, ...]:
        """The instructions of the optimized program that Python executes."""
        if not self._program.host_instructions:
            return ()
        # Imported here: most programs have none.
        from xlakit.cpu.kernels.c_call import is_native_ffi_call

        # Collectives and handlers of XLA's typed FFI have host instructions only to report their errors.
        collectives = self._program.collectives
        functions = self._target.c_functions
        return tuple(
            i for i in self._program.host_instructions if i not in collectives and not is_native_ffi_call(i, functions)
        )

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """The instructions that are not compiled to machine code, each with the reason."""
        return tuple(fallback_of(i, self._program.host_module) for i in self.host_instructions)

    def as_text(
        self, *, short: bool = False, metadata: bool = True, layouts: bool = True, large_constants: bool = True
    ) -> str:
        """The optimized program as HLO text, with its fusions; see :meth:`HloModule.to_text`."""
        module = self.optimized_module()
        return module.to_text(short=short, metadata=metadata, layouts=layouts, large_constants=large_constants)

    def optimized_module(self) -> HloModule:
        """The optimized module that the steps were lowered from."""
        return self._optimized

    def llvm_ir(self, *, optimized: bool = True) -> str:
        """The program as LLVM IR; ``optimized=False``: before LLVM's own passes."""
        from xlakit.cpu.codegen import llvm_ir

        with options.compiling(self._options):
            return llvm_ir(self._generated_code, optimized=optimized)

    def assembly(self) -> str:
        """The program in the assembly of this machine."""
        from xlakit.cpu.codegen import assembly

        with options.compiling(self._options):
            return assembly(self._generated_code)

    def cost_analysis(self) -> dict[str, float]:
        """The cost of one call: ``flops``, ``transcendentals`` and ``bytes accessed``, counted as XLA counts.

        The body of a loop counts once per iteration if the trip count is known, else once.
        """
        from xlakit.passes.analysis.cost import cost_of

        return cost_of(self.optimized_module()).as_dict()

    def memory_analysis(self) -> MemoryAnalysis:
        """The bytes of arguments, results and intermediate values, and the values that are live at the peak."""
        from xlakit.cpu.codegen import analyze_memory

        return analyze_memory(self._generated_code, sum(map(len, self._program.objects)), self._program.in_place)

    def memory_timeline(self) -> MemoryTimeline:
        """The use of the arena at each step, and the values that fill it at the peak."""
        from xlakit.memory.timeline import memory_timeline

        return memory_timeline(self._generated_code.plan)

    def memory_plan(self) -> MemoryPlan:
        """The memory plan: buffer slices, live ranges and copies of all values."""
        return self._generated_code.plan
