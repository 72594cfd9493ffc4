"""Linear operations on partial sums: their result is kept as partial sums, and summed once instead of each operand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Instruction
from xlakit.ops.dynamic import DynamicUpdateSlice
from xlakit.ops.elementwise.binary import Add, Subtract
from xlakit.ops.reduction import Reduce, reducer_op
from xlakit.passes.core.matching import is_zero, uniform
from xlakit.passes.spmd.pieces.choice import Choice
from xlakit.passes.spmd.pieces.local import tiling_of
from xlakit.passes.spmd.pieces.pieces import smallest
from xlakit.passes.spmd.shardings.factors import factors_of
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import same_teams
from xlakit.passes.spmd.shardings.values import Piece, Value, array_of
from xlakit.passes.spmd.walk import Walk

# Linear operations, op(a + b) = op(a) + op(b), with the number of leading operands that may be partial sums; None: all.
_TERMS: Final[dict[str, int | None]] = {
    "add": 2,
    "concatenate": None,
    "convert": 1,
    "copy": 1,
    "dynamic-slice": 1,
    "dynamic-update-slice": 2,
    "negate": 1,
    "pad": 2,
    "reduce": 1,
    "reshape": 1,
    "broadcast": 1,
    "slice": 1,
    "subtract": 2,
    "transpose": 1,
}
# Operations by which a loop adds to a loop-carried value, or fills it.
_ACCUMULATING: Final = (Add, Subtract, DynamicUpdateSlice)


def plain(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """An operation on parts; the result of a linear operation on partial sums is kept as partial sums if that saves
    sums or a constraint asks for it.
    """
    given = [v for v in operands if isinstance(v, Piece)]
    is_linear = old.opcode in _TERMS and len(given) == len(operands)
    if not is_linear or all(p.unreduced is None for p in given):
        return walk.plain(old, operands)
    value = _on_partial_sums(walk, old, given)
    if value is None:
        value = walk.plain(old, operands)
        if isinstance(value, Piece):
            _mark(old, given, value)
    return value


def _on_partial_sums(walk: Walk, old: Instruction, given: Sequence[Piece]) -> Piece | None:
    terms = given[: _TERMS[old.opcode]]
    numbers, scope = terms[0].unreduced, smallest(walk.scope, given)
    if numbers is None or old.control_predecessors or not _is_linear_in(old):
        return None
    if any(p.scope != scope or not same_teams(p.unreduced, numbers) for p in terms):
        return None
    without_partial_sums: Callable[[], Piece] | None = None
    if not same_teams(walk.asked_sum(old, scope), numbers):
        if walk.annotation(old, scope) is not None or not (walk.is_repeated or isinstance(old.op, (Add, Subtract))):
            return None
        if len(terms) == 1:
            if old.shape.num_elements > terms[0].shape.num_elements:
                return None
            without_partial_sums = walk.later(old, given)
        elif any(p.parts for p in terms):
            # A term has been summed already, so adding up the result would be an additional sum.
            return None
    made = _made(walk, old, given, len(terms), scope)
    if made is None:
        return None
    return Piece(
        made.instruction, made.tiling, scope, old.shape, unreduced=numbers, without_partial_sums=without_partial_sums
    )


def _is_linear_in(old: Instruction) -> bool:
    """Whether an operation of the table is linear for its types: only floats may change their type, to a wider one."""
    if isinstance(old.op, Reduce):
        is_sum = len(old.operands) == 2 and isinstance(reducer_op(old.op.to_apply), Add)
        if not is_sum or not is_zero(uniform(old.operands[1]), negative=None):
            return False
    kind, given = old.shape.element_type, old.operands[0].shape.element_type
    if kind is given:
        return kind is not PrimitiveType.PRED
    return kind.is_floating and given.is_floating and kind.bit_width > given.bit_width >= 16


def _made(walk: Walk, old: Instruction, given: Sequence[Piece], count: int, scope: Scope) -> Piece | None:
    """The operation on the parts of partial sums; None if these would have to be resharded."""
    factors = factors_of(old)
    if factors is None:
        return None
    choice = Choice(old, factors)
    for dims, piece in zip(factors.operands[:count], given, strict=False):
        choice.offer(dims, piece.tiling)
    tilings = [tiling_of(dims, choice.splits) for dims in factors.operands[:count]]
    if factors.summed & choice.splits.keys() or tilings != [p.tiling for p in given[:count]]:
        return None
    local = [replace(p, unreduced=None, without_partial_sums=None, source=None, parts={}) for p in given[:count]]
    return array_of(walk.pieces.in_parts(old, [*local, *given[count:]], scope, factors, choice.splits))


def _mark(old: Instruction, given: Sequence[Piece], value: Piece) -> None:
    """Record that a value is an element of a loop's state with partial sums added to it."""
    if not isinstance(old.op, _ACCUMULATING):
        return
    for carried, added in (given[:2], given[1::-1]):
        number, known = carried.accumulates or (None, None)
        if number is None or carried.unreduced is not None or added.unreduced is None:
            continue
        is_same = known is None or same_teams(known, added.unreduced)
        if is_same and added.scope == carried.scope and added.tiling == carried.tiling == value.tiling:
            value.accumulates = number, added.unreduced
