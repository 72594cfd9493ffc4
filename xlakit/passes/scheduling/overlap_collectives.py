"""Collectives between processes become async pairs, with independent work between start and done.

The order is that of a list scheduler, which simulates the program of one device. A start stands as early as its
operands allow, all starts in the order of the program, so that devices meet in one order whatever is moved; its done
stands where the collective is estimated to have ended, or where nothing else is left to do. Meanwhile what is ready
runs in the order of the program. Pairs with less than a least time between them are put together again.

A process may estimate other times than the next one, whose machine is another: only what lies between starts differs.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Set
from dataclasses import field, replace

from xlakit import link
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.communication.asynchronous import AsyncDone, AsyncStart
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import Permuting
from xlakit.ops.communication.collective_pairs import AllGatherStart, AllReduceStart, CollectivePermuteStart
from xlakit.options import knob
from xlakit.passes.analysis.cost import CostCounter
from xlakit.passes.analysis.cost_model import cost_model
from xlakit.passes.analysis.traffic import sent_bytes
from xlakit.passes.core.computation_builder import ComputationBuilder, ComputationCloner
from xlakit.passes.core.framework import Pass, PassContext, change_programs, with_changed
from xlakit.passes.scheduling.peak_memory import Memory


def _link() -> link.Link:
    return link.current() or link.USUAL


_ALPHA = knob("overlap_collectives.alpha_nanoseconds", lambda: _link().alpha, 0.0, 1e9)
_BETA = knob("overlap_collectives.beta_nanoseconds", lambda: _link().beta, 0.0)
# What must be hidden: to hand a collective to another thread, and its results back, takes wake-ups and copies.
_LEAST = knob("overlap_collectives.least_nanoseconds", 200_000.0, 0.0)
# How many times as much memory the new order may take, beside what is on its way: two of the largest collective.
_MOST_MEMORY = 1.1
_ON_ITS_WAY = 2

_MOVED = (Collective, Permuting)
_STAY = (AllGatherStart, AllReduceStart, CollectivePermuteStart)


@dataclass(frozen=True, slots=True)
class Overlap:
    """A collective that goes on beside others' work: how long it takes, and the work, in nanoseconds."""

    collective: Instruction
    nanoseconds: float
    work: float

    @property
    def hidden(self) -> float:
        """The time that it takes no longer."""
        return min(self.nanoseconds, self.work)


class OverlapCollectives(Pass):
    """Make long collectives async pairs with independent work between start and done, where processes meet.

    It is for programs that span processes, after all other passes. A program whose order is given keeps it.
    """

    name = "overlap-collectives"

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Change every computation that runs as a program."""
        if module.is_scheduled or not any(_may_overlap(i) for c in module.computations for i in c.instructions):
            return module
        context.computation_names = {c.name for c in module.computations}
        times = _Times(module)
        peaks: dict[Computation, int] = {}

        def changed(computation: Computation) -> Computation:
            peak = Memory(computation, peaks).peak()
            made = computation
            plan = times.plan(computation)
            if plan.overlaps:
                ordered = replace(computation, instructions=tuple(plan.order))
                new_peak = Memory(ordered, peaks).peak()
                if new_peak <= _MOST_MEMORY * peak + _ON_ITS_WAY * plan.largest and context.spend(
                    "collective", len(plan.overlaps)
                ):
                    made, peak = _rebuilt(computation, plan, context), new_peak
            peaks[made] = peak
            return made

        made = change_programs(module, changed)
        if all(new is old for old, new in made.items()):
            return module
        # Starts call computations that are new.
        return with_changed(module, made).replace(computations=())


def overlaps_of(module: HloModule) -> list[Overlap]:
    """What the pass would do in the computations of a module, as far as memory allows it."""
    if module.is_scheduled:
        return []
    times = _Times(module)
    return [overlap for computation in module.computations for overlap in times.plan(computation).overlaps]


def _may_overlap(instruction: Instruction) -> bool:
    op = instruction.op
    if not isinstance(op, _MOVED) or isinstance(op, _STAY) or instruction.control_predecessors:
        return False
    return not any(shape.is_dynamic for o in instruction.operands for _, shape in o.shape.leaves())


@dataclass(slots=True)
class _Plan:
    """An order of a computation's instructions, and its time.

    order: each collective of ``overlaps`` stands where its done is. starts: for each of them before which number of
    the order its start is.
    """

    order: list[Instruction] = field(default_factory=list[Instruction])
    starts: list[tuple[int, Instruction]] = field(default_factory=list[tuple[int, Instruction]])
    overlaps: list[Overlap] = field(default_factory=list[Overlap])
    nanoseconds: float = 0.0

    @property
    def largest(self) -> int:
        """The bytes that the largest of the collectives takes and gives."""
        shapes = [[i.shape, *(o.shape for o in i.operands)] for i in (o.collective for o in self.overlaps)]
        return max(sum(shape.byte_size for shape in own) for own in shapes)


class _Times:
    """Estimated times of a module's instructions, and the orders that follow."""

    def __init__(self, module: HloModule) -> None:
        self._counter = CostCounter()
        self._members = max(2, module.replica_count, module.num_partitions)

    def plan(self, computation: Computation) -> _Plan:
        """The order of a computation; without overlaps where that does not pay."""
        chosen = {i for i in computation.instructions if _may_overlap(i)}
        if not chosen:
            return _Plan()
        own = {i: self._latency(i) if i in chosen else self._work(i) for i in computation.instructions}
        together = sum(own.values())
        while chosen:
            plan = _Simulation(computation, own, chosen).run()
            worse = {o.collective for o in plan.overlaps if o.hidden < _LEAST.value}
            if not worse:
                return plan if plan.nanoseconds + _LEAST.value <= together else _Plan()
            chosen -= worse
        return _Plan()

    def _latency(self, collective: Instruction) -> float:
        return _ALPHA.value + _BETA.value * sent_bytes(collective, self._members)

    def _work(self, instruction: Instruction) -> float:
        """What an instruction takes on one core."""
        cost, model = self._counter.instruction(instruction), cost_model()
        computed = cost.flops * model.fused + cost.transcendentals * model.elementary
        return computed + cost.bytes_accessed * model.loaded_byte(cost.bytes_accessed)


