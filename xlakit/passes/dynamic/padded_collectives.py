"""Rules for padded arrays in collectives: sizes are sent along, or checked to be equal on all devices."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.ir.instruction import Instruction
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import AllToAll
from xlakit.ops.communication.collectives import AllGather, AllReduce, ReduceScatter
from xlakit.ops.dynamic import CHECK_GROUP
from xlakit.passes.dynamic.padded_movement import one_after_another
from xlakit.passes.dynamic.padded_values import (
    NoRuleError,
    Padded,
    PaddedRules,
    Padder,
    array,
    bundle,
    static_shape,
)

COLLECTIVES = PaddedRules()
_rule = COLLECTIVES.rule

# Added to a collective's channel it is that of the comparison of its sizes, in all copies of it; no program has so many
# channels of its own.
_CHANNELS = 1 << 40


def _same_sizes(old: Instruction, operands: Sequence[Padded], make: Padder, cut: int | None = None) -> Padded:
    """The collective on padded arrays whose sizes must be the same on all devices.

    cut: a dimension that the collective divides, which must not be dynamic.
    """
    if cut is not None and any(cut in x.dims for x in operands):
        raise NoRuleError(f"{old.op.opcode} along a dynamic dimension")
    return bundle(make.at_bounds([x.value for x in operands]), _agreed(old, [x.dims for x in operands], make))


def _agreed(
    old: Instruction, sizes: Sequence[Mapping[int, Instruction]], make: Padder
) -> Sequence[Mapping[int, Instruction]]:
    """The sizes of some arrays, after a run-time check that all devices of the group have the same ones.

    One all-reduce takes the minimum of the sizes and of the negated sizes; the sizes are equal if their minimum is
    their maximum.
    """
    op = old.op_as(Collective)
    own = [size for dims in sizes for size in dims.values()]
    if not own:
        return sizes
    if op.global_ids is None and op.channel_id is not None:
        raise NoRuleError(f"{op.opcode} between partitions, where no all-reduce meets")
    minimum = make.function("least", [Shape(PrimitiveType.S32)] * 2, lambda inner, a, b: inner.apply("minimum", a, b))
    reduction = AllReduce(
        replica_groups=op.replica_groups,
        channel_id=None if op.channel_id is None else _CHANNELS + op.channel_id,
        use_global_device_ids=bool(op.global_ids),
        to_apply=minimum,
    )
    count = len(own)
    found = make.add(reduction, make.row([*own, *(make.minus(0, size) for size in own)]))
    least_sizes, negated = (_part(found, 0, n, 2, make) for n in range(2))
    greatest_sizes = make.apply("negate", negated)
    parts = [
        [make.reshape(_part(ends, 0, n, count, make), ()) for ends in (least_sizes, greatest_sizes)]
        for n in range(count)
    ]
    tests = [make.compare(a, b, "EQ") for a, b in parts]
    holds = functools.reduce(lambda a, b: make.apply("and", a, b), tests)
    checked = iter([make.checked(holds, own[0], CHECK_GROUP, least_sizes, greatest_sizes), *own[1:]])
    return [{d: next(checked) for d in dims} for dims in sizes]


@_rule("all-reduce")
def all_reduce(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """All devices must have arrays of the same sizes, which the result has, too."""
    return _same_sizes(old, operands, make)


@_rule("reduce-scatter")
def reduce_scatter(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """As all-reduce; the scattered dimension must not be dynamic."""
    return _same_sizes(old, operands, make, old.op_as(ReduceScatter).scatter_dimension)


@_rule("all-to-all")
def all_to_all(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """As all-reduce; the split dimension must not be dynamic."""
    along = old.op_as(AllToAll).split_dimension
    if along is None:
        raise NoRuleError("all-to-all of a tuple, whose elements may have different sizes")
    return _same_sizes(old, operands, make, along)


@_rule("collective-permute", "collective-broadcast")
def moved(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Sizes are sent as additional operands. A device that receives nothing gets zeros, with full sizes."""
    if getattr(old.op, "slice_sizes", ()) or getattr(old.op, "has_dynamic_root", False):
        raise NoRuleError(f"{old.op.opcode} with operands that are not sent")
    # The sizes plus 1, so that a received 0 means that nothing was sent.
    sizes = [make.instruction(make.plus(x.dims[d], 1)) for x in operands for d in sorted(x.dims)]
    came = make.add(old.op, *(x.value for x in operands), *sizes)
    count = len(operands)
    arrays = [make.element(came, i) for i in range(count)]
    following = iter(range(count, count + len(sizes)))
    dims: list[dict[int, Instruction]] = []
    for x in operands:
        own: dict[int, Instruction] = {}
        for d in sorted(x.dims):
            size = make.element(came, next(following))
            not_sent = make.compare(size, make.number(0), "EQ")
            full = make.number(x.shape.dimensions[d])
            own[d] = make.apply("select", not_sent, full, make.instruction(make.minus(size, 1)))
        dims.append(own)
    return bundle(arrays[0] if count == 1 else make.tuple(*arrays), dims)


@_rule("all-gather")
def all_gather(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Along a dynamic dimension the sizes are gathered too, and each block moves to the end of those before it."""
    along = old.op_as(AllGather).all_gather_dimension
    if not any(along in x.dims for x in operands):
        return _same_sizes(old, operands, make)
    others = _agreed(old, [{d: n for d, n in x.dims.items() if d != along} for x in operands], make)
    ragged = [x for x in operands if along in x.dims]
    # Sizes are gathered along the same dimension as the blocks.
    sizes = [make.reshape(x.dims[along], (1,) * x.shape.rank) for x in ragged]
    shapes = list(static_shape(old.shape).tuple_shapes or (static_shape(old.shape),))
    count = _members(operands, shapes, along)
    lines = [Shape(PrimitiveType.S32, tuple(count if d == along else 1 for d in range(x.shape.rank))) for x in ragged]
    came = make.append_after_control(
        old.replace(operands=[*(x.value for x in operands), *sizes], shape=make_tuple_shape([*shapes, *lines]))
    )
    arrays: list[Padded] = []
    for number, (x, dims) in enumerate(zip(operands, others, strict=True)):
        whole = make.element(came, number)
        if along in x.dims:
            line = make.reshape(make.element(came, len(operands) + ragged.index(x)), (count,))
            blocks = [
                (_part(whole, along, number, count, make), make.reshape(_part(line, 0, number, count, make), ()))
                for number in range(count)
            ]
            whole, end = one_after_another(blocks, along, whole.shape.dimensions[along], make)
            arrays.append(array(whole, {**dims, along: end}))
        else:
            arrays.append(array(whole, dims))
    values = [x.value for x in arrays]
    return bundle(values[0] if len(values) == 1 else make.tuple(*values), [x.dims for x in arrays])


def _members(operands: Sequence[Padded], shapes: Sequence[Shape], along: int) -> int:
    """The number of devices in a group, from the shapes."""
    for x, shape in zip(operands, shapes, strict=True):
        if x.shape.dimensions[along]:
            return shape.dimensions[along] // x.shape.dimensions[along]
    raise NoRuleError("an all-gather of empty arrays")


def _part(x: Instruction, along: int, number: int, count: int, make: Padder) -> Instruction:
    """One of ``count`` equal parts of an array."""
    length = x.shape.dimensions[along] // count
    return make.slice_along(x, along, number * length, (number + 1) * length)
