"""The cost of recomputing an element of an instruction, without its operands."""

from __future__ import annotations

import math
from typing import Final

from xlakit.ir.instruction import Instruction
from xlakit.ops.dot import Dot
from xlakit.ops.gather import Gather
from xlakit.ops.reduction import Reduce
from xlakit.ops.windows import ReduceWindow
from xlakit.passes.analysis.cost_model import cost_model
from xlakit.passes.fusion.cluster import ELEMENTWISE

# Cycles to load an index, keep it within the array, and load one element from there: in vectors, too, each by itself.
_GATHERED: Final = 2.5


def work_of(instruction: Instruction) -> float:
    """The work for one element; none for operations that only move elements to places known beforehand."""
    op = instruction.op
    if isinstance(op, Gather):
        return cost_model().cycles(_GATHERED) / max(1, math.prod(op.slice_sizes))
    if not isinstance(op, ELEMENTWISE):
        # A window or a small product; moving elements costs nothing.
        return 4 * cost_model().plain if isinstance(op, (Reduce, ReduceWindow, Dot)) else 0.0
    return cost_model().operation(op).in_vector * max(1, instruction.shape.element_type.bit_width // 32)