class _Simulation:
    """A run of a computation on one device: one thread computes, another one does the chosen collectives in order."""

    def __init__(self, computation: Computation, own: Mapping[Instruction, float], chosen: Set[Instruction]) -> None:
        self._instructions = computation.instructions
        self._own = own
        self._chosen = chosen
        self._number = {i: n for n, i in enumerate(self._instructions)}
        # Numbers of instructions are those of starts, too; dones have the numbers behind these.
        count = len(self._instructions)
        self._missing = [0] * (2 * count)
        self._users: list[list[int]] = [[] for _ in range(2 * count)]
        self._link()

    def _done_of(self, instruction: Instruction) -> int:
        number = self._number[instruction]
        return number + len(self._instructions) if instruction in self._chosen else number

    def _need(self, user: int, needed: int) -> None:
        self._missing[user] += 1
        self._users[needed].append(user)

    def _link(self) -> None:
        # The effects since the last one that is not a chosen collective, and that one.
        effects: list[Instruction] = []
        for number, instruction in enumerate(self._instructions):
            for needed in (*instruction.operands, *instruction.control_predecessors):
                self._need(number, self._done_of(needed))
            if not (instruction.op.can_have_effect and instruction.op.has_side_effect):
                continue
            if instruction in self._chosen:
                if effects:
                    # Behind the start before it; other effects are whole.
                    self._need(number, self._number[effects[-1]])
                effects.append(instruction)
            else:
                for before in effects:
                    self._need(number, self._done_of(before))
                effects = [instruction]

    def run(self) -> _Plan:
        """The order that follows."""
        plan, count = _Plan(), len(self._instructions)
        # Of numbers in ascending order, so that they are heaps.
        ready = [n for n in range(count) if not self._missing[n]]
        starts: list[int] = []
        ends: deque[tuple[float, int]] = deque()
        # What had been computed, and what the order had, when a collective started.
        begun: dict[int, float] = {}
        now = worked = free = 0.0

        def finish(number: int) -> None:
            for user in self._users[number]:
                self._missing[user] -= 1
                if not self._missing[user]:
                    is_start = self._instructions[user] in self._chosen
                    heapq.heappush(starts if is_start else ready, user)

        while ready or starts or ends:
            if starts:
                number = heapq.heappop(starts)
                free = max(now, free) + self._own[self._instructions[number]]
                ends.append((free, number))
                begun[number] = worked
                plan.starts.append((len(plan.order), self._instructions[number]))
                finish(number)
            elif ends and (ends[0][0] <= now or not ready):
                end, number = ends.popleft()
                now = max(now, end)
                instruction = self._instructions[number]
                plan.overlaps.append(Overlap(instruction, self._own[instruction], worked - begun[number]))
                plan.order.append(instruction)
                finish(number + count)
            else:
                number = heapq.heappop(ready)
                instruction = self._instructions[number]
                now += self._own[instruction]
                worked += self._own[instruction]
                plan.order.append(instruction)
                finish(number)
        plan.nanoseconds = now
        return plan


def _rebuilt(computation: Computation, plan: _Plan, context: PassContext) -> Computation:
    """The computation in the order of a plan, with its pairs."""
    cloner = ComputationCloner(computation, context)
    chosen = {overlap.collective for overlap in plan.overlaps}
    starts = deque(plan.starts)
    started: dict[Instruction, Instruction] = {}
    for number, old in enumerate(plan.order):
        while starts and starts[0][0] == number:
            collective = starts.popleft()[1]
            started[collective] = _start(cloner, collective, context)
        if old in chosen:
            cloner.substitute(old, cloner.at(old).add(AsyncDone(), started[old], shape=old.shape))
        else:
            cloner.clone(old)
    return cloner.build()


def _start(cloner: ComputationCloner, collective: Instruction, context: PassContext) -> Instruction:
    """Append the start of a collective, which keeps its name: other processes know it by that."""
    inner = ComputationBuilder(context)
    parameters = [inner.parameter(n, o.shape.without_layout()) for n, o in enumerate(collective.operands)]
    root = inner.append(collective.replace(operands=parameters))
    called = inner.computation(context.computation_name("async_computation"), root)
    op = AsyncStart(calls=called)
    operands = [cloner.clones[o] for o in collective.operands]
    shape = op.result_shape([o.shape for o in operands], None)
    return cloner.at(collective).add(op, *operands, shape=shape)
