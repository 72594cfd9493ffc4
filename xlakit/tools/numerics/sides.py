"""The sides of a comparison, and the programs that they run: a computation with all its values as results, and some
instructions each by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xlakit.data.shape import make_tuple_shape
from xlakit.execution.calls.lapack import undefined_results
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.names import unused_name
from xlakit.ir.traits import Done, Start
from xlakit.ops.communication.asynchronous import AsyncUpdate
from xlakit.ops.data import Parameter, Tuple

# A program ready to run: the arguments of each device in, the result of each device out.
Ready = Callable[[Sequence[Sequence[Any]]], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Side:
    """A way to run a program: the program, and a function that makes it, or a part of it, ready to run."""

    module: HloModule
    prepare: Callable[[HloModule], Ready]

    def ready(self, entry: Computation) -> Ready:
        """A computation of the program as a program of its own, ready to run."""
        return self.prepare(self.module.with_entry(entry).replace(is_scheduled=False))


def each_alone(instructions: Sequence[Instruction]) -> Computation:
    """A computation of some instructions, each with the start of what it ends, whose operands are parameters."""
    parameters: list[Instruction] = []
    made: list[Instruction] = []
    results: list[Instruction] = []
    taken = {step.name for instruction in instructions for step in steps_of(instruction)}
    for instruction in instructions:
        steps = steps_of(instruction)
        operands: list[Instruction] = []
        for operand in steps[0].operands:
            name = unused_name(f"operand.{len(parameters)}", taken)
            operands.append(Instruction(Parameter(number=len(parameters)), (), operand.shape, name))
            parameters.append(operands[-1])
        for step in steps:
            operands = [step.replace(operands=operands, control_predecessors=())]
            made += operands
        results += operands
    root = Instruction(Tuple(), results, make_tuple_shape([r.shape for r in results]), unused_name("values", taken))
    return Computation("alone", (*parameters, *made, root), root)


def steps_of(instruction: Instruction) -> list[Instruction]:
    """An instruction, after the start of the operation that it ends, whose own value nothing else can use."""
    steps = [instruction]
    while isinstance(steps[0].op, (AsyncUpdate, Done)):
        steps.insert(0, steps[0].operands[0])
    return steps if isinstance(steps[0].op, Start) else [instruction]


def with_results(computation: Computation, instructions: Sequence[Instruction]) -> Computation:
    """The computation with the values of these instructions as its results."""
    shape = make_tuple_shape([i.shape.without_layout() for i in instructions])
    name = unused_name("values", {i.name for i in computation.instructions})
    root = Instruction(Tuple(), instructions, shape, name)
    return Computation(computation.name, (*computation.instructions, root), root)


def only_defined(instruction: Instruction, values: Sequence[Any], expected: Sequence[Any]) -> list[Any]:
    """The values of an instruction on each device, with the expected ones where it may give anything."""
    undefined = undefined_results(instruction)
    if not undefined:
        return list(values)
    return [
        tuple(theirs if number in undefined else ours for number, (ours, theirs) in enumerate(zip(*both, strict=True)))
        for both in zip(values, expected, strict=True)
    ]
