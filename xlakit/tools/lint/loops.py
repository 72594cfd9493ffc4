"""Lints of loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xlakit.ops.control import While
from xlakit.passes.analysis.loops import decides_once, loop_of, trip_count
from xlakit.passes.core.matching import as_integer, uniform
from xlakit.passes.loops.invariants import invariant_instructions
from xlakit.tools.lint.registry import Found, lint
from xlakit.verifier.faults import Program

# Invariants of fewer bytes than this are not reported: hoisting adds an element to the loop's state.
_WORTH_A_WARNING: Final = 1 << 16


@lint(
    "loop-invariant-not-hoisted",
    f"an instruction of a loop's body that is the same in every iteration, of {_WORTH_A_WARNING >> 10} KiB or more",
)
def _loop_invariant_not_hoisted(program: Program) -> Iterator[Found]:
    for _, instruction in program.instructions():
        loop = loop_of(instruction)
        # Hoisting saves nothing for a single iteration.
        if loop is None or not loop.unchanged or trip_count(loop) in (0, 1):
            continue
        for inner in invariant_instructions(loop):
            size = inner.shape.byte_size + sum(o.shape.byte_size for o in inner.operands)
            if size >= _WORTH_A_WARNING:
                yield Found(
                    loop.body,
                    inner,
                    f"every iteration of {instruction.name} computes the same, with {size >> 10} KiB read and written",
                    "compute it before the loop, and carry it",
                )


@lint("loop-without-end", "a loop whose condition does not depend on anything that its body changes")
def _loop_without_end(program: Program) -> Iterator[Found]:
    for computation, instruction in program.instructions(While):
        condition = instruction.op_as(While).condition
        if not decides_once(instruction):
            continue
        constant = as_integer(uniform(condition.root))
        if constant is not None:
            result = "always true: the loop does not end" if constant else "always false: the loop never runs"
        else:
            result = "the same in all iterations: the loop does not run at all, or does not end"
        hint = "let the body change what the condition reads" if constant != 0 else "leave the loop out"
        yield Found(computation, instruction, f"the condition {condition.name} is {result}", hint)


@lint("loop-never-runs", "a counted loop that runs no iteration")
def _loop_never_runs(program: Program) -> Iterator[Found]:
    for computation, instruction in program.instructions():
        loop = loop_of(instruction)
        if loop is not None and trip_count(loop) == 0:
            yield Found(
                computation,
                instruction,
                "the counter begins where the condition is false already: the loop runs no iteration",
                "correct the bounds, or use the initial value itself",
            )


@lint(
    "while-without-trip-count",
    "a loop of which it is not known how often it runs, so that no pass unrolls it and no cost is exact",
    is_default=False,
)
def _while_without_trip_count(program: Program) -> Iterator[Found]:
    for computation, instruction in program.instructions():
        if isinstance(instruction.op, While):
            loop = loop_of(instruction)
            if loop is None or trip_count(loop) is None:
                yield Found(
                    computation,
                    instruction,
                    "the number of iterations is not known before the loop runs",
                    "count an integer from a constant to a constant by a constant, where the algorithm allows it",
                )
