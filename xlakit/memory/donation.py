"""Donation: the pairs of a result and an argument that may share memory.

The pairs are those of the module's input-output aliases, and one for each offered argument (``buffer_donor``), which is
paired with the first result of its size that has no other memory.

A caller may pass one address for the argument and the result of a pair. That is sound if the live range of the argument
ends before the first value is written to the result's memory, or at a step at which an alias turns the argument into
the result: then no step overwrites the argument before its last read.
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
    given = _numbers([p.shape for p in module.entry.parameters])

    def may_share(result: int, argument: int) -> bool:
        own, taken = results[result], sets.set_of(program.arguments[argument])
        return own.bytes == taken.bytes and not sets.interfere(own, taken)

    paired: dict[int, int] = {}
    for alias in module.input_output_alias:
        result = numbers.get((0, *alias.output_index))
        argument = given.get((alias.parameter_number, *alias.parameter_index))
        if result is not None and argument is not None:
            paired[result] = argument
    aliased = set(paired.values())
    found = {result: argument for result, argument in paired.items() if may_share(result, argument)}
    for donor in module.buffer_donor:
        argument = given.get((donor.parameter_number, *donor.parameter_index))
        if argument is None or argument in aliased:
            continue
        aliased.add(argument)
        free = (r for r in range(len(results)) if r not in paired and r not in found)
        result = next((r for r in free if may_share(r, argument)), None)
        if result is not None:
            found[result] = argument
    return tuple(found.items())


def _numbers(shapes: Sequence[Shape]) -> dict[tuple[int, ...], int]:
    """The number of each array among all arrays of ``shapes``, keyed by (index of the shape, *tuple index)."""
    indices = [(number, *path) for number, shape in enumerate(shapes) for path, leaf in shape.leaves() if leaf.is_array]
    return {index: number for number, index in enumerate(indices)}
