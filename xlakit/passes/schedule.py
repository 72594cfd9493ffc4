"""The order of instructions: one in which less memory is in use at once, where there is one."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from xlakit.data.shape import Shape
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.control import Call, Conditional, Fusion, While
from xlakit.ops.data import GetTupleElement, Parameter
from xlakit.passes.framework import Pass, PassContext, programs, with_callees, with_computations

# What only renames or bundles arrays.
_ALIASES = frozenset({"add-dependency", "bitcast", "get-tuple-element", "opt-barrier", "reshape", "tuple"})
# What may change its first operand in place.
_UPDATES = frozenset({"dynamic-update-slice", "scatter", "while"})
_NOT_KEPT = frozenset({"constant", "parameter"})

# Peaks below this many bytes fit into a cache; and a new order must save so large a part.
_SMALL_PEAK = 1 << 18
_LEAST_SAVED = 1 / 16


class Schedule(Pass):
    """Order instructions so that less memory is in use at once, where the program does not say their order."""

    name = "schedule"

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Callees first: what they need counts where they are called."""
        if module.is_scheduled:
            return module
        chosen = programs(module)
        made: dict[Computation, Computation] = {}
        peaks: dict[Computation, int] = {}
        for old in module.computations:
            made[old] = new = with_callees(old, made)
            if old not in chosen:
                continue
            memory = _Memory(new, peaks)
            peaks[new] = memory.peak(range(len(new.instructions)))
            if peaks[new] >= _SMALL_PEAK:
                order = memory.ordered()
                peak = memory.peak(order)
                if peak <= peaks[new] * (1 - _LEAST_SAVED) and context.spend("computation"):
                    instructions = tuple([new.instructions[i] for i in order])
                    new = Computation(new.name, instructions, new.root, new.execution_thread)
                    peaks[new] = peak
            made[old] = new
        return with_computations(module, [made[c] for c in module.computations])


@dataclass(slots=True)
class _Step:
    """What an instruction does to memory. Arrays are numbered.

    during: the bytes that it needs while it runs. updated: pairs of an array that it makes and one that it reads,
    which may be one place in memory.
    """

    makes: Sequence[int] = ()
    reads: Sequence[int] = ()
    during: int = 0
    updated: Sequence[tuple[int, int]] = ()
    is_free: bool = False
    waits_for: list[int] = field(default_factory=list[int])


class _Memory:
    """The memory that a computation needs in one order or another."""

    def __init__(self, computation: Computation, peaks: dict[Computation, int]) -> None:
        self._steps: list[_Step] = []
        self._sizes: list[int] = []
        self._arrays: dict[Instruction, list[int]] = {}
        numbers: dict[Instruction, int] = {}
        effect = None
        for number, instruction in enumerate(computation.instructions):
            step = self._step(instruction, peaks)
            needed = {*instruction.operands, *instruction.control_predecessors}
            step.waits_for = [numbers[o] for o in needed]
            if instruction.op.has_side_effect:
                # Effects keep their order.
                if effect is not None:
                    step.waits_for.append(effect)
                effect = number
            numbers[instruction] = number
            self._steps.append(step)
        # The results stand in memory of their own.
        for array in self._arrays[computation.root]:
            self._sizes[array] = 0
        self._readers: list[list[int]] = [[] for _ in self._sizes]
        for number, step in enumerate(self._steps):
            for array in step.reads:
                self._readers[array].append(number)

    def _step(self, instruction: Instruction, peaks: dict[Computation, int]) -> _Step:
        op = instruction.op
        given = [self._arrays[o] for o in instruction.operands]
        if op.opcode in _ALIASES:
            self._arrays[instruction] = _alias(instruction, given)
            return _Step(is_free=True)
        sizes = [shape.byte_size if shape.is_array else 0 for _, shape in instruction.shape.leaves()]
        is_free = op.opcode in _NOT_KEPT
        made = list(range(len(self._sizes), len(self._sizes) + len(sizes)))
        self._sizes.extend([0] * len(sizes) if is_free else sizes)
        self._arrays[instruction] = made
        during = 0
        if isinstance(op, (Call, Conditional, While)):
            during = max(peaks[c] for c in op.called_computations)
        reads = list(dict.fromkeys(array for arrays in given for array in arrays))
        return _Step(made, reads, during, _updated(instruction, made, given), is_free)

    def peak(self, order: Iterable[int]) -> int:
        """The most bytes that are in use at once."""
        left = [len(readers) for readers in self._readers]
        sizes = self._sizes
        live = peak = 0
        for number in order:
            step = self._steps[number]
            live += sum(sizes[a] for a in step.makes)
            shared = sum(min(sizes[new], sizes[old]) for new, old in step.updated if left[old] == 1)
            peak = max(peak, live + step.during - shared)
            for array in step.reads:
                left[array] -= 1
                if not left[array]:
                    live -= sizes[array]
            live -= sum(sizes[a] for a in step.makes if not left[a])
        return peak

    def ordered(self) -> list[int]:
        """An order in which the next instruction is always the one after which least memory is in use."""
        steps, sizes = self._steps, self._sizes
        left = [len(readers) for readers in self._readers]
        waiting = [0] * len(steps)
        followers: list[list[int]] = [[] for _ in steps]
        for number, step in enumerate(steps):
            waiting[number] = len(step.waits_for)
            for needed in step.waits_for:
                followers[needed].append(number)

        def cost(number: int) -> tuple[int, int, int]:
            step = steps[number]
            gained = sum(sizes[a] for a in step.makes if left[a]) - sum(sizes[a] for a in step.reads if left[a] == 1)
            return (not step.is_free, gained, number)

        done = [False] * len(steps)
        order: list[int] = []
        ready = [cost(n) for n, count in enumerate(waiting) if not count]
        heapq.heapify(ready)
        while ready:
            number = heapq.heappop(ready)[2]
            if done[number]:
                continue
            done[number] = True
            order.append(number)
            for array in steps[number].reads:
                left[array] -= 1
                if left[array] == 1:
                    # Its last reader is worth more now.
                    for reader in self._readers[array]:
                        if not done[reader] and not waiting[reader]:
                            heapq.heappush(ready, cost(reader))
            for follower in followers[number]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    heapq.heappush(ready, cost(follower))
        return order


def _alias(instruction: Instruction, given: Sequence[list[int]]) -> list[int]:
    """The arrays that an instruction is which makes none."""
    op = instruction.op
    if isinstance(op, GetTupleElement):
        shapes = instruction.operands[0].shape.tuple_shapes
        first = sum(_count(s) for s in shapes[: op.index])
        return given[0][first : first + _count(shapes[op.index])]
    return [a for arrays in given for a in arrays] if op.opcode == "tuple" else given[0]


def _count(shape: Shape) -> int:
    return sum(map(_count, shape.tuple_shapes)) if shape.is_tuple else 1


def _updated(instruction: Instruction, made: Sequence[int], given: Sequence[list[int]]) -> list[tuple[int, int]]:
    """The arrays that an instruction may make in the place of others."""
    op = instruction.op
    if op.opcode in _UPDATES:
        arrays = given[0] if op.opcode != "scatter" else [a for arrays in given for a in arrays]
        return list(zip(made, arrays, strict=False))
    if isinstance(op, Fusion) and op.calls.root.op.opcode == "dynamic-update-slice":
        target = op.calls.root.operands[0]
        if isinstance(target.op, Parameter):
            return list(zip(made, given[target.op.number], strict=False))
    return []
