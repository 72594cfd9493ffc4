"""Steps for faults that need what is around an instruction: a loop, a branch, a call or a fusion that runs it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape, make_shape, make_tuple_shape
from xlakit.ir.enums import ComparisonDirection
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.names import unused_name
from xlakit.ir.traits import Done, Start
from xlakit.ops.control import Call, Conditional, Fusion, While
from xlakit.ops.data import Constant, GetTupleElement, Parameter, Tuple
from xlakit.ops.elementwise.compare import Compare
from xlakit.ops.movement import Reshape
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
    search.first(_candidates(search.best, (1, 0), by_value=False))


def end_by_value(search: Search) -> None:
    """Keep one instruction of loops as :func:`keep_context` does it; they carry its value alone, until it changes.

    The value is a constant at first, with which the condition compares it.
    """
    search.first(_candidates(search.best, (2, -2, 0), by_value=True))


def _candidates(best: HloModule, numbers: tuple[int, ...], *, by_value: bool) -> Iterator[Candidate]:
    for callers, computation in _called(best.entry, ()):
        for i in computation.instructions:
            if not isinstance(i.op, _LEFT_OUT) and not any(s.is_token for _, s in i.shape.leaves()):
                for operation, number in product((_of_scalars(i), i) if by_value else (i,), numbers):
                    yield partial(_alone, best, callers, operation, number, by_value=by_value)


def _of_scalars(i: Instruction) -> Instruction:
    """An instruction without dimensions, which not every operation allows."""

    def scalar(shape: Shape) -> Shape:
        return make_shape(shape.element_type, ()) if shape.is_array else shape

    return i.replace(operands=[o.replace(shape=scalar(o.shape)) for o in i.operands], shape=scalar(i.shape))


def _called(
    computation: Computation, callers: tuple[Instruction, ...]
) -> Iterator[tuple[tuple[Instruction, ...], Computation]]:
    """The computations that loops, branches, calls and fusions run, with those that lead there, outermost first."""
    for i in computation.calling_instructions:
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


def _alone(
    module: HloModule, callers: tuple[Instruction, ...], i: Instruction, number: int, *, by_value: bool
) -> HloModule:
    """The module of one instruction and its callers. Raises ValueError where it is not smaller, or cannot be."""
    names = _Names()
    made, is_state = _applied(i, number, names), False
    tests: dict[Shape, Computation] = {}
    for caller in reversed(callers):
        if isinstance(caller.op, While) and by_value:
            test = tests.setdefault(made.root.shape, _until_changed(made, number, names))
            made = _while(caller, made, test, names)
        elif isinstance(caller.op, While):
            body = made if is_state else _body(made, number, names)
            made, is_state = _loop(caller, body, names), True
        else:
            made = _around(caller, made, names)
    if by_value:
        order = filled(made.instructions[0].shape.without_layout(), number, names)
        root = _append(order, made)
        made = Computation(made.name, tuple(order), root)
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
    root = Instruction(Tuple(), (end, _append(order, made)), state.shape, names("next"))
    return Computation(names("body"), (*order, root), root)


def _append(order: list[Instruction], made: Computation) -> Instruction:
    """Append what a computation does to the last of some instructions; its result."""
    new = {made.parameters[0]: order[-1]}
    for i in made.instructions[1:]:
        new[i] = i.replace(operands=[new[o] for o in i.operands])
        order.append(new[i])
    return new[made.root]


def _loop(caller: Instruction, body: Computation, names: _Names) -> Computation:
    """A computation with a loop over a state whose first element says whether it goes on."""
    tested = _parameter(body.root.shape, names)
    goes_on = Instruction(GetTupleElement(index=0), (tested,), _FLAG, names("goes_on"))
    return _while(caller, body, Computation(names("condition"), (tested, goes_on), goes_on), names)


def _until_changed(body: Computation, number: int, names: _Names) -> Computation:
    """The condition that the one element of a value is a number; of a flag, that it is set."""
    shape = body.root.shape
    tested = _parameter(shape, names)
    name = names("condition")
    if shape == _FLAG:
        return Computation(name, (tested,), tested)
    if body.parameters[0].shape != shape or not shape.is_array or shape.num_elements != 1:
        raise ValueError("the body does not give one element of what it is given")
    order, scalar = [tested], make_shape(shape.element_type, ())
    if shape.rank:
        order.append(Instruction(Reshape(), (tested,), scalar, names("element")))
    order += filled(scalar, number, names)
    operation = Compare(direction=ComparisonDirection.EQ)
    order.append(Instruction(operation, order[-2:], _FLAG, names("unchanged")))
    return Computation(name, tuple(order), order[-1])


def _while(caller: Instruction, body: Computation, condition: Computation, names: _Names) -> Computation:
    """A computation that runs a loop."""
    outer = _parameter(body.root.shape, names)
    loop = Instruction(While(condition=condition, body=body), (outer,), outer.shape, names(caller.name))
    return Computation(names("looped"), (outer, loop), loop)


def _flag(value: bool, names: _Names) -> Instruction:
    return Instruction(Constant(literal=Literal.from_value(value, PrimitiveType.PRED)), (), _FLAG, names("flag"))
