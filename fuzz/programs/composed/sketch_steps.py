"""Operations on the values of a frame: element by element, rearranged, folded, looked up and sorted. All are exact."""

from __future__ import annotations

import math
from collections.abc import Callable

import xlakit as xla
from fuzz.programs.composed.sketch import Frame, Op, is_number, is_real, kind_of
from xlakit.errors import ShapeError, UnsupportedError

Step = Callable[[Frame], None]
_FUSED = (xla.add, xla.sub, xla.mul, xla.max, xla.min)
_OF_COMPLEX = (xla.add, xla.sub, xla.mul)
_OF_BITS = (xla.and_, xla.or_, xla.xor)
_KINDS = (xla.F32, xla.F32, xla.F64, xla.S32, xla.BF16, xla.S64, xla.S8, xla.U8, xla.F16, xla.U32)


def _unary(frame: Frame) -> None:
    value = frame.pick()
    kind = kind_of(value)
    if kind is xla.PRED:
        frame.keep(xla.not_(value))
    elif kind.is_complex:
        frame.keep(frame.chance.pick([xla.neg, xla.conj])(value))
    elif kind.is_unsigned:
        frame.keep(frame.chance.pick([xla.not_, xla.population_count])(value))
    else:
        frame.keep(frame.chance.pick([xla.neg, xla.abs, xla.sign])(value))


def _binary(frame: Frame) -> None:
    value = frame.pick()
    kind = kind_of(value)
    known = _OF_BITS if kind is xla.PRED else _OF_COMPLEX if kind.is_complex else _FUSED
    if kind.is_integral and frame.chance.chance(0.3):
        known = (*_OF_BITS, xla.div, xla.rem)
    other = frame.full(value, 1) if is_number(value) and frame.chance.chance(0.3) else frame.like(value)
    both = (value, other) if frame.chance.chance() else (other, value)
    frame.keep(frame.chance.pick(known)(*both))


def _select(frame: Frame) -> None:
    value = frame.pick()
    frame.keep(xla.select(frame.tests(value.shape.dimensions), value, frame.like(value)))


def _compare(frame: Frame) -> None:
    value = frame.pick(is_real)
    mask = frame.chance.pick([xla.lt, xla.ge, xla.eq])(value, frame.like(value))
    other = frame.pick(lambda v: v.shape.dimensions == value.shape.dimensions)
    frame.keep(xla.select(mask, other, frame.like(other)))


def _convert(frame: Frame) -> None:
    value = frame.pick(lambda v: not kind_of(v).is_complex)
    made = xla.convert_element_type(xla.clamp(frame.full(value, 0), value, frame.full(value, 3)), xla.S32)
    frame.keep(xla.convert_element_type(made, frame.chance.pick(_KINDS)))


def _scale(frame: Frame) -> None:
    """An array and a scalar of its type."""
    value = frame.array(is_number)
    scalar = frame.pick(lambda v: not v.shape.rank and kind_of(v) is kind_of(value))
    frame.keep(frame.chance.pick([xla.add, xla.sub, xla.mul])(value, frame.spread(scalar, value.shape.dimensions)))


def _reduce(frame: Frame) -> None:
    value = frame.array()
    known = [xla.add, xla.max, xla.min] if is_real(value) else [xla.add] if is_number(value) else [xla.or_, xla.and_]
    rank = value.shape.rank
    dims = [d for d in range(rank) if frame.chance.chance(0.7)]
    combine = frame.chance.pick(known)
    made = xla.reduce(value, frame.scalar(kind_of(value), 0), combine, dims)
    frame.keep(made)
    if len(dims) < rank:
        return
    # What was folded is looked at everywhere, as a norm is.
    spread = frame.spread(frame.small(made), value.shape.dimensions)
    frame.keep(xla.select(frame.tests(value.shape.dimensions), spread, value))


