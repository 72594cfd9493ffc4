"""Steps that make the state of loops smaller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from xlakit.data.literal import Literal
from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.control import While
from xlakit.ops.data import Constant, GetTupleElement, Parameter, Tuple
from xlakit.tools.reduce.edits import Draft, cleaned, edited
from xlakit.tools.reduce.search import Candidate, Search, repeated


def run_iterations(search: Search) -> None:
    """Give what loops of the entry compute in single iterations, from the states that they have in a run.

    All of them become results, which other steps drop.
    """
    best = search.best
    if any(isinstance(i.op, While) for i in best.entry.calling_instructions):
        search.first([partial(_iterations, best, name, s) for name, s in search.captured().states.items()])


def _iterations(module: HloModule, name: str, states: Sequence[Any]) -> HloModule:
    draft = Draft(module.entry, is_entry=True)
    (loop,) = (i for i in module.entry.calling_instructions if i.name == name)
    op = loop.op_as(While)
    results: list[Instruction] = []
    for state in states:
        given = _constant(draft, loop.shape, state)
        for computation in (op.body, op.condition):
            root = draft.inline(computation, [given])
            results += root.operands if isinstance(root.op, Tuple) else [root]
    results = [i for i in dict.fromkeys(results) if i.shape.is_array]
    entry = draft.build(results[0] if len(results) == 1 else draft.add(Tuple(), results, name="results"))
    return cleaned(module, entry)


def _constant(draft: Draft, shape: Shape, value: Any) -> Instruction:
    if shape.is_tuple:
        return draft.add(Tuple(), [_constant(draft, s, v) for s, v in zip(shape.tuple_shapes, value, strict=True)])
    if not shape.is_array:
        raise ValueError("there is no constant for it")
    return draft.add(Constant(literal=Literal(shape.without_layout(), np.asarray(value))))


@repeated
def freeze_state(best: HloModule) -> Iterator[Candidate]:
    """Make elements of a loop's state keep their initial values."""
    for loop, count in _loops(best):
        for number in range(count):
            yield partial(_frozen, best, loop.op_as(While).body.name, number)


@repeated
def drop_state(best: HloModule) -> Iterator[Candidate]:
    """Drop elements of a loop's state that are only used to compute their own next values."""
    for loop, count in _loops(best):
        for number in range(count):
            yield partial(_without_element, best, loop, number)


@repeated
def unpack_state(best: HloModule) -> Iterator[Candidate]:
    """Let loops over a tuple of one element be over that element."""
    for loop, count in _loops(best):
        if count == 1:
            yield partial(_unpacked, best, loop)


def _unpacked(module: HloModule, loop: Instruction) -> HloModule:
    """The module with the element of a loop's state as its state. Raises ValueError where the tuple is needed."""
    inside = loop.op.called_computations
    (shape,) = loop.shape.tuple_shapes

    def change(draft: Draft, i: Instruction, op: Op, operands: tuple[Instruction, ...]) -> Instruction | None:
        is_inside = draft.old in inside
        if is_inside and isinstance(op, Parameter):
            return draft.append(i.replace(shape=shape))
        if is_inside and isinstance(op, Tuple) and i is draft.old.root:
            return operands[0]
        if i is loop:
            (state,) = operands
            if isinstance(state.op, Tuple):
                return draft.keep(i, op, state.operands)
            if draft.is_entry and isinstance(state.op, Parameter):
                return draft.keep(i, op, (draft.parameter(shape, draft.unused_name(state.name)),))
            return draft.keep(i, op, (draft.add(GetTupleElement(index=0), operands),))
        reads = i.operands == (loop,) or (is_inside and any(_is_parameter(o) for o in i.operands))
        if reads and not isinstance(op, GetTupleElement):
            raise ValueError("the tuple is needed")
        return operands[0] if reads else None

    return edited(module, change)


def _loops(module: HloModule) -> list[tuple[Instruction, int]]:
    """The loops over tuples whose body ends with one, and how many elements that has."""
    loops = [i for c in module.computations for i in c.calling_instructions if isinstance(i.op, While)]
    return [(i, len(i.shape.tuple_shapes)) for i in loops if i.shape.is_tuple and _is_plain(i.op_as(While).body)]


