"""The steps of a lowered program: kernels on buffers, with loops and choices around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xlakit.cpu.collectives.meetings import Meeting
from xlakit.cpu.entry.buffers import Buffer
from xlakit.cpu.loops.emit.kernel import Phase
from xlakit.ir.instruction import Instruction


@dataclass(slots=True, eq=False)
class KernelStep:
    """Run a kernel's phases on a table of buffers.

    updates: results that are an operand changed in place, by the numbers of their arrays.
    """

    instruction: Instruction
    phases: tuple[Phase, ...]
    table: tuple[Buffer, ...]
    updates: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class CopyStep:
    """Copy an array.

    is_value: whether ``target`` is a value of its own from here on, and not only memory that another value is put into.
    """

    source: Buffer
    target: Buffer
    is_value: bool = False


@dataclass(slots=True, eq=False)
class HostStep:
    """Leave for Python: it computes the instruction from the first buffers of the table into the others."""

    instruction: Instruction
    number: int
    operands: tuple[Buffer, ...]
    results: tuple[Buffer, ...]


@dataclass(slots=True, eq=False)
class RandomStep:
    """Write the state of the device's next draw, or with a ``delta`` its 128-bit state, to which that is added."""

    instruction: Instruction
    state: Buffer
    delta: int | None = None


@dataclass(slots=True, eq=False)
class MeetStep:
    """Meet other devices at a collective.

    half: ``""`` for all of it; ``"post"`` to bring the operands, ``"await"`` for the results, which share ``visit``.
    host: the number of the host call that does it where the values are faulty.
    """

    instruction: Instruction
    meeting: Meeting
    operands: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    half: str = ""
    visit: tuple[Buffer, ...] = ()
    host: int = -1


@dataclass(slots=True, eq=False)
class NumberStep:
    """The number of the device that runs the program, over ``divisor``, modulo ``modulus``."""

    instruction: Instruction
    result: Buffer
    divisor: int
    modulus: int


@dataclass(slots=True, eq=False)
class WhileStep:
    """Repeat the body while the condition, whose steps leave it in ``predicate``, holds.

    carried: the state; initial: what it is at first; given: what the body makes of it.
    """

    instruction: Instruction
    condition: list[Step]
    predicate: Buffer
    body: list[Step]
    carried: tuple[Buffer, ...]
    initial: tuple[Buffer, ...] = ()
    given: tuple[Buffer, ...] = ()


@dataclass(slots=True, eq=False)
class ConditionalStep:
    """Run the branch that ``index`` says (an s32, or a pred for true and false); the last one if it is out of range.

    given: for each branch, what becomes the results.
    """

    instruction: Instruction
    index: Buffer
    is_predicate: bool
    branches: list[list[Step]]
    results: tuple[Buffer, ...] = field(default=())
    given: list[tuple[Buffer, ...]] = field(default_factory=list[tuple[Buffer, ...]])


Step = KernelStep | CopyStep | HostStep | RandomStep | MeetStep | NumberStep | WhileStep | ConditionalStep


def number_uses(steps: Sequence[Step], place: int = 0) -> int:
    """Note at each buffer which steps use it first and last; gives the number after the last step.

    What a loop uses but does not define in each turn is in use until the loop ends.
    """
    for step in steps:
        place += 1
        if isinstance(step, KernelStep):
            _use(step.table, place)
        elif isinstance(step, CopyStep):
            _use((step.source, step.target), place)
        elif isinstance(step, (HostStep, MeetStep, NumberStep)):
            _use(buffers_of(step), place)
        elif isinstance(step, RandomStep):
            _use((step.state,), place)
        elif isinstance(step, ConditionalStep):
            _use((step.index,), place)
            begin = place
            for branch in step.branches:
                place = number_uses(branch, place)
            # A branch may write a result long before another one would.
            for buffer in step.results:
                _use((buffer,), begin)
            place += 1
            _use(step.results, place)
        else:
            _use(step.carried, place)
            begin = place
            place = number_uses(step.condition, place)
            place += 1
            _use((step.predicate,), place)
            place = number_uses(step.body, place)
            place += 1
            _use(step.carried, place)
            for buffer in used_in([*step.condition, *step.body]):
                if buffer.first <= begin:
                    _use((buffer,), place)
    return place


def _use(buffers: Sequence[Buffer], place: int) -> None:
    for buffer in buffers:
        own = buffer.resolved()
        own.first = place if own.first < 0 else min(own.first, place)
        own.last = max(own.last, place)


def buffers_of(step: Step) -> tuple[Buffer, ...]:
    """The buffers that a step itself touches, not those of the steps inside of it."""
    if isinstance(step, KernelStep):
        return step.table
    if isinstance(step, CopyStep):
        return step.source, step.target
    if isinstance(step, HostStep):
        return (*step.operands, *step.results)
    if isinstance(step, MeetStep):
        return (*step.operands, *step.results, *step.visit)
    if isinstance(step, NumberStep):
        return (step.result,)
    if isinstance(step, RandomStep):
        return (step.state,)
    if isinstance(step, ConditionalStep):
        return (step.index, *step.results)
    return (step.predicate, *step.carried)


def used_in(steps: Sequence[Step]) -> list[Buffer]:
    """Every buffer that the steps touch, once each, in an order that depends on the steps alone."""
    found: dict[Buffer, None] = {}
    stack = list(steps)
    while stack:
        step = stack.pop()
        found.update(dict.fromkeys(buffers_of(step)))
        if isinstance(step, ConditionalStep):
            for branch in step.branches:
                stack.extend(branch)
        elif isinstance(step, WhileStep):
            stack.extend((*step.condition, *step.body))
    return list(dict.fromkeys(buffer.resolved() for buffer in found))
