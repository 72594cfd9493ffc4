"""Unrolling of loops with a small known trip count."""

from __future__ import annotations

import dataclasses
import json

from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.control import Call
from xlakit.ops.data import Iota
from xlakit.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from xlakit.ops.movement import Broadcast, Concatenate, Pad, Reshape, Reverse, Slice, Transpose
from xlakit.options import knob
from xlakit.passes.analysis.loops import Loop, LoopPass, loop_of, trip_count
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import PassContext, is_fixed

# The largest trip count, and number of instructions after unrolling.
_MOST_ITERATIONS = knob("unroll_loops.most_iterations", 8, 0, 50)
_MOST_INSTRUCTIONS = 600
# Operations that fuse with any other, since they only move elements.
_SPREADING = (Broadcast, Iota, Reshape)
# Operations that fuse if they read few elements, or an array that is invariant.
_CHOOSING = (Concatenate, DynamicSlice, DynamicUpdateSlice, Pad, Reverse, Slice, Transpose)
_FEW_ELEMENTS = knob("unroll_loops.few_elements", 256, 0, 10_000)


class UnrollLoops(LoopPass):
    """Unroll loops that run once, or a few times over elementwise operations; remove those that never run.

    Each iteration becomes a call of the body, to be inlined afterwards. Other loops that run a known number of
    iterations get an annotation.
    """

    name = "unroll-loops"

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Replace the loops of one computation."""
        unrolled: dict[Instruction, tuple[Call, int]] = {}
        counted: dict[Instruction, int] = {}
        for loop in map(loop_of, computation.instructions):
            count = None if loop is None else trip_count(loop)
            # Unrolling drops the condition, so it may not have side effects.
            if loop is None or count is None or loop.condition.has_side_effect:
                continue
            if not _is_worth_it(loop, count):
                if not loop.instruction.annotations.backend_config and context.spend("trip-count"):
                    counted[loop.instruction] = count
                continue
            name = "loop-never-run" if count == 0 else "loop-run-once" if count == 1 else "short-loop"
            if context.spend(name):
                unrolled[loop.instruction] = (Call(to_apply=loop.body), count)
        if not unrolled and not counted:
            return computation
        cloner = ComputationCloner(computation, context)
        for old in computation.instructions:
            if old in unrolled:
                state = cloner.clones[old.operands[0]]
                body, count = unrolled[old]
                for _ in range(count):
                    state = cloner.add(body, state, like=old)
                cloner.substitute(old, state)
            elif old in counted:
                cloner.substitute(old, cloner.append(_annotated(old, counted[old], cloner)))
            else:
                cloner.clone(old)
        return cloner.build()


def _annotated(loop: Instruction, count: int, cloner: ComputationCloner) -> Instruction:
    """The loop with its trip count in XLA's backend config."""
    note = json.dumps({"known_trip_count": {"n": str(count)}}, separators=(",", ":"))
    annotations = dataclasses.replace(loop.annotations, backend_config=note)
    return loop.replace(operands=[cloner.clones[loop.operands[0]]], annotations=annotations)


def _is_worth_it(loop: Loop, iterations: int) -> bool:
    if iterations <= 1:
        return True
    instructions = loop.body.instructions
    if iterations > _MOST_ITERATIONS.value or iterations * len(instructions) > _MOST_INSTRUCTIONS:
        return False
    return all(_fuses(i, loop) for i in instructions)


def _fuses(instruction: Instruction, loop: Loop) -> bool:
    """Whether an instruction of the body can be fused with all others, including those of other iterations.

    An instruction that reads a large array of the previous iteration out of order cannot: fusion would compute its
    elements again for each reader.
    """
    if is_fixed(instruction):
        return False
    op = instruction.op
    if op.pointwise or isinstance(op, _SPREADING):
        return True
    if not isinstance(op, _CHOOSING):
        return False
    if loop.element(instruction.operands[0]) in loop.unchanged and isinstance(op, (DynamicSlice, Slice)):
        return True
    return all(
        x.shape.is_array and x.shape.num_elements <= _FEW_ELEMENTS.value for x in (instruction, *instruction.operands)
    )
