"""Leaves out the initial values of arrays that a loop writes piece by piece, before anything reads them.

What a ``scan`` stacks is such an array: it starts as zeros, and each iteration writes its own piece. To write zeros
before costs as much memory traffic as the loop's own writes.
"""

from __future__ import annotations

from collections.abc import Mapping

from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.custom_call import UNWRITTEN, CustomCall
from xlakit.ops.data import Constant, Tuple
from xlakit.ops.dynamic import DynamicUpdateSlice
from xlakit.ops.elementwise.binary import Add, Subtract
from xlakit.ops.elementwise.convert import Convert
from xlakit.ops.movement import Broadcast
from xlakit.ops.shared.numerics import limits
from xlakit.passes.analysis.loops import Loop, LoopPass, counted_elements, elements_read, loop_of, trip_count
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import PassContext
from xlakit.passes.core.matching import as_integer, uniform

# The depth of the search for the counter in a start index.
_DEPTH = 8


class WhileOverwritten(LoopPass):
    """Replace initial values that nothing reads, and that all iterations together overwrite, by unwritten arrays."""

    name = "while-overwritten"

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Change the loops of one computation."""
        found = {loop.instruction: _overwritten(loop) for loop in map(loop_of, computation.instructions) if loop}
        found = {i: numbers for i, numbers in found.items() if numbers and context.spend("overwritten", len(numbers))}
        if not found:
            return computation
        cloner = ComputationCloner(computation, context)
        for old in computation.instructions:
            if old not in found:
                cloner.clone(old)
                continue
            operands = [
                cloner.at(o).add(CustomCall(custom_call_target=UNWRITTEN), shape=o.shape)
                if number in found[old]
                else cloner.clones[o]
                for number, o in enumerate(old.operands[0].operands)
            ]
            start = cloner.at(old.operands[0]).tuple(*operands)
            cloner.substitute(old, cloner.append(old.replace(operands=[start])))
        return cloner.build()


def _overwritten(loop: Loop) -> frozenset[int]:
    """The elements whose initial values are read by nothing, and need not be computed."""
    iterations = trip_count(loop)
    start, root = loop.instruction.operands[0], loop.body.root
    if not iterations or not isinstance(start.op, Tuple) or not isinstance(root.op, Tuple):
        return frozenset()
    condition = loop.condition.parameters[0]
    tested = elements_read(loop.condition, [condition])[condition]
    if -1 in tested or -1 in elements_read(loop.body, [loop.parameter])[loop.parameter]:
        return frozenset()
    users = _users(loop.body)
    ranges = counted_elements(loop)
    return frozenset(
        number
        for number, initial in enumerate(start.operands)
        if number not in tested
        and isinstance(initial.op, (Broadcast, Constant))
        and initial.shape.is_array
        and _is_stacked(loop, number, users)
        and _covers(loop, root.operands[number], ranges, iterations)
    )


def _users(computation: Computation) -> Mapping[Instruction, list[Instruction]]:
    """The users of each instruction, once for each time that they use it; control successors are users, too."""
    users: dict[Instruction, list[Instruction]] = {i: [] for i in computation.instructions}
    for instruction in computation.instructions:
        for used in (*instruction.operands, *instruction.control_predecessors):
            users[used].append(instruction)
    return users


def _is_stacked(loop: Loop, number: int, users: Mapping[Instruction, list[Instruction]]) -> bool:
    """Whether an iteration does nothing with an element but to write a piece of it."""
    update = loop.body.root.operands[number]
    if not isinstance(update.op, DynamicUpdateSlice) or loop.element(update.operands[0]) != number:
        return False
    readers = [user for i in loop.body.instructions if loop.element(i) == number for user in users[i]]
    return readers == [update] and users[update] == [loop.body.root]


def _covers(loop: Loop, update: Instruction, ranges: Mapping[int, tuple[int, int]], iterations: int) -> bool:
    """Whether the pieces that all iterations write are the whole array, each of them once."""
    array, piece, *starts = update.operands
    sizes = array.shape.dimensions
    split = [d for d, (whole, part) in enumerate(zip(sizes, piece.shape.dimensions, strict=True)) if whole != part]
    # In the other dimensions, a piece fits at one place only. A vector of start indices is read by no counter.
    if len(split) != 1 or len(starts) != len(sizes) or iterations < 2:
        return False
    (dimension,) = split
    found = _affine(loop, starts[dimension], ranges, _DEPTH)
    if found is None or found.counter is None:
        return False
    least, greatest = ranges[found.counter]
    ends = sorted(found.factor * end + found.offset for end in (least, greatest))
    size = piece.shape.dimensions[dimension]
    return ends == [0, (iterations - 1) * size] and iterations * size == sizes[dimension]


@dataclass(frozen=True, slots=True)
class _Affine:
    """``factor`` times the element ``counter`` of the state, plus ``offset``; without a counter ``offset``."""

    counter: int | None
    factor: int
    offset: int


def _affine(loop: Loop, x: Instruction, ranges: Mapping[int, tuple[int, int]], depth: int) -> _Affine | None:
    """An integer scalar as a function of one counter, if it is one that no iteration wraps around; else None."""
    if not depth or not x.shape.is_array or x.shape.dimensions or not x.shape.element_type.is_integral:
        return None
    number, value = loop.element(x), as_integer(uniform(x))
    if number is not None:
        found = _Affine(number, 1, 0) if number in ranges else None
    elif value is not None:
        found = _Affine(None, 0, value)
    elif isinstance(x.op, Convert):
        found = _affine(loop, x.operands[0], ranges, depth - 1)
    elif isinstance(x.op, (Add, Subtract)):
        left, right = (_affine(loop, o, ranges, depth - 1) for o in x.operands)
        if left is None or right is None or (left.counter is not None and right.counter is not None):
            return None
        sign = 1 if isinstance(x.op, Add) else -1
        counter = right.counter if left.counter is None else left.counter
        found = _Affine(counter, left.factor + sign * right.factor, left.offset + sign * right.offset)
    else:
        return None
    if found is None:
        return None
    ends = (0, 0) if found.counter is None else ranges[found.counter]
    low, high = limits(x.shape.element_type)
    return found if all(low <= found.factor * end + found.offset <= high for end in ends) else None
