"""What computing an element of an instruction again takes, beside what it is made of."""

from __future__ import annotations

from xlakit.ir.instruction import Instruction
from xlakit.ops.dot import Dot
from xlakit.ops.reduction import Reduce
from xlakit.ops.windows import ReduceWindow
from xlakit.passes.analysis.cost_model import PLAIN, operation_cost
from xlakit.passes.fusion.cluster import ELEMENTWISE


def work_of(instruction: Instruction) -> float:
    """One element of an instruction; nothing where it only says where elements lie."""
    op = instruction.op
    if not isinstance(op, ELEMENTWISE):
        # A window or a small product; what moves elements costs nothing.
        return 4 * PLAIN.in_vector if isinstance(op, (Reduce, ReduceWindow, Dot)) else 0.0
    return operation_cost(op).in_vector * max(1, instruction.shape.element_type.bit_width // 32)
