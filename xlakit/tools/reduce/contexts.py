"""A step for faults that need what is around an instruction: a loop, a branch, a call or a fusion that runs it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape, make_shape, make_tuple_shape
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.names import unused_name
from xlakit.ir.traits import Done, Start
from xlakit.ops.control import Call, Conditional, Fusion, While
from xlakit.ops.data import Constant, GetTupleElement, Parameter, Tuple
from xlakit.tools.reduce.edits import with_entry
from xlakit.tools.reduce.search import Candidate, Search
from xlakit.tools.reduce.values import filled

_FLAG = make_shape(PrimitiveType.PRED, ())
# What another step makes smaller, or what computes nothing.
_LEFT_OUT = (Constant, GetTupleElement, Parameter, Tuple, Start, Done)


def keep_context(search: Search) -> None:
    """Keep one instruction of a called computation, and of those around it only that they run it.

    Its operands are what the computation is given, or constants. A loop runs its body once: it carries what the
    instruction gives, and whether it goes on.
    """
    search.first(_candidates(search.best))


def _candidates(best: HloModule) -> Iterator[Candidate]:
    for callers, computation in _called(best.entry, ()):
        for i in computation.instructions:
            if not isinstance(i.op, _LEFT_OUT) and not any(s.is_token for _, s in i.shape.leaves()):
                for number in (1, 0):
                    yield partial(_alone, best, callers, i, number)


def _called(
    computation: Computation, callers: tuple[Instruction, ...]
) -> Iterator[tuple[tuple[Instruction, ...], Computation]]:
    """The computations that loops, branches, calls and fusions run, with those that lead there, outermost first."""
    for i in computation.callers:
        inner = (
            [i.op.body]
            if isinstance(i.op, While)
            else i.op.called_computations
            if isinstance(i.op, (Call, Conditional, Fusion))
            else []
        )
        for callee in dict.fromkeys(inner):
            yield (*callers, i), callee
            yield from _called(callee, (*callers, i))


def _alone(module: HloModule, callers: tuple[Instruction, ...], i: Instruction, number: int) -> HloModule:
    """The module of one instruction and its callers. Raises ValueError where it is not smaller, or cannot be."""
    names = _Names()
    made, is_state = _applied(i, number, names), False
    for caller in reversed(callers):
        if isinstance(caller.op, While):
            body = made if is_state else _body(made, number, names)
            made, is_state = _loop(caller, body, names), True
        else:
            made = _around(caller, made, names)
    smaller = with_entry(module, made)
    if smaller.instruction_count() >= module.instruction_count():
        raise ValueError("no instruction is less")
    return smaller


class _Names:
    """Names of instructions and computations, each given once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def __call__(self, base: str) -> str:
        name = unused_name(base, self._taken)
        self._taken.add(name)
        return name


def _parameter(shape: Shape, names: _Names) -> Instruction:
    return Instruction(Parameter(number=0), (), shape, names("x"))


def _applied(i: Instruction, number: int, names: _Names) -> Computation:
    """A computation of one parameter that applies an operation to it; to constants where that has another shape."""
    shapes = [o.shape for o in i.operands]
    given = _parameter(next((s for s in shapes if s == i.shape), shapes[0] if shapes else i.shape), names)
    order = [given]
    constants: dict[Shape, Instruction] = {given.shape: given}
    for shape in shapes:
        if shape not in constants:
            if not shape.is_array:
                raise ValueError("there is no constant for it")
            made = filled(shape.without_layout(), number, names)
            order += made
            constants[shape] = made[-1]
    root = i.replace(operands=[constants[s] for s in shapes], name=names(i.name), control_predecessors=())
    return Computation(names("applied"), (*order, root), root)


def _around(caller: Instruction, made: Computation, names: _Names) -> Computation:
    """A computation that runs another one as a call, a fusion or a branch does."""
    (given,) = made.parameters
    outer = _parameter(given.shape, names)
    order, operands = [outer], [outer]
    if isinstance(caller.op, Conditional):
        order.append(_flag(True, names))
        count = len(caller.op.branch_computations)
        op = Conditional(branch_computations=(made, made))
        operands = [order[-1], outer, outer]
        if count == 1:
            raise ValueError("it has one branch, which a call has, too")
    else:
        op = caller.op.map_computations(lambda _: made)
    root = Instruction(op, operands, made.root.shape, names(caller.name))
    return Computation(names("around"), (*order, root), root)


def _body(made: Computation, number: int, names: _Names) -> Computation:
    """A body that applies a computation once: it gives that the loop ends."""
    (given,), result = made.parameters, made.root.shape
    state = _parameter(make_tuple_shape([_FLAG, result]), names)
    end = _flag(False, names)
    order = [state, end]
    if given.shape == result:
        order.append(Instruction(GetTupleElement(index=1), (state,), result, names("element")))
    else:
        order += filled(given.shape.without_layout(), number, names)
    new = {given: order[-1]}
    for i in made.instructions:
        if i is not given:
            new[i] = i.replace(operands=[new[o] for o in i.operands])
            order.append(new[i])
    root = Instruction(Tuple(), (end, new[made.root]), state.shape, names("next"))
    return Computation(names("body"), (*order, root), root)


def _loop(caller: Instruction, body: Computation, names: _Names) -> Computation:
    """A computation with a loop over a state whose first element says whether it goes on."""
    (inner,) = body.parameters
    outer, tested = _parameter(inner.shape, names), _parameter(inner.shape, names)
    goes_on = Instruction(GetTupleElement(index=0), (tested,), _FLAG, names("goes_on"))
    condition = Computation(names("condition"), (tested, goes_on), goes_on)
    loop = Instruction(While(condition=condition, body=body), (outer,), inner.shape, names(caller.name))
    return Computation(names("looped"), (outer, loop), loop)


def _flag(value: bool, names: _Names) -> Instruction:
    return Instruction(Constant(literal=Literal.from_value(value, PrimitiveType.PRED)), (), _FLAG, names("flag"))
