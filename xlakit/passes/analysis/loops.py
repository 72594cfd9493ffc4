"""While loops: their loop-carried values, which of these are invariant, trip counts, and changing the carried state.

Most loops carry a tuple, the state. An *element* is a loop-carried value, by its number in the tuple; the parameter of
the body holds the elements before an iteration, and the root those after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.errors import InternalError
from xlakit.ir.enums import ComparisonDirection
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.traits import Distinct
from xlakit.ops.control import While
from xlakit.ops.data import GetTupleElement, Parameter, Tuple
from xlakit.ops.elementwise.binary import Add, Subtract
from xlakit.ops.elementwise.compare import Compare
from xlakit.ops.shared.numerics import limits
from xlakit.passes.core.computation_builder import ComputationCloner, StateCloner
from xlakit.passes.core.framework import CalleesPass, PassContext
from xlakit.passes.core.matching import as_integer, uniform

# More iterations than any run of a small program has.
_ENDLESS: Final = 1 << 24


class LoopPass(CalleesPass):
    """A pass that changes the loops of one computation at a time, inner loops first."""

    def may_change(self, computation: Computation) -> bool:
        """Whether it has a loop."""
        return any(isinstance(i.op, While) for i in computation.calling_instructions)


class Loop:
    """A while loop that carries a tuple."""

    def __init__(self, instruction: Instruction) -> None:
        op = instruction.op_as(While)
        self.instruction = instruction
        self.body = op.body
        self.condition = op.condition
        self.parameter = op.body.parameters[0]
        self.count = len(instruction.shape.tuple_shapes)
        # The loop-invariant elements: the body returns them as it was given them.
        self.unchanged = frozenset(i for i in range(self.count) if self.element(self.given(i)) == i)

    def initial(self, number: int) -> Instruction | None:
        """The initial value of an element, if the operand of the loop is a tuple instruction; else None."""
        start = self.instruction.operands[0]
        return start.operands[number] if isinstance(start.op, Tuple) else None

    def given(self, number: int) -> Instruction | None:
        """The value that the body returns for an element, if the root of the body is a tuple instruction; else None."""
        root = self.body.root
        return root.operands[number] if isinstance(root.op, Tuple) else None

    def element(self, instruction: Instruction | None) -> int | None:
        """The number of the element that an instruction of the body extracts; None if it is no such extraction."""
        return None if instruction is None else element_read(instruction, self.parameter)


def loop_of(instruction: Instruction) -> Loop | None:
    """The loop of a while instruction that carries a tuple of static shape and has no control predecessors."""
    if not isinstance(instruction.op, While) or instruction.control_predecessors:
        return None
    shape = instruction.shape
    return Loop(instruction) if shape.is_tuple and shape.tuple_shapes and not shape.is_dynamic else None


def element_read(instruction: Instruction, parameter: Instruction) -> int | None:
    """The index of a get-tuple-element of ``parameter``; None for other instructions."""
    op = instruction.op
    if not isinstance(op, GetTupleElement) or instruction.operands[0] is not parameter:
        return None
    return None if instruction.control_predecessors else op.index


def elements_read(computation: Computation, wholes: Sequence[Instruction]) -> dict[Instruction, set[int]]:
    """For each of the tuples ``wholes`` the indices that get-tuple-elements read; -1 if it is also read as a whole."""
    read: dict[Instruction, set[int]] = {whole: set() for whole in wholes}
    for instruction in computation.instructions:
        for operand in (*instruction.operands, *instruction.control_predecessors):
            if operand in read:
                number = element_read(instruction, operand)
                read[operand].add(-1 if number is None else number)
    if computation.root in read:
        read[computation.root].add(-1)
    return read


def elements_needed(computation: Computation, bits: Sequence[int]) -> dict[Instruction, int]:
    """For each instruction the elements of the only parameter that it depends on, as a mask.

    bits: the mask of each element; the mask of an instruction is the union over the elements.
    """
    parameter = computation.parameters[0]
    everything = 0
    for bit in bits:
        everything |= bit
    masks: dict[Instruction, int] = {}
    for instruction in computation.instructions:
        number = element_read(instruction, parameter)
        if number is not None:
            masks[instruction] = bits[number]
            continue
        union = everything if instruction is parameter else 0
        for operand in (*instruction.operands, *instruction.control_predecessors):
            union |= masks[operand]
        masks[instruction] = union
    return masks


# -- loops without end -------------------------------------------------------------------------------


def decides_once(instruction: Instruction) -> bool:
    """Whether the condition of a while loop has one result in all iterations: the loop never runs, or has no end."""
    op = instruction.op_as(While)
    if op.condition.has_side_effect or any(_is_drawn(i) for i in op.condition.instructions):
        return False
    if uniform(op.condition.root) is not None:
        return True
    if op.body.root is op.body.parameters[0] or not instruction.shape.is_tuple:
        return op.body.root is op.body.parameters[0]
    loop = Loop(instruction)
    needed = elements_needed(op.condition, [1 << n for n in range(loop.count)])[op.condition.root]
    return all(n in loop.unchanged for n in range(loop.count) if needed >> n & 1)


def _is_drawn(instruction: Instruction) -> bool:
    """Whether an instruction may give another result for the same operands."""
    return isinstance(instruction.op, Distinct) and not isinstance(instruction.op, Parameter)


def has_endless_loop(module: HloModule) -> bool:
    """Whether a module has a while loop of which it is clear that it has no end, or none within a reasonable time.

    That of a loop whose condition depends on nothing that changes is not told from one that never runs.
    """
    for instruction in module.instructions:
        if isinstance(instruction.op, While):
            loop = loop_of(instruction)
            count = None if loop is None else trip_count(loop)
            is_stuck = loop is not None and count is None and _is_stuck(loop)
            if is_stuck or decides_once(instruction) or (count is not None and count > _ENDLESS):
                return True
    return False


# -- trip counts -------------------------------------------------------------------------------------


def trip_count(loop: Loop) -> int | None:
    """The trip count of a loop that counts an integer from one constant to another in constant steps; else None."""
    test = _test(loop)
    if test is None:
        return None
    number, direction, last = test
    start = loop.initial(number)
    first = None if start is None else as_integer(uniform(start))
    step = _step(loop, number)
    if first is None or step is None or start is None or not start.shape.element_type.is_integral:
        return None
    return _trip_count(first, step, direction, last, *limits(start.shape.element_type))


def _test(loop: Loop) -> tuple[int, ComparisonDirection, int] | None:
    """The element that a loop's condition compares with an integer constant, on its left, and that constant."""
    test = loop.condition.root
    if not isinstance(test.op, Compare):
        return None
    direction = test.op.direction
    counter, bound = test.operands
    parameter = loop.condition.parameters[0]
    number = element_read(counter, parameter)
    if number is None or _constant(counter, loop, parameter) is not None:
        number = element_read(bound, parameter)
        bound, direction = counter, _SWAPPED[direction]
    last = None if number is None else _constant(bound, loop, parameter)
    return None if number is None or last is None else (number, direction, last)