def _is_plain(body: Computation) -> bool:
    return isinstance(body.root.op, Tuple)


def _frozen(module: HloModule, body: str, number: int) -> HloModule:
    def change(draft: Draft, i: Instruction, op: Op, operands: tuple[Instruction, ...]) -> Instruction | None:
        if draft.old.name != body or i is not draft.old.root:
            return None
        (parameter,) = draft.old.parameters
        if _is_element(i.operands[number], parameter, number) or isinstance(i.operands[number].op, Constant):
            raise ValueError("it stays what it is already")
        element = draft.add(GetTupleElement(index=number), [draft.new[parameter]])
        return draft.keep(i, op, (*operands[:number], element, *operands[number + 1 :]))

    return edited(module, change)


def _is_element(i: Instruction, parameter: Instruction, number: int) -> bool:
    return isinstance(i.op, GetTupleElement) and i.operands == (parameter,) and i.op.index == number


def _without_element(module: HloModule, loop: Instruction, number: int) -> HloModule:
    """The module without an element of a loop's state. Raises ValueError where something else needs it."""
    op = loop.op_as(While)
    if _needs(op.body, number, but=number) or _needs(op.condition, number):
        raise ValueError("the loop needs the element")
    shape = make_tuple_shape([s for n, s in enumerate(loop.shape.tuple_shapes) if n != number])

    def change(draft: Draft, i: Instruction, op: Op, operands: tuple[Instruction, ...]) -> Instruction | None:
        is_inside = draft.old in (loop.op_as(While).body, loop.op_as(While).condition)
        if is_inside and isinstance(op, Parameter):
            return draft.append(i.replace(shape=shape))
        if is_inside and i is draft.old.root and isinstance(op, Tuple):
            return draft.keep(i, op, operands[:number] + operands[number + 1 :])
        if i is loop:
            if draft.is_entry and isinstance(operands[0].op, Parameter):
                return draft.keep(i, op, (draft.parameter(shape, draft.unused_name(operands[0].name)),))
            state = [draft.add(GetTupleElement(index=n), operands) for n in range(len(loop.shape.tuple_shapes))]
            new = draft.add(Tuple(), state[:number] + state[number + 1 :])
            return draft.keep(i, op, (new,))
        if isinstance(op, GetTupleElement) and (i.operands == (loop,) or (is_inside and _is_parameter(i.operands[0]))):
            if op.index == number:
                # Nothing that stays reads it.
                return draft.append(i.replace(op=Constant(literal=_zero(i.shape)), operands=()))
            return draft.keep(i, GetTupleElement(index=op.index - (op.index > number)), operands)
        if loop in i.operands:
            raise ValueError("the whole state is needed")
        return None

    if loop in (c.root for c in module.computations[:-1]) or _is_read(module, loop, number):
        raise ValueError("the element is a result")
    return edited(module, change)


def _is_parameter(i: Instruction) -> bool:
    return isinstance(i.op, Parameter)


def _is_read(module: HloModule, loop: Instruction, number: int) -> bool:
    return any(_is_element(i, loop, number) for i in module.instructions)


def _needs(computation: Computation, number: int, but: int | None = None) -> bool:
    """Whether a computation needs an element of its parameter, other than for one element of its result."""
    (parameter,) = computation.parameters
    root = computation.root
    live = {root, *(o for n, o in enumerate(root.operands) if n != but)} if but is not None else {root}
    for i in reversed(computation.instructions):
        if i in live or i.op.has_side_effect:
            live.update(i.operands if i is not root or but is None else ())
    if any(parameter in i.operands and not isinstance(i.op, GetTupleElement) for i in live):
        return True
    return any(_is_element(i, parameter, number) for i in live)


def _zero(shape: Shape) -> Literal:
    if shape.is_tuple:
        return Literal.make_tuple([_zero(s) for s in shape.tuple_shapes])
    if not shape.is_array:
        return Literal.token()
    return Literal(shape.without_layout(), np.zeros(shape.dimensions, shape.element_type.dtype))
