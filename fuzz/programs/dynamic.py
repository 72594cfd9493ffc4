"""Programs on arrays of bounded dynamic dimensions: chains of operations, in loops and branches and by themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import xlakit as xla
from fuzz.programs.composed.chain import LARGEST, Chain, is_number, kind_of

_KINDS = (xla.F32, xla.F32, xla.S32, xla.BF16, xla.F64, xla.S64, xla.U8)
_OF_TWO: tuple[Callable[..., xla.XlaOp], ...] = (xla.add, xla.sub, xla.mul, xla.max, xla.min)


@dataclass(frozen=True, slots=True)
class DynamicProgram:
    """A module and its arguments."""

    module: xla.HloModule
    arguments: tuple[Any, ...]


# -- operations that keep the shape ------------------------------------------------------------------


def _binary(chain: Chain) -> None:
    value = chain.pick(is_number)
    chain.keep(chain.one_of(_OF_TWO)(value, chain.like(value)))


def _negate(chain: Chain) -> None:
    chain.keep(xla.neg(chain.pick(lambda v: is_number(v) and not kind_of(v).is_unsigned)))


def _select(chain: Chain) -> None:
    value = chain.pick()
    test = xla.gt(value, chain.number(value)) if is_number(value) else value
    chain.keep(xla.select(test, value, chain.like(value)))


def _convert(chain: Chain) -> None:
    chain.keep(xla.convert_element_type(xla.abs(chain.pick(lambda v: kind_of(v).is_signed)), chain.one_of(_KINDS)))


def _reverse(chain: Chain) -> None:
    value = chain.array()
    rank = value.shape.rank
    chain.keep(xla.rev(value, [d for d in range(rank) if chain.chance(0.7)]))


def _sort(chain: Chain) -> None:
    value = chain.array()
    dimension = chain.integer(0, value.shape.rank - 1)
    form = chain.integer(0, 3)
    if form == 0:
        order = None if chain.chance() else xla.gt_total_order
        chain.keep(xla.sort(value, order, dimension))
    elif form == 1:
        # An order that is no plain comparison of elements.
        def nearer(a: xla.XlaOp, b: xla.XlaOp) -> xla.XlaOp:
            return xla.lt(xla.mul(a, a), xla.mul(b, b))

        chain.keep(xla.sort(value, nearer if is_number(value) else None, dimension, True))
    else:
        places = xla.add(xla.mul(value, chain.number(value, 0, 0)), chain.number(value, 1, 1))
        both = xla.sort([value, places], None, dimension, True)
        chain.keep(xla.get_tuple_element(both, chain.integer(0, 1)))


def _cumulative(chain: Chain) -> None:
    value = chain.array()
    shape, along = value.shape, chain.integer(0, value.shape.rank - 1)
    sizes = [n if d == along else 1 for d, n in enumerate(shape.dimensions)]
    padding = [(n - 1, 0) for n in sizes]
    chain.keep(xla.reduce_window(value, chain.number(value, 0, 0), xla.add, sizes, [1] * shape.rank, padding))


def _set_size(chain: Chain) -> None:
    value = chain.array()
    dimension = chain.integer(0, value.shape.rank - 1)
    bound = xla.constant(chain.builder, np.int32(value.shape.dimensions[dimension]))
    chain.keep(xla.set_dimension_size(value, xla.min(chain.one_of(chain.scalars), bound), dimension))


def _update(chain: Chain) -> None:
    value = chain.array()
    update = chain.pick(
        lambda v: (
            kind_of(v) is kind_of(value)
            and v.shape.rank == value.shape.rank
            and all(a <= b for a, b in zip(v.shape.dimensions, value.shape.dimensions, strict=True))
        )
    )
    chain.keep(xla.dynamic_update_slice(value, update, [chain.one_of(chain.scalars) for _ in value.shape.dimensions]))


# -- operations that change it -----------------------------------------------------------------------


def _transpose(chain: Chain) -> None:
    value = chain.array()
    chain.keep(xla.transpose(value, [int(d) for d in chain.rng.permutation(value.shape.rank)]))


def _broadcast(chain: Chain) -> None:
    chain.keep(xla.broadcast(chain.array(), [chain.integer(1, 3)]))


def _slice(chain: Chain) -> None:
    value = chain.array()
    sizes = value.shape.dimensions
    starts = [chain.integer(0, min(n, 2)) for n in sizes]
    limits = [chain.integer(start, n) if chain.chance() else n for start, n in zip(starts, sizes, strict=True)]
    chain.keep(xla.slice(value, starts, limits, [chain.integer(1, 3) for _ in sizes]))


def _dynamic_slice(chain: Chain) -> None:
    value = chain.array()
    sizes = [n if chain.chance() else chain.integer(min(n, 1), n) for n in value.shape.dimensions]
    chain.keep(xla.dynamic_slice(value, [chain.one_of(chain.scalars) for _ in sizes], sizes))


def _pad(chain: Chain) -> None:
    value = chain.array()
    config = [(chain.integer(-2, 2), chain.integer(-2, 2), chain.integer(0, 2)) for _ in value.shape.dimensions]
    chain.keep(xla.pad(value, chain.number(value), config))


def _concatenate(chain: Chain) -> None:
    value = chain.array()
    along = chain.integer(0, value.shape.rank - 1)
    others = [value if chain.chance(0.3) else xla.rev(value, [along])]
    if value.shape.rank == 1:
        others.append(chain.pick(lambda v: v.shape.rank == 1 and kind_of(v) is kind_of(value)))
    chain.keep(xla.concatenate([value, *others], along))


def _reshape(chain: Chain) -> None:
    value = chain.array()
    sizes = value.shape.dimensions
    left, new = math.prod(sizes), list[int]()
    while left > 1 and len(new) < 2:
        new.append(chain.one_of([f for f in range(1, left + 1) if left % f == 0]))
        left //= new[-1]
    if left > 1 or not new:
        new.append(left)
    marks = [d for d, n in enumerate(new) if n > 1]
    inferred = chain.one_of(marks) if marks and chain.chance(0.3) else -1
    chain.keep(xla.reshape(value, new, inferred_dimension=inferred))


def _flatten(chain: Chain) -> None:
    value = chain.array(2)
    chain.keep(xla.reshape(value, [value.shape.num_elements]))


def _dynamic_reshape(chain: Chain) -> None:
    value = chain.array()
    sizes = [xla.get_dimension_size(value, d) for d in range(value.shape.rank)]
    bounds = value.shape.dimensions
    if value.shape.rank > 1 and chain.chance():
        order = [int(d) for d in chain.rng.permutation(value.shape.rank)]
        new = [sizes[d] for d in order]
        chain.keep(xla.dynamic_reshape(value, new, [bounds[d] for d in order], [True] * len(order)))
        return
    count = sizes[0]
    for size in sizes[1:]:
        count = xla.mul(count, size)
    chain.keep(xla.dynamic_reshape(value, [count], [math.prod(bounds)], [True]))


def _whole(chain: Chain) -> None:
    value = chain.array()
    dimension = chain.integer(0, value.shape.rank - 1)
    chain.keep(xla.remove_dynamic_dimension(value, dimension))


def _size(chain: Chain) -> None:
    value = chain.array()
    chain.scalars.append(xla.get_dimension_size(value, chain.integer(0, value.shape.rank - 1)))


# -- operations that combine -------------------------------------------------------------------------


def _greater(a: xla.XlaOp, b: xla.XlaOp) -> xla.XlaOp:
    """The greater number, by an operation that is none of the known ones."""
    return xla.select(xla.lt(a, b), b, a)


def _reduce(chain: Chain) -> None:
    value = chain.array()
    if is_number(value):
        combine = chain.one_of([xla.add, xla.max, xla.min, xla.mul, _greater])
    else:
        combine = chain.one_of([xla.and_, xla.or_])
    if combine is xla.mul:
        value = xla.max(value, xla.sub(chain.number(value, 1, 1), xla.mul(value, value)))
        two = chain.number(value, 1, 1)
        value = xla.min(value, two)
    rank = value.shape.rank
    dims = [d for d in range(rank) if chain.chance(0.6)]
    start = chain.number(value, 0, 3)
    chain.keep(xla.reduce(value, start, combine, dims))


def _where_most(chain: Chain) -> None:
    value = chain.array()
    along = chain.integer(0, value.shape.rank - 1)
    places = xla.iota(chain.builder, xla.make_shape(xla.S32, value.shape.dimensions), along)

    def most(a: xla.XlaOp, i: xla.XlaOp, b: xla.XlaOp, j: xla.XlaOp) -> xla.XlaOp:
        first = xla.or_(xla.gt(a, b), xla.and_(xla.eq(a, b), xla.lt(i, j)))
        return xla.tuple_(xla.select(first, a, b), xla.select(first, i, j))

    start = xla.constant(
        chain.builder, np.asarray(0 if kind_of(value).is_unsigned else -99).astype(kind_of(value).dtype)
    )
    sized = value
    for d in range(value.shape.rank):
        if value.shape.dynamic_dimensions[d]:
            places = xla.set_dimension_size(places, xla.get_dimension_size(sized, d), d)
    end = xla.constant(chain.builder, np.int32(99))
    found = xla.reduce([value, places], [start, end], most, [along])
    chain.keep(xla.get_tuple_element(found, chain.integer(0, 1)))


def _window(chain: Chain) -> None:
    value = chain.array()
    sizes = value.shape.dimensions
    window = [chain.integer(1, max(1, min(3, n))) for n in sizes]
    strides = [chain.integer(1, 2) for _ in sizes]
    padding = [(chain.integer(-1, 2), chain.integer(-1, 2)) for _ in sizes]
    base = [chain.integer(1, 2) if chain.chance(0.3) else 1 for _ in sizes]
    holes = [chain.integer(1, 2) if chain.chance(0.3) else 1 for _ in sizes]
    combine = chain.one_of([xla.add, xla.max, _greater])
    start = chain.number(value, 0, 0)
    made = xla.reduce_window(
        value, start, combine, window, strides, padding, base_dilations=base, window_dilations=holes
    )
    chain.keep(made)


def _select_and_scatter(chain: Chain) -> None:
    value = chain.array()
    sizes = value.shape.dimensions
    window = [chain.integer(1, max(1, min(3, n))) for n in sizes]
    strides = [chain.integer(1, 2) for _ in sizes]
    padding = [(chain.integer(0, w - 1), chain.integer(0, w - 1)) for w in window]
    lowest = chain.number(value, -2, -2)
    source = xla.reduce_window(value, lowest, xla.max, window, strides, padding)
    made = xla.select_and_scatter(value, xla.ge, window, strides, padding, source, chain.number(value, 0, 0), xla.add)
    chain.keep(made)


def _top_k(chain: Chain) -> None:
    value = chain.array()
    found = xla.top_k(value, chain.integer(0, value.shape.dimensions[-1]), largest=chain.chance())
    chain.keep(xla.get_tuple_element(found, chain.integer(0, 1)))


def _dot(chain: Chain) -> None:
    value = chain.array()
    rank = value.shape.rank
    other = xla.rev(value, [rank - 1])
    dims = [d for d in range(rank) if chain.chance()]
    batch = [d for d in range(rank) if d not in dims and chain.chance(0.3)]
    numbers = xla.DotDimensionNumbers(dims, dims, batch, batch)
    chain.keep(xla.dot_general(value, other, numbers))


def _gather(chain: Chain) -> None:
    value = chain.array()
    sizes = value.shape.dimensions
    along = chain.integer(0, len(sizes) - 1)
    indices = chain.pick(lambda v: kind_of(v).is_integral and v.shape.rank <= 2)
    width = 1 if chain.chance(0.6) else chain.integer(0, sizes[along])
    slices = [width if d == along else n for d, n in enumerate(sizes)]
    collapsed = [along] if width == 1 else []
    rank = indices.shape.rank
    kept = len(sizes) - len(collapsed)
    made = xla.gather(
        value,
        indices,
        slice_sizes=slices,
        offset_dims=[rank + d for d in range(kept)] if chain.chance() else list(range(kept)),
        collapsed_slice_dims=collapsed,
        start_index_map=[along],
        index_vector_dim=rank,
    )
    chain.keep(made)


def _scatter(chain: Chain) -> None:
    """What is gathered from an array is scattered into it again, elsewhere."""
    value = chain.array()
    sizes = value.shape.dimensions
    along = chain.integer(0, len(sizes) - 1)
    indices = chain.pick(lambda v: kind_of(v).is_integral and v.shape.rank == 1)
    whole = chain.chance(0.3)
    slices = [n if whole and d == along else 1 if d == along else n for d, n in enumerate(sizes)]
    inserted = [] if whole else [along]
    updates = xla.gather(
        value,
        indices,
        slice_sizes=slices,
        offset_dims=[1 + d for d in range(len(sizes) - len(inserted))],
        collapsed_slice_dims=inserted,
        start_index_map=[along],
        index_vector_dim=1,
    )
    places = xla.add(indices, chain.number(indices, 0, 1))
    made = xla.scatter(
        value,
        places,
        updates,
        chain.one_of([xla.add, xla.max, lambda a, b: b]),
        update_window_dims=[1 + d for d in range(len(sizes) - len(inserted))],
        inserted_window_dims=inserted,
        scatter_dims_to_operand_dims=[along],
        index_vector_dim=1,
    )
    chain.keep(made)


def _convolution(chain: Chain) -> None:
    value = chain.pick(lambda v: v.shape.rank == 3 and kind_of(v).is_floating)
    _, features, length = value.shape.dimensions
    width = chain.integer(1, max(1, min(3, length)))
    kernel = xla.iota(chain.builder, xla.make_shape(kind_of(value), (2, features, width)), 2)
    padding = [(chain.integer(0, 2), chain.integer(0, 2))]
    chain.keep(xla.conv(value, kernel, [chain.integer(1, 2)], padding))


def _map(chain: Chain) -> None:
    """How often a number can be halved, counted in a loop."""
    value = chain.pick(lambda v: kind_of(v) is xla.S32)

    def number(like: xla.XlaOp, value: int) -> xla.XlaOp:
        return xla.constant(like.builder, np.int32(value))

    def halved(state: xla.XlaOp) -> xla.XlaOp:
        rest, count = (xla.get_tuple_element(state, i) for i in range(2))
        return xla.tuple_(xla.div(rest, number(state, 2)), xla.add(count, number(state, 1)))

    def more(state: xla.XlaOp) -> xla.XlaOp:
        return xla.gt(xla.get_tuple_element(state, 0), number(state, 1))

    chain.keep(xla.map(value, lambda x: xla.get_tuple_element(xla.while_(more, halved, (x, number(x, 0))), 1)))


# -- control -----------------------------------------------------------------------------------------


def _inside(chain: Chain, value: xla.XlaOp, scalar: xla.XlaOp, seed: int) -> xla.XlaOp:
    """A few operations on a value of another computation, drawn from a seed, which end in its own bounds."""
    inner = Chain(np.random.default_rng(seed), value.builder, [scalar])
    inner.values.append(value)
    for _ in range(inner.integer(1, 4)):
        inner.step(_KEEPING)
    return inner.like(value)


def _conditional(chain: Chain) -> None:
    value, scalar = chain.array(), chain.one_of(chain.scalars)
    seeds = [chain.integer(0, 1 << 30) for _ in range(3)]

    def branch(seed: int) -> Callable[[xla.XlaOp], xla.XlaOp]:
        return lambda s: _inside(chain, xla.get_tuple_element(s, 0), xla.get_tuple_element(s, 1), seed)

    operands = [(value, scalar)] * 3
    chain.keep(xla.conditional(scalar, [branch(seed) for seed in seeds], operands))


def _loop(chain: Chain) -> None:
    value, scalar = chain.array(), chain.one_of(chain.scalars)
    seed = chain.integer(0, 1 << 30)
    # What may become dynamic in the loop is so before.
    whole = value
    for d, n in enumerate(value.shape.dimensions):
        if not value.shape.dynamic_dimensions[d] and chain.chance():
            whole = xla.set_dimension_size(whole, np.int32(n), d)

    def body(state: xla.XlaOp) -> xla.XlaOp:
        turn, array, size = (xla.get_tuple_element(state, i) for i in range(3))
        one = xla.constant(state.builder, np.int32(1))
        return xla.tuple_(xla.sub(turn, one), _inside(chain, array, size, seed), turn)

    def more(state: xla.XlaOp) -> xla.XlaOp:
        return xla.gt(xla.get_tuple_element(state, 0), xla.constant(state.builder, np.int32(0)))

    found = xla.while_(more, body, (scalar, whole, scalar))
    chain.keep(xla.get_tuple_element(found, 1))


def _call(chain: Chain) -> None:
    value, scalar = chain.array(), chain.one_of(chain.scalars)
    seed = chain.integer(0, 1 << 30)
    made = xla.call(chain.builder, lambda x, s: _inside(chain, x, s, seed), [value, scalar])
    chain.keep(made)


_KEEPING = (_binary, _negate, _select, _reverse, _sort, _cumulative, _set_size, _update, _scatter)
_STEPS = (
    *_KEEPING, _binary, _set_size, _set_size, _convert, _transpose, _broadcast, _slice, _dynamic_slice, _pad,
    _concatenate, _reshape, _reshape, _flatten, _dynamic_reshape, _whole, _size, _reduce, _reduce, _where_most,
    _window, _select_and_scatter, _top_k, _dot, _gather, _convolution, _map, _conditional, _loop, _call,
)  # fmt: skip


def dynamic_program(seed: int, number: int) -> DynamicProgram:
    """The program of a seed and a number."""
    rng = np.random.default_rng([seed, number])
    builder = xla.XlaBuilder(f"dynamic_{number}")
    chain = Chain(rng, builder, [])
    arguments: list[Any] = []
    for i in range(chain.integer(1, 3)):
        kind = chain.one_of(_KINDS)
        sizes = [chain.integer(1, 6) for _ in range(chain.integer(1, 3))]
        marks = [chain.chance(0.6) for _ in sizes]
        shape = xla.make_shape(kind, sizes, dynamic_dimensions=marks)
        chain.values.append(xla.parameter(builder, i, shape, f"p{i}"))
        now = [chain.one_of([0, 1, n, n, chain.integer(0, n)]) if m else n for n, m in zip(sizes, marks, strict=True)]
        low = 0 if kind.is_unsigned else -LARGEST
        arguments.append(rng.integers(low, LARGEST + 1, now).astype(kind.dtype))
    for i in range(2):
        chain.scalars.append(xla.parameter(builder, len(arguments), xla.make_shape(xla.S32), f"n{i}"))
        arguments.append(np.int32(chain.integer(0, 6)))
    first = len(chain.values)
    for _ in range(chain.integer(3, 14)):
        chain.step(_STEPS)
    made = chain.values[first:] or chain.values
    chosen = [v for v in made if chain.chance(0.4)] or made[-1:]
    root = xla.tuple_(builder, *chosen) if len(chosen) > 1 or chain.chance(0.3) else chosen[0]
    return DynamicProgram(builder.build(root).to_module(), tuple(arguments))