def _clip(frame: Frame) -> None:
    """An array that is compared with what is folded from it, as values are with their sum."""
    value = frame.array(is_real)
    along = frame.axis(value)
    over = [along] if frame.chance.chance() else list(range(value.shape.rank))
    made = xla.reduce(value, frame.scalar(kind_of(value), 0), frame.chance.pick([xla.add, xla.max]), over)
    kept = [d for d in range(value.shape.rank) if d not in over]
    spread = xla.broadcast_in_dim(frame.small(made), value.shape.dimensions, kept)
    test = frame.chance.pick([xla.lt, xla.gt])(value, spread)
    frame.keep(xla.select(test, value, spread if frame.chance.chance() else frame.like(value)))


def _stencil(frame: Frame) -> None:
    """An array and a function of it at other places: differences, sums of neighbors, what is symmetric."""
    value = frame.pick(lambda v: v.shape.rank > 0 and is_number(v) and 0 not in v.shape.dimensions)
    first = (
        xla.mul(value, frame.full(value, 2))
        if frame.chance.chance()
        else xla.not_(value)
        if (kind_of(value).is_integral)
        else xla.neg(value)
    )
    along = frame.axis(value)
    size = value.shape.dimensions[along]
    if frame.chance.chance():
        moved = xla.rev(first, [along])
    else:
        cut = frame.chance.integer(0, size)
        parts = [xla.slice_in_dim(first, cut, size, 1, along), xla.slice_in_dim(first, 0, cut, 1, along)]
        moved = xla.concat_in_dim(parts, along)
    own = value if frame.chance.chance(0.3) else first
    frame.keep(frame.chance.pick([xla.add, xla.sub])(own, moved))


def _argmin(frame: Frame) -> None:
    value = frame.array(is_real)
    along = frame.axis(value)
    places = frame.places(value, along)

    def least(a: Op, i: Op, b: Op, j: Op) -> Op:
        first = xla.or_(xla.lt(a, b), xla.and_(xla.eq(a, b), xla.lt(i, j)))
        return xla.tuple_(xla.select(first, a, b), xla.select(first, i, j))

    high = frame.scalar(
        kind_of(value), 1 if kind_of(value).bit_width < 8 else 99 if kind_of(value).bit_width > 8 else 8
    )
    found = xla.reduce([value, places], [high, frame.scalar(xla.S32, 9)], least, [along])
    frame.keep(xla.get_tuple_element(found, 0))
    place = frame.keep(xla.get_tuple_element(found, 1))
    if not place.shape.rank:
        frame.counters.insert(0, place)


def _running(frame: Frame) -> None:
    value = frame.array(is_real)
    shape = value.shape
    along = frame.chance.integer(0, shape.rank - 1)
    sizes = [n if d == along else 1 for d, n in enumerate(shape.dimensions)]
    if 0 in sizes:
        raise ShapeError("nothing to add up")
    before = frame.chance.chance(0.7)
    padding = [(n - 1, 0) if before else (0, n - 1) for n in sizes]
    combine = frame.chance.pick([xla.add, xla.max])
    start = frame.scalar(kind_of(value), 0)
    frame.keep(xla.reduce_window(value, start, combine, sizes, [1] * shape.rank, padding))


def _dot(frame: Frame) -> None:
    value = frame.pick(lambda v: v.shape.rank in (1, 2) and is_number(v))
    other = frame.like(value)
    rank = value.shape.rank
    one = value.shape.dimensions[-1]
    if rank == 2 and value.shape.dimensions[0] == one and frame.chance.chance():
        numbers = xla.DotDimensionNumbers([1], [frame.chance.integer(0, 1)], [], [])
    else:
        along = frame.chance.integer(0, rank - 1)
        numbers = xla.DotDimensionNumbers([along], [along], [], [])
    frame.keep(xla.dot_general(value, other, numbers))


def _transpose(frame: Frame) -> None:
    value = frame.pick(lambda v: v.shape.rank > 1)
    order = frame.chance.shuffled(range(value.shape.rank))
    made = xla.transpose(value, order)
    frame.keep(xla.reshape(made, value.shape.dimensions) if frame.chance.chance(0.3) else made)


def _reverse(frame: Frame) -> None:
    value = frame.array()
    frame.keep(xla.rev(value, frame.chance.some(range(value.shape.rank), 0.7)))


