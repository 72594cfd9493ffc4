"""Calls of LAPACK on matrices as LAPACK has them in memory: column by column."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from xlakit.cpu.c_layouts import call_in_memory, with_calls
from xlakit.data.layout import Layout
from xlakit.data.shape import Shape
from xlakit.execution.calls.lapack import batch_rank, transposed_target
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.custom_call import CustomCall
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import ComputationPass, PassContext


class TransposedMatrices(ComputationPass):
    """Give LAPACK its matrices transposed, by operations that fuse with others and that vanish between two calls.

    calls: the names of calls that LAPACK answers.
    """

    name = "lapack-layouts"

    def __init__(self, calls: Collection[str]) -> None:
        self._calls = calls

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Change the calls of one computation."""
        chosen = {i for i in computation.instructions if self._is_meant(i)}
        return with_calls(computation, chosen, _called, context)

    def _is_meant(self, instruction: Instruction) -> bool:
        op = instruction.op
        if not isinstance(op, CustomCall) or op.custom_call_target not in self._calls:
            return False
        if not any(o.shape.is_array and o.shape.rank > 1 for o in instruction.operands):
            # No matrix: it fails if it is ever made.
            return False
        shapes = (*(o.shape for o in instruction.operands), instruction.shape)
        # Dynamic dimensions have the call done by Python, for each size that comes.
        return all(s.is_array and not s.is_dynamic for shape in shapes for _, s in shape.leaves())


def _called(old: Instruction, cloner: ComputationCloner) -> Instruction:
    op = old.op_as(CustomCall)
    shapes = [o.shape for o in old.operands]
    rank = batch_rank(s.rank for s in shapes) + 2
    made = dataclasses.replace(
        op,
        custom_call_target=transposed_target(op.custom_call_target) or "",
        # What is changed in place follows from the routine.
        operand_layout_constraints=None,
        output_to_operand_aliasing=(),
    )
    columns = [_by_columns(shape, rank) for shape in shapes]
    return call_in_memory(old, made, columns, old.shape.with_leaves(lambda leaf: _by_columns(leaf, rank)), cloner)


def _by_columns(shape: Shape, rank: int) -> Shape:
    """The shape with the layout of matrices column by column, if it is of matrices."""
    if shape.rank != rank:
        return shape.with_default_layout()
    *batch, rows, columns = range(rank)
    return shape.with_layout(Layout((rows, columns, *reversed(batch))))
