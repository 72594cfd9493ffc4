"""``python -m fuzz.plan_mutations``: broken memory plans are refused wherever a run would differ.

A plan is broken by what a planner could get wrong: two slices change places, a slice moves over another one, a copy is
left out, two neighboring steps change places, a value gets another slice of the same size, a result an argument's
memory. Plans that the checker still accepts are compiled and run, all arguments being donated: they must give what the
right plan gives.

    python -m fuzz.plan_mutations --seed 7 --seconds 60
    python -m fuzz.plan_mutations --seed 7 --number 12        one program, with its text
"""

from __future__ import annotations

import random
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from unittest import mock

from fuzz.idioms import FAMILIES, results_of, same
from fuzz.programs.composed.sketch import Sketched
from fuzz.support import numbered
from xlakit.cpu import codegen
from xlakit.ir.instruction import HloModule
from xlakit.memory.assignment import SMALL_BYTES, BufferSlice, Space
from xlakit.memory.checker.faults import MemoryPlanError
from xlakit.memory.plan import MemoryPlan, plan_memory
from xlakit.memory.steps import ConditionalStep, CopyStep, KernelStep, Step, StepProgram, WhileStep, walk
from xlakit.memory.values import HloValue
from xlakit.options import compiling

# Nothing is a variable of the entry, so that all that is temporary has a slice to break.
_KNOBS = {SMALL_BYTES.name: 0}
_MUTANTS = 6
Row = Sequence[Step]


def rows_of(steps: Row) -> Iterator[Row]:
    """The row of steps, and all rows inside of it."""
    yield steps
    for step in walk(steps):
        if isinstance(step, WhileStep):
            yield from (step.condition, step.body)
        elif isinstance(step, ConditionalStep):
            yield from step.branches


def with_row(steps: Row, old: Row, new: Row) -> Row:
    """Steps of which one row, somewhere inside, is another one."""
    if steps is old:
        return new
    made: list[Step] = []
    for step in steps:
        if isinstance(step, WhileStep):
            inner = with_row(step.condition, old, new), with_row(step.body, old, new)
            made.append(replace(step, condition=inner[0], body=inner[1]))
        elif isinstance(step, ConditionalStep):
            made.append(replace(step, branches=[with_row(branch, old, new) for branch in step.branches]))
        else:
            made.append(step)
    return made


def with_slice(plan: MemoryPlan, values: Sequence[HloValue], own: BufferSlice) -> MemoryPlan:
    """A plan that has some values in another slice."""
    slices = {value: plan.slice_of(value) for each in plan.slices for value in each.values}
    return replace(plan, _slice_of={**slices, **dict.fromkeys(values, own)})


def _arena(plan: MemoryPlan) -> list[BufferSlice]:
    return [own for own in plan.slices if own.space is Space.ARENA and own.size]


def _swap_slices(plan: MemoryPlan, rng: random.Random) -> MemoryPlan:
    one, other = rng.sample(_arena(plan), 2)
    first = with_slice(plan, one.values, replace(one, offset=other.offset))
    return with_slice(first, other.values, replace(other, offset=one.offset))


def _move_slice(plan: MemoryPlan, rng: random.Random) -> MemoryPlan:
    one, other = rng.sample(_arena(plan), 2)
    return with_slice(plan, one.values, replace(one, offset=other.offset))


def _drop_copy(plan: MemoryPlan, rng: random.Random) -> MemoryPlan:
    row, step = rng.choice([(row, step) for row in rows_of(plan.steps) for step in row if isinstance(step, CopyStep)])
    return replace(plan, steps=with_row(plan.steps, row, [s for s in row if s is not step]))


def _swap_steps(plan: MemoryPlan, rng: random.Random) -> MemoryPlan:
    row = rng.choice([row for row in rows_of(plan.steps) if len(row) > 1])
    number = rng.randrange(len(row) - 1)
    new = [*row[:number], row[number + 1], row[number], *row[number + 2 :]]
    return replace(plan, steps=with_row(plan.steps, row, new))


def _other_slice(plan: MemoryPlan, rng: random.Random) -> MemoryPlan:
    value = rng.choice([v for s in walk(plan.steps) if isinstance(s, KernelStep) for v in s.table])
    alike = [own for own in plan.slices if own.size == value.bytes and own.space is not Space.CONSTANT]
    return with_slice(plan, [value], rng.choice(alike))


def _donate(plan: MemoryPlan, rng: random.Random) -> MemoryPlan:
    results, arguments = range(len(plan.results)), range(len(plan.arguments))
    pairs = {(r, a) for r in results for a in arguments if plan.results[r].bytes == plan.arguments[a].bytes} - set(
        plan.donations
    )
    result, argument = rng.choice(sorted(pairs))
    # Each result and each argument is in one pair.
    others = [(r, a) for r, a in plan.donations if r != result and a != argument]
    return replace(plan, donations=(*others, (result, argument)))


MUTATIONS: tuple[Callable[[MemoryPlan, random.Random], MemoryPlan], ...] = (
    _swap_slices,
    _move_slice,
    _drop_copy,
    _swap_steps,
    _other_slice,
    _donate,
)


def broken(rng: random.Random, done: list[str]) -> Callable[[HloModule, StepProgram], MemoryPlan]:
    """A planner whose plans are broken; ``done`` is told how."""

    def plan(module: HloModule, program: StepProgram) -> MemoryPlan:
        right, mutation = plan_memory(module, program), rng.choice(MUTATIONS)
        try:
            made = mutation(right, rng)
        except (IndexError, ValueError):
            return right  # there is nothing of the kind to break
        done.append(mutation.__name__)
        return made

    return plan


def judge(program: Sketched, rng: random.Random, counts: Counter[str]) -> str:
    """What a plan that is broken, and accepted, gives beside the right one; empty where all of them agree."""
    module, given = program.module, program.arguments
    with compiling(knobs=_KNOBS, check_memory=True):
        expected = results_of(module, given, (), "cpu")
        for _ in range(_MUTANTS):
            done: list[str] = []
            with mock.patch.object(codegen, "plan_memory", broken(rng, done)):
                try:
                    actual = results_of(module, given, range(len(given)), "cpu")
                except MemoryPlanError:
                    counts["refused"] += 1
                    continue
            counts["accepted" if done else "not broken"] += 1
            wrong = [name for name in expected if not same(actual[name], expected[name])]
            if wrong:
                return f"{wrong[0]} is {actual[wrong[0]]} instead of {expected[wrong[0]]}: {done}"
    return ""


_COUNTS: Counter[str] = Counter()


def _fault_of(options: Namespace, number: int) -> str:
    families = sorted(FAMILIES)
    program = FAMILIES[families[number % len(families)]](options.seed, number // len(families))
    numbered.show(options, program.module.to_text())
    return judge(program, random.Random(f"{options.seed} {number}"), _COUNTS)


def _summary() -> str:
    return ": " + ", ".join(f"{count} plans {name}" for name, count in sorted(_COUNTS.items()))


main = numbered.net("fuzz.plan_mutations", __doc__, 2000, _fault_of, summary=_summary)

if __name__ == "__main__":
    sys.exit(main())