def _roll(frame: Frame) -> None:
    """The elements moved along by one or more, those at the end to the beginning."""
    value = frame.array(lambda v: 0 not in v.shape.dimensions)
    along = frame.axis(value)
    size = value.shape.dimensions[along]
    cut = frame.chance.integer(0, size)
    parts = [xla.slice_in_dim(value, cut, size, 1, along), xla.slice_in_dim(value, 0, cut, 1, along)]
    frame.keep(xla.concat_in_dim(parts, along))


def _slice(frame: Frame) -> None:
    value = frame.array()
    starts = [frame.chance.integer(0, min(n, 2)) for n in value.shape.dimensions]
    frame.keep(xla.slice(value, starts, value.shape.dimensions, [frame.chance.integer(1, 2) for _ in starts]))


def _pad(frame: Frame) -> None:
    value = frame.array()
    config = [(frame.chance.integer(-1, 2), frame.chance.integer(-1, 2), 0) for _ in value.shape.dimensions]
    frame.keep(xla.pad(value, frame.scalar(kind_of(value), 1), config))


def _reshape(frame: Frame) -> None:
    value = frame.array()
    left, new = math.prod(value.shape.dimensions), list[int]()
    while left > 1 and len(new) < 2:
        new.append(frame.chance.pick([f for f in range(1, left + 1) if left % f == 0]))
        left //= new[-1]
    frame.keep(xla.reshape(value, [*new, left] if left != 1 or not new else new))


def _broadcast(frame: Frame) -> None:
    value = frame.pick(lambda v: v.shape.rank < 3)
    target = frame.pick(lambda v: v.shape.rank > value.shape.rank)
    rank = value.shape.rank
    sizes = target.shape.dimensions
    if sizes[len(sizes) - rank :] != value.shape.dimensions:
        raise ShapeError("they do not fit")
    frame.keep(xla.broadcast(value, sizes[: len(sizes) - rank]))


def _part(frame: Frame) -> None:
    """A part where a counter says."""
    value = frame.array(lambda v: 0 not in v.shape.dimensions)
    sizes = [frame.chance.pick([1, 1, n, frame.chance.integer(1, n)]) for n in value.shape.dimensions]
    made = xla.dynamic_slice(value, [_index(frame) for _ in sizes], sizes)
    frame.keep(xla.reshape(made, [n for n in sizes if n > 1]) if frame.chance.chance() else made)


def _index(frame: Frame) -> Op:
    counter = frame.counter()
    if frame.chance.chance(0.3):
        return xla.sub(counter, frame.scalar(xla.S32, 1))
    return counter


def _update(frame: Frame) -> None:
    """A part written where a counter says: stacks of results, histories, ring buffers."""
    value = frame.array(lambda v: 0 not in v.shape.dimensions)
    sizes = value.shape.dimensions

    def fits(v: Op) -> bool:
        tail = v.shape.dimensions
        return (
            kind_of(v) is kind_of(value)
            and v.shape.rank <= len(sizes)
            and all(a <= b for a, b in zip(tail[::-1], sizes[::-1], strict=False))
        )

    part = frame.pick(fits)
    full = xla.reshape(part, [1] * (len(sizes) - part.shape.rank) + list(part.shape.dimensions))
    index = _index(frame)
    if frame.chance.chance():
        index = xla.rem(index, frame.scalar(xla.S32, sizes[0]))
    starts = [index, *(frame.scalar(xla.S32, 0) if frame.chance.chance(0.8) else _index(frame) for _ in sizes[1:])]
    frame.keep(xla.dynamic_update_slice(value, full, starts))


def _look_up(frame: Frame) -> None:
    value = frame.array(lambda v: 0 not in v.shape.dimensions)
    indices = frame.pick(lambda v: kind_of(v) is xla.S32 and v.shape.rank <= 1)
    rank = value.shape.rank
    offsets = list(range(indices.shape.rank, indices.shape.rank + rank - 1))
    frame.keep(
        xla.gather(
            value, indices, slice_sizes=[1, *value.shape.dimensions[1:]], offset_dims=offsets, collapsed_slice_dims=[0],
            start_index_map=[0], index_vector_dim=indices.shape.rank,
        )
    )  # fmt: skip


