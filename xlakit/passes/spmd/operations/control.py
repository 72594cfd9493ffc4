"""Loops and branches: each value at their boundaries has one tiling."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.ir.instruction import Instruction
from xlakit.ops.control import Conditional, While
from xlakit.passes.spmd.pieces.pieces import smallest
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Tiling, is_whole, whole
from xlakit.passes.spmd.shardings.values import Value, leaves
from xlakit.passes.spmd.walk import Walk

# How often a loop's body is rebuilt in the tilings of its own results.
_MOST_TRIALS = 3


def loop(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """Split a loop: its state has tilings that the body preserves, as far as a fixed point is found."""
    op, (init,) = old.op_as(While), operands
    scope = smallest(walk.scope, operands)
    tilings = _own(init, scope)
    for _ in range(_MOST_TRIALS):
        body, found = walk.region(op.body, scope, [tilings], of=old)
        if found == tilings:
            break
        tilings = found
    else:
        body, _ = walk.region(op.body, scope, [tilings], tilings, of=old)
    condition, _ = walk.region(op.condition, scope, [tilings], [()], of=old)
    given = walk.pieces.bundle(init, iter(tilings), scope)
    made = walk.pieces.make.like(old, While(condition=condition, body=body), (given,), given.shape)
    return walk.pieces.carried(made, old.shape, tilings, scope)


def conditional(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """Split a conditional: all members take the same branch, and all branches give results in the same tilings."""
    op, (_, *arguments) = old.op_as(Conditional), operands
    scope = smallest(walk.scope, operands)
    given = [_own(argument, scope) for argument in arguments]
    trials = [walk.region(c, scope, [t], of=old) for c, t in zip(op.branch_computations, given, strict=True)]
    agreed = [_agreed(leaf) for leaf in zip(*(found for _, found in trials), strict=True)]
    branches = [
        computation if found == agreed else walk.region(old_branch, scope, [tilings], agreed, of=old)[0]
        for (computation, found), old_branch, tilings in zip(trials, op.branch_computations, given, strict=True)
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
