"""Sort: the kernels of HLO's sort.

``plan_sort`` decides, ``emit_sort`` writes the task functions; ``sort_kernel`` does both for an instruction.
"""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.cpu.kernels import sort_merge, sort_radix, sort_ranks
from xlakit.cpu.kernels.sort_merge import Less, Stored
from xlakit.cpu.kernels.sort_plan import Method, SortPlan, plan_sort
from xlakit.cpu.llvm import Function, Module, Value
from xlakit.cpu.loops.emitter import Emitter
from xlakit.cpu.loops.kernel import Emitted, Phase
from xlakit.cpu.scalars import Scalar
from xlakit.cpu.scalars.memory import from_stored
from xlakit.data.primitive import PrimitiveType
from xlakit.errors import UnsupportedError
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.sort import Sort

__all__ = ["Less", "SortPlan", "emit_sort", "plan_sort", "sort_kernel"]


def sort_kernel(module: Module, instruction: Instruction) -> Emitted:
    """The phases of a sort instruction, no updates, and the bytes of scratch memory.

    Raises UnsupportedError for a comparator that takes other types than the operands have and orders by no keys.
    """
    op = instruction.op_as(Sort)
    plan = plan_sort(op, [o.shape for o in instruction.operands])
    phases = emit_sort(module, plan, comparator_less(op.to_apply, plan.kinds))
    return tuple(phases), {}, plan.scratch_bytes


def emit_sort(module: Module, plan: SortPlan, less: Less) -> list[Phase]:
    """Write the task functions of a sort; they run in this order, each when the one before has ended.

    Their table holds the operands, the results and the scratch memory of ``plan.scratch_bytes`` bytes, aligned to 64.
    Result k may have the memory of operand k where ``plan.in_place[k]``; nothing else may overlap.
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


def comparator_less(comparator: Computation, kinds: Sequence[PrimitiveType]) -> Less:
    """How to write a call of a comparator on elements of these types."""
    taken = [p.shape.element_type for p in comparator.parameters]

    def less(fn: Function, first: Sequence[Stored], second: Sequence[Stored]) -> Value:
        if taken != [kind for kind in kinds for _ in range(2)]:
            raise UnsupportedError("the comparator takes other types than the operands of sort have")
        arguments: list[Scalar] = []
        for kind, a, b in zip(kinds, first, second, strict=True):
            arguments.extend(x if isinstance(x, tuple) else from_stored(fn, kind, x) for x in (a, b))
        (result,) = Emitter(fn, []).called(comparator, arguments)
        assert isinstance(result, Value), "a comparator gives PRED"
        return result

    return less
