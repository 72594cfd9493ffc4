"""Loop-invariant code motion: computes invariant instructions of a loop's body once, before the loop."""

from __future__ import annotations

from collections.abc import Sequence, Set

from xlakit.ir.instruction import Computation, HloModule, Instruction, computations_callees_first
from xlakit.ir.traits import Distinct
from xlakit.ops.communication.sites import site_of
from xlakit.ops.control import Call, Conditional, Fusion, While
from xlakit.ops.convolution import Convolution
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import Constant, GetTupleElement, Iota, Parameter, Tuple
from xlakit.ops.dot import Contraction
from xlakit.ops.fft import Fft
from xlakit.ops.linear_algebra import Cholesky, TriangularSolve
from xlakit.ops.movement import Broadcast, Reshape
from xlakit.ops.sort import Sort
from xlakit.ops.windows import ReduceWindow
from xlakit.options import knob
from xlakit.passes.analysis.loops import Loop, LoopPass, State, elements_read, loop_of, trip_count, with_state
from xlakit.passes.analysis.sites import COLLECTIVES, sites_met_apart
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import PassContext, is_fixed

# Operations that are free inside of the loop, which are not moved themselves.
_FREE = (Broadcast, Constant, GetTupleElement, Iota, Parameter, Reshape, Tuple)
# Loops and custom calls stay, since the loop may run no iteration.
_STAYS = (Distinct, Call, Conditional, CustomCall, Fusion, While)
# Operations whose effects are those of their computations.
_CALLING = (Call, Conditional, Fusion, While)
# Operations that are so expensive that their results are stored at any size.
_HEAVY = (Contraction, Cholesky, Convolution, Fft, ReduceWindow, Sort, TriangularSolve)
# Results of at most so many bytes are stored, even if their operands are smaller.
_SMALL = knob("loop_invariants.small", 4096, 0, 1 << 20)
# Results of collectives that are larger than their operands are stored up to so many bytes of all: a loop may gather
# what would take too much memory as a whole.
_GATHERED = knob("loop_invariants.gathered", 1 << 20, 0, 1 << 40)


class WhileInvariants(LoopPass):
    """Move instructions that depend on invariant elements only out of loops, if their results take little memory.

    Collectives, too, out of loops of a known trip count that have no other side effects: all devices do them once then.

    apart: the sites at which devices may arrive in different orders, whose collectives stay.
    """

    name = "while-invariants"

    def __init__(self, apart: Set[str] = frozenset()) -> None:
        self._apart = apart

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Change every computation."""
        if not any(map(self.may_change, module.computations)):
            return module
        return super(WhileInvariants, WhileInvariants(sites_met_apart(module, by_caller=True))).run(module, context)

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Change the loops of one computation."""
        found: dict[Instruction, tuple[Loop, list[Instruction]]] = {}
        for loop in map(loop_of, computation.instructions):
            if loop is not None and loop.unchanged:
                moved = invariant_instructions(loop, _collectives(loop, self._apart))
                if moved and context.spend("invariant", len(moved)):
                    found[loop.instruction] = (loop, moved)
        if not found:
            return computation
        read = elements_read(computation, list(found))
        cloner = ComputationCloner(computation, context)
        for old in computation.instructions:
            if old in found:
                _append_loop(*found[old], cloner, whole=-1 in read[old])
            else:
                cloner.clone(old)
        return cloner.build()


def _collectives(loop: Loop, apart: Set[str]) -> Sequence[Instruction]:
    """The collectives of a loop's body that all devices may do once instead of in each iteration."""
    own = [i for i in loop.body.instructions if isinstance(i.op, COLLECTIVES) and not i.control_predecessors]
    own = [i for i in own if site_of(i) not in apart]
    if not own or (trip_count(loop) or 0) < 2:
        return ()
    for computation in computations_callees_first([loop.body, loop.condition]):
        for i in computation.instructions:
            # Another device may have to reach this effect before it arrives at a collective.
            if not isinstance(i.op, (*COLLECTIVES, *_CALLING)) and is_fixed(i):
                return ()
            # Or a device that waits at this collective, elsewhere in the program.
            if isinstance(i.op, COLLECTIVES) and site_of(i) in apart:
                return ()
    room, found = _GATHERED.value, list[Instruction]()
    for i in own:
        more = i.shape.byte_size if i.shape.byte_size > sum(o.shape.byte_size for o in i.operands) else 0
        if more <= room:
            room -= more
            found.append(i)
    return found


