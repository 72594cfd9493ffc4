"""The peak memory of a computation, estimated from HLO before there is a memory plan.

The memory plan's live ranges (:mod:`xlakit.memory.live_ranges`) are not available here: they belong to lowered steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xlakit import machine
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.traits import Forwarding
from xlakit.ops.control import Call, Conditional, Fusion, While
from xlakit.ops.data import Constant, GetTupleElement, Parameter, Tuple
from xlakit.ops.dynamic import DynamicUpdateSlice
from xlakit.ops.movement import Reshape
from xlakit.ops.scatter import Scatter
from xlakit.options import knob

# Operations without arrays of their own.
_ALIASES = (Forwarding, Reshape)
# Operations that may update their first operand in place.
_UPDATES = (DynamicUpdateSlice, Scatter, While)
_NOT_KEPT = (Constant, Parameter)
# The least peak in bytes for rematerialization to act on.
SMALL_PEAK = knob("rematerialize.small_peak", lambda: machine.current().l3 // 8, 0)


@dataclass(slots=True)
class Step:
    """The effect of an instruction on memory. Arrays are numbered.

    during: the bytes that it needs while it runs. updated: pairs of an array that it makes and one that it reads,
    which may share one buffer.
    """

    makes: Sequence[int] = ()
    reads: Sequence[int] = ()
    during: int = 0
    updated: Sequence[tuple[int, int]] = ()


def stays_below(module: HloModule, limit: float) -> bool:
    """Whether all arrays of a program together are smaller than the limit; then so is the peak in any order."""
    total = 0
    for computation in module.computations:
        for instruction in computation.instructions:
            total += instruction.shape.byte_size
        if total >= limit:
            return False
    return total < limit


def may_have_large_peak(module: HloModule) -> bool:
    """Whether the peak of a program may be so large that rematerialization acts on it."""
    return not stays_below(module, SMALL_PEAK.value)


class Memory:
    """The memory that a computation needs in the order of its instructions.

    steps: the effect of each instruction. sizes: the bytes of each array. arrays: those in the result of each
    instruction. readers: the numbers of the instructions that read each array.
    """

    def __init__(self, computation: Computation, peaks: Mapping[Computation, int]) -> None:
        self.steps: list[Step] = []
        self.sizes: list[int] = []
        self.arrays: dict[Instruction, list[int]] = {}
        for instruction in computation.instructions:
            self.steps.append(self._step(instruction, peaks))
        # The results are in the caller's buffers, so they do not count.
        for array in self.arrays[computation.root]:
            self.sizes[array] = 0
        self.readers: list[list[int]] = [[] for _ in self.sizes]
        for number, step in enumerate(self.steps):
            for array in step.reads:
                self.readers[array].append(number)

    def _step(self, instruction: Instruction, peaks: Mapping[Computation, int]) -> Step:
        op = instruction.op
        given = [self.arrays[o] for o in instruction.operands]
        if isinstance(op, _ALIASES):
            self.arrays[instruction] = _alias(instruction, given)
            return Step()
        sizes = [shape.byte_size if shape.is_array else 0 for _, shape in instruction.shape.leaves()]
        made = list(range(len(self.sizes), len(self.sizes) + len(sizes)))
        self.sizes.extend([0] * len(sizes) if isinstance(op, _NOT_KEPT) else sizes)
        self.arrays[instruction] = made
        during = 0
        if isinstance(op, (Call, Conditional, While)):
            during = max(peaks[c] for c in op.called_computations)
        reads = list(dict.fromkeys(array for arrays in given for array in arrays))
        return Step(made, reads, during, _updated(instruction, made, given))

    def peak(self) -> int:
        """The peak of the bytes in use."""
        return max(self.in_use(), default=0)

    def in_use(self) -> list[int]:
        """The bytes that are in use while each instruction runs."""
        left = [len(readers) for readers in self.readers]
        sizes = self.sizes
        live = 0
        result: list[int] = []
        for step in self.steps:
            live += sum(sizes[a] for a in step.makes)
            shared = sum(min(sizes[new], sizes[old]) for new, old in step.updated if left[old] == 1)
            result.append(live + step.during - shared)
            for array in step.reads:
                left[array] -= 1
                if not left[array]:
                    live -= sizes[array]
            live -= sum(sizes[a] for a in step.makes if not left[a])
        return result


def _alias(instruction: Instruction, given: Sequence[list[int]]) -> list[int]:
    """The arrays of an instruction that only forwards operands."""
    op = instruction.op
    if isinstance(op, GetTupleElement):
        shapes = instruction.operands[0].shape.tuple_shapes
        first = sum(_count(s) for s in shapes[: op.index])
        return given[0][first : first + _count(shapes[op.index])]
    return [a for arrays in given for a in arrays] if isinstance(op, Tuple) else given[0]


def _count(shape: Shape) -> int:
    return sum(map(_count, shape.tuple_shapes)) if shape.is_tuple else 1


def _updated(instruction: Instruction, made: Sequence[int], given: Sequence[list[int]]) -> list[tuple[int, int]]:
    """Pairs of a new array and an operand's array that it may overwrite."""
    op = instruction.op
    if isinstance(op, _UPDATES):
        arrays = [a for arrays in given for a in arrays] if isinstance(op, Scatter) else given[0]
        return list(zip(made, arrays, strict=False))
    if isinstance(op, Fusion) and isinstance(op.calls.root.op, DynamicUpdateSlice):
        target = op.calls.root.operands[0]
        if isinstance(target.op, Parameter):
            return list(zip(made, given[target.op.number], strict=False))
    return []
