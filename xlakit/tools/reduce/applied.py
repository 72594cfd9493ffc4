"""Steps that simplify computations applied to elements (as in reductions, sorts), and the arrays of such operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import make_tuple_shape
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.data import GetTupleElement, Parameter, Tuple
from xlakit.ops.reduction import Reduce
from xlakit.ops.scatter import Scatter
from xlakit.ops.sort import Sort
from xlakit.ops.windows import ReduceWindow
from xlakit.passes.core.framework import mark_live
from xlakit.tools.reduce.edits import Draft, cleaned, edited, renumbered
from xlakit.tools.reduce.search import Candidate, repeated
from xlakit.tools.reduce.values import retyped, with_parameters_used

# Types that stand for all others: of two arrays that become the same, one is enough.
_UNITING = (PrimitiveType.S32, PrimitiveType.PRED, PrimitiveType.F32)


@repeated
def enter_computations(best: HloModule) -> Iterator[Candidate]:
    """Make a called computation the entry: a fault in it mostly shows for any arguments."""
    for computation in best.computations:
        if computation is not best.entry:
            yield partial(cleaned, best, computation)


@repeated
def drop_arrays(best: HloModule) -> Iterator[Candidate]:
    """Let operations that reduce, sort or scatter several arrays at once have one array less."""
    for computation in best.computations:
        for i in computation.calling_instructions:
            for number in range(_array_count(i)):
                yield partial(_without_array, best, i, number)


def _array_count(i: Instruction) -> int:
    """How many arrays an operation takes at once, where it may take fewer."""
    if isinstance(i.op, (Reduce, ReduceWindow)):
        count = len(i.operands) // 2
    elif isinstance(i.op, Scatter):
        count = (len(i.operands) - 1) // 2
    elif isinstance(i.op, Sort):
        count = len(i.operands)
    else:
        return 0
    return count if count > 1 else 0


def _without_array(module: HloModule, target: Instruction, number: int) -> HloModule:
    """The module without one array of an operation. Raises ValueError where something needs it."""
    count = _array_count(target)
    left = count - 1
    # Sort applies its computation to pairs, one after the other; of others all left sides come first.
    is_sort = isinstance(target.op, Sort)
    dropped_parameters = {2 * number, 2 * number + 1} if is_sort else {number, count + number}
    (applied,) = target.op.called_computations
    smaller = _without_parameters(applied, dropped_parameters, None if is_sort else number)
    second = count + number + isinstance(target.op, Scatter)
    dropped = {number} if is_sort else {number, second}

    def change(draft: Draft, i: Instruction, op: Op, operands: tuple[Instruction, ...]) -> Instruction | None:
        if i is target:
            kept_operands = tuple(o for n, o in enumerate(operands) if n not in dropped)
            return draft.add(op.map_computations(lambda _: smaller), kept_operands, name=i.name)
        if isinstance(op, GetTupleElement) and i.operands == (target,):
            if op.index == number:
                raise ValueError("the result is needed")
            index = op.index - (op.index > number)
            return operands[0] if left == 1 else draft.keep(i, GetTupleElement(index=index), operands)
        return None

    return edited(module, change)


def _without_parameters(applied: Computation, dropped_numbers: set[int], element: int | None) -> Computation:
    """A computation without some parameters, and without an element of its result. Raises ValueError if needed."""
    root = applied.root
    if element is not None:
        if not isinstance(root.op, Tuple):
            raise ValueError("the results are not told apart")
        left = [o for n, o in enumerate(root.operands) if n != element]
        shape = make_tuple_shape([o.shape for o in left])
        root = left[0] if len(left) == 1 else Instruction(Tuple(), left, shape, root.name)
    listed = [*(i for i in applied.instructions if i is not applied.root), root]
    live = mark_live([i for i in listed if not isinstance(i.op, Parameter)], root) | {root}
    if any(isinstance(i.op, Parameter) and i.op.number in dropped_numbers for i in live):
        raise ValueError("the computation needs the array")
    parameters = [p for n, p in enumerate(applied.parameters) if n not in dropped_numbers]
    order = list(dict.fromkeys([*parameters, *(i for i in listed if i in live)]))
    kept_numbers = [n for n in range(len(applied.parameters)) if n not in dropped_numbers]
    return renumbered(applied, order, root, kept_numbers)


@repeated
def share_computations(best: HloModule) -> Iterator[Candidate]:
    """Call one computation where two of the same parameters and result are called."""
    for one, other in _pairs(best):
        shorter, longer = sorted((one, other), key=lambda c: len(c.instructions))
        yield partial(_shared, best, longer, shorter)
        yield partial(_shared, best, shorter, longer)


def _pairs(module: HloModule) -> Iterator[tuple[Computation, Computation]]:
    """Pairs of computations, without the entry, that take and give the same shapes."""
    inner = [c for c in module.computations if c is not module.entry]
    for one, other in combinations(inner, 2):
        program, second = one.program_shape, other.program_shape
        if program.parameters == second.parameters and program.result == second.result:
            yield one, other


def _shared(module: HloModule, old: Computation, kept: Computation) -> HloModule:
    """The module that calls a computation in place of another. Raises KeyError where that comes too late."""
    rebuilt: dict[Computation, Computation] = {}

    def change(i: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        op = i.op.map_computations(lambda c: rebuilt[kept if c is old else c]) if i.op.can_call else i.op
        return i.replace(op=op, operands=operands)

    for computation in module.computations:
        rebuilt[computation] = computation.rebuild(change)
    return cleaned(module, rebuilt[module.entry])


@repeated
def give_parameters(best: HloModule) -> Iterator[Candidate]:
    """Let computations that others than calls run give a parameter."""
    for computation in best.computations:
        if computation is not best.entry and not isinstance(computation.root.op, Parameter):
            yield partial(_giving_parameters, best, [computation.name])


def _giving_parameters(module: HloModule, names: Sequence[str]) -> HloModule:
    """The module in which computations give their first parameter of the result's shape, where there is one."""
    roots: dict[str, str] = {}
    for computation in module.computations:
        if computation.name in names:
            shape = computation.root.shape
            fitting = (p.name for p in computation.parameters if p.shape.compatible(shape))
            roots[computation.name] = next(fitting, computation.root.name)
    return edited(module, inner_roots=roots)


@repeated
def unite_types(best: HloModule) -> Iterator[Candidate]:
    """Make all numbers of one type, where operands or computations that become the same can be dropped then."""
    types = {leaf.element_type for i in best.instructions for _, leaf in i.shape.leaves()}
    for new in _UNITING:
        # In the order of the enumeration, which does not change from run to run.
        for old in sorted((t for t in types if t is not new and t.is_array), key=lambda t: t.value):
            yield partial(_united, best, old, new)


def _united(module: HloModule, old: PrimitiveType, new: PrimitiveType) -> HloModule:
    """The module with one type in place of another. Raises ValueError where it is not shorter then."""
    same = retyped(module, old, new)
    same = _giving_parameters(same, [c.name for c in same.computations if c is not same.entry])
    first: dict[object, Instruction] = {}

    def merge(draft: Draft, i: Instruction, op: Op, operands: tuple[Instruction, ...]) -> Instruction | None:
        if not draft.is_entry or not isinstance(op, Parameter):
            return None
        if i.shape not in first:
            first[i.shape] = draft.keep(i, op, operands)
        return first[i.shape]

    merged = with_parameters_used(edited(same, merge))
    while (pair := next(_pairs(merged), None)) is not None:
        merged = _shared(merged, pair[1], pair[0])
    if merged.instruction_count() >= module.instruction_count():
        raise ValueError("no instruction is less")
    return merged
