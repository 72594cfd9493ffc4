"""Loops and branches: each value at their boundaries has one tiling."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set

from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.control import Call, Conditional, While
from xlakit.ops.dynamic import DynamicSlice
from xlakit.passes.analysis.loops import loop_of, trip_count
from xlakit.passes.analysis.traffic import traffic
from xlakit.passes.spmd.pieces.choice import sent
from xlakit.passes.spmd.pieces.pieces import smallest
from xlakit.passes.spmd.program import Frame
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Split, Tiling, divides, is_whole, parts, same_teams, whole, with_split
from xlakit.passes.spmd.shardings.values import Piece, Value, leaves
from xlakit.passes.spmd.walk import Region, Walk

# How often a loop's body is rebuilt in the tilings of its own results.
_MOST_TRIALS = 3


def loop(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """Split a loop: its state has tilings that the body preserves, if a fixed point is found in few trials.

    An element that the loop only adds to, or whose parts it only replaces, holds partial sums, which are added up after
    the loop; one member then starts with the initial value, the others with zeros. An element of which only rows are
    read is not split along the rows: what its split along another dimension makes each iteration send must be less
    than what gathering it once does.
    """
    (init,) = operands
    scope = smallest(walk.scope, operands)
    own = _own(init, scope)
    moved = _for_rows(walk, old, own, scope)
    found = _settled(walk, old, init, moved, scope)
    gathered = _for_rows(walk, old, own, scope, moves=False)
    if gathered != moved:
        other = _settled(walk, old, init, gathered, scope)
        found = min(found, other, key=lambda split: _sent_by(walk, old, init, split))
    given = walk.pieces.bundle(init, iter(found.tilings), scope, iter(found.sums))
    op = While(condition=found.condition.computation, body=found.body.computation)
    made = walk.pieces.make.like(old, op, (given,), given.shape)
    return walk.pieces.carried(made, old.shape, found.tilings, scope, found.sums)


@dataclass(frozen=True)
class _Loop:
    """The computations of a loop for one partition, and the tilings and partial sums of its state."""

    body: Region
    condition: Region
    tilings: Sequence[Tiling]
    sums: Sequence[Split | None]


def _settled(walk: Walk, old: Instruction, init: Value, tilings: Sequence[Tiling], scope: Scope) -> _Loop:
    """A loop whose state begins in some tilings, and is in those that the body preserves."""
    op, sums = old.op_as(While), [_sum_of(p, scope) for p in leaves(init)]
    summed: set[int] = set()
    for _ in range(_MOST_TRIALS):
        body = walk.region(op.body, scope, [tilings], of=old, sums=sums)
        condition = walk.region(op.condition, scope, [tilings], [()], of=old, sums=sums)
        summed.update(_summed(body, condition, sums))
        found = _partial(body, tilings, sums, summed)
        if (body.tilings, found) == (tilings, sums):
            return _Loop(body, condition, tilings, sums)
        tilings, sums = body.tilings, found
    sums = [None] * len(tilings)
    body = walk.region(op.body, scope, [tilings], tilings, of=old, sums=sums)
    return _Loop(body, walk.region(op.condition, scope, [tilings], [()], of=old, sums=sums), tilings, sums)


def _sent_by(walk: Walk, old: Instruction, init: Value, split: _Loop) -> float:
    """An estimate of the bytes that a member sends for a loop: before it to reshard its initial state, in all of its
    iterations, and behind it to add up partial sums.
    """
    loop = loop_of(old)
    iterations = (trip_count(loop) if loop is not None else None) or 1
    module = walk.program.module.replace(num_partitions=walk.scope.count)
    found = iterations * sum(t.total for t in traffic(module, split.body.computation))
    for piece, tiling, numbers in zip(leaves(init), split.tilings, split.sums, strict=True):
        if piece.shape.is_array:
            part = piece.shape.byte_size / math.prod(map(parts, tiling))
            found += sent(piece.shape.byte_size, piece.kept, tiling) + 2 * part * (1 - 1 / parts(numbers))
    return found


def _for_rows(
    walk: Walk, old: Instruction, tilings: Sequence[Tiling], scope: Scope, *, moves: bool = True
) -> list[Tiling]:
    """The tilings of a loop's state, without splits of invariant elements along rows that iterations read one by one;
    ``moves``: whether such a split moves to another dimension if it can.

    A scan over layers reads one row of the stacked weights in each iteration; with such a split a single member would
    have to send it to all others.
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
            moved[n] = _beside_rows(readers, tilings[n], iterations, scope, moves=moves)
    return moved


def _readers(
    computation: Computation, value: Instruction, frame: Frame | None
) -> Iterator[tuple[Instruction, Frame | None]]:
    """The users of a value of a computation, also inside of calls, with the frames that have their hints."""
    for user in computation.instructions:
        for position, operand in enumerate(user.operands):
            if operand is value and isinstance(user.op, Call):
                called = user.op.to_apply
                inner = frame and frame.inner.get((user, called))
                yield from _readers(called, called.parameters[position], inner)
            elif operand is value:
                yield user, frame


def _beside_rows(
    readers: Sequence[tuple[Instruction, Frame | None]], tiling: Tiling, iterations: int, scope: Scope, *, moves: bool
) -> Tiling:
    """The tiling without the split of a dimension of which only single rows are read.

    The split moves to a dimension that the readers take whole; if there is none, it is dropped if gathering the array
    once sends less than sending the rows.
    """
    if not readers or not all(isinstance(reader.op, DynamicSlice) for reader, _ in readers):
        return tiling
    first, frame = readers[0]
    sizes = first.operands[0].shape.dimensions
    (hint,) = (frame and frame.hints(first, scope)) or [whole(len(sizes))]
    for d, split in enumerate(tiling):
        if split is None or any(reader.shape.dimensions[d] > 1 for reader, _ in readers):
            continue
        rest = with_split(tiling, d, None)
        # Dimensions that propagation would split in the rows come first.
        for e in sorted(range(len(sizes)) if moves else (), key=lambda e: hint[e] is None):
            has_all = rest[e] is None and all(reader.shape.dimensions[e] == sizes[e] > 1 for reader, _ in readers)
            made = with_split(rest, e, split)
            if has_all and divides(made, sizes) and sizes[d] <= 2 * iterations * parts(split):
                return made
        return rest if sizes[d] <= 2 * iterations else tiling
    return tiling


def _sum_of(piece: Piece, scope: Scope) -> Split | None:
    """The numbers of the partial sums that a value is, if a loop may carry it as such; else None."""
    is_partial = piece.scope == scope and piece.without_partial_sums is None and not piece.parts
    return piece.unreduced if is_partial else None


def _summed(body: Region, condition: Region, sums: Sequence[Split | None]) -> Iterator[int]:
    """The elements of a state that hold partial sums but are summed in an iteration, and so must not hold them."""
    for n, (numbers, given, tested) in enumerate(zip(sums, body.state, condition.state, strict=True)):
        if numbers is not None and (given.parts or tested.parts or not same_teams(body.result[n].unreduced, numbers)):
            yield n


def _partial(
    body: Region, tilings: Sequence[Tiling], sums: Sequence[Split | None], summed: Set[int]
) -> list[Split | None]:
    """For each element the numbers of its partial sums after a trial: those it was given, or those of added values."""
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
