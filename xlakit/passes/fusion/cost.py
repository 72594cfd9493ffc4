"""What computing an element of an instruction again takes, beside what it is made of."""

from __future__ import annotations

from xlakit.ir.instruction import Instruction
from xlakit.ops.dot import Dot
from xlakit.ops.reduction import Reduce
from xlakit.ops.windows import ReduceWindow
from xlakit.passes.analysis.cost_model import cost_model
from xlakit.passes.fusion.cluster import ELEMENTWISE


def work_of(instruction: Instruction) -> float:
    """One element of an instruction; nothing where it only says where elements lie."""
    op = instruction.op
    if not isinstance(op, ELEMENTWISE):
        # A window or a small product; what moves elements costs nothing.
        return 4 * cost_model().plain if isinstance(op, (Reduce, ReduceWindow, Dot)) else 0.0
    return cost_model().operation(op).in_vector * max(1, instruction.shape.element_type.bit_width // 32)