def _is_stuck(loop: Loop) -> bool:
    """Whether the counter of a loop stays where the loop goes on, or moves away from where it would end."""
    flag = element_read(loop.condition.root, loop.condition.parameters[0])
    test = _test(loop) if flag is None else (flag, ComparisonDirection.NE, 0)
    if test is None:
        return False
    number, direction, last = test
    given = loop.given(number)
    value = None if given is None else _folded(given)
    if value is not None:
        return _trip_count(value, 0, direction, last, value, value) is None
    step = _step(loop, number)
    if step is None or direction in (ComparisonDirection.EQ, ComparisonDirection.NE):
        return step == 0
    return step <= 0 if direction in (ComparisonDirection.LT, ComparisonDirection.LE) else step >= 0


def _folded(instruction: Instruction) -> int | None:
    """The integer that an instruction is, a constant or the sum or difference of two."""
    if not isinstance(instruction.op, (Add, Subtract)):
        return as_integer(uniform(instruction))
    left, right = (as_integer(uniform(o)) for o in instruction.operands)
    if left is None or right is None:
        return None
    return left + right if isinstance(instruction.op, Add) else left - right


def counted_elements(loop: Loop) -> dict[int, tuple[int, int]]:
    """The least and the greatest value at the start of the body, for each integer element that counts or is invariant.

    Empty if the trip count is unknown or 0; only elements whose initial value is a constant.
    """
    iterations = trip_count(loop)
    if not iterations:
        return {}
    ranges: dict[int, tuple[int, int]] = {}
    for number in range(loop.count):
        start = loop.initial(number)
        first = None if start is None else as_integer(uniform(start))
        if start is None or first is None or not start.shape.element_type.is_integral:
            continue
        step = 0 if number in loop.unchanged else _step(loop, number)
        least, greatest = limits(start.shape.element_type)
        if step is not None and least <= first + (iterations - 1) * step <= greatest:
            ranges[number] = min(first, first + (iterations - 1) * step), max(first, first + (iterations - 1) * step)
    return ranges


