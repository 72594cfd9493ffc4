"""Programs on arrays of bounded dynamic dimensions: chains of operations, in loops and branches and by themselves.

The steps of :mod:`fuzz.programs.composed.sketch_steps` are taken on arrays of dynamic dimensions mostly. The steps here
are about sizes, or have more forms that rules for padded arrays tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import xlakit as xla
from fuzz.programs.chance import Chance
from fuzz.programs.composed.sketch import Frame, Op, elements, is_real, kind_of, same_shape, values_of
from fuzz.programs.composed.sketch_steps import PURE_STEPS, Step, take

_KINDS = (xla.F32, xla.F32, xla.S32, xla.BF16, xla.F64, xla.S64, xla.U8)


@dataclass(frozen=True, slots=True)
class DynamicProgram:
    """A module and its arguments."""

    module: xla.HloModule
    arguments: tuple[Any, ...]


class _DynamicFrame(Frame):
    """The values of a computation, of which those of dynamic dimensions are picked mostly."""

    def pick(self, test: Callable[[Op], bool] = lambda _: True) -> Op:
        """One of the values that pass a test; ShapeError where there is none."""
        if self.chance.chance(0.8) and any(v.shape.is_dynamic and test(v) for v in self.values):
            return super().pick(lambda v: v.shape.is_dynamic and test(v))
        return super().pick(test)

    def like(self, value: Op) -> Op:
        """A value of the same shape and sizes."""
        return xla.rev(value, [0]) if value.shape.is_dynamic else super().like(value)


# -- sizes -------------------------------------------------------------------------------------------


def _set_size(frame: Frame) -> None:
    value = frame.array()
    dimension = frame.axis(value)
    bound = frame.scalar(xla.S32, value.shape.dimensions[dimension])
    frame.keep(xla.set_dimension_size(value, xla.min(frame.counter(), bound), dimension))


def _size(frame: Frame) -> None:
    value = frame.array()
    frame.counters.append(xla.get_dimension_size(value, frame.axis(value)))


def _whole(frame: Frame) -> None:
    value = frame.array()
    frame.keep(xla.remove_dynamic_dimension(value, frame.axis(value)))


def _inferred_reshape(frame: Frame) -> None:
    """A reshape that says which of its dimensions is dynamic."""
    value = frame.array()
    left, new = value.shape.num_elements, list[int]()
    while left > 1 and len(new) < 2:
        new.append(frame.chance.pick([f for f in range(1, left + 1) if left % f == 0]))
        left //= new[-1]
    new += [left] if left > 1 or not new else []
    frame.keep(xla.reshape(value, new, inferred_dimension=frame.chance.integer(0, len(new) - 1)))


def _flatten(frame: Frame) -> None:
    value = frame.pick(lambda v: v.shape.rank > 1)
    frame.keep(xla.reshape(value, [value.shape.num_elements]))


def _dynamic_reshape(frame: Frame) -> None:
    value = frame.array()
    sizes = [xla.get_dimension_size(value, d) for d in range(value.shape.rank)]
    bounds = value.shape.dimensions
    if value.shape.rank > 1 and frame.chance.chance():
        order = frame.chance.shuffled(range(value.shape.rank))
        new = [sizes[d] for d in order]
        frame.keep(xla.dynamic_reshape(value, new, [bounds[d] for d in order], [True] * len(order)))
        return
    count = sizes[0]
    for size in sizes[1:]:
        count = xla.mul(count, size)
    frame.keep(xla.dynamic_reshape(value, [count], [math.prod(bounds)], [True]))


def _in_common(frame: Frame) -> None:
    """An operation on two arrays of different sizes: the result has those that both have."""
    value = frame.array(is_real)
    other = frame.pick(lambda v: same_shape(v, value))
    frame.keep(frame.chance.pick([xla.add, xla.sub, xla.max, xla.min])(value, other))


# -- more forms of operations ------------------------------------------------------------------------


def _sort(frame: Frame) -> None:
    """An order that is no plain comparison of elements."""
    value = frame.array(is_real)

    def nearer(a: Op, b: Op) -> Op:
        return xla.lt(xla.mul(a, a), xla.mul(b, b))

    order = frame.chance.pick([nearer, xla.gt_total_order])
    frame.keep(xla.sort(value, order, frame.axis(value), True))


def _pad(frame: Frame) -> None:
    value, chance = frame.array(), frame.chance
    config = [(chance.integer(-2, 2), chance.integer(-2, 2), chance.integer(0, 2)) for _ in value.shape.dimensions]
    frame.keep(xla.pad(value, frame.scalar(kind_of(value), 1), config))


def _slice(frame: Frame) -> None:
    value, chance = frame.array(), frame.chance
    sizes = value.shape.dimensions
    starts = [chance.integer(0, min(n, 2)) for n in sizes]
    limits = [chance.integer(start, n) if chance.chance() else n for start, n in zip(starts, sizes, strict=True)]
    frame.keep(xla.slice(value, starts, limits, [chance.integer(1, 3) for _ in sizes]))


def _concatenate(frame: Frame) -> None:
    value = frame.array()
    along = frame.axis(value)
    others = [value if frame.chance.chance(0.3) else xla.rev(value, [along])]
    if value.shape.rank == 1:
        others.append(frame.pick(lambda v: v.shape.rank == 1 and kind_of(v) is kind_of(value)))
    frame.keep(xla.concatenate([value, *others], along))


def _greater(a: Op, b: Op) -> Op:
    """The greater number, by an operation that is none of the known ones."""
    return xla.select(xla.lt(a, b), b, a)


def _start(frame: Frame, value: Op) -> Op:
    """What a reduction begins with: often less than padding, which would be seen in the result."""
    kind = kind_of(value)
    return frame.scalar(kind, frame.chance.integer(0 if kind.is_unsigned else -5, 3))


def _reduce(frame: Frame) -> None:
    """A reduction that padding would be seen in."""
    value = frame.array(is_real)
    combine: Callable[..., Op] = frame.chance.pick([xla.add, xla.max, xla.min, xla.mul, _greater])
    if combine is xla.mul:
        value = xla.min(xla.max(value, frame.full(value, 1)), frame.full(value, 2))
    elif combine is _greater and not kind_of(value).is_unsigned:
        # Padding is 0 mostly, and would be the greatest number.
        value = xla.neg(xla.abs(value))
    frame.keep(xla.reduce(value, _start(frame, value), combine, frame.chance.some(range(value.shape.rank), 0.6)))


def _window(frame: Frame) -> None:
    value, chance = frame.array(is_real), frame.chance
    sizes = value.shape.dimensions
    window = [chance.integer(1, max(1, min(3, n))) for n in sizes]
    strides = [chance.integer(1, 2) for _ in sizes]
    padding = [(chance.integer(-1, 2), chance.integer(-1, 2)) for _ in sizes]
    base, holes = ([chance.integer(1, 2) if chance.chance(0.3) else 1 for _ in sizes] for _ in range(2))
    combine: Callable[..., Op] = chance.pick([xla.add, xla.max, _greater])
    start = _start(frame, value)
    frame.keep(
        xla.reduce_window(value, start, combine, window, strides, padding, base_dilations=base, window_dilations=holes)
    )


def _select_and_scatter(frame: Frame) -> None:
    value, chance = frame.array(is_real), frame.chance
    sizes = value.shape.dimensions
    window = [chance.integer(1, max(1, min(3, n))) for n in sizes]
    strides = [chance.integer(1, 2) for _ in sizes]
    padding = [(chance.integer(0, w - 1), chance.integer(0, w - 1)) for w in window]
    zero = frame.scalar(kind_of(value), 0)
    source = xla.reduce_window(value, zero, xla.max, window, strides, padding)
    frame.keep(xla.select_and_scatter(value, xla.ge, window, strides, padding, source, zero, xla.add))


def _top_k(frame: Frame) -> None:
    value = frame.array()
    found = xla.top_k(value, frame.chance.integer(0, value.shape.dimensions[-1]), largest=frame.chance.chance())
    frame.keep(xla.get_tuple_element(found, frame.chance.integer(0, 1)))


def _dot(frame: Frame) -> None:
    """Any dimensions contracted, any of the others a batch."""
    value = frame.array()
    rank = value.shape.rank
    dims = frame.chance.some(range(rank))
    batch = [d for d in range(rank) if d not in dims and frame.chance.chance(0.3)]
    numbers = xla.DotDimensionNumbers(dims, dims, batch, batch)
    frame.keep(xla.dot_general(value, xla.rev(value, [rank - 1]), numbers))


def _gathered(value: Op, indices: Op, along: int, width: int, *, first: bool) -> Op:
    """Slices of a width along one dimension; the dimensions of a slice are the ``first`` of the result, or the last."""
    sizes = value.shape.dimensions
    collapsed = [along] if width == 1 else []
    rank, kept = indices.shape.rank, len(sizes) - len(collapsed)
    return xla.gather(
        value,
        indices,
        slice_sizes=[width if d == along else n for d, n in enumerate(sizes)],
        offset_dims=list(range(kept)) if first else [rank + d for d in range(kept)],
        collapsed_slice_dims=collapsed,
        start_index_map=[along],
        index_vector_dim=rank,
    )


def _gather(frame: Frame) -> None:
    value = frame.array()
    along = frame.axis(value)
    indices = frame.pick(lambda v: kind_of(v).is_integral and v.shape.rank <= 2)
    width = 1 if frame.chance.chance(0.6) else frame.chance.integer(0, value.shape.dimensions[along])
    frame.keep(_gathered(value, indices, along, width, first=frame.chance.chance()))


def _scatter(frame: Frame) -> None:
    """What is gathered from an array is scattered into it again, elsewhere."""
    value = frame.array(is_real)
    along = frame.axis(value)
    indices = frame.pick(lambda v: kind_of(v).is_integral and v.shape.rank == 1)
    width = value.shape.dimensions[along] if frame.chance.chance(0.3) else 1
    updates = _gathered(value, indices, along, width, first=False)
    frame.keep(
        xla.scatter(
            value,
            xla.add(indices, frame.full(indices, frame.chance.integer(0, 1))),
            updates,
            frame.chance.pick([xla.add, xla.max, lambda a, b: b]),
            update_window_dims=list(range(1, updates.shape.rank)),
            inserted_window_dims=[along] if width == 1 else [],
            scatter_dims_to_operand_dims=[along],
            index_vector_dim=1,
        )
    )


def _convolution(frame: Frame) -> None:
    value, chance = frame.pick(lambda v: v.shape.rank == 3 and kind_of(v).is_floating), frame.chance
    _, features, length = value.shape.dimensions
    width = chance.integer(1, max(1, min(3, length)))
    kernel = xla.iota(frame.builder, xla.make_shape(kind_of(value), (2, features, width)), 2)
    padding = [(chance.integer(0, 2), chance.integer(0, 2))]
    frame.keep(xla.conv(value, kernel, [chance.integer(1, 2)], padding))


def _map(frame: Frame) -> None:
    """How often a number can be halved, counted in a loop."""
    value = frame.pick(lambda v: kind_of(v) is xla.S32)

    def halved(state: Op) -> Op:
        rest, count = elements(state)
        return xla.tuple_(xla.div(rest, xla.constant(rest.builder, np.int32(2))), count + 1)

    def halvings(x: Op) -> Op:
        return xla.get_tuple_element(xla.while_(lambda state: elements(state)[0] > 1, halved, (x, x * 0)), 1)

    frame.keep(xla.map(value, halvings))


# -- control -----------------------------------------------------------------------------------------


def _inside(frame: Frame, value: Op, scalar: Op) -> Op:
    """A few operations on a value of another computation, which end in its own bounds."""
    inner = _DynamicFrame(frame.chance, value.builder, [value], [scalar])
    for _ in range(frame.chance.integer(1, 4)):
        take(inner, _STEPS)
    return inner.pick(lambda v: same_shape(v, value))


def _conditional(frame: Frame) -> None:
    value, scalar = frame.array(), frame.counter()

    def branch(given: Op) -> Op:
        return _inside(frame, *elements(given))

    frame.keep(xla.conditional(scalar, [branch] * 3, [(value, scalar)] * 3))


def _loop(frame: Frame) -> None:
    value, scalar = frame.array(), frame.counter()
    # What may become dynamic in the loop is so before.
    for d, n in enumerate(value.shape.dimensions):
        if not value.shape.dynamic_dimensions[d] and frame.chance.chance():
            value = xla.set_dimension_size(value, np.int32(n), d)

    def body(state: Op) -> Op:
        iteration, array, size = elements(state)
        return xla.tuple_(iteration - 1, _inside(frame, array, size), iteration)

    found = xla.while_(lambda state: xla.get_tuple_element(state, 0) > 0, body, (scalar, value, scalar))
    frame.keep(xla.get_tuple_element(found, 1))


def _call(frame: Frame) -> None:
    frame.keep(xla.call(frame.builder, lambda x, s: _inside(frame, x, s), [frame.array(), frame.counter()]))


_OWN_STEPS: tuple[Step, ...] = (
    _set_size, _set_size, _size, _whole, _inferred_reshape, _flatten, _dynamic_reshape, _in_common, _sort, _pad, _slice,
    _concatenate, _reduce, _reduce, _reduce, _window, _window, _select_and_scatter, _top_k, _dot, _gather, _scatter,
    _convolution, _map,
)  # fmt: skip
_STEPS = (*PURE_STEPS, *_OWN_STEPS * 3)


def dynamic_program(seed: int, number: int) -> DynamicProgram:
    """The program of a seed and a number."""
    rng = np.random.default_rng([seed, number])
    chance, builder = Chance(rng), xla.XlaBuilder(f"dynamic_{number}")
    frame, arguments = _DynamicFrame(chance, builder), list[Any]()
    for i in range(chance.integer(1, 3)):
        kind = chance.pick(_KINDS)
        sizes = [chance.integer(1, 6) for _ in range(chance.integer(1, 3))]
        marks = [chance.chance(0.6) for _ in sizes]
        shape = xla.make_shape(kind, sizes, dynamic_dimensions=marks)
        frame.values.append(xla.parameter(builder, i, shape, f"p{i}"))
        now = [chance.pick([0, 1, n, n, chance.integer(0, n)]) if m else n for n, m in zip(sizes, marks, strict=True)]
        arguments.append(values_of(rng, kind, now))
    for i in range(2):
        frame.counters.append(xla.parameter(builder, len(arguments), xla.make_shape(xla.S32), f"n{i}"))
        arguments.append(np.int32(chance.integer(0, 6)))
    first = len(frame.values)
    for _ in range(chance.integer(3, 14)):
        take(frame, (*_STEPS, _conditional, _loop, _call))
    made = frame.values[first:] or frame.values
    chosen = chance.some(made, 0.4) or made[-1:]
    root = xla.tuple_(builder, *chosen) if len(chosen) > 1 or chance.chance(0.3) else chosen[0]
    return DynamicProgram(builder.build(root).to_module(), tuple(arguments))
