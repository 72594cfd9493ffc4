"""Elements of loop states: removes those that are invariant, unread or duplicates."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.traits import Commutative, Distinct
from xlakit.ops.data import Constant, GetTupleElement, Iota
from xlakit.ops.movement import Broadcast
from xlakit.passes.analysis.loops import (
    Loop,
    LoopPass,
    State,
    element_read,
    elements_needed,
    elements_read,
    loop_of,
    with_state,
)
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import PassContext, is_fixed
from xlakit.passes.simplify.common_subexpressions import instruction_key


class WhileElements(LoopPass):
    """Remove elements of loop states that are invariant, unread, or always equal to another one.

    After the loop an invariant element is replaced by its initial value; inside, constants are rematerialized. Elements
    with one initial value that every iteration changes in the same way are one element.
    """

    name = "while-elements"

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Change the loops of one computation."""
        loops = [loop for loop in map(loop_of, computation.instructions) if loop is not None]
        if not loops:
            return computation
        readers = elements_read(computation, [loop.instruction for loop in loops])
        plans = {loop.instruction: _plan(loop, readers[loop.instruction], context) for loop in loops}
        plans = {instruction: plan for instruction, plan in plans.items() if plan is not None}
        if not plans:
            return computation
        cloner = ComputationCloner(computation, context)
        after: dict[Instruction, dict[int, Instruction]] = {}
        for old in computation.instructions:
            if old in plans:
                after[old] = _append_loop(plans[old], cloner)
                continue
            whole = old.operands[0] if isinstance(old.op, GetTupleElement) else old
            number = element_read(old, whole)
            if number is not None and whole in after:
                cloner.substitute(old, after[whole][number])
            else:
                cloner.clone(old)
        return cloner.build()


@dataclass(frozen=True, slots=True)
class _Plan:
    """The plan for a loop.

    read: the elements that are read after it. unchanged: those whose uses after it read the initial value.
    kept: the elements that remain in the state. replacements: as in a State.
    """

    loop: Loop
    read: set[int]
    unchanged: frozenset[int]
    kept: list[int]
    replacements: list[int | Instruction | None]


def _plan(loop: Loop, read: set[int], context: PassContext) -> _Plan | None:
    """The plan for a loop, or None if nothing can be removed."""
    elements = range(loop.count)
    read_after = set(elements) if -1 in read else read
    equals = _equal_elements(loop)
    duplicates = sum(1 for i in elements if equals[i] != i)
    if not (duplicates and context.spend("equal-element", duplicates)):
        equals = list(elements)
    # An element that is always equal to an invariant one is invariant, too.
    fixed = {equals[i] for i in loop.unchanged}
    invariant = frozenset(i for i in elements if equals[i] in fixed)
    constants = {i: start for i in invariant if (start := loop.initial(i)) is not None and _is_known(start)}
    if not (constants and context.spend("constant-element", len(constants))):
        constants = {}
    unchanged = invariant
    if not (unchanged & read_after and context.spend("unchanged-element", len(unchanged & read_after))):
        unchanged = frozenset[int]()
    # A set of elements is a number with a bit for each. Reading an element needs none, or the first that equals it.
    bits = [0 if i in constants else 1 << equals[i] for i in elements]
    carried = [i for i in elements if bits[i] == 1 << i]
    kept = _needed(loop, bits, [i for i in read_after if i not in unchanged])
    if not kept and (loop.body.has_side_effect or loop.condition.has_side_effect):
        return None
    if not (len(kept) < len(carried) and context.spend("dead-element", len(carried) - len(kept))):
        kept = carried
    if len(kept) == loop.count and not unchanged:
        return None
    numbers = {element: number for number, element in enumerate(kept)}
    replacements = [constants.get(i, numbers.get(equals[i])) for i in elements]
    return _Plan(loop, read, unchanged, kept, replacements)


def _is_known(start: Instruction) -> bool:
    """Whether an initial value can be rematerialized inside of a loop at no cost."""
    if isinstance(start.op, Broadcast):
        start = start.operands[0]
        return isinstance(start.op, Constant) and start.shape.is_scalar
    return isinstance(start.op, (Constant, Iota))


def _needed(loop: Loop, bits: Sequence[int], read: Sequence[int]) -> list[int]:
    """The elements that must be carried, as a fixed point: those that reads after the loop, the condition or side
    effects depend on, and those that the next values of such elements depend on.
    """
    body, condition = elements_needed(loop.body, bits), elements_needed(loop.condition, bits)
    found = condition[loop.condition.root]
    for needs in (body, condition):
        for instruction, needed in needs.items():
            if instruction.op.has_side_effect:
                found |= needed
    for number in read:
        found |= bits[number]
    done = 0
    while found != done:
        fresh, done = found & ~done, found
        for number in range(loop.count):
            if fresh >> number & 1:
                found |= body[loop.given(number) or loop.body.root]
    return [i for i in range(loop.count) if found >> i & 1]


def _equal_elements(loop: Loop) -> list[int]:
    """For each element the first one that is always equal to it.

    Elements with one initial value are assumed equal until the body is found to distinguish them (a fixed point).
    """
    starts = [loop.initial(i) for i in range(loop.count)]
    element_of: dict[Instruction, int] = {}
    first = [i if start is None else element_of.setdefault(start, i) for i, start in enumerate(starts)]
    while len(set(first)) < loop.count:
        numbers = _next_value_numbers(loop, first)
        parts: dict[tuple[int, object], int] = {}
        finer = [parts.setdefault((first[i], numbers[i]), i) for i in range(loop.count)]
        if finer == first:
            break
        first = finer
    return first


def _next_value_numbers(loop: Loop, first: Sequence[int]) -> list[object]:
    """Value numbers of the elements' next values: equal numbers mean equal values after an iteration of the body.

    first: for each element the first one that it is assumed to be equal to before the iteration.
    """
    known: dict[object, int] = {}
    names: dict[Instruction, int] = {}
    for instruction in loop.body.instructions:
        number = loop.element(instruction)
        if number is not None:
            key: object = ("element", first[number])
        elif is_fixed(instruction) or isinstance(instruction.op, Distinct):
            key = instruction
        else:
            operands = [names[o] for o in instruction.operands]
            if isinstance(instruction.op, Commutative):
                operands.sort()
            key = instruction_key(instruction, tuple(operands))
        names[instruction] = known.setdefault(key, len(known))
    given = [loop.given(i) for i in range(loop.count)]
    return [i if g is None else names[g] for i, g in enumerate(given)]


def _append_loop(plan: _Plan, cloner: ComputationCloner) -> dict[int, Instruction]:
    """Append the new loop; gives the new instruction for each element of the old result that is read."""
    loop = plan.loop
    old = loop.instruction
    initial = cloner.clones[old.operands[0]]
    read = plan.read - {-1} if -1 not in plan.read else set(range(loop.count))
    stays = {n for n in read if n in plan.unchanged or isinstance(plan.replacements[n], Instruction)}
    before = {n: cloner.at(old).element(initial, n) for n in sorted(stays.union(plan.kept))}
    after = {n: before[n] for n in stays}
    if plan.kept:
        start = cloner.at(old).tuple(*(before[n] for n in plan.kept))
        new = cloner.add(
            with_state(loop, State(start.shape, plan.replacements, plan.kept), cloner.context), start, like=old
        )
        for number in sorted(read - stays):
            replacement = plan.replacements[number]
            if isinstance(replacement, int):
                after[number] = cloner.at(old).element(new, replacement)
    if -1 in plan.read:
        cloner.substitute(old, cloner.at(old).tuple(*(after[n] for n in range(loop.count))))
    return after
