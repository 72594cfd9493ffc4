"""The schedule: an order of instructions with a lower memory peak, if one is found."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from xlakit import machine
from xlakit.ir.instruction import Computation, HloModule
from xlakit.options import knob
from xlakit.passes.core.framework import Pass, PassContext, change_programs, with_computations
from xlakit.passes.scheduling.peak_memory import Memory

# Peaks below this many bytes fit into half of the second cache; and a new order must save so large a part.
_SMALL_PEAK = knob("schedule.small_peak", lambda: machine.current().l2 // 2, 0)
_LEAST_SAVED = knob("schedule.least_saved", 1 / 16, 0.0)


class Schedule(Pass):
    """Order instructions for a lower memory peak, unless the program is scheduled already."""

    name = "schedule"
    left_out_by = "memory"

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Process callees first, since their peaks count at their callers."""
        if module.is_scheduled:
            return module
        peaks: dict[Computation, int] = {}

        def ordered(computation: Computation) -> Computation:
            memory = Memory(computation, peaks)
            order = _better(memory)
            if order is None or not context.spend("computation"):
                order = range(len(computation.instructions))
            else:
                instructions = tuple([computation.instructions[i] for i in order])
                thread = computation.execution_thread
                computation = Computation(computation.name, instructions, computation.root, thread)
            peaks[computation] = memory.peak(order)
            return computation

        return with_computations(module, list(change_programs(module, ordered).values()))


def _better(memory: Memory) -> Sequence[int] | None:
    """A better order than the current one, or None if the gain is too small."""
    used = memory.in_use(range(len(memory.steps)))
    peak, best = max(used, default=0), None
    if peak < _SMALL_PEAK.value:
        return None
    order = eager(memory)
    other = memory.in_use(order)
    if max(other) <= peak and sum(other) <= sum(used) * (1 - _LEAST_SAVED.value):
        peak, best = max(other), order
    order = greedy(memory)
    return order if memory.peak(order) <= peak * (1 - _LEAST_SAVED.value) else best


def greedy(memory: Memory) -> list[int]:
    """A greedy order: the next instruction is the one after which the least memory is in use."""
    steps = memory.steps
    left = [len(readers) for readers in memory.readers]
    waiting, followers = _waiting(memory)

    def cost(number: int) -> tuple[int, int, int]:
        return (not steps[number].is_free, _gained(memory, number, left), number)

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
                # Its last reader frees more memory now.
                for reader in memory.readers[array]:
                    if not done[reader] and not waiting[reader]:
                        heapq.heappush(ready, cost(reader))
        for follower in followers[number]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, cost(follower))
    return order


def eager(memory: Memory) -> list[int]:
    """The current order, except that instructions that free more than they allocate run at once.

    The gradients of a model's weights are used last, and their operands are large.
    """
    steps = memory.steps
    left = [len(readers) for readers in memory.readers]
    waiting, followers = _waiting(memory)
    done = [False] * len(steps)
    order: list[int] = []
    for first in range(len(steps)):
        # The one on top runs next.
        stack = [] if done[first] else [first]
        while stack:
            number = stack.pop()
            if done[number]:
                continue
            done[number] = True
            order.append(number)
            found = followers[number]
            for follower in found:
                waiting[follower] -= 1
            for array in steps[number].reads:
                left[array] -= 1
                if left[array] == 1:
                    found = found + memory.readers[array]
            for other in reversed(found):
                if not done[other] and not waiting[other]:
                    is_name = steps[other].is_free and not steps[other].makes
                    if is_name or _gained(memory, other, left) < 0:
                        stack.append(other)
    return order


def _waiting(memory: Memory) -> tuple[list[int], list[list[int]]]:
    """For each instruction the number of instructions that it waits for, and those that wait for it."""
    waiting = [len(step.waits_for) for step in memory.steps]
    followers: list[list[int]] = [[] for _ in memory.steps]
    for number, step in enumerate(memory.steps):
        for needed in step.waits_for:
            followers[needed].append(number)
    return waiting, followers


def _gained(memory: Memory, number: int, left: list[int]) -> int:
    """The bytes that are in use after an instruction, less those before; ``left`` readers are to come of each array."""
    step, sizes = memory.steps[number], memory.sizes
    made = sum(sizes[a] for a in step.makes if left[a])
    return made - sum(sizes[a] for a in step.reads if left[a] == 1)