def _segments(frame: Frame) -> None:
    """A segment sum: the elements of one array added where another one says; now and then to that array itself."""
    updates = frame.pick(lambda v: v.shape.rank == 1 and is_number(v))
    if frame.chance.chance(0.3):
        updates = target = xla.not_(updates) if kind_of(updates).is_unsigned else xla.neg(updates)
    else:
        target = frame.like(updates)
    size = updates.shape.dimensions[0]
    places = frame.pick(lambda v: kind_of(v) is xla.S32 and v.shape.dimensions == (size,))
    known = [xla.add, xla.max, lambda a, b: b] if is_real(updates) else [xla.add]
    made = xla.scatter(
        target, places, updates, frame.chance.pick(known), update_window_dims=[],
        inserted_window_dims=[0], scatter_dims_to_operand_dims=[0], index_vector_dim=1,
    )  # fmt: skip
    frame.keep(made)


def _sort(frame: Frame) -> None:
    value = frame.pick(lambda v: v.shape.rank > 0 and is_real(v) and kind_of(v).bit_width >= 8)
    along = frame.axis(value)
    form = frame.chance.integer(0, 2)
    if form == 0:
        frame.keep(xla.sort(value, None if frame.chance.chance() else xla.gt, along, True))
        return
    places = frame.places(value, along)
    others = [places, frame.like(value)] if form == 1 else [places]
    found = xla.sort([value, *others], lambda a, b, *_: xla.lt(a, b), along, True)
    for element in frame.chance.some(range(len(others) + 1), 0.6):
        frame.keep(xla.get_tuple_element(found, element))


def _random(frame: Frame) -> None:
    """A key that goes on, and what is drawn with it."""
    state = frame.pick(lambda v: kind_of(v) is xla.U64 and v.shape.dimensions == (2,))
    target = frame.pick(is_number)
    which = frame.chance.pick(["RNG_THREE_FRY", "RNG_PHILOX"])
    found = xla.rng_bit_generator(which, state, xla.make_shape(xla.U32, target.shape.dimensions))
    frame.keep(xla.get_tuple_element(found, 0))
    drawn = xla.rem(xla.get_tuple_element(found, 1), frame.spread(frame.scalar(xla.U32, 4), target.shape.dimensions))
    kind = kind_of(target)
    frame.keep(xla.convert_element_type(drawn, kind if kind.bit_width >= 8 else xla.S32))


def _effect(frame: Frame) -> None:
    """A call that the program may not leave out, of a function that writes down what it is given."""
    value = frame.pick(lambda v: kind_of(v).bit_width >= 8)
    made = xla.custom_call(frame.builder, "record", [value], value.shape, has_side_effect=True)
    if frame.chance.chance():
        frame.keep(made)


def _barrier(frame: Frame) -> None:
    """Values that nothing is fused across."""
    value = frame.pick()
    other = frame.pick()
    found = xla.optimization_barrier(xla.tuple_(value, other))
    frame.values += [xla.get_tuple_element(found, i) for i in range(2)]


def take(frame: Frame, steps: tuple[Step, ...]) -> None:
    """One more operation: of a few that are drawn, the first that fits."""
    for _ in range(5):
        try:
            frame.chance.pick(steps)(frame)
        except (ShapeError, UnsupportedError):
            continue
        return


# Those that a vmapped or hand-written loop body is made of, with what is drawn often more often.
PURE_STEPS: tuple[Step, ...] = (
    _unary, _binary, _binary, _binary, _binary, _select, _select, _compare, _convert, _scale, _scale, _reduce,
    _reduce, _clip, _clip, _stencil, _stencil, _argmin, _running, _dot, _dot, _transpose, _reverse, _roll, _slice,
    _pad, _reshape, _broadcast, _part, _part, _update, _update, _update, _look_up, _segments, _sort, _random,
)  # fmt: skip
STEPS = (*PURE_STEPS, _effect, _barrier)
