"""The steps of a program: kernels on values, with loops and conditionals around them.

Each value is defined by one step, or is a phi: an element of a loop's state or of a conditional's result, which is one
of several values. The memory plan adds copies, and assigns each value its memory; it changes nothing else.
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
# The number of an array among all results of a step, and of one among all its operands.
Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class KernelStep:
    """Run a kernel on a table of the operands, the results and its scratch.

    phases: its code, which belongs to the backend. updates: results that are an operand changed in place; the result's
    memory must hold the operand when the kernel begins. in_place: pairs of a result and an operand that may share
    memory: the kernel reads each element of the operand before it writes the same element of the result.
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

    is_value: whether the copy defines ``target``, as a collective of one device does. Otherwise copy insertion added
    it, to put the contents of ``source`` into the memory of ``target``.
    """

    source: HloValue
    target: HloValue
    is_value: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class HostStep:
    """Call Python, which computes the instruction from its operands. number: of the host call.

    function: the name of a native function that computes the instruction instead, and returns null or an error for
    Python to raise; "" if there is none. updates: results that are an operand changed in place, if that function gets
    one address for both. part: ``""`` for the whole instruction, ``"start"`` or ``"done"`` for one step of an async
    pair, which Python computes between the two from copies of the start's operands; the start defines no value.
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
    """Write the state of the device's next draw; or, with a ``delta``, its 128-bit state, then add the delta to it."""

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
    """Write the number of the device that runs the program, divided by ``divisor``, modulo ``modulus``."""

    instruction: Instruction
    result: HloValue
    divisor: int
    modulus: int


@dataclass(frozen=True, slots=True, eq=False)
class WhileStep:
    """Repeat the body while ``predicate``, which the steps of the condition compute, is true.

    carried: the phis of the state; initial, next_values: for each phi its value before the first iteration, and the
    value that the body computes for the next one. An element that the body returns unchanged is not a phi: the program
    uses its initial value everywhere.
    """

    instruction: Instruction
    condition: Sequence[Step]
    predicate: HloValue
    body: Sequence[Step]
    carried: Values
    initial: Values
    next_values: Values


@dataclass(frozen=True, slots=True, eq=False)
class ConditionalStep:
    """Run the branch selected by ``index``: an s32, where out of range selects the last branch, or a pred.

    results: the phis; incoming: for each branch the value of each phi. A result that is the same value in all branches
    is no phi.
    """

    instruction: Instruction
    index: HloValue
    is_predicate: bool
    branches: Sequence[Sequence[Step]]
    results: Values
    incoming: Sequence[Values]


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
        return (*step.initial, step.predicate, *step.next_values)
    if isinstance(step, ConditionalStep):
        return (step.index, *(value for incoming in step.incoming for value in incoming))
    return ()


def defines(step: Step) -> Values:
    """The values that a step itself defines."""
    if isinstance(step, KernelStep):
        # All scratch is included, even a random state, which the step before has written already.
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
    """The lists of steps inside of a step: condition and body, or the branches."""
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
