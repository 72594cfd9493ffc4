"""Sort: the kernels of HLO's sort.

``plan_sort`` chooses the method, ``emit_sort`` writes the task functions; ``sort_kernel`` does both for an instruction.
"""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.kernels.shared.preconditions import require
from xlakit.cpu.kernels.sort import merge, parallel_radix, ranks, rows
from xlakit.cpu.kernels.sort.merge import Less, Stored
from xlakit.cpu.kernels.sort.plan import RANKED_ROW, Method, SortPlan, is_quick, plan_sort, with_scratch
from xlakit.cpu.kernels.sort.record import INDEX, Field, carried
from xlakit.cpu.llvm import Function, Module, Value
from xlakit.cpu.loops.emit.emitter import Emitter
from xlakit.cpu.loops.emit.kernel import Kernel, Phase
from xlakit.cpu.scalars import Scalar
from xlakit.cpu.scalars.memory import as_real, from_stored
from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.sort import Sort

__all__ = ["Less", "SortPlan", "emit_sort", "plan_sort", "sort_kernel"]


def sort_kernel(module: Module, instruction: Instruction) -> Kernel:
    """The kernel of a sort instruction.

    Raises DeclinedError for a comparator that takes other types than the operands have and orders by no keys.
    """
    op = instruction.op_as(Sort)
    plan = plan_sort(op, [o.shape for o in instruction.operands])
    phases = emit_sort(module, plan, comparator_less(op.to_apply, plan.kinds))
    return Kernel(tuple(phases), scratch_bytes=plan.scratch_bytes)


def emit_sort(module: Module, plan: SortPlan, less: Less) -> list[Phase]:
    """Write the task functions of a sort; they run in this order, each when the one before has ended.

    Their table has the operands, the results and the scratch memory of ``plan.scratch_bytes`` bytes, aligned to 64.
    Result k may have the memory of operand k if ``plan.in_place[k]``; nothing else may overlap. ``less(fn, first,
    second)`` writes the comparator's result for two elements of each operand; it is used if the plan has no order.
    """
    check_plan(plan)
    match plan.method:
        case Method.NOTHING:
            return []
        case Method.RANKS:
            return ranks.emit_rows(module, plan)
        case Method.QUICK | Method.RADIX:
            return rows.emit_rows(module, plan)
        case Method.PARALLEL_RADIX:
            return parallel_radix.emit_parallel(module, plan)
        case Method.MERGE:
            return merge.emit_rows(module, plan, less)


def check_plan(plan: SortPlan) -> None:
    """Raise InternalError for a plan whose code would access memory outside of its rows, records or scratch."""
    if plan.method is Method.NOTHING:
        return
    shared = plan.method is Method.PARALLEL_RADIX
    by_keys = plan.method is not Method.MERGE
    what = f"a {plan.phases}"
    require(
        what,
        [
            ("there are rows, elements and tasks", min(plan.rows, plan.length, plan.tasks, plan.columns) > 0),
            (
                "what goes by keys has an order and records",
                not by_keys or (plan.order is not None and bool(plan.records)),
            ),
        ],
    )
    require(
        what,
        [
            ("what is sorted in vectors is numbers alone", plan.method is not Method.QUICK or is_quick(plan.records)),
            ("short rows alone are ranked", plan.method is not Method.RANKS or plan.length <= RANKED_ROW.value),
            ("rows are whole numbers of chunks", not shared or plan.tasks % plan.rows == 0),
            ("records that are stored over others are as wide", len({r.bits for r in plan.records}) <= 1),
            (
                "positions in a row fit their field",
                all(f.bits > 32 or plan.length <= 1 << f.bits for f in _positions(plan)),
            ),
            ("results that are read again have memory of their own", _keeps_what_it_reads(plan)),
            ("scratch is as long", plan.scratch_bytes >= with_scratch(plan).scratch_bytes),
        ],
    )


def _positions(plan: SortPlan) -> list[Field]:
    return [f for r in plan.records for f in r.fields if f.operand == INDEX]


def _keeps_what_it_reads(plan: SortPlan) -> bool:
    """Whether no result has the memory of an operand whose elements are gathered after the order is known."""
    if not plan.method.moves_records:
        return True
    last = plan.records[-1] if plan.records else None
    return last is not None and all(
        not shares or carried(last, number, kind)
        for number, (shares, kind) in enumerate(zip(plan.in_place, plan.kinds, strict=True))
    )


def comparator_less(comparator: Computation, kinds: Sequence[PrimitiveType]) -> Less:
    """Gives the function that writes a call of a comparator for elements of these types."""
    parameter_types = [p.shape.element_type for p in comparator.parameters]

    def less(fn: Function, first: Sequence[Stored], second: Sequence[Stored]) -> Value:
        if parameter_types != [kind for kind in kinds for _ in range(2)]:
            raise DeclinedError("the comparator takes other types than the operands of sort have")
        arguments: list[Scalar] = []
        for kind, a, b in zip(kinds, first, second, strict=True):
            arguments.extend(x if isinstance(x, tuple) else from_stored(fn, kind, x) for x in (a, b))
        (result,) = Emitter(fn, []).called(comparator, arguments)
        return as_real(result)

    return less
