"""Tuples and control flow: elements of known tuples, conditionals of known or cheap branches, loops that do not run."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.traits import DataMovement
from xlakit.ops.control import Call, Conditional, While
from xlakit.ops.data import GetTupleElement, Iota, Parameter, Tuple
from xlakit.options import knob
from xlakit.passes.core.matching import as_integer, uniform
from xlakit.passes.core.rewriter import Rewriter
from xlakit.passes.core.rules import Rules

CONTROL_FLOW = Rules("control-flow")
_rule = CONTROL_FLOW.rule


# -- tuples ----------------------------------------------------------------------------------------


@_rule("get-tuple-element", of=Tuple)
def element_of_tuple(x: Instruction, make: Rewriter) -> Instruction | None:
    """(x, y)[1] -> y."""
    (inner,) = x.operands
    if inner.control_predecessors:
        return None
    return inner.operands[x.op_as(GetTupleElement).index]


@_rule("tuple")
def tuple_of_elements(x: Instruction, make: Rewriter) -> Instruction | None:
    """(x[0], x[1], ..) -> x, of all elements of a tuple x in order."""
    if not x.operands or not isinstance(x.operands[0].op, GetTupleElement):
        return None
    (whole,) = x.operands[0].operands
    if len(whole.shape.tuple_shapes) != len(x.operands):
        return None
    in_order = all(
        isinstance(o.op, GetTupleElement) and o.operands[0] is whole and o.op_as(GetTupleElement).index == i
        for i, o in enumerate(x.operands)
    )
    return whole if in_order else None


# -- branches --------------------------------------------------------------------------------------


@_rule("conditional")
def conditional_of_known_branch(x: Instruction, make: Rewriter) -> Instruction | None:
    """conditional(true, x, f, y, g) -> call(x, f), and likewise for a constant branch number.

    A number out of range selects the last branch.
    """
    chooser = x.operands[0]
    number = as_integer(uniform(chooser))
    if number is None:
        return None
    branches = x.op_as(Conditional).branch_computations
    last = len(branches) - 1
    is_pred = chooser.shape.element_type is PrimitiveType.PRED
    chosen = (0 if number else 1) if is_pred else number if 0 <= number <= last else last
    return make.add(Call(to_apply=branches[chosen]), x.operands[1 + chosen])


@_rule("conditional")
def conditional_of_equal_branches(x: Instruction, make: Rewriter) -> Instruction | None:
    """conditional(p, x, f, x, f) -> call(x, f): all branches are the same call."""
    branches = x.op_as(Conditional).branch_computations
    if any(b is not branches[0] for b in branches) or any(o is not x.operands[1] for o in x.operands[1:]):
        return None
    return make.add(Call(to_apply=branches[0]), x.operands[1])


# If all branches have few instructions on small arrays, running all of them costs less than a conditional: the most
# branches, instructions of each, and elements of each array.
_FEW_BRANCHES = knob("control_flow.few_branches", 4, 1, 100)
_FEW_INSTRUCTIONS = knob("control_flow.few_instructions", 24, 1, 200)
_FEW_ELEMENTS = knob("control_flow.few_elements", 1024, 0, 1 << 20)
_QUICK = (DataMovement, Iota)


@_rule("conditional")
def conditional_of_cheap_branches(x: Instruction, make: Rewriter) -> Instruction | None:
    """conditional(p, x, f, y, g) -> select(p, f(x), g(y)), where f and g are a few operations on small arrays."""
    branches = x.op_as(Conditional).branch_computations
    shapes = x.shape.tuple_shapes_or_self
    if len(branches) > _FEW_BRANCHES.value or not all(s.is_array for s in shapes) or not all(map(_is_quick, branches)):
        return None
    chooser = x.operands[0]
    results = [make.add(Call(to_apply=b), o) for b, o in zip(branches, x.operands[1:], strict=True)]
    if any(r.shape != x.shape.without_layout() for r in results):
        return None
    if chooser.shape.element_type is PrimitiveType.PRED:
        tests = [chooser]
    else:
        # A number out of range selects the last branch.
        numbers = [make.scalar(n, chooser.shape.element_type) for n in range(len(branches) - 1)]
        tests = [make.compare(chooser, n, "EQ") for n in numbers]
    if not x.shape.is_tuple:
        return _chosen(tests, results, make)
    elements = [_chosen(tests, [make.element(r, i) for r in results], make) for i in range(len(shapes))]
    return make.tuple(*elements)


def _is_quick(branch: Computation) -> bool:
    """Whether a branch is a few operations on small arrays; only elements of its parameter that it does not return
    may be large.
    """
    if len(branch.instructions) > _FEW_INSTRUCTIONS.value:
        return False
    for instruction in branch.instructions:
        if isinstance(instruction.op, (Parameter, GetTupleElement)):
            continue
        if not (instruction.op.pointwise or isinstance(instruction.op, _QUICK)) or instruction.control_predecessors:
            return False
    results = branch.results
    computed = [i for i in branch.instructions if not isinstance(i.op, (Parameter, GetTupleElement, Tuple))]
    return all(i.shape.is_array and i.shape.num_elements <= _FEW_ELEMENTS.value for i in (*computed, *results))


def _chosen(tests: Sequence[Instruction], results: Sequence[Instruction], make: Rewriter) -> Instruction:
    """The first result whose test holds, or the last one."""
    *others, chosen = results
    for test, result in reversed(list(zip(tests, others, strict=True))):
        spread = make.broadcast(test, result.shape.dimensions)
        chosen = make.apply("select", spread, result, chosen)
    return chosen


# -- loops -----------------------------------------------------------------------------------------


@_rule("while")
def while_never(x: Instruction, make: Rewriter) -> Instruction | None:
    """while(c, f, x) -> x, where the condition is the constant false."""
    root = x.op_as(While).condition.root
    number = as_integer(uniform(root)) if root.shape.is_scalar else None
    return x.operands[0] if number == 0 else None
