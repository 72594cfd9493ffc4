"""Results in the memory of arguments: which of the pairs that a module allows the entry really can compute so.

A caller that gives one address for an argument and for a result gets the result there. The entry must then not write
to the result while it still reads the argument, but for steps that work in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xlakit.cpu.entry.buffers import Buffer
from xlakit.cpu.entry.in_place import in_place_pairs
from xlakit.cpu.entry.lowering import Lowered
from xlakit.cpu.entry.steps import ConditionalStep, CopyStep, HostStep, KernelStep, Step, WhileStep, buffers_of
from xlakit.data.shape import Shape
from xlakit.ir.instruction import HloModule
from xlakit.options import is_plain


def honored_aliases(module: HloModule, lowered: Lowered) -> tuple[tuple[int, int], ...]:
    """The pairs of a result's and an argument's number, among arrays, that may have the same address."""
    if is_plain("memory"):
        return ()
    results = _numbers([module.entry.root.shape])
    arguments = _numbers([p.shape for p in module.entry.parameters])
    found: list[tuple[int, int]] = []
    for alias in module.input_output_alias:
        result = results.get((0, *alias.output_index))
        argument = arguments.get((alias.parameter_number, *alias.parameter_index))
        if result is None or argument is None:
            continue
        own, given = lowered.results[result], lowered.arguments[argument]
        if own.bytes == given.bytes and _may_share(lowered.steps, own, given):
            found.append((result, argument))
    return tuple(found)


def _numbers(shapes: Sequence[Shape]) -> dict[tuple[int, ...], int]:
    """The number of each array in a row of shapes, by its place."""
    places = [(number, *path) for number, shape in enumerate(shapes) for path, leaf in shape.leaves() if leaf.is_array]
    return {place: number for number, place in enumerate(places)}


def _may_share(steps: Sequence[Step], result: Buffer, argument: Buffer) -> bool:
    uses = list(_uses(steps, result, argument))
    first = next((n for n, (_, touched) in enumerate(uses) if result in touched), len(uses))
    # What still reads the argument when the result is begun.
    late = [step for step, touched in uses[first:] if argument in touched]
    if not late:
        return True
    step, *rest = late
    if step is not uses[first][0]:
        return False
    if isinstance(step, CopyStep) and len(rest) == 1:
        # The argument, copied to where it is then updated, stands in the update's table too.
        update = rest[0]
        follows = uses[first + 1][0] is update
        return follows and isinstance(update, KernelStep) and _updates(update, result, argument)
    if rest:
        return False
    # Python takes copies of what it reads.
    whole = isinstance(step, (CopyStep, HostStep))
    return whole or (isinstance(step, KernelStep) and _works_in_place(step, result, argument))


def _uses(steps: Sequence[Step], *buffers: Buffer) -> Iterator[tuple[Step, set[Buffer]]]:
    """The steps in order that touch some of the buffers, with those; a loop comes after its steps once more."""
    for step in steps:
        inside: list[tuple[Step, set[Buffer]]] = []
        if isinstance(step, WhileStep):
            inside = list(_uses([*step.condition, *step.body], *buffers))
        elif isinstance(step, ConditionalStep):
            inside = [use for branch in step.branches for use in _uses(branch, *buffers)]
        own = {b.resolved() for b in buffers_of(step)}
        touched = {b for b in buffers if b in own}
        if touched:
            yield step, touched
        yield from inside
        again = {b for _, found in inside for b in found}
        if isinstance(step, WhileStep) and again:
            yield step, again


def _updates(step: KernelStep, result: Buffer, argument: Buffer) -> bool:
    """Whether a kernel changes the argument into the result, and reads it for nothing else."""
    table = [b.resolved() for b in step.table]
    count = sum(leaf.is_array for o in step.instruction.operands for _, leaf in o.shape.leaves())
    pairs = [(table[count + made], table[given]) for made, given in step.updates.items()]
    return (result, argument) in pairs and table.count(argument) == 1


def _works_in_place(step: KernelStep, result: Buffer, argument: Buffer) -> bool:
    """Whether a kernel reads the argument only where it writes the result just then."""
    operands = [o.shape for o in step.instruction.operands]
    table = [b.resolved() for b in step.table]
    made = sum(leaf.is_array for _, leaf in step.instruction.shape.leaves())
    simple = len(step.phases) == 1 and all(s.is_array for s in operands) and len(table) == len(operands) + made
    if not simple or table.count(result) != 1:
        return False
    pairs = in_place_pairs(step.instruction)
    own = table.index(result) - len(operands)
    return all((own, number) in pairs for number, buffer in enumerate(table) if buffer is argument)
