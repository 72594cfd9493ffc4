"""Rules for padded arrays in operations that move elements: broadcast, slice, pad, concatenate and the like."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.ir.attributes import PaddingDimension, SliceDimension
from xlakit.ir.instruction import Instruction
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import Constant
from xlakit.ops.dynamic import CHECK_SIZE, DynamicSlice, DynamicUpdateSlice, GetDimensionSize, SetDimensionSize
from xlakit.ops.movement import Broadcast, Concatenate, Pad, Reverse, Slice, Transpose
from xlakit.passes.core.matching import as_integer, uniform
from xlakit.passes.dynamic.padded_values import NoRuleError, Padded, PaddedRules, Padder, Size, array, static_shape

MOVEMENT = PaddedRules()
_rule = MOVEMENT.rule

# Custom calls that return their operand unchanged.
_SAME = ("AssumeGatherIndicesInBound", "SetBound")

# -- sizes -----------------------------------------------------------------------------------------


@_rule("get-dimension-size")
def get_dimension_size(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """The size scalar of the array."""
    return Padded(make.instruction(make.size(operands[0], old.op_as(GetDimensionSize).dimension)))


@_rule("set-dimension-size")
def set_dimension_size(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """The size is replaced; elements that were padding before become zero."""
    x, size = operands
    dimension = old.op_as(SetDimensionSize).dimension
    value = make.zeroed(x, [dimension])
    dims = {d: n for d, n in x.dims.items() if d != dimension}
    inside = _within(size.value, dimension, x.shape.dimensions[dimension], make)
    if old.shape.dynamic_dimensions[dimension]:
        dims[dimension] = inside
    return array(value, dims)


def _within(size: Instruction, dimension: int, bound: int, make: Padder) -> Instruction:
    """A size that the program computes, after a run-time check that it is within its bound."""
    known = as_integer(uniform(size))
    if known is not None and 0 <= known <= bound:
        return size
    least, most = make.number(0), make.number(bound)
    holds = make.apply("and", make.compare(size, least, "GE"), make.compare(size, most, "LE"))
    return make.checked(holds, size, CHECK_SIZE, size, make.number(dimension), most)


@_rule("constant")
def constant(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """A literal with fewer elements than its bounds is filled up with zeros."""
    literal = old.op_as(Constant).literal
    if not literal.shape.is_array:
        raise NoRuleError("a constant tuple")
    bounds = literal.shape.dimensions
    full = np.zeros(bounds, literal.array.dtype)
    full[tuple(slice(0, n) for n in literal.array.shape)] = literal.array
    marks = zip(literal.array.shape, bounds, old.shape.dynamic_dimensions, strict=True)
    dims = {d: make.number(n) for d, (n, bound, mark) in enumerate(marks) if mark and n != bound}
    whole = Constant(literal=Literal(static_shape(literal.shape), full))
    return array(make.at_bounds([], whole), dims)


@_rule("custom-call")
def custom_call(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """PadToStatic and SliceToDynamic convert between dynamic and padded arrays; SetBound and the like do nothing."""
    target = old.op_as(CustomCall).custom_call_target
    x = operands[0] if operands else None
    if x is None or not x.shape.is_array or target not in (*_SAME, "PadToStatic", "SliceToDynamic"):
        raise NoRuleError(f"a custom call of '{target}'")
    if target == "PadToStatic":
        sizes = [make.instruction(make.size(x, d)) for d in range(x.shape.rank)]
        return Padded(make.tuple(make.zeroed(x), *sizes))
    if target == "SliceToDynamic":
        bounds = x.shape.dimensions
        inside = [make.most(0, make.least(n.value, bound)) for n, bound in zip(operands[1:], bounds, strict=True)]
        dynamic = zip(inside, old.shape.dynamic_dimensions, strict=True)
        return array(x.value, {d: make.instruction(n) for d, (n, mark) in enumerate(dynamic) if mark})
    return x


# -- elements that stay, and renamed dimensions ----------------------------------------------------


@_rule("copy", "bitcast-convert", "opt-barrier", "add-dependency")
def same_positions(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Elements keep their positions; the result has the sizes of the first operand."""
    return Padded(make.at_bounds([o.value for o in operands]), operands[0].sizes)


