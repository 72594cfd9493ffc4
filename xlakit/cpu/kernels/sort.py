"""Sort: the kernels of HLO's sort.

``plan_sort`` decides, ``emit_sort`` writes the task functions.
"""

from __future__ import annotations

from xlakit.cpu.kernels import sort_merge, sort_radix, sort_ranks
from xlakit.cpu.kernels.sort_merge import Less
from xlakit.cpu.kernels.sort_plan import Method, Phase, SortPlan, plan_sort
from xlakit.cpu.llvm import Module

__all__ = ["Less", "Phase", "SortPlan", "emit_sort", "plan_sort"]


def emit_sort(module: Module, plan: SortPlan, less: Less) -> list[Phase]:
    """Write the task functions of a sort; they run in this order, each when the one before has ended.

    Their table holds the operands, the results and the scratch memory of ``plan.scratch_bytes`` bytes, aligned to 64.
    Result k may have the memory of operand k where ``plan.in_place[k]``; results must not overlap otherwise.
    ``less(fn, first, second)`` writes the comparator's result for two elements of each operand, where the plan has
    no order.
    """
    match plan.method:
        case Method.NOTHING:
            return []
        case Method.RANKS:
            return sort_ranks.emit_rows(module, plan)
        case Method.RADIX:
            return sort_radix.emit_rows(module, plan)
        case Method.PARALLEL_RADIX:
            return sort_radix.emit_parallel(module, plan)
        case Method.MERGE:
            return sort_merge.emit_rows(module, plan, less)
        case Method.PARALLEL_MERGE:
            return sort_merge.emit_parallel(module, plan, less)
