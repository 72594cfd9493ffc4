"""Operations on arrays without elements: their results are constants, or the initial value of a reduction."""

from __future__ import annotations

from typing import Any

import numpy as np

from xlakit.ir.instruction import Instruction
from xlakit.ops.communication.transfer import Domain
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import Constant, GetTupleElement, OptimizationBarrier, Parameter
from xlakit.ops.dynamic import SetDimensionSize
from xlakit.ops.movement import Broadcast
from xlakit.ops.reduction import Reduce
from xlakit.passes.core.rewriter import ANY, Rewriter
from xlakit.passes.core.rules import Rules

EMPTY_ARRAYS = Rules("empty-arrays")
_rule = EMPTY_ARRAYS.rule

# Operations that stay. An invalid size of set-dimension-size is an error at run time even for an empty array.
_KEPT = (Parameter, Broadcast, Constant, GetTupleElement, CustomCall, OptimizationBarrier, Domain, SetDimensionSize)


@_rule("reduce")
def reduce_of_nothing(x: Instruction, make: Rewriter) -> Instruction | None:
    """reduce(x, v, f) -> broadcast(v), of an array x without elements."""
    if len(x.operands) != 2 or 0 not in x.operands[0].shape.dimensions or 0 in x.shape.dimensions:
        return None
    init = x.operands[1]
    if x.op_as(Reduce).to_apply.root.shape.element_type is not init.shape.element_type:
        return None
    return make.broadcast(init, x.shape.dimensions)


@_rule("dot")
def dot_of_nothing(x: Instruction, make: Rewriter) -> Instruction | None:
    """dot(x, y) -> 0, where a contracted dimension has size 0."""
    left, right = x.operands
    if 0 not in left.shape.dimensions and 0 not in right.shape.dimensions:
        return None
    if 0 in x.shape.dimensions:
        return None
    return make.full(_zero(x), x.shape)


@_rule(ANY)
def no_elements(x: Instruction, make: Rewriter) -> Instruction | None:
    """x -> broadcast(0), where x has no elements, so that its operands become dead code."""
    if 0 not in x.shape.dimensions or isinstance(x.op, _KEPT):
        return None
    return make.full(_zero(x), x.shape)


def _zero(x: Instruction) -> Any:
    return np.zeros((), x.shape.element_type.dtype)
