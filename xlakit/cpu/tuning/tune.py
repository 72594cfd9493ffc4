"""Tunes a program: first the settings of the whole program, then each kernel by itself on its own shapes.

A kernel is extracted from the optimized program and compiled alone, with the defaults of all knobs, and with each
alternative (``tries`` of :class:`xlakit.options.Knob`) of each knob that its code depends on. Its arguments are random.
The most expensive kernels come first; cheap ones are not tuned. The whole program is timed only if it can be run by
itself: if it has no side effects, and its loops end for all arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

from xlakit import target
from xlakit.cpu.kernels.library import alone
from xlakit.cpu.kernels.shared.fingerprint import kernel_digest
from xlakit.cpu.tuning.record import VECTOR_BYTES, Choice, Gain, Tuning, TuningReport, with_knobs
from xlakit.cpu.tuning.search import CLOCK, Clock, Found, compare, knobs_to_try, search
from xlakit.dataclass import dataclass
from xlakit.execution.inputs import make_inputs
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.memory.steps import KernelStep, Step, with_loop_depth
from xlakit.ops.control import While
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.random import Rng
from xlakit.options import compiling, current, noting_knobs
from xlakit.passes.analysis.loops import Loop, trip_count

if TYPE_CHECKING:
    from xlakit.cpu.codegen import Code

# Kernels whose estimated cost is less than this are not timed; each enclosing loop is assumed to have _ITERATIONS
# iterations.
_LEAST_NANOSECONDS: Final = 5_000.0
_ITERATIONS: Final = 100
# A program that takes less time is not tuned as a whole.
_LEAST_PROGRAM: Final = 50_000.0
# Knobs of fusions and layouts, which are decided before there are kernels.
_PROGRAM_KNOBS: Final[Sequence[tuple[str, Sequence[float]]]] = (
    ("epilogues.most_members", (1,)),
    ("fusion_cost.kernel", (0.0, 2000.0)),
    ("fusion.most_copies", (0,)),
    ("pack_invariants.fewest_elements", (1, 1 << 60)),
)
_WIDTHS: Final = (32, 16)

# Called with the number of parts that are done, the number of all parts, and the name of the next one.
Progress = Callable[[int, int, str], None]


class Compiler(Protocol):
    """Compiles programs with the options in force."""

    def generate(self, module: HloModule, *, optimize: bool) -> Code:
        """The code of a module; with ``optimize`` the passes run first, else the module is optimized already."""
        ...

    def finish(self, module: HloModule, code: Code) -> Callable[..., Any]:
        """A function that runs the code of a module."""
        ...


class _Program:
    """A module compiled with some knobs, and arguments to run it on."""

    def __init__(
        self, compiler: Compiler, module: HloModule, knobs: Choice, arguments: Sequence[Any], *, optimize: bool
    ) -> None:
        self._compiler = compiler
        self._module = module
        self.arguments = arguments
        self._options = with_knobs(replace(current(), tune=None), knobs)
        with compiling(self._options):
            self.generated = compiler.generate(module, optimize=optimize)

    @property
    def code(self) -> str:
        """The LLVM IR."""
        return self.generated.text

    @cached_property
    def _run(self) -> Callable[..., Any]:
        with compiling(self._options):
            return self._compiler.finish(self._module, self.generated)

    def run(self) -> Any:
        """Run the program once."""
        return self._run(*self.arguments)


@dataclass(slots=True)
class _Budget:
    """The time limit of tuning."""

    clock: Clock
    end: float

    def is_over(self) -> bool:
        """Whether the time is over."""
        return self.clock() >= self.end


def tune(
    module: HloModule,
    compiler: Compiler,
    *,
    runs_alone: bool = True,
    seconds: float,
    clock: Clock = CLOCK,
    progress: Progress = lambda done, total, name: None,
) -> Tuning:
    """Choose the settings with which a program is compiled on this machine, in about ``seconds`` seconds.

    runs_alone: whether the program runs on one device.
    """
    runnable = runs_alone and _is_runnable(module)
    budget = _Budget(clock, clock() + seconds * 1e9)
    base = _Program(compiler, module, {}, _arguments(module) if runnable else (), optimize=True)
    whole = _tuned_program(module, compiler, base, budget, progress) if runnable else None
    knobs: Choice = whole.choice if whole is not None else {}
    chosen_options = with_knobs(current(), knobs)
    compared, failed, left = (0, [], 0) if whole is None else (whole.compared, whole.failed, 0)
    kernels: dict[str, Choice] = {}
    gains: list[Gain] = []
    with compiling(chosen_options):
        optimized = base.generated if not knobs else _Program(compiler, module, {}, (), optimize=True).generated
        wanted = list(_kernels(optimized.plan.program.steps))
        for number, instruction in enumerate(wanted):
            progress(number + 1, len(wanted) + 1, instruction.name)
            if budget.is_over():
                left = len(wanted) - number
                break
            found, before = _tuned_kernel(instruction, compiler, budget)
            if found.choice:
                kernels[kernel_digest(instruction)] = found.choice
            compared += found.compared
            failed += [f"{instruction.name}: {why}" for why in found.failed]
            gains.append(_gain(instruction, optimized.module, found, before))
    tuning = Tuning(knobs, kernels, TuningReport(None, tuple(gains), compared, tuple(failed), left))
    progress(len(wanted) + 1, len(wanted) + 1, "")
    return _confirmed(module, compiler, tuning, base, clock) if runnable else tuning


def _confirmed(module: HloModule, compiler: Compiler, tuning: Tuning, base: _Program, clock: Clock) -> Tuning:
    """The choices, if the whole program does not become slower with them; else no choices."""
    if not tuning.knobs and not tuning.kernels:
        return tuning
    with compiling(tuning.options(current())):
        other = _Program(compiler, module, {}, base.arguments, optimize=True)
    found = compare(base.run, other.run, clock)
    if found.ratio > 1:
        report = replace(tuning.report, failed=(*tuning.report.failed, "all of it: the whole program became slower"))
        return Tuning(report=replace(report, kernels=tuple(replace(k, choice={}) for k in report.kernels)))
    gain = Gain(module.name, "module", "", found.base, found.other, tuning.knobs)
    return replace(tuning, report=replace(tuning.report, program=gain))


# -- the whole program -----------------------------------------------------------------------------


def _tuned_program(
    module: HloModule, compiler: Compiler, base: _Program, budget: _Budget, progress: Progress
) -> Found | None:
    """The best vector width and program-wide knobs; None for a program that is too fast for its time to be compared."""
    progress(0, 1, module.name)
    base.run()
    start = budget.clock()
    base.run()
    if budget.clock() - start < _LEAST_PROGRAM:
        return None
    widths = [width for width in _WIDTHS if width < target.vector_bytes()]
    alternatives = [(VECTOR_BYTES, widths), *_PROGRAM_KNOBS]
    arguments = base.arguments

    def build(choice: Choice) -> _Program:
        return _Program(compiler, module, choice, arguments, optimize=True)

    return search(build, base, alternatives, clock=budget.clock, is_over=budget.is_over)


def _is_runnable(module: HloModule) -> bool:
    """Whether a program has no effect but its results, and always ends."""
    for computation in module.computations:
        for instruction in computation.instructions:
            op = instruction.op
            if op.has_side_effect or isinstance(op, (CustomCall, Rng)):
                return False
            if isinstance(op, While) and not (instruction.shape.is_tuple and trip_count(Loop(instruction)) is not None):
                return False
    return all(s.is_array for p in module.entry.parameters for _, s in p.shape.leaves())


def _arguments(module: HloModule) -> list[Any]:
    return make_inputs(module.entry.program_shape, 0)


# -- kernels ---------------------------------------------------------------------------------------


def _kernels(steps: Sequence[Step]) -> Iterator[Instruction]:
    """The instructions whose kernels are worth tuning, the most expensive first; identical kernels once."""
    costs: dict[str, float] = {}
    instructions: dict[str, Instruction] = {}
    for step, depth in with_loop_depth(steps):
        if not isinstance(step, KernelStep):
            continue
        instruction, times = step.instruction, _ITERATIONS**depth
        if instruction.op.has_side_effect or isinstance(instruction.op, (CustomCall, Rng)):
            continue
        once = sum(phase.cost for phase in step.phases)
        if once * times >= _LEAST_NANOSECONDS:
            digest = kernel_digest(instruction)
            costs[digest] = costs.get(digest, 0.0) + once * times
            instructions[digest] = instruction
    for digest in sorted(costs, key=costs.__getitem__, reverse=True):
        yield instructions[digest]


def _tuned_kernel(instruction: Instruction, compiler: Compiler, budget: _Budget) -> tuple[Found, float]:
    """The result of the search for a kernel, and its time with the default in nanoseconds."""
    module = HloModule(instruction.name or instruction.opcode, alone(instruction))
    arguments = _arguments(module)

    def build(choice: Choice) -> _Program:
        return _Program(compiler, module, choice, arguments, optimize=False)

    with noting_knobs() as names:
        base = build({})
    found = search(build, base, knobs_to_try(names), clock=budget.clock, is_over=budget.is_over)
    comparison = found.comparison or compare(base.run, base.run, budget.clock)
    return found, comparison.base


def _gain(instruction: Instruction, module: HloModule, found: Found, before: float) -> Gain:
    location = module.location_of(instruction)
    after = before if found.comparison is None else found.comparison.other
    where = "" if location is None else str(location)
    return Gain(instruction.name, instruction.opcode, where, before, after, found.choice, found.same_bits)
