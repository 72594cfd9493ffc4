"""Which results a kernel may write into the memory of an operand, and the proof of it.

Both follow from what the kernel states of its nests of loops (``loops/emit/accesses.py``), and from nothing that
kernels have in common: an element may be overwritten if it is read in earlier phases only, or in the nest that writes
it, in no later stage and at the offset of the write. The planner looks up offsets among those of the writes. The proof
shares no code with it: it gives numbers to the variables of all offsets, and goes through the accesses in order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from xlakit.cpu.loops.emit.accesses import Access
from xlakit.cpu.loops.emit.kernel import Kernel, Phase
from xlakit.cpu.loops.ir.index import Atom
from xlakit.ir.instruction import Instruction, post_order
from xlakit.memory.steps import CollectiveStep, HostStep, KernelStep, Pair, Values
from xlakit.ops.control import Fusion

# Collectives whose result may be in the slice of the operand of the same number, with the reason.
COLLECTIVES = {
    "all-reduce": "an element of all operands is combined, then written to all results; each task has its own elements",
}


def in_place_pairs(kernel: Kernel, operands: Values, results: Values) -> frozenset[Pair]:
    """The pairs (result, operand), by number, that may share memory by what the phases of a kernel state."""
    nests = [phase.nests for phase in kernel.phases]
    if None in nests:
        return frozenset()
    read: set[int] = set()
    written: set[int] = set()
    refused: set[Pair] = set()
    for phase in nests:
        now = {a.array for nest in phase or () for stage in nest for a in stage.writes}
        for nest in phase or ():
            before = set(written)
            for number, stage in enumerate(nest):
                follow = {a for later in nest[number:] for a in later.writes if a.offset is not None}
                for access in stage.reads:
                    refused.update(
                        (result, access.array)
                        for result in written | now
                        if result in before or access._replace(array=result) not in follow
                    )
                read.update(a.array for a in stage.reads)
                before.update(a.array for a in stage.writes)
        written |= now
    return frozenset(
        (number, o)
        for number, result in enumerate(results)
        for o, operand in enumerate(operands)
        if number not in kernel.updates and operand.bytes == result.bytes and o in read
        if (r := len(operands) + number) in written and (r, o) not in refused
    )


class Refusals:
    """Decides which results of kernels may be in the memory of operands."""

    def refusal(self, step: KernelStep | CollectiveStep | HostStep, result: int, operand: int) -> str:
        """The reason why a result may not be in the memory of an operand, by number; empty if it provably may."""
        instruction = step.instruction
        if isinstance(step, HostStep):
            # The program says by output_to_operand_aliasing that the function works in place.
            return "" if step.updates.get(result) == operand else "a function of others may read when it has written"
        if isinstance(step, CollectiveStep):
            opcode = instruction.opcode.removesuffix("-start")
            return "" if opcode in COLLECTIVES and result == operand else f"{opcode} moves elements"
        if step.updates.get(result, operand) != operand:
            return "the kernel begins with another operand in the memory of this result"
        return _refusal(step, result, operand)


class _Event(NamedTuple):
    """An access in a nest, all by numbers; ``element`` is the value of its offset, None if it is any."""

    phase: int
    nest: int
    stage: int
    element: int | None
    access: Access


def _refusal(step: KernelStep, result: int, operand: int) -> str:
    """Why a kernel may read an element of an operand after it has written the same element of a result."""
    is_update = result in step.updates
    if not (step.phases or is_update) or any(phase.nests is None for phase in step.phases):
        return f"the kernel of {step.instruction.opcode} does not state when it reads and writes"
    random = Random(0)
    numbers: dict[Atom, int] = defaultdict(lambda: random.randrange(1 << 60))
    reads = _events(step.phases, operand, numbers, is_write=False)
    writes = _events(step.phases, len(step.operands) + result, numbers, is_write=True)
    if is_update and not reads:
        # The kernel finds the operand in the result.
        return ""
    if not writes or (not reads and _needs(step.instruction, operand)):
        return "the kernel does not state that it reads the operand and writes the result"
    for read in reads:
        own = [w for w in writes if w[:2] == read[:2]]
        if read.phase < writes[0].phase:
            continue
        if not own or writes[0].phase < read.phase or own[0].stage < read.stage:
            return "it is read in another nest than writes the result, or in a later stage"
        same = [w for w in own if (w.element, w.access.bytes) == (read.element, read.access.bytes)]
        if read.element is None or not same:
            stored = ", ".join(str(w.access.offset) for w in own)
            return f"element {read.access.offset} of {read.access.bytes} bytes is read where {stored} is written"
    return ""


def _events(phases: Sequence[Phase], array: int, numbers: Mapping[Atom, int], *, is_write: bool) -> list[_Event]:
    """The reads or the writes of an array, in order."""
    return [
        _Event(p, n, s, _value(access, numbers), access)
        for p, phase in enumerate(phases)
        for n, nest in enumerate(phase.nests or ())
        for s, stage in enumerate(nest)
        for access in (stage.writes if is_write else stage.reads)
        if access.array == array
    ]


def _value(access: Access, numbers: Mapping[Atom, int]) -> int | None:
    if access.offset is None:
        return None
    return access.offset.constant + sum(factor * numbers[atom] for atom, factor in access.offset.terms)


def _needs(instruction: Instruction, operand: int) -> bool:
    """Whether the result is computed from an operand."""
    if not isinstance(instruction.op, Fusion):
        return True
    parameter = instruction.op.calls.parameters[operand]
    return parameter in post_order([instruction.op.calls.root])