_SWAPPED = {
    ComparisonDirection.LT: ComparisonDirection.GT,
    ComparisonDirection.GT: ComparisonDirection.LT,
    ComparisonDirection.LE: ComparisonDirection.GE,
    ComparisonDirection.GE: ComparisonDirection.LE,
    ComparisonDirection.EQ: ComparisonDirection.EQ,
    ComparisonDirection.NE: ComparisonDirection.NE,
}


def _constant(instruction: Instruction, loop: Loop, parameter: Instruction) -> int | None:
    """The integer constant that an instruction of the body or condition is in all iterations; None if it is none."""
    number = element_read(instruction, parameter)
    if number is not None:
        start = loop.initial(number) if number in loop.unchanged else None
        return None if start is None else as_integer(uniform(start))
    return as_integer(uniform(instruction))


def _step(loop: Loop, number: int) -> int | None:
    """The constant that each iteration adds to an element; None if it adds none."""
    next_value = loop.given(number)
    if next_value is None or not isinstance(next_value.op, (Add, Subtract)):
        return None
    left, right = next_value.operands
    if isinstance(next_value.op, Add) and loop.element(right) == number:
        left, right = right, left
    step = _constant(right, loop, loop.parameter)
    if loop.element(left) != number or step is None:
        return None
    return step if isinstance(next_value.op, Add) else -step


