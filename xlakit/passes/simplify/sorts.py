"""Rules of sorts: descending sorts of reversed or negated arrays.

An ascending sort of reversed or negated arrays becomes a sort with the opposite comparator. A stable sort keeps the
order of equal elements; so does reversing before and after it.
"""

from __future__ import annotations

from dataclasses import replace

from xlakit.ir.instruction import Computation, Instruction, post_order
from xlakit.ops.data import GetTupleElement
from xlakit.ops.elementwise.unary import Negate
from xlakit.ops.movement import Reverse
from xlakit.ops.sort import Sort, TopK
from xlakit.passes.core.computation_builder import ComputationBuilder
from xlakit.passes.core.framework import PassContext, is_fixed
from xlakit.passes.core.matching import one_type
from xlakit.passes.core.rewriter import Rewriter
from xlakit.passes.core.rules import Rules

SORTS = Rules("sorts")
_rule = SORTS.rule


@_rule("reverse")
def reverse_sort(x: Instruction, make: Rewriter) -> Instruction | None:
    """reverse(sort(reverse(x), reverse(y))) -> sort(x, y), by the opposite order, where only one result is read.

    Equal elements keep the order of x, since they are reversed twice. A comparator that puts NaN last in both
    directions has no opposite.
    """
    (inner,) = x.operands
    sort, number = (inner.operands[0], inner.op.index) if isinstance(inner.op, GetTupleElement) else (inner, 0)
    if not isinstance(sort.op, Sort) or is_fixed(sort) or make.uses(inner) > 1 or make.uses(sort) > 1:
        return None
    turned = Reverse(dimensions=(sort.op.dimension,))
    if x.op != turned or any(o.op != turned or is_fixed(o) for o in sort.operands):
        return None
    opposite = _opposite(sort.op.to_apply, make.context)
    if opposite is None:
        return None
    op = Sort(dimension=sort.op.dimension, is_stable=True, to_apply=opposite)
    sources = [o.operands[0] for o in sort.operands]
    again = make.add(op, *sources, shape=sort.shape.without_layout())
    return make.element(again, number) if again.shape.is_tuple else again


def _opposite(comparator: Computation, context: PassContext) -> Computation | None:
    """The comparator of the opposite order, if the keys of the comparator are recognized; else None."""
    # Imported here: few programs sort.
    from xlakit.passes.analysis.sort_order import recognize_order

    builder = ComputationBuilder(context)
    clones: dict[Instruction, Instruction] = {}
    for number, old in enumerate(comparator.parameters):
        clones[comparator.parameters[number ^ 1]] = builder.parameter(number, old.shape)
    for each in post_order([comparator.root]):
        if each not in clones:
            clones[each] = builder.add(each.op, *(clones[o] for o in each.operands), shape=each.shape)
    opposite = builder.computation(comparator.name, clones[comparator.root])
    keys = recognize_order(comparator)
    if keys is None or recognize_order(opposite) != tuple(replace(k, descending=not k.descending) for k in keys):
        return None
    return opposite


@_rule("topk", of=Negate)
def top_k_negated(x: Instruction, make: Rewriter) -> Instruction | None:
    """topk(-x) -> (-values, indices) of the topk(x) from the other end of the order, for floats.

    Negating reverses the total order, NaN and zeros included; not of integers, whose least is its own negation.
    """
    (negated,) = x.operands
    op = x.op_as(TopK)
    kind = negated.shape.element_type
    if not one_type(negated) or not kind.is_floating or kind.has_one_nan:
        return None
    other = make.add(replace(op, largest=not op.largest), negated.operands[0])
    values, indices = make.elements(other)
    return make.tuple(make.apply("negate", values), indices)