def invariant_instructions(loop: Loop, collectives: Sequence[Instruction] = ()) -> list[Instruction]:
    """The instructions of the body whose values the loop is to read as elements of its state, in program order.

    They are the last of each chain of invariant instructions: a cheap one is replaced by its operands. Collectives,
    which may move although they are side effects, are among them.
    """
    may_move = set(collectives)
    elements: dict[Instruction, int] = {}
    asked: list[Instruction] = []
    for instruction in loop.body.instructions:
        number = loop.element(instruction)
        if number is not None:
            if number in loop.unchanged:
                elements[instruction] = 1 << number
        elif (instruction in may_move or _may_move(instruction)) and all(o in elements for o in instruction.operands):
            union = 0
            for operand in instruction.operands:
                union |= elements[operand]
            elements[instruction] = union
        else:
            asked.extend(o for o in instruction.operands if o in elements)
    asked.extend([loop.body.root] if loop.body.root in elements else [])
    # A collective that only moved as the operand of another instruction would be done in the loop as well.
    chosen = {i for i in collectives if i in elements}
    # Each instruction is visited once, although exponentially many paths may lead to it.
    seen: set[Instruction] = set()
    while asked:
        instruction = asked.pop()
        if instruction in seen or loop.element(instruction) is not None:
            continue
        seen.add(instruction)
        if not isinstance(instruction.op, _FREE) and _is_worth_moving(instruction, elements[instruction], loop):
            chosen.add(instruction)
        else:
            asked.extend(instruction.operands)
    return [i for i in loop.body.instructions if i in chosen]


def _may_move(instruction: Instruction) -> bool:
    op = instruction.op
    return not is_fixed(instruction) and not isinstance(op, _STAYS) and not isinstance(op, Parameter)


def _is_worth_moving(instruction: Instruction, elements: int, loop: Loop) -> bool:
    """Whether the result is small or expensive, or takes no more memory than what it is computed from.

    elements: the elements of the loop's state that it is computed from, a bit for each.
    """
    size = instruction.shape.byte_size
    if size <= _SMALL.value or isinstance(instruction.op, _HEAVY):
        return True
    shapes = loop.instruction.shape.tuple_shapes
    return size <= sum(s.byte_size for i, s in enumerate(shapes) if elements >> i & 1)


def _append_loop(loop: Loop, moved: Sequence[Instruction], cloner: ComputationCloner, *, whole: bool) -> None:
    """Append the moved instructions before the loop, and the loop with their values as new, invariant elements.

    whole: whether the result of the loop is read as a whole, so that it must have its old elements only.
    """
    old = loop.instruction
    initial = cloner.clones[old.operands[0]]
    start = cloner.at(old).elements(initial)
    start.extend(_before(loop, moved, start, cloner))
    everything = cloner.at(old).tuple(*start)
    state = State(
        everything.shape,
        replacements=range(loop.count),
        elements=[*range(loop.count), *([None] * len(moved))],
        moved={instruction: loop.count + n for n, instruction in enumerate(moved)},
    )
    new = cloner.add(with_state(loop, state, cloner.context), everything, like=old)
    if whole:
        new = cloner.at(old).tuple(*(cloner.at(old).element(new, n) for n in range(loop.count)))
    cloner.substitute(old, new)


def _before(
    loop: Loop, moved: Sequence[Instruction], start: Sequence[Instruction], cloner: ComputationCloner
) -> list[Instruction]:
    """Copies of the moved instructions before the loop, with the instructions that they depend on."""
    needed = set(moved)
    for instruction in reversed(loop.body.instructions):
        if instruction in needed and loop.element(instruction) is None:
            needed.update(instruction.operands)
    outside: dict[Instruction, Instruction] = {}
    for instruction in loop.body.instructions:
        if instruction in needed:
            number = loop.element(instruction)
            if number is not None:
                outside[instruction] = start[number]
            else:
                outside[instruction] = cloner.copy(instruction, [outside[o] for o in instruction.operands])
    return [outside[m] for m in moved]
