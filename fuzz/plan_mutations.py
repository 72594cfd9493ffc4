"""``python -m fuzz.plan_mutations``: broken memory plans are refused wherever a run would differ.

A plan is broken by what a planner could get wrong: two slices change places, a slice moves over another one, a copy is
left out, two neighboring steps change places, a step gets another buffer of the same size. Plans that the checker still
accepts are compiled and run: they must give what the right plan gives.

    python -m fuzz.plan_mutations --seed 7 --seconds 60
    python -m fuzz.plan_mutations --seed 7 --number 12        one program, with its text
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

from fuzz.idioms import FAMILIES, results_of, same
from fuzz.programs.sketch import Sketched
from fuzz.support import numbered
from xlakit.cpu.checker import check as checker
from xlakit.cpu.checker.check import check_memory_plan
from xlakit.cpu.checker.faults import MemoryPlanError
from xlakit.cpu.entry.buffers import Buffer
from xlakit.cpu.entry.emit import SMALL_BYTES
from xlakit.cpu.entry.lowering import Lowered
from xlakit.cpu.entry.steps import ConditionalStep, CopyStep, KernelStep, Step, WhileStep, used_in
from xlakit.ir.instruction import HloModule
from xlakit.options import compiling

# Nothing is a variable of the entry, so that all that is temporary has a slice to break.
_KNOBS = {SMALL_BYTES.name: 0}
_MUTANTS = 6


def lists_of(steps: list[Step]) -> list[list[Step]]:
    """The list of steps, and all lists inside of it."""
    found = [steps]
    for step in steps:
        inner = [step.condition, step.body] if isinstance(step, WhileStep) else []
        inner = step.branches if isinstance(step, ConditionalStep) else inner
        for each in inner:
            found += lists_of(each)
    return found


def _arena(steps: list[Step]) -> list[Buffer]:
    found = [b for b in used_in(steps) if b.place == "temporary" and b.offset >= 0 and b.bytes]
    return sorted(found, key=lambda b: (b.offset, b.bytes, b.name))


def _swap_slices(steps: list[Step], rng: random.Random) -> str:
    one, other = rng.sample(_arena(steps), 2)
    one.offset, other.offset = other.offset, one.offset
    return f"{one} and {other} have changed places"


def _move_slice(steps: list[Step], rng: random.Random) -> str:
    one, other = rng.sample(_arena(steps), 2)
    one.offset = other.offset
    return f"{one} is where {other} is"


def _drop_copy(steps: list[Step], rng: random.Random) -> str:
    found = [(own, n) for own in lists_of(steps) for n, s in enumerate(own) if isinstance(s, CopyStep)]
    own, number = rng.choice(found)
    step = own.pop(number)
    return f"no {step}"


def _swap_steps(steps: list[Step], rng: random.Random) -> str:
    own = rng.choice([own for own in lists_of(steps) if len(own) > 1])
    number = rng.randrange(len(own) - 1)
    own[number], own[number + 1] = own[number + 1], own[number]
    return f"steps {number} and {number + 1} have changed places"


def _other_buffer(steps: list[Step], rng: random.Random) -> str:
    kernels = [s for own in lists_of(steps) for s in own if isinstance(s, KernelStep) and s.table]
    step = rng.choice(kernels)
    number = rng.randrange(len(step.table))
    alike = [b for b in used_in(steps) if b.bytes == step.table[number].resolved().bytes and b.place != "constant"]
    other = rng.choice(sorted(alike, key=repr))
    step.table = (*step.table[:number], other, *step.table[number + 1 :])
    return f"array {number} of {step.instruction.name} is {other}"


MUTATIONS: tuple[Callable[[list[Step], random.Random], str], ...] = (
    _swap_slices,
    _move_slice,
    _drop_copy,
    _swap_steps,
    _other_buffer,
)


def broken(rng: random.Random, done: list[str]) -> Callable[..., None]:
    """A check of memory plans that breaks them first; ``done`` is told how."""

    def check(module: HloModule, lowered: Lowered, *rest: Any) -> None:
        try:
            done.append(rng.choice(MUTATIONS)(lowered.steps, rng))
        except (IndexError, ValueError):
            return  # there is nothing of the kind to break
        check_memory_plan(module, lowered, *rest)

    return check


def judge(program: Sketched, rng: random.Random, counts: Counter[str]) -> str:
    """What a plan that is broken, and accepted, gives beside the right one; empty where all of them agree."""
    module, given = program.module, program.arguments
    with compiling(knobs=_KNOBS, check_memory=True):
        expected = results_of(module, given, (), "cpu")
        for _ in range(_MUTANTS):
            done: list[str] = []
            with mock.patch.object(checker, "check_memory_plan", broken(rng, done)):
                try:
                    actual = results_of(module, given, (), "cpu")
                except MemoryPlanError:
                    counts["refused"] += 1
                    continue
            counts["accepted" if done else "not broken"] += 1
            wrong = [name for name in expected if not same(actual[name], expected[name])]
            if wrong:
                return f"{wrong[0]} is {actual[wrong[0]]} instead of {expected[wrong[0]]}: {done}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = numbered.parser("fuzz.plan_mutations", __doc__ or "", 2000).parse_args(arguments)
    counts: Counter[str] = Counter()

    def fault_of(number: int) -> str:
        families = sorted(FAMILIES)
        program = FAMILIES[families[number % len(families)]](options.seed, number // len(families))
        if options.number is not None:
            print(program.module.to_text())
        return judge(program, random.Random(f"{options.seed} {number}"), counts)

    status = numbered.run("fuzz.plan_mutations", numbered.entries(options, fault_of), options.seconds)
    print(", ".join(f"{count} plans {name}" for name, count in sorted(counts.items())), file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
