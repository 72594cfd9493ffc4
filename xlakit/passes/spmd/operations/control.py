"""Loops and branches: each value at their boundaries has one tiling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from xlakit.ir.instruction import Instruction
from xlakit.ops.control import Conditional, While
from xlakit.passes.spmd.pieces.pieces import smallest
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Split, Tiling, is_whole, same_teams, whole
from xlakit.passes.spmd.shardings.values import Piece, Value, leaves
from xlakit.passes.spmd.walk import Region, Walk

# How often a loop's body is rebuilt in the tilings of its own results.
_MOST_TRIALS = 3


def loop(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """Split a loop: its state has tilings that the body preserves, as far as a fixed point is found.

    An element that the loop only adds to, or whose parts it only replaces, holds partial sums, which are added up after
    the loop; what it begins with is then one member's.
    """
    op, (init,) = old.op_as(While), operands
    scope = smallest(walk.scope, operands)
    tilings, sums = _own(init, scope), [_sum_of(p, scope) for p in leaves(init)]
    summed: set[int] = set()
    for _ in range(_MOST_TRIALS):
        body = walk.region(op.body, scope, [tilings], of=old, sums=sums)
        condition = walk.region(op.condition, scope, [tilings], [()], of=old, sums=sums)
        summed.update(_summed(body, condition, sums))
        found = _partial(body, tilings, sums, summed)
        if (body.tilings, found) == (tilings, sums):
            break
        tilings, sums = body.tilings, found
    else:
        sums = [None] * len(tilings)
        body = walk.region(op.body, scope, [tilings], tilings, of=old, sums=sums)
        condition = walk.region(op.condition, scope, [tilings], [()], of=old, sums=sums)
    given = walk.pieces.bundle(init, iter(tilings), scope, iter(sums))
    made = While(condition=condition.computation, body=body.computation)
    return walk.pieces.carried(walk.pieces.make.like(old, made, (given,), given.shape), old.shape, tilings, scope, sums)


def _sum_of(piece: Piece, scope: Scope) -> Split | None:
    """The numbers of the partial sums that a value is, where a loop may take it as such."""
    is_partial = piece.scope == scope and piece.instead is None and not piece.parts
    return piece.unreduced if is_partial else None


def _summed(body: Region, condition: Region, sums: Sequence[Split | None]) -> Iterator[int]:
    """The elements of a state that would be added up in each iteration if they held partial sums."""
    for n, (numbers, given, tested) in enumerate(zip(sums, body.state, condition.state, strict=True)):
        if numbers is not None and (given.parts or tested.parts or not same_teams(body.result[n].unreduced, numbers)):
            yield n


def _partial(
    body: Region, tilings: Sequence[Tiling], sums: Sequence[Split | None], summed: Set[int]
) -> list[Split | None]:
    """The numbers of the partial sums of each element, after a trial: what it was given, or what it adds."""
    found = [None if n in summed else numbers for n, numbers in enumerate(sums)]
    for n, piece in enumerate(body.result):
        number, added = piece.accumulates or (None, None)
        if number == n and n not in summed and found[n] is None and body.tilings[n] == tilings[n]:
            found[n] = added
    return found


def conditional(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """Split a conditional: all members take the same branch, and all branches give results in the same tilings."""
    op, (_, *arguments) = old.op_as(Conditional), operands
    scope = smallest(walk.scope, operands)
    given = [_own(argument, scope) for argument in arguments]
    trials = [walk.region(c, scope, [t], of=old) for c, t in zip(op.branch_computations, given, strict=True)]
    agreed = [_agreed(leaf) for leaf in zip(*(trial.tilings for trial in trials), strict=True)]
    branches = [
        (trial if trial.tilings == agreed else walk.region(c, scope, [tilings], agreed, of=old)).computation
        for trial, c, tilings in zip(trials, op.branch_computations, given, strict=True)
    ]
    taken = [walk.pieces.bundle(value, iter(t), scope) for value, t in zip(operands, [[()], *given], strict=True)]
    shape = branches[0].root.shape
    made = walk.pieces.make.like(old, Conditional(branch_computations=tuple(branches)), taken, shape)
    return walk.pieces.carried(made, old.shape, agreed, scope)


def _own(value: Value, scope: Scope) -> list[Tiling]:
    """The tilings of a value, unequal parts before others; a value of another scope counts as whole."""
    return [p.kept if p.scope == scope else whole(len(p.tiling)) for p in leaves(value)]


def _agreed(tilings: Sequence[Tiling]) -> Tiling:
    """The tilings for all branches: an array that one branch splits is split in all, which is cheaper than a gather."""
    return next((t for t in tilings if not is_whole(t)), tilings[0])
