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
    result_numbers = _numbers([module.entry.root.shape])
    argument_numbers = _numbers([p.shape for p in module.entry.parameters])

    def may_share(result: int, argument: int) -> bool:
        result_set, argument_set = results[result], sets.set_of(program.arguments[argument])
        return result_set.bytes == argument_set.bytes and not sets.interfere(result_set, argument_set)

    alias_pairs: dict[int, int] = {}
    for alias in module.input_output_alias:
        result = result_numbers.get((0, *alias.output_index))
        argument = argument_numbers.get((alias.parameter_number, *alias.parameter_index))
        if result is not None and argument is not None:
            alias_pairs[result] = argument
    aliased = set(alias_pairs.values())
    pairs = {result: argument for result, argument in alias_pairs.items() if may_share(result, argument)}
    for donor in module.buffer_donor:
        argument = argument_numbers.get((donor.parameter_number, *donor.parameter_index))
        if argument is None or argument in aliased:
            continue
        aliased.add(argument)
        free = (r for r in range(len(results)) if r not in alias_pairs and r not in pairs)
        result = next((r for r in free if may_share(r, argument)), None)
        if result is not None:
            pairs[result] = argument
    return tuple(pairs.items())


def _numbers(shapes: Sequence[Shape]) -> dict[tuple[int, ...], int]:
    """The number of each array among all arrays of ``shapes``, keyed by (index of the shape, *tuple index)."""
    indices = [(number, *path) for number, shape in enumerate(shapes) for path, leaf in shape.leaves() if leaf.is_array]
    return {index: number for number, index in enumerate(indices)}
