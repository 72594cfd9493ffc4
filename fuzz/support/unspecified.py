"""Finds behavior of a program that HLO leaves unspecified, so that two correct runs may give different results."""

from __future__ import annotations

from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.traits import Elementwise
from xlakit.ops.elementwise.compare import Compare, ComparisonDirection, ComparisonType
from xlakit.ops.elementwise.convert import BitcastConvert
from xlakit.ops.elementwise.select import Select
from xlakit.ops.reduction import applied_op
from xlakit.ops.sort import Sort

_REDUCERS = ("reduce", "reduce-window", "select-and-scatter", "all-reduce", "reduce-scatter")


def unspecified(module: HloModule) -> str:
    """What it is, in words; empty where results are determined, but for roundings.

    Reducers are combined in any order, comparators must be orders, elements that compare equal may end in any order
    where a sort is not stable, a program may promise of indices what does not hold, and the bits of a NaN that is
    computed are any that say so.
    """
    said = (_of(i) for computation in module.computations for i in computation.instructions)
    return next(filter(None, said), "")


def _of(instruction: Instruction) -> str:
    op = instruction.op
    if any(getattr(op, promise, False) for promise in ("unique_indices", "indices_are_sorted")):
        return "promises about indices"
    if isinstance(op, Sort):
        if not op.is_stable:
            return "sorts that are not stable"
        return "" if _is_order(op.called_computations[0]) else "comparators that may be no orders"
    if instruction.opcode in _REDUCERS and not all(map(_associates, op.called_computations)):
        return "reducers that may not associate"
    if isinstance(op, BitcastConvert) and _is_computed_float(instruction.operands[0]):
        return "bits of numbers that may be NaN"
    return ""


def _is_computed_float(source: Instruction) -> bool:
    """Whether an operation computes the elements of an array of floats, and does not only choose among others."""
    is_computed = isinstance(source.op, Elementwise) and not isinstance(source.op, Select)
    return is_computed and not source.shape.element_type.is_integral


def _associates(computation: Computation) -> bool:
    return applied_op(computation) is not None or isinstance(computation.root.op, Compare)


def _is_order(computation: Computation) -> bool:
    """Whether a comparator says which of two parameters is less, and nothing else, and there are no NaN among them."""
    root, parameters = computation.root, set(computation.parameters)
    if not isinstance(root.op, Compare) or not set(root.operands) <= parameters or len(set(root.operands)) != 2:
        return False
    is_strict = root.op.direction in (ComparisonDirection.LT, ComparisonDirection.GT)
    has_nan = root.operands[0].shape.element_type.is_floating and root.op.type is not ComparisonType.TOTALORDER
    return is_strict and not has_nan
