"""Tuples and control flow: tuples taken apart and put together, branches known beforehand, loops that do not run."""

from __future__ import annotations

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Instruction
from xlakit.ops.control import Call, Conditional, While
from xlakit.ops.data import GetTupleElement
from xlakit.passes.matching import as_integer, uniform
from xlakit.passes.rewriter import Rewriter
from xlakit.passes.rules import Rules

CONTROL_FLOW = Rules("control-flow")
_rule = CONTROL_FLOW.rule


# -- tuples ----------------------------------------------------------------------------------------


@_rule("get-tuple-element")
def element_of_tuple(x: Instruction, make: Rewriter) -> Instruction | None:
    """(x, y)[1] -> y."""
    (inner,) = x.operands
    if inner.op.opcode != "tuple" or inner.control_predecessors:
        return None
    return inner.operands[x.op_as(GetTupleElement).index]


@_rule("tuple")
def tuple_of_elements(x: Instruction, make: Rewriter) -> Instruction | None:
    """(x[0], x[1], ..) -> x, of all elements of a tuple x in order."""
    if not x.operands or x.operands[0].op.opcode != "get-tuple-element":
        return None
    (whole,) = x.operands[0].operands
    if len(whole.shape.tuple_shapes) != len(x.operands):
        return None
    in_order = all(
        o.op.opcode == "get-tuple-element" and o.operands[0] is whole and o.op_as(GetTupleElement).index == i
        for i, o in enumerate(x.operands)
    )
    return whole if in_order else None


# -- branches --------------------------------------------------------------------------------------


@_rule("conditional")
def conditional_of_known_branch(x: Instruction, make: Rewriter) -> Instruction | None:
    """conditional(c, x, f, y, g) -> call(x, f) where c is known to be true, and so by number.

    A number out of range means the last branch.
    """
    chooser = x.operands[0]
    number = as_integer(uniform(chooser))
    if number is None:
        return None
    branches = x.op_as(Conditional).branch_computations
    last = len(branches) - 1
    is_pred = chooser.shape.element_type is PrimitiveType.PRED
    chosen = (0 if number else 1) if is_pred else number if 0 <= number <= last else last
    return make.make(Call(to_apply=branches[chosen]), x.operands[1 + chosen])


@_rule("conditional")
def conditional_of_equal_branches(x: Instruction, make: Rewriter) -> Instruction | None:
    """conditional(p, x, f, x, f) -> call(x, f): whatever is chosen is the same."""
    branches = x.op_as(Conditional).branch_computations
    if any(b is not branches[0] for b in branches) or any(o is not x.operands[1] for o in x.operands[1:]):
        return None
    return make.make(Call(to_apply=branches[0]), x.operands[1])


@_rule("conditional")
def conditional_of_untouched(x: Instruction, make: Rewriter) -> Instruction | None:
    """conditional(p, x, f, x, g) -> x, where all branches give their argument as it is."""
    branches = x.op_as(Conditional).branch_computations
    if any(b.root.op.opcode != "parameter" for b in branches) or any(o is not x.operands[1] for o in x.operands[1:]):
        return None
    return x.operands[1]


# -- loops -----------------------------------------------------------------------------------------


@_rule("while")
def while_never(x: Instruction, make: Rewriter) -> Instruction | None:
    """while(c, f, x) -> x, where c is false, whatever it is given."""
    root = x.op_as(While).condition.root
    number = as_integer(uniform(root)) if root.shape.is_scalar else None
    return x.operands[0] if number == 0 else None
