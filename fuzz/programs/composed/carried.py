"""Programs about what loops and branches carry: tuples permuted, repeated, selected crosswise, swapped and shifted.

Why the modules of :mod:`fuzz.programs.composed.modules` never showed that kernels loaded pointers by loads that were
promised to be invariant, from a table that the entry writes anew in each iteration: the fault needs two selects between
the same two elements of a loop's state, as the loop was given them, the one crosswise to the other, both in one kernel
and of few elements (``select(p, a, b), select(p, b, a)``). Then LLVM turns a select of loaded values into a load
through a selected address; the table is indexed by a variable, so it stays in memory instead of becoming registers; and
only then is there a load left whose promise is used to move it out of the loop, above the stores. One select, or
selects of what was computed first, make a table of registers, for which the promise means nothing. A module there draws
the operands of a select among all values, most of them just computed, by kinds (eleven) and dimensions that seldom
agree, and a result of a loop among all values of its type: both selects as results are drawn about once in a million
modules.

So here values are of few shapes, all may stand for each other, and what a loop does to its state as a whole is a choice
of its own (:data:`MOVES`): with the fault put back, about one program in twenty shows it, the first within seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

import xlakit as xla
from fuzz.programs.chance import Chance
from fuzz.programs.composed.sketch import (
    LARGEST,
    Frame,
    Op,
    Sketched,
    elements,
    is_real,
    kind_of,
    same_shape,
    values_of,
)
from fuzz.programs.composed.sketch_steps import STEPS, Step, take
from xlakit.errors import ShapeError

State = list[Op]
_KINDS = (
    xla.F32, xla.F32, xla.F32, xla.F32, xla.S32, xla.S32, xla.S32, xla.F64, xla.BF16, xla.F16, xla.S8, xla.S64, xla.U8,
    xla.U32, xla.PRED, xla.C64, xla.C128, xla.S16, xla.U16, xla.U64, xla.S4, xla.U4, xla.S4, xla.U4,
    xla.F8E4M3FN, xla.F8E5M2,
)  # fmt: skip
_DEEPEST = 3


# -- moves: what happens to a state as a whole -------------------------------------------------------


def _permuted(frame: Frame, state: State) -> State:
    """Elements of one shape change places."""
    found = list(state)
    for group in _groups(state):
        for place, other in zip(group, frame.chance.shuffled(group), strict=True):
            found[place] = state[other]
    return found


def _repeated(frame: Frame, state: State) -> State:
    """Elements take the values of others, which others keep."""
    return [frame.chance.pick([v for v in state if same_shape(v, own)]) for own in state]


def _crosswise(frame: Frame, state: State) -> State:
    """Pairs are exchanged where a predicate says, by two selects; now and then of two predicates."""
    found, test = list(state), frame.test()
    for group in _groups(state):
        order = frame.chance.shuffled(group)
        for a, b in zip(order[::2], order[1::2], strict=False):
            other = test if frame.chance.chance(0.8) else frame.test()
            first, second = (_spread(frame, t, state[a]) for t in (test, other))
            found[a] = xla.select(first, state[a], state[b])
            found[b] = xla.select(second, state[b], state[a])
    return found


def _ordered(frame: Frame, state: State) -> State:
    """Pairs are sorted by what they are."""
    found = list(state)
    for group in _groups(state):
        for a, b in zip(group[::2], group[1::2], strict=False):
            if is_real(state[a]):
                less = xla.lt(state[a], state[b])
                found[a] = xla.select(less, state[a], state[b])
                found[b] = xla.select(less, state[b], state[a])
    return found


def _shifted(frame: Frame, state: State) -> State:
    """Each takes the value of the next, as histories of two or three steps do."""
    found = list(state)
    for group in _groups(state):
        for place, other in pairwise(group):
            found[place] = state[other]
    return found


def _stepped(frame: Frame, state: State) -> State:
    """Some elements are computed from others."""
    inner = Frame(frame.chance, frame.builder, list(state), list(frame.counters), frame.depth)
    for _ in range(frame.chance.integer(2, 8)):
        take(inner, STEPS)
    made = inner.values[len(state) :]
    found: State = []
    for own in state:
        new = [v for v in made if same_shape(v, own)]
        found.append(frame.chance.pick(new) if new and frame.chance.chance(0.8) else own)
    return found


def _where(frame: Frame, state: State) -> State:
    """The new state where a predicate says, the old one elsewhere: a loop that is mapped over, with lanes that end."""
    new, test = _moved(frame, state, drawn(frame, 1)), frame.test()
    kept = frame.chance.chance(0.8)
    return [
        xla.select(_spread(frame, test, o) if kept else frame.tests(o.shape.dimensions), n, o)
        for n, o in zip(new, state, strict=True)
    ]


def _branched(frame: Frame, state: State) -> State:
    """One of several branches, some of which give what they are given."""
    if frame.depth >= _DEEPEST:
        return state
    chance, whole = frame.chance, (*state, frame.counter())

    def branch(given: Op) -> Op:
        *inside, counter = elements(given)
        inner = Frame(chance, given.builder, list(inside), [counter], frame.depth + 1)
        moves = [_unseen] if chance.chance(0.3) else [chance.pick(MOVES) for _ in range(chance.integer(0, 2))]
        return xla.tuple_(given.builder, *_moved(inner, inside, moves))

    if chance.chance():
        made = xla.conditional(frame.test(), whole, branch, whole, branch)
    else:
        count = chance.integer(1, 3)
        made = xla.conditional(frame.counter(), [branch] * count, [whole] * count)
    return elements(made)


def _unseen(frame: Frame, state: State) -> State:
    """A choice between the state and the state, which rules see only late: branches around it stay calls."""
    whole = tuple(state)
    return elements(xla.conditional(frame.test(), whole, lambda s: s, whole, lambda s: s))


def _nested(frame: Frame, state: State) -> State:
    """A loop inside, over some of the state or all of it."""
    if frame.depth >= _DEEPEST:
        return state
    chosen = frame.chance.some(range(len(state)), 0.7) or [0]
    ends = loop(frame, [state[i] for i in chosen], frame.chance.integer(0, 3))
    found = list(state)
    for place, end in zip(chosen, ends, strict=False):
        found[place] = end
    return found


def _scanned(frame: Frame, state: State) -> State:
    """A scan over the rows of an element, with scalars for carries, which gives such rows."""
    arrays = [i for i, v in enumerate(state) if v.shape.rank > 0 and v.shape.dimensions[0]]
    if not arrays or frame.depth >= _DEEPEST:
        return state
    chance, place = frame.chance, frame.chance.pick(arrays)
    carries = [v for v in state if kind_of(v) is kind_of(state[place]) and v.shape.rank < 2][:3]

    def body(row: Op, *inside: Op) -> Op:
        inner = Frame(chance, row.builder, [row, *inside], [], frame.depth + 1)
        last = _moved(inner, list(inside), drawn(inner, 1)) if inside else []
        take(inner, STEPS)
        return xla.tuple_(row.builder, chance.pick([v for v in inner.values if same_shape(v, row)]), *last)

    found = elements(xla.scan([state[place]], carries, body, 0, is_reverse=chance.chance(0.3)))
    made = list(state)
    made[place] = found[0]
    for value in found[1:]:
        for i, own in enumerate(state):
            if i != place and same_shape(own, value) and chance.chance():
                made[i] = value
    return made


def _called(frame: Frame, state: State) -> State:
    """A computation on the state."""
    if frame.depth >= _DEEPEST:
        return state

    def body(*inside: Op) -> Op:
        inner = Frame(frame.chance, inside[0].builder, list(inside[:-1]), [inside[-1]], frame.depth + 1)
        return xla.tuple_(inside[0].builder, *_moved(inner, list(inside[:-1]), drawn(inner, 1)))

    return elements(xla.call(frame.builder, body, [*state, frame.counter()]))


def _solved(frame: Frame, state: State) -> State:
    """Triangular systems are solved by calls of LAPACK, which their configuration alone tells apart."""
    found = list(state)
    for place, own in enumerate(state):
        if is_real(own) and own.shape.num_elements > 1:
            rows, triangle = own.shape.dimensions[0], frame.chance.pick([76, 85])
            matrix = frame.spread(frame.scalar(xla.F32, 1), (rows, rows))
            right = xla.reshape(xla.convert_element_type(own, xla.F32), (rows, own.shape.num_elements // rows))
            config = f"{{diag = 85 : ui8, side = 76 : ui8, trans_x = 78 : ui8, uplo = {triangle} : ui8}}"
            given = [matrix, frame.small(right)]
            solved = xla.custom_call(frame.builder, "lapack_strsm_ffi", given, right.shape, opaque=config)
            small = xla.reshape(frame.small(solved), own.shape.dimensions)
            found[place] = xla.convert_element_type(small, kind_of(own))
    return found


def _same(frame: Frame, state: State) -> State:
    return list(state)


Move = Callable[[Frame, State], State]
MOVES: tuple[Move, ...] = (
    _permuted, _permuted, _repeated, _crosswise, _crosswise, _crosswise, _ordered, _shifted, _stepped, _stepped,
    _stepped, _stepped, _stepped, _where, _where, _branched, _branched, _branched, _unseen, _unseen, _nested,
    _scanned, _called, _solved, _same,
)  # fmt: skip


def drawn(frame: Frame, count: int) -> list[Move]:
    """So many moves."""
    return [frame.chance.pick(MOVES) for _ in range(count)]


def _moved(frame: Frame, state: State, moves: Sequence[Move]) -> State:
    """A state after some moves, without those that do not fit."""
    for move in moves:
        try:
            state = move(frame, state)
        except ShapeError:
            continue
    return state


def _groups(state: State) -> list[list[int]]:
    """The places of elements of one shape, of all that are two or more."""
    found: list[list[int]] = []
    for i, value in enumerate(state):
        own = next((g for g in found if same_shape(state[g[0]], value)), None)
        if own is None:
            found.append([i])
        else:
            own.append(i)
    return [g for g in found if len(g) > 1]


def _spread(frame: Frame, test: Op, value: Op) -> Op:
    return frame.spread(test, value.shape.dimensions)


# -- loops -------------------------------------------------------------------------------------------


def loop(frame: Frame, state: State, moves: int) -> State:
    """A loop over a state, with a counter at some place in its tuple; gives the last state."""
    chance = frame.chance
    place = chance.integer(0, len(state))
    down = chance.chance(0.15)
    limit = chance.pick([0, 1, 2, 3, 5, 9, 17]) if frame.depth else chance.pick([1, 3, 4, 7, 12, 20, 33])
    bounded = chance.chance(0.2) and frame.depth == 0
    start = frame.scalar(xla.S32, limit if down else 0)
    whole = [*state[:place], start, *state[place:]]
    # What a body is given and gives back as it was: the goal, the data, where it began.
    kept = set(chance.some(range(len(state)), chance.pick([0.0, 0.2, 0.5])))
    stops = chance.integer(1, LARGEST) if chance.chance(0.2) else 0

    looks = chance.chance(0.2)

    def split(given: Op) -> tuple[Op, State]:
        inside = elements(given)
        return inside[place], [*inside[:place], *inside[place + 1 :]]

    def more(given: Op) -> Op:
        counter, inside = split(given)
        end = xla.constant(given.builder, np.int32(0 if down else limit))
        going = xla.gt(counter, end) if down else xla.lt(counter, end)
        scalars = [v for v in inside if not v.shape.rank and is_real(v) and kind_of(v).bit_width > 8]
        if stops and scalars:
            last = xla.constant(given.builder, np.asarray(stops).astype(kind_of(scalars[0]).dtype))
            going = xla.and_(going, xla.ne(scalars[0], last))
        arrays = [
            v for v in inside if v.shape.rank and is_real(v) and v.shape.num_elements and kind_of(v).bit_width > 8
        ]
        return xla.and_(going, _goes_on(counter, arrays[0])) if looks and arrays else going

    def body(given: Op) -> Op:
        counter, inside = split(given)
        inner = Frame(chance, given.builder, list(inside), [counter], frame.depth + 1)
        if bounded:
            # A counter that another one follows.
            inner.counters.insert(0, xla.rem(counter, inner.scalar(xla.S32, 3)))
        last = [
            own if i in kept else new
            for i, (own, new) in enumerate(zip(inside, _moved(inner, inside, drawn(inner, moves)), strict=True))
        ]
        one = inner.scalar(xla.S32, 1)
        follows = xla.sub(counter, one) if down else xla.add(counter, one)
        return xla.tuple_(given.builder, *last[:place], follows, *last[place:])

    end = elements(xla.while_(more, body, tuple(whole)))
    frame.counters.append(end[place])
    found = [*end[:place], *end[place + 1 :]]
    moved = [v for i, v in enumerate(found) if i not in kept]
    # What a loop leaves as it is is seldom read behind it: so it may share the memory of what is not needed any more.
    return [
        chance.pick([v for v in moved if same_shape(v, own)] or [own]) if i in kept and chance.chance(0.6) else own
        for i, own in enumerate(found)
    ]


def _goes_on(counter: Op, value: Op) -> Op:
    """What a condition says that writes into a copy of an element to look at it."""
    number = xla.constant(counter.builder, np.asarray(1).astype(kind_of(value).dtype))
    part = xla.broadcast(number, [1] * value.shape.rank)
    zero = xla.constant(counter.builder, np.int32(0))
    written = xla.dynamic_update_slice(value, part, [counter, *[zero] * (value.shape.rank - 1)])
    most = xla.reduce_all(written, number, xla.max)
    return xla.ne(most, xla.constant(counter.builder, np.asarray(LARGEST).astype(kind_of(value).dtype)))


# -- programs ----------------------------------------------------------------------------------------


def _shapes(chance: Chance) -> list[xla.Shape]:
    """Few shapes: scalars mostly, one array, and rows of it."""
    kind = chance.pick(_KINDS)
    sizes = [chance.pick([1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33]) for _ in range(chance.pick([1, 1, 1, 2, 2, 3, 4]))]
    while np.prod(sizes) > 300:
        sizes[sizes.index(max(sizes))] = 2
    if chance.chance(0.04):
        sizes[chance.integer(0, len(sizes) - 1)] = 0
    if len(sizes) == 2 and chance.chance(0.4):
        sizes[1] = sizes[0]
    found = [xla.make_shape(kind, ())] if chance.chance(0.7) else []
    if not found or chance.chance(0.6):
        found.append(xla.make_shape(kind, sizes))
    if chance.chance(0.3):
        found.append(xla.make_shape(chance.pick(_KINDS), chance.pick([(), sizes, sizes[1:]])))
    if chance.chance(0.15):
        found.append(xla.make_shape(xla.U64, (2,)))
    return found


def carried_program(seed: int, number: int) -> Sketched:
    """The program of a seed and a number."""
    rng = np.random.default_rng([seed, number, 1])
    chance, builder = Chance(rng), xla.XlaBuilder(f"carried_{number}")
    shapes = _shapes(chance)
    frame, arguments = Frame(chance, builder), []
    for i in range(chance.integer(1, 5)):
        shape = chance.pick(shapes) if i >= len(shapes) else shapes[i]
        frame.values.append(xla.parameter(builder, i, shape, f"p{i}"))
        arguments.append(values_of(rng, shape.element_type, shape.dimensions))
    frame.counters.append(xla.parameter(builder, len(arguments), xla.make_shape(xla.S32), "n"))
    arguments.append(np.asarray(chance.integer(-1, 4), np.int32))
    given, state = len(frame.values), list(frame.values)
    for _ in range(chance.integer(0, 2)):
        take(frame, STEPS)
    # Loops begin with what is given, or with what nothing else reads.
    fresh = chance.pick([0.0, 0.5, 1.0])
    for _ in range(chance.pick([1, 1, 1, 2])):
        state = [_changed(own) if chance.chance(fresh) else own for own in state]
        state = [frame.pick(lambda v, own=own: same_shape(v, own)) if chance.chance(0.3) else own for own in state]
        state += [chance.pick(state) for _ in range(chance.pick([0, 1, 1, 2]))]
        state = loop(frame, state[:8], chance.integer(1, 3))
        frame.values += state
    for _ in range(chance.integer(0, 2)):
        take(frame, STEPS)
    return _finished(frame, state, given, arguments)


def _changed(value: Op) -> Op:
    """Another value, exact as well."""
    kind = kind_of(value)
    return xla.not_(value) if kind is xla.PRED or kind.is_unsigned else xla.neg(value)


def _finished(frame: Frame, state: State, given: int, arguments: list[object]) -> Sketched:
    """The program that gives some of the values: several that are one, and parameters, are among them."""
    chance = frame.chance
    part = chance.pick([0.4, 0.8])
    results: Sequence[Op] = [*chance.some(state, part), *chance.some(frame.values, 0.1)] or state[:1]
    if chance.chance(0.2):
        results = [*results, chance.pick(results)]
    donated: list[int] = []
    for i in chance.some(range(given), 0.3):
        # Results of other types and dimensions may lie there, too, where they have as many bytes.
        size = frame.values[i].shape.byte_size
        taken = next((r for r, v in enumerate(results) if v.shape.byte_size == size and r >= len(donated)), None)
        if taken is not None and taken == len(donated):
            frame.builder.setup_alias((taken,), i, ())
            donated.append(i)
    root = xla.tuple_(frame.builder, *results)
    return Sketched(frame.builder.build(root).to_module(), tuple(arguments), tuple(donated))


__all__ = ["MOVES", "Step", "carried_program", "loop"]
