"""The steps of a program as a profile shows them: their names, costs, least times and source lines."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.cpu.kernels.shared.parallel import is_parallel
from xlakit.cpu.profiling.roofline import Bound, Roofline
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.errors import Location
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.memory.steps import (
    CollectiveStep,
    ConditionalStep,
    CopyStep,
    HostStep,
    KernelStep,
    NumberStep,
    RandomStep,
    Step,
    WhileStep,
    inner,
)
from xlakit.ops.control import Fusion
from xlakit.ops.data import Constant, Parameter, Tuple
from xlakit.passes.analysis.cost import Cost, cost_of_instruction, size_in_bytes


@dataclass(frozen=True, slots=True)
class Part:
    """An instruction's share of a step's time, from 0 to 1. It is an estimate if the step is a fusion."""

    instruction: Instruction
    location: Location | None
    share: float


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step of a program.

    number: as in the recorder. depth: the number of enclosing loops and branches. kind: ``kernel``, ``copy``,
    ``python``, ``collective``, ``random``, ``device``, ``loop`` or ``branch``. instruction: of the optimized program;
    None for a copy of a value without one. cost: of one execution, without the steps inside of it. bound: the least
    time of one execution on this machine. shared: whether threads share its tasks. parts: the instructions that it
    computes.
    """

    number: int
    depth: int
    kind: str
    name: str
    instruction: Instruction | None
    location: Location | None
    cost: Cost
    bound: Bound
    shared: bool
    parts: tuple[Part, ...]
    inside: tuple[StepRow, ...] = ()


def step_rows(module: HloModule, steps: Sequence[Step], roofline: Roofline) -> list[StepRow]:
    """The steps of an optimized module as a tree, numbered in the order of :func:`xlakit.memory.steps.walk`."""
    return _Rows(module, roofline).of(steps, 0)


class _Rows:
    def __init__(self, module: HloModule, roofline: Roofline) -> None:
        self._module = module
        self._roofline = roofline
        self._count = 0

    def of(self, steps: Sequence[Step], depth: int) -> list[StepRow]:
        return [self._row(step, depth) for step in steps]

    def _row(self, step: Step, depth: int) -> StepRow:
        self._count += 1
        number = self._count
        inside = tuple(row for steps in inner(step) for row in self.of(steps, depth + 1))
        if isinstance(step, CopyStep):
            cost = Cost(bytes_accessed=2.0 * step.target.bytes)
            bound = self._roofline.least(cost, PrimitiveType.U8)
            source = step.source.instruction
            where = None if source is None else self._module.location_of(source)
            parts = () if source is None else (Part(source, where, 1.0),)
            return StepRow(
                number, depth, "copy", f"copy of {step.source.name}", source, where, cost, bound, False, parts
            )
        instruction = step.instruction
        cost = _cost(step)
        return StepRow(
            number,
            depth,
            _kind(step),
            instruction.name,
            instruction,
            self._module.location_of(instruction),
            cost,
            self._roofline.least(cost, _widest(instruction.shape)),
            isinstance(step, KernelStep) and any(map(is_parallel, step.phases)),
            self._parts(instruction),
            inside,
        )

    def _parts(self, instruction: Instruction) -> tuple[Part, ...]:
        """The instructions of a step: a fusion's time is divided among its members by their least times."""
        op = instruction.op
        if not isinstance(op, Fusion):
            return (Part(instruction, self._module.location_of(instruction), 1.0),)
        members = [i for i in op.calls.instructions if not isinstance(i.op, (Parameter, Constant, Tuple))]
        weights = [self._weight(member, op) for member in members]
        total = sum(weights)
        if not total:
            return (Part(instruction, self._module.location_of(instruction), 1.0),)
        return tuple(
            Part(member, self._module.location_of(member), weight / total)
            for member, weight in zip(members, weights, strict=True)
            if weight
        )

    def _weight(self, member: Instruction, fusion: Fusion) -> float:
        """The estimated time of a fusion's member: its computation, and its accesses outside of the fusion."""
        cost = cost_of_instruction(member)
        moved = sum(size_in_bytes(o.shape) for o in member.operands if isinstance(o.op, Parameter))
        moved = min(moved, cost.bytes_accessed)
        if member in fusion.calls.results:
            moved += size_in_bytes(member.shape)
        kind = _widest(member.shape)
        compute = self._roofline.least(Cost(cost.flops, cost.transcendentals), kind).nanoseconds
        return compute + self._roofline.least(Cost(bytes_accessed=moved), kind).nanoseconds


def _cost(step: Step) -> Cost:
    """The step's own cost: loops and branches have none beside their inner steps, nor has a done beside its start."""
    if isinstance(step, (CopyStep, WhileStep, ConditionalStep)):
        return Cost()
    if isinstance(step, CollectiveStep) and step.part == "done":
        return Cost()
    return cost_of_instruction(step.instruction)


def _kind(step: Step) -> str:
    names: dict[type[Step], str] = {
        KernelStep: "kernel",
        HostStep: "python",
        RandomStep: "random",
        CollectiveStep: "collective",
        NumberStep: "device",
        WhileStep: "loop",
        ConditionalStep: "branch",
    }
    return names[type(step)]


def _widest(shape: Shape) -> PrimitiveType:
    """The widest element type of a shape, whose operations are the slowest."""
    kinds = [leaf.element_type for _, leaf in shape.leaves() if leaf.is_array]
    return max(kinds, key=lambda kind: kind.byte_width, default=PrimitiveType.F32)
