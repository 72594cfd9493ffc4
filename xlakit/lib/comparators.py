"""Comparators for sorts.

Source: ``xla/hlo/builder/lib/comparators.h``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xlakit.builder import XlaBuilder, XlaComputation
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import ShapeError
from xlakit.ir.enums import ComparisonType
from xlakit.ops.data import parameter
from xlakit.ops.elementwise.compare import Compare, eq, eq_total_order, gt, gt_total_order, lt, lt_total_order
from xlakit.ops.elementwise.select import select
from xlakit.ops.handle import XlaOp, building


@building
def create_scalar_lt_computation(operand_types: Sequence[PrimitiveType]) -> XlaComputation:
    """(T0, T0, T1, T1, ..) -> PRED: whether the first element is less than the second one; the others do not count.

    Floating point numbers are in total order: -NaN < -Inf < .. < -0 < 0 < .. < Inf < NaN. Raises ShapeError if there is
    no type.
    Source: CreateScalarLtComputation.
    """
    return _by_first("compare-less-than", operand_types, lt, lt_total_order)


@building
def create_scalar_gt_computation(operand_types: Sequence[PrimitiveType]) -> XlaComputation:
    """(T0, T0, T1, T1, ..) -> PRED: whether the first element is greater than the second; the others do not count.

    The order is that of :func:`create_scalar_lt_computation`. Source: CreateScalarGtComputation.
    """
    return _by_first("compare-greater-than", operand_types, gt, gt_total_order)


def _by_first(
    name: str,
    types: Sequence[PrimitiveType],
    compare: Callable[[XlaOp, XlaOp], XlaOp],
    compare_total_order: Callable[[XlaOp, XlaOp], XlaOp],
) -> XlaComputation:
    _check(types)
    chosen = compare_total_order if types[0].is_floating else compare
    return create_scalar_comparison_computation(name, types, [chosen, *[None] * (len(types) - 1)])


@building
def create_scalar_comparison_computation(
    name: str,
    operand_types: Sequence[PrimitiveType],
    comparators: Sequence[Callable[[XlaOp, XlaOp], XlaOp] | None],
) -> XlaComputation:
    """(T0, T0, T1, T1, ..) -> PRED: the keys compared one after another, each where all before it are equal.

    name: the name of the computation.
    operand_types: the types of the arrays that are sorted together.
    comparators: for each, such as ``xlakit.gt``; None for what is no key. Keys that are compared in total order are
        equal in it; otherwise 0 equals -0, and NaN nothing.

    Raises ShapeError where the numbers of types and comparators differ, or there is no key.
    Source: CreateScalarComparisonComputation.
    """
    _check(operand_types)
    if len(comparators) != len(operand_types) or not [c for c in comparators if c is not None]:
        raise ShapeError(
            f"{len(comparators)} comparators are given for {len(operand_types)} types",
            hint="give one for each type, None for what is no key; at least one is needed",
        )
    builder = XlaBuilder(name)
    result: XlaOp | None = None
    pairs: list[tuple[XlaOp, XlaOp]] = []
    for i, type in enumerate(operand_types):
        lhs, rhs = (
            parameter(builder, 2 * i + k, Shape(type), f"p.{i}.{side}") for k, side in enumerate(("lhs", "rhs"))
        )
        pairs.append((lhs, rhs))
    for (lhs, rhs), compare in reversed(list(zip(pairs, comparators, strict=True))):
        if compare is None:
            continue
        before = compare(lhs, rhs)
        if result is not None:
            op = before.instruction.op
            is_total = isinstance(op, Compare) and op.type is ComparisonType.TOTALORDER
            before = select((eq_total_order if is_total else eq)(lhs, rhs), result, before)
        result = before
    return builder.build(result)


def _check(types: Sequence[PrimitiveType]) -> None:
    if not types:
        raise ShapeError("takes at least one type", hint="give the type of each array that is sorted")