def _trip_count(
    first: int, step: int, direction: ComparisonDirection, last: int, least: int, greatest: int
) -> int | None:
    """How many of ``first``, ``first + step``, .. satisfy the comparison with ``last`` before the first that does not.

    None if the counter would overflow, or never fails.
    """
    if direction is ComparisonDirection.EQ:
        return 0 if first != last else 1 if step else None
    if direction is ComparisonDirection.NE:
        distance = last - first
        if distance == 0:
            return 0
        iterations = distance // step if step and distance % step == 0 else -1
        return iterations if iterations > 0 else None
    if direction in (ComparisonDirection.GT, ComparisonDirection.GE):
        # Negating all numbers turns counting down into counting up.
        first, step, last, least, greatest = -first, -step, -last, -greatest, -least
    if direction in (ComparisonDirection.LE, ComparisonDirection.GE):
        last += 1
    iterations = -(-(last - first) // step) if step > 0 else 0
    if first >= last:
        return 0
    return iterations if step > 0 and first + iterations * step <= greatest else None


def with_loops(computation: Computation, changed: Mapping[Instruction, While], context: PassContext) -> Computation:
    """The computation with some of its loops replaced by loops of the same state."""
    if not changed:
        return computation
    cloner = ComputationCloner(computation, context)
    for old in computation.instructions:
        if old in changed:
            new_loop = cloner.append(old.replace(op=changed[old], operands=[cloner.clones[old.operands[0]]]))
            cloner.substitute(old, new_loop)
        else:
            cloner.clone(old)
    return cloner.build()


# -- changing the carried state ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class State:
    """The new state of a loop, and its relation to the old one.

    shape: of the new state.
    replacements: for each old element its new number, or the constant that it always is; None if it is dropped.
    elements: for each new element its old number, or None if it is a new, loop-invariant element.
    moved: instructions of the body whose values are now elements of the state, with their new numbers.
    """

    shape: Shape
    replacements: Sequence[int | Instruction | None]
    elements: Sequence[int | None]
    moved: Mapping[Instruction, int] = field(default_factory=dict[Instruction, int])


def with_state(loop: Loop, state: State, context: PassContext) -> While:
    """The while operation of the loop with another state."""
    old_root = loop.body.root
    next_values = [None if old is None else loop.given(old) or old_root for old in state.elements]
    body = _LoopCloner(loop.body, state, context)
    body.run([g for g in next_values if g is not None])
    results: list[Instruction] = []
    for number, (old, instruction) in enumerate(zip(state.elements, next_values, strict=True)):
        if old is None or instruction is None:
            results.append(body.carried(number))
        else:
            clone = body.clones[instruction]
            results.append(body.at(old_root).element(clone, old) if instruction is old_root else clone)
    root = body.at(old_root).tuple(*results)
    condition = _LoopCloner(loop.condition, state, context)
    condition.run([loop.condition.root])
    return While(condition=condition.finish(), body=body.finish(root))


class _LoopCloner(StateCloner):
    """A copy of the body or the condition of a loop that takes the new state."""

    def __init__(self, computation: Computation, state: State, context: PassContext) -> None:
        super().__init__(computation, state.shape, context)
        self._change = state
        self._known: dict[int, Instruction] = {}
        self._read: dict[int, Instruction] = {}

    def run(self, roots: Sequence[Instruction]) -> None:
        """Clone the instructions ``roots``, all that they depend on, and those with side effects."""
        moved = self._change.moved
        live = self._live(roots)
        for old in self._computation.instructions:
            if old not in live:
                continue
            number = element_read(old, self.old_state)
            if old is self.old_state:
                everything = [self._element(n) for n in range(len(self._change.replacements))]
                self.substitute(old, self.at(old).tuple(*everything))
            elif number is not None:
                self.substitute(old, self._element(number))
            elif old in moved:
                self.substitute(old, self.carried(moved[old]))
            else:
                self.clone(old)

    def _live(self, roots: Sequence[Instruction]) -> set[Instruction]:
        """The instructions to clone; the parameter is among them only if it is read as a whole."""
        live = set(roots)
        for instruction in reversed(self._computation.instructions):
            if instruction.op.has_side_effect:
                live.add(instruction)
            if instruction not in live or instruction in self._change.moved:
                continue
            if element_read(instruction, self.old_state) is None:
                live.update(instruction.operands)
                live.update(instruction.control_predecessors)
        return live

    def carried(self, number: int) -> Instruction:
        """Extract an element of the new state, by its new number."""
        element = self._read.get(number)
        if element is None:
            element = self._read[number] = self.at(self.state).element(self.state, number)
        return element

    def _element(self, number: int) -> Instruction:
        """The value of an element of the old state, by its old number."""
        replacement = self._change.replacements[number]
        if isinstance(replacement, int):
            return self.carried(replacement)
        if replacement is None:
            raise InternalError(f"element {number} of {self._computation.name} is read, but no longer carried")
        value = self._known.get(number)
        if value is None:
            value = self._known[number] = self.copy_all(replacement)
        return value
