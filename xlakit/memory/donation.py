"""Donation: the pairs of a module's input-output aliases that may share memory.

A caller may pass one address for an argument and a result. That is sound if the argument is not live any more when the
first value is written to the result's memory, except at a step where the one becomes the other: then no step overwrites
the argument before it is read for the last time.
"""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.data.shape import Shape
from xlakit.ir.instruction import HloModule
from xlakit.memory.coalescing import Coalescing, ValueSet
from xlakit.memory.steps import StepProgram


def donations(
    module: HloModule, program: StepProgram, sets: Coalescing, results: Sequence[ValueSet]
) -> tuple[tuple[int, int], ...]:
    """The pairs of a result's and an argument's number, among arrays, that may have the same address."""
    numbers = _numbers([module.entry.root.shape])
    arguments = _numbers([p.shape for p in module.entry.parameters])
    found: list[tuple[int, int]] = []
    for alias in module.input_output_alias:
        result = numbers.get((0, *alias.output_index))
        argument = arguments.get((alias.parameter_number, *alias.parameter_index))
        if result is None or argument is None:
            continue
        own, given = results[result], sets.set_of(program.arguments[argument])
        if own.bytes == given.bytes and not sets.interfere(own, given):
            found.append((result, argument))
    return tuple(found)


def _numbers(shapes: Sequence[Shape]) -> dict[tuple[int, ...], int]:
    """The number of each array in a row of shapes, by its position."""
    indices = [(number, *path) for number, shape in enumerate(shapes) for path, leaf in shape.leaves() if leaf.is_array]
    return {index: number for number, index in enumerate(indices)}
