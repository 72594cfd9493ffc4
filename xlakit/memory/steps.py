"""The steps of a program: kernels on values, with loops and choices around them.

Each value is defined by one step, or stands for several as an element of a loop's state or of a conditional's result
(a phi). The memory plan adds copies, and assigns each value its memory; it changes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import Array
from xlakit.memory.values import HloValue

Values = tuple[HloValue, ...]
# Numbers of a result's and of an operand's array, among all of a step's.
Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class KernelStep:
    """Run a kernel on a table of the operands, the results and its scratch.

    phases: its code, which belongs to the backend. updates: results that are an operand changed in place, which must be
    there when the kernel begins. in_place: pairs of a result and an operand that may lie in the same memory: the
    kernel reads an element of the one for nothing but the same element of the other.
    """

    instruction: Instruction
    phases: Sequence[Any]
    operands: Values
    results: Values
    scratch: Values = ()
    updates: Mapping[int, int] = field(default_factory=dict[int, int])
    in_place: frozenset[Pair] = frozenset()

    @property
    def table(self) -> Values:
        """The arguments of the kernel."""
        return (*self.operands, *self.results, *self.scratch)


@dataclass(frozen=True, slots=True, eq=False)
class CopyStep:
    """Copy an array.

    is_value: whether this defines ``target``, as a collective of one device does; otherwise copy insertion has put it
    here, and ``target`` is a value in whose memory the contents of ``source`` are wanted.
    """

    source: HloValue
    target: HloValue
    is_value: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class HostStep:
    """Leave for Python: it computes the instruction from its operands. number: that of the host call.

    function: the name of code that does it without Python, and gives an error, of which Python tells, or null; "" where
    there is none. updates: results that are an operand changed in place, if that code finds both in one memory.
    part: ``""`` for the whole instruction, ``"start"`` or ``"done"`` for one step of an async pair, which Python
    computes between the two from copies of the start's operands; the start defines nothing.
    """

    instruction: Instruction
    number: int
    operands: Values
    results: Values
    function: str = ""
    updates: Mapping[int, int] = field(default_factory=dict[int, int])
    part: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class RandomStep:
    """Write the state of the device's next draw, or with a ``delta`` its 128-bit state, to which that is added."""

    instruction: Instruction
    state: HloValue
    delta: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CollectiveStep:
    """A collective, with the other devices of a group.

    rendezvous: data of the backend. part: ``""`` for the whole collective, ``"start"`` or ``"done"`` for one step
    of an async pair; the start writes ``arrival``, which the done reads. Between the two, operands may be read and
    results written at any time. host: the number of the host call that reports what is wrong with the values, or -1.
    in_place: pairs of a result and an operand that may share memory.
    """

    instruction: Instruction
    rendezvous: Any
    operands: Values
    results: Values
    part: str = ""
    arrival: Values = ()
    host: int = -1
    in_place: frozenset[Pair] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class NumberStep:
    """The number of the device that runs the program, over ``divisor``, modulo ``modulus``."""

    instruction: Instruction
    result: HloValue
    divisor: int
    modulus: int


@dataclass(frozen=True, slots=True, eq=False)
class WhileStep:
    """Repeat the body while the condition, whose steps leave it in ``predicate``, holds.

    carried: the phis of the state; initial: what each is at first; given: what the body makes of it. An element that
    the body gives back as it came is no phi: it is the initial value everywhere.
    """

    instruction: Instruction
    condition: Sequence[Step]
    predicate: HloValue
    body: Sequence[Step]
    carried: Values
    initial: Values
    given: Values


@dataclass(frozen=True, slots=True, eq=False)
class ConditionalStep:
    """Run the branch that ``index`` says (an s32, or a pred for true and false); the last one if it is out of range.

    results: the phis; given: for each branch, which values they are. A result that is one value in all branches is no
    phi.
    """

    instruction: Instruction
    index: HloValue
    is_predicate: bool
    branches: Sequence[Sequence[Step]]
    results: Values
    given: Sequence[Values]


Step = KernelStep | CopyStep | HostStep | RandomStep | CollectiveStep | NumberStep | WhileStep | ConditionalStep


@dataclass(frozen=True, slots=True)
class StepProgram:
    """A module as steps. results: the values that are its results, in order; constants: the arrays by number."""

    steps: Sequence[Step]
    arguments: Values
    results: Values
    constants: Sequence[Array]
    host_instructions: Sequence[Instruction]


def reads_of(step: Step) -> Values:
    """The values that a step itself reads, without the steps inside of it."""
    if isinstance(step, CopyStep):
        return (step.source,)
    if isinstance(step, (KernelStep, HostStep)):
        return step.operands
    if isinstance(step, CollectiveStep):
        return (*step.operands, *step.arrival) if step.part == "done" else step.operands
    if isinstance(step, WhileStep):
        return (*step.initial, step.predicate, *step.given)
    if isinstance(step, ConditionalStep):
        return (step.index, *(value for given in step.given for value in given))
    return ()


def defines(step: Step) -> Values:
    """The values that a step itself defines."""
    if isinstance(step, KernelStep):
        # The state of random numbers is written by the step before.
        return (*step.results, *step.scratch)
    if isinstance(step, CopyStep):
        return (step.target,) if step.is_value else ()
    if isinstance(step, HostStep):
        return step.results
    if isinstance(step, CollectiveStep):
        return () if step.part == "done" else (*step.results, *step.arrival)
    if isinstance(step, NumberStep):
        return (step.result,)
    if isinstance(step, RandomStep):
        return (step.state,)
    return step.carried if isinstance(step, WhileStep) else step.results


def inner(step: Step) -> Sequence[Sequence[Step]]:
    """The rows of steps inside of a step."""
    if isinstance(step, WhileStep):
        return (step.condition, step.body)
    return step.branches if isinstance(step, ConditionalStep) else ()


def walk(steps: Sequence[Step]) -> Iterator[Step]:
    """All steps, each before those inside of it."""
    for step in steps:
        yield step
        for row in inner(step):
            yield from walk(row)


def with_loop_depth(steps: Sequence[Step], depth: int = 0) -> Iterator[tuple[Step, int]]:
    """All steps with the number of loops around each, each after those inside of it."""
    for step in steps:
        for row in inner(step):
            yield from with_loop_depth(row, depth + isinstance(step, WhileStep))
        yield step, depth
