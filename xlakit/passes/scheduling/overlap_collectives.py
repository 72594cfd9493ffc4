"""Makes collectives between processes async pairs, with independent work between start and done.

A list scheduler, which simulates the program of one device, determines the order. It issues a start as early as its
operands allow, all starts in program order, so that all devices have the same order of rendezvous. It issues the done
when the collective is estimated to have ended, or when no other instruction is ready. Between them, ready instructions
run in program order. Pairs that hide less than a least time are replaced by the synchronous collective again.

Processes on different machines may estimate different times: then only the instructions between starts differ.
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
    return link.current() or link.DEFAULT_LINK


_ALPHA = knob("overlap_collectives.alpha_nanoseconds", lambda: _link().alpha, 0.0, 1e9)
_BETA = knob("overlap_collectives.beta_nanoseconds", lambda: _link().beta, 0.0)
# The least time that must be hidden: handing a collective to another thread and its results back costs wake-ups and
# copies.
_LEAST = knob("overlap_collectives.least_nanoseconds", 200_000.0, 0.0)
# The new order may need so many times the memory, and in addition the buffers of collectives in flight, taken as two of
# the largest one.
_MOST_MEMORY = 1.1
_ON_ITS_WAY = 2

_MOVED = (Collective, Permuting)
_STAY = (AllGatherStart, AllReduceStart, CollectivePermuteStart)


def collective_nanoseconds(sent: float) -> float:
    """The estimated time of a collective in which a device sends so many bytes."""
    return _ALPHA.value + _BETA.value * sent


def least_hidden_nanoseconds() -> float:
    """The least time that an async pair must hide."""
    return _LEAST.value


@dataclass(frozen=True, slots=True)
class Overlap:
    """A collective that overlaps with work: its time, and that of the work between start and done, in nanoseconds."""

    collective: Instruction
    nanoseconds: float
    work: float

    @property
    def hidden(self) -> float:
        """The part of the collective's time that the work hides, in nanoseconds."""
        return min(self.nanoseconds, self.work)


class OverlapCollectives(Pass):
    """Make long collectives between processes async pairs with independent work between start and done.

    The pass runs after all other passes, for programs that span processes. A module that is scheduled keeps its order.
    """

    name = "overlap-collectives"

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Change every computation that runs as a program."""
        if module.is_scheduled or not any(_may_overlap(i) for i in module.instructions):
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
        # The starts call new computations, which the module must collect.
        return with_changed(module, made).replace(computations=())


def overlaps_of(module: HloModule) -> list[Overlap]:
    """The overlaps that the pass would make in a module, if memory permits all of them."""
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

    order: a collective of ``overlaps`` is at the position of its done. starts: each of these collectives with the index
    in ``order`` before which its start is. nanoseconds: of the whole computation.
    """

    order: list[Instruction] = field(default_factory=list[Instruction])
    starts: list[tuple[int, Instruction]] = field(default_factory=list[tuple[int, Instruction]])
    overlaps: list[Overlap] = field(default_factory=list[Overlap])
    nanoseconds: float = 0.0

    @property
    def largest(self) -> int:
        """The bytes of operands and results of the largest collective."""
        shapes = [[i.shape, *(o.shape for o in i.operands)] for i in (o.collective for o in self.overlaps)]
        return max(sum(shape.byte_size for shape in own) for own in shapes)


class _Times:
    """Estimates the times of a module's instructions, and plans orders by them."""

    def __init__(self, module: HloModule) -> None:
        self._counter = CostCounter()
        self._members = max(2, module.replica_count, module.num_partitions)

    def plan(self, computation: Computation) -> _Plan:
        """The plan for a computation; empty if overlaps save less than the least time."""
        chosen = {i for i in computation.instructions if _may_overlap(i)}
        if not chosen:
            return _Plan()
        own = {
            i: collective_nanoseconds(sent_bytes(i, self._members)) if i in chosen else self._work(i)
            for i in computation.instructions
        }
        together = sum(own.values())
        while chosen:
            plan = _Simulation(computation, own, chosen).run()
            worse = {o.collective for o in plan.overlaps if o.hidden < _LEAST.value}
            if not worse:
                return plan if plan.nanoseconds + _LEAST.value <= together else _Plan()
            chosen -= worse
        return _Plan()

    def _work(self, instruction: Instruction) -> float:
        """The time of an instruction on one core, in nanoseconds."""
        cost, model = self._counter.instruction(instruction), cost_model()
        computed = cost.flops * model.fused + cost.transcendentals * model.elementary
        return computed + cost.bytes_accessed * model.loaded_byte(cost.bytes_accessed)


class _Simulation:
    """Simulates a computation on one device: one thread computes, another runs the chosen collectives in order."""

    def __init__(self, computation: Computation, own: Mapping[Instruction, float], chosen: Set[Instruction]) -> None:
        self._instructions = computation.instructions
        self._own = own
        self._chosen = chosen
        self._number = {i: n for n, i in enumerate(self._instructions)}
        # Nodes: instruction n, or its start if it is chosen, has the number n; its done has the number count + n.
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
        # The last side effect that is no chosen collective, and the chosen collectives after it.
        effects: list[Instruction] = []
        for number, instruction in enumerate(self._instructions):
            for needed in (*instruction.operands, *instruction.control_predecessors):
                self._need(number, self._done_of(needed))
            if not (instruction.op.can_have_effect and instruction.op.has_side_effect):
                continue
            if instruction in self._chosen:
                if effects:
                    # After the previous start; another previous side effect must be complete.
                    self._need(number, self._number[effects[-1]])
                effects.append(instruction)
            else:
                for before in effects:
                    self._need(number, self._done_of(before))
                effects = [instruction]

    def run(self) -> _Plan:
        """Run the simulation; gives the order in which instructions were issued."""
        plan, count = _Plan(), len(self._instructions)
        # Heaps of nodes, so that ready nodes run in program order (an ascending list is a heap).
        ready = [n for n in range(count) if not self._missing[n]]
        starts: list[int] = []
        ends: deque[tuple[float, int]] = deque()
        # The time of work done before each collective started.
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
    """The computation in the order of a plan, with async pairs."""
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
    """Append the start of a collective, which keeps its name, by which other processes identify it."""
    inner = ComputationBuilder(context)
    parameters = [inner.parameter(n, o.shape.without_layout()) for n, o in enumerate(collective.operands)]
    root = inner.append(collective.replace(operands=parameters))
    called = inner.computation("async_computation", root)
    op = AsyncStart(calls=called)
    operands = [cloner.clones[o] for o in collective.operands]
    shape = op.result_shape([o.shape for o in operands], None)
    return cloner.at(collective).add(op, *operands, shape=shape)
