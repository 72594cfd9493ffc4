"""Code generation: lowers an optimized module to steps, plans their memory, and writes and compiles the LLVM IR."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import field

from xlakit.cpu.collectives.rendezvous import RendezvousTable
from xlakit.cpu.entry.collectives import Collectives
from xlakit.cpu.entry.emit import ENTRY, EntryWriter
from xlakit.cpu.entry.lowering import Lowering
from xlakit.cpu.kernels.library import KernelLibrary
from xlakit.cpu.kernels.shared.common_code import PREFIX, Missing
from xlakit.cpu.llvm import Effort, Module, bounds, engine
from xlakit.cpu.llvm.library import laid_out
from xlakit.cpu.program import Program, Target
from xlakit.cpu.threads import thread_count
from xlakit.dataclass import dataclass
from xlakit.execution.analysis import Holder, MemoryAnalysis
from xlakit.interpreter.executable import too_large
from xlakit.ir.instruction import HloModule, Instruction, located
from xlakit.memory.assignment import BufferSlice, Space
from xlakit.memory.plan import MemoryPlan, plan_memory
from xlakit.memory.steps import KernelStep, walk
from xlakit.memory.values import HloValue
from xlakit.ops.control import Fusion
from xlakit.options import current
from xlakit.settings import memory_limit

# The recursion limit for fusions, whose chains of operations are at most a few hundred long.
_FRAMES = 10_000


@dataclass(slots=True)
class Code:
    """An optimized module, its memory plan, its LLVM IR, and its object files once they are made."""

    module: HloModule
    plan: MemoryPlan
    llvm: Module
    objects: tuple[bytes, ...] = ()
    entry: str = ENTRY
    imports: list[str] = field(default_factory=list)
    collectives: tuple[Instruction, ...] = ()
    slots: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The LLVM IR of the program, before LLVM's own passes."""
        return self.llvm.text()

    def program(self) -> Program:
        """The part of the code that is needed to run it, which the compile cache stores."""
        plan = self.plan
        hosts = tuple(plan.program.host_instructions)
        return Program(
            self.objects,
            self.entry,
            tuple(self.imports),
            plan.arena_bytes,
            tuple(plan.program.constants),
            hosts,
            self.module if hosts or self.collectives else None,
            plan.donations,
            self.collectives,
            self.slots,
        )


@contextmanager
def _deep_calls() -> Generator[None]:
    """Raises the recursion limit: tracing a fusion from its result to its operands takes a few frames an operation."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def generate(module: HloModule, target: Target) -> Code:
    """The memory plan and LLVM IR of an optimized module; its object files are not made yet."""
    llvm = Module(module.name)
    rendezvous = RendezvousTable(module, llvm, target.grid) if target.native_collectives else None
    with _deep_calls():
        kernels = KernelLibrary(llvm, target.c_functions)
        program = Lowering(module, kernels, Collectives(rendezvous, target.grid)).lower()
    plan = plan_memory(module, program)
    if current().check_memory:
        # Imported on use: the proof only checks the compiler's output.
        from xlakit.cpu.entry.plan_proof import prove_memory_plan

        with _deep_calls():
            prove_memory_plan(plan, target.grid)
    EntryWriter(llvm, plan).write()
    imports = [name for name in llvm.declared if not name.startswith("llvm.")]
    if current().sanitize:
        imports += bounds.DECLARED
    code = Code(module, plan, llvm, imports=imports)
    if rendezvous is not None:
        code.collectives, code.slots = tuple(rendezvous.instructions), rendezvous.slots
    return code


def check_sizes(plan: MemoryPlan) -> None:
    """Raises ResourceError for memory above the limit: of one value, all results, or all that is between.

    Values that are never stored may be of any size.
    """
    limit = memory_limit()
    for buffer_slice in plan.slices:
        if buffer_slice.size > limit:
            error, instruction = too_large(buffer_slice.size, limit), _defining(buffer_slice.values[0])
            raise error if instruction is None else located(error, plan.module, instruction)
    results = sum(buffer_slice.size for buffer_slice in dict.fromkeys(plan.result_slices))
    if results > limit:
        raise located(too_large(results, limit), plan.module, plan.module.entry.root)
    if plan.arena_bytes > limit:
        raise too_large(plan.arena_bytes, limit, f"what {plan.module.name} computes on the way to its results ")


def _defining(value: HloValue) -> Instruction | None:
    """The instruction that computes a value; inside of a fusion, as the program has it."""
    instruction = value.instruction
    if instruction is None or not isinstance(instruction.op, Fusion):
        return instruction
    results = instruction.op.calls.results
    return results[value.index[0] if len(results) > 1 else 0]


def _checked_parts(code: Code, threads: int) -> Sequence[tuple[Effort, str]]:
    """The parts of a program as LLVM IR in which the bounds of each access are checked."""
    # Imported here: few programs are compiled for the sanitizer.
    from xlakit.cpu.llvm.bounds_checks import BoundsChecks, fixed_functions

    phases = [p.function for s in walk(code.plan.steps) if isinstance(s, KernelStep) for p in s.phases if p.tasks]
    functions = code.llvm.functions
    # Splitting the module into parts gives functions external linkage that only the module itself calls.
    checks = BoundsChecks(functions, PREFIX, fixed_functions(functions, phases))
    return [(effort, checks.checked(text)) for effort, text in code.llvm.parts(threads)]


def make_objects(code: Code) -> None:
    """Compile the code, and the common functions that it calls, on as many threads as a program may run on."""
    threads = thread_count()
    parts = _checked_parts(code, threads) if current().sanitize else code.llvm.parts(threads)
    common = Missing(code.imports)
    objects = engine.compile_objects(itertools.chain(parts, common.parts()), threads)
    code.objects = laid_out(objects[: len(parts)])
    common.keep(objects[len(parts) :])


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
    # Imported here: few programs are shown; the object files of common functions usually are in the cache.
    from xlakit.cpu.kernels.common_families import part

    return [part(name) for name in code.imports if name.startswith(PREFIX)]


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
    """The arena slices that are live at the peak of memory use, the largest first."""
    # Imported here: the memory of few programs is analyzed.
    from xlakit.memory.timeline import ArenaUse

    slices = [s for s in code.plan.slices if s.space is Space.ARENA]
    fullest = ArenaUse(slices).fullest()
    live = [buffer_slice for buffer_slice in slices if buffer_slice.first <= fullest <= buffer_slice.last]
    live.sort(key=lambda buffer_slice: (-buffer_slice.size, buffer_slice.first, buffer_slice.values[0].name))
    return tuple(_holder(code.module, buffer_slice) for buffer_slice in live)


def _holder(module: HloModule, buffer_slice: BufferSlice) -> Holder:
    value = buffer_slice.values[0]
    instruction = value.instruction
    if instruction is None:
        return Holder(value.name, "buffer", buffer_slice.size, None)
    return Holder(value.name, instruction.opcode, buffer_slice.size, module.location_of(instruction))