@_rule("broadcast")
def broadcast(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Sizes go where their dimensions go."""
    (x,) = operands
    operand_dims = old.op_as(Broadcast).dimensions
    return array(make.at_bounds([x.value]), {operand_dims[d]: size for d, size in x.dims.items()})


@_rule("transpose")
def transpose(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Sizes go where their dimensions go."""
    (x,) = operands
    order = old.op_as(Transpose).dimensions
    return array(make.at_bounds([x.value]), {i: x.dims[d] for i, d in enumerate(order) if d in x.dims})


# -- parts -----------------------------------------------------------------------------------------


def _parts(old: Instruction, sizes: dict[int, Size], value: Instruction, make: Padder) -> Padded:
    """An array with these valid sizes; in dimensions that are declared static, zeros replace the padding."""
    marks = old.shape.dynamic_dimensions
    rest = make.valid(value.shape.dimensions, {d: n for d, n in sizes.items() if not marks[d]})
    value = make.chosen(rest, value, make.zero(value.shape.element_type)) if rest is not None else value
    return array(value, {d: make.instruction(n) for d, n in sizes.items() if marks[d]})


@_rule("slice")
def slice_(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """The valid elements from the start to the limit, or to the size if that comes first."""
    (x,) = operands
    sizes: dict[int, Size] = {}
    for d, size in x.dims.items():
        part = old.op_as(Slice).slice[d]
        end = size if part.limit >= x.shape.dimensions[d] else make.least(size, part.limit)
        # The number of strides that begin before the end.
        room = make.plus(make.minus(end, part.start), part.stride - 1)
        sizes[d] = make.over(room if part.start == 0 else make.most(0, room), part.stride)
    return _parts(old, sizes, make.at_bounds([x.value]), make)


def _starts(indices: Sequence[Padded], rank: int, make: Padder) -> list[Instruction]:
    """The start indices of a dynamic slice or update as S32 scalars."""
    if len(indices) == 1 and indices[0].shape.rank == 1:
        vector = make.saturated(indices[0].value)
        shape = Shape(PrimitiveType.S32, (1,))
        parts = [
            make.add(DynamicSlice(dynamic_slice_sizes=(1,)), vector, make.number(d), shape=shape) for d in range(rank)
        ]
        return [make.reshape(part, ()) for part in parts]
    return [make.saturated(index.value) for index in indices]


def _inside(start: Instruction, have: Size, size: Size, make: Padder) -> Instruction:
    """A start clamped so that ``size`` elements from it lie within ``have`` elements; 0 if ``have`` is less."""
    return make.instruction(make.most(0, make.least(start, make.minus(have, size))))


@_rule("dynamic-slice")
def dynamic_slice(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """The start is clamped so that the slice lies within the valid elements; beyond these, the slice has zeros."""
    x, *indices = operands
    sizes = old.op_as(DynamicSlice).dynamic_slice_sizes
    starts = _starts(indices, len(sizes), make)
    for d, size in x.dims.items():
        starts[d] = _inside(starts[d], size, sizes[d], make)
    value = make.add(DynamicSlice(dynamic_slice_sizes=sizes), x.value, *starts)
    return _parts(old, dict(x.dims), value, make)


@_rule("dynamic-update-slice")
def dynamic_update_slice(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Only the valid elements of a dynamic update are written.

    The update is written into an array padded by the update's bounds, so that it never has to be clamped; its padding
    is then replaced by the old elements. An update that may cover a whole dimension also gives the result's size.
    """
    x, update, *indices = operands
    bounds = x.shape.dimensions
    starts = _starts(indices, len(bounds), make)
    dims: dict[int, Size] = {**x.dims}
    value = x.value
    for d in update.dims:
        if update.shape.dimensions[d] == bounds[d]:
            value = make.zeroed(array(value, x.dims), [d])
            dims[d] = update.dims[d]
    for d in range(len(bounds)):
        if d in dims or d in update.dims:
            starts[d] = _inside(starts[d], dims.get(d, bounds[d]), make.size(update, d), make)
    room = tuple(PaddingDimension(0, update.shape.dimensions[d] if d in update.dims else 0) for d in range(len(bounds)))
    target = value
    if update.dims:
        target = make.add(Pad(padding=room), value, make.zero(value.shape.element_type))
    written = make.add(DynamicUpdateSlice(), target, make.convert(update.value, x.shape.element_type), *starts)
    if update.dims:
        written = beginning(written, bounds, make)
        ends: dict[int, Size] = {d: make.plus(starts[d], size) for d, size in update.dims.items()}
        written = make.chosen(make.valid(bounds, ends), written, value)
    return array(written, {d: make.instruction(size) for d, size in dims.items()})


def beginning(x: Instruction, sizes: Sequence[int], make: Padder) -> Instruction:
    """The first ``sizes`` elements along the dimensions; the array itself if it has no more."""
    if x.shape.dimensions == tuple(sizes):
        return x
    return make.slice(x, [SliceDimension(0, n) for n in sizes])


# -- more elements, in another order ---------------------------------------------------------------------------


@_rule("pad")
def pad(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Invalid elements take the padding value first, so that the padding may begin at the bounds."""
    x, value = operands
    kind = old.shape.element_type
    padding = old.op_as(Pad).padding
    padded = [d for d in x.dims if padding[d] != PaddingDimension()]
    filler = make.convert(value.value, kind)
    filled = make.filled(array(make.convert(x.value, kind), x.dims), filler, padded)
    dims = dict(x.dims)
    for d in padded:
        p, size = padding[d], x.dims[d]
        between = make.times(make.most(0, make.minus(size, 1)), p.interior_padding) if p.interior_padding else 0
        total = make.plus(make.plus(size, between), p.edge_padding_low + p.edge_padding_high)
        dims[d] = make.instruction(make.most(0, total))
    return array(make.at_bounds([filled, filler]), dims)


@_rule("concatenate")
def concatenate(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Each array is written at the end of the valid elements of those before it, over their padding."""
    along = old.op_as(Concatenate).dimension
    kind, bounds = old.shape.element_type, old.shape.dimensions
    parts = [array(make.convert(x.value, kind), x.dims) for x in operands]
    # All operands have the same sizes in the other dimensions.
    dims = {d: size for x in reversed(operands) for d, size in x.dims.items() if d != along}
    if not any(along in x.dims for x in operands):
        return array(make.add(Concatenate(dimension=along), *(p.value for p in parts)), dims)
    blocks = [(part.value, make.size(part, along)) for part in parts]
    value, total = one_after_another(blocks, along, bounds[along], make)
    return array(value, {**dims, along: total})


def one_after_another(
    blocks: Sequence[tuple[Instruction, Size]], along: int, bound: int, make: Padder
) -> tuple[Instruction, Instruction]:
    """Arrays concatenated without their padding ``along`` a dimension, which gets a bound, and the total size.

    blocks: each array with the number of its valid elements.
    """
    (value, end), *others = blocks
    room = [PaddingDimension()] * value.shape.rank
    room[along] = PaddingDimension(0, bound - value.shape.dimensions[along])
    value = make.add(Pad(padding=tuple(room)), value, make.zero(value.shape.element_type))
    for block, size in others:
        starts = [make.instruction(end if d == along else 0) for d in range(len(room))]
        value = make.add(DynamicUpdateSlice(), value, block, *starts)
        end = make.plus(end, size)
    return value, make.instruction(end)


@_rule("reverse")
def reverse(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """The reversed array has its padding first: a dynamic slice moves the valid elements to the beginning."""
    (x,) = operands
    bounds = x.shape.dimensions
    turned = [d for d in old.op_as(Reverse).dimensions if d in x.dims]
    value = make.at_bounds([x.value])
    if turned:
        room = tuple(PaddingDimension(0, bounds[d] if d in turned else 0) for d in range(len(bounds)))
        value = make.add(Pad(padding=room), value, make.zero(value.shape.element_type))
        starts = [make.instruction(make.minus(bounds[d], x.dims[d]) if d in turned else 0) for d in range(len(bounds))]
        value = make.add(DynamicSlice(dynamic_slice_sizes=bounds), value, *starts)
    return array(value, x.dims)
