"""Loops and branches: each value at their boundaries has one tiling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.control import Call, Conditional, While
from xlakit.ops.dynamic import DynamicSlice
from xlakit.passes.analysis.loops import loop_of, trip_count
from xlakit.passes.spmd.pieces.pieces import smallest
from xlakit.passes.spmd.program import Frame
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Split, Tiling, divides, is_whole, parts, same_teams, whole, with_split
from xlakit.passes.spmd.shardings.values import Piece, Value, leaves
from xlakit.passes.spmd.walk import Region, Walk

# How often a loop's body is rebuilt in the tilings of its own results.
_MOST_TRIALS = 3


def loop(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """Split a loop: its state has tilings that the body preserves, as far as a fixed point is found.

    An element that the loop only adds to, or whose parts it only replaces, holds partial sums, which are added up after
    the loop; what it begins with is then one member's. What is only read in rows is not split along these.
    """
    op, (init,) = old.op_as(While), operands
    scope = smallest(walk.scope, operands)
    sums = [_sum_of(p, scope) for p in leaves(init)]
    tilings = _for_rows(walk, old, _own(init, scope))
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


def _for_rows(walk: Walk, old: Instruction, tilings: Sequence[Tiling]) -> list[Tiling]:
    """The tilings of a loop's state, where what each iteration reads a row of, as a scan does of its layers, is not
    split along the rows: one that a single member has would be sent to all, in each iteration.
    """
    loop, moved = loop_of(old), list(tilings)
    iterations = 0 if loop is None else trip_count(loop)
    if loop is None or not iterations or loop.count != len(tilings):
        return moved
    frame = walk.inner(old, loop.body)
    for n in sorted(loop.unchanged):
        if any(tilings[n]):
            elements = [i for i in loop.body.instructions if loop.element(i) == n]
            readers = [r for e in elements for r in _readers(loop.body, e, frame) if r[0] is not loop.body.root]
            moved[n] = _beside_rows(readers, tilings[n], iterations)
    return moved


def _readers(
    computation: Computation, value: Instruction, frame: Frame | None
) -> Iterator[tuple[Instruction, Frame | None]]:
    """What reads a value of a computation, within calls too, and the frames that have the hints for these."""
    for user in computation.instructions:
        for position, operand in enumerate(user.operands):
            if operand is value and isinstance(user.op, Call):
                called = user.op.to_apply
                inner = frame and frame.inner.get((user, called))
                yield from _readers(called, called.parameters[position], inner)
            elif operand is value:
                yield user, frame


def _beside_rows(readers: Sequence[tuple[Instruction, Frame | None]], tiling: Tiling, iterations: int) -> Tiling:
    """The tiling without the split of the rows that are read one by one: it moves to a dimension of which they have
    all, or else the array becomes whole, where that sends less than the rows.
    """
    if not readers or not all(isinstance(reader.op, DynamicSlice) for reader, _ in readers):
        return tiling
    first, frame = readers[0]
    sizes = first.operands[0].shape.dimensions
    (hint,) = (frame and frame.hints(first)) or [whole(len(sizes))]
    for d, split in enumerate(tiling):
        if split is None or any(reader.shape.dimensions[d] > 1 for reader, _ in readers):
            continue
        rest = with_split(tiling, d, None)
        # Where propagation has found how the rows are used, they are split so.
        for e in sorted(range(len(sizes)), key=lambda e: hint[e] is None):
            has_all = rest[e] is None and all(reader.shape.dimensions[e] == sizes[e] > 1 for reader, _ in readers)
            made = with_split(rest, e, split)
            if has_all and divides(made, sizes) and sizes[d] <= 2 * iterations * parts(split):
                return made
        return rest if sizes[d] <= 2 * iterations else tiling
    return tiling


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
