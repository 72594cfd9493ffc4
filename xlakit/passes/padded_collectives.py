"""Padded values between devices: what comes from others comes with its size."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import UnsupportedError
from xlakit.ir.attributes import PaddingDimension, SliceDimension
from xlakit.ir.instruction import Instruction
from xlakit.ops.collective_moves import AllToAll
from xlakit.ops.collectives import AllGather, ReduceScatter
from xlakit.ops.dynamic import DynamicUpdateSlice
from xlakit.ops.movement import Pad, Slice
from xlakit.passes.padded_values import Padded, PaddedRules, Padder, Size, array, bundle

COLLECTIVES = PaddedRules()
_rule = COLLECTIVES.rule


def _only(old: Instruction, operands: Sequence[Padded]) -> Padded:
    if len(operands) != 1:
        raise UnsupportedError(
            f"{old.op.opcode} of several arrays of dynamic dimensions", hint="send them one after the other"
        )
    return operands[0]


def _same_sizes(operands: Sequence[Padded], make: Padder) -> Padded:
    """What comes from devices whose arrays must be as large as this one's."""
    return bundle(make.again([x.value for x in operands]), [x.dims for x in operands])


@_rule("all-reduce")
def all_reduce(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """All devices bring arrays of the same sizes, so the result has them."""
    return _same_sizes(operands, make)


@_rule("reduce-scatter")
def reduce_scatter(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """The same, as long as the dimension that is dealt out is full."""
    _need_full(old, operands, old.op_as(ReduceScatter).scatter_dimension)
    return _same_sizes(operands, make)


@_rule("all-to-all")
def all_to_all(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """The same, as long as the dimension that is cut up is full."""
    _only(old, operands)
    _need_full(old, operands, old.op_as(AllToAll).split_dimension)
    return _same_sizes(operands, make)


def _need_full(old: Instruction, operands: Sequence[Padded], dimension: int | None) -> None:
    if dimension is None or any(dimension in x.dims for x in operands):
        raise UnsupportedError(
            f"{old.op.opcode} along a dynamic dimension", hint="pad it with set_dimension_size, so that all blocks fit"
        )


@_rule("collective-permute", "collective-broadcast")
def moved(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """The sizes take the same way. Where nobody sends there are zeros, and those fill the bounds."""
    x = _only(old, operands)
    value = make.again([x.value])
    dims: dict[int, Instruction] = {}
    for d, size in x.dims.items():
        # One more than the size, so that 0 says that nobody has sent it.
        came = make.add(old.op, make.instruction(make.plus(size, 1)))
        nobody = make.compare(came, make.number(0), "EQ")
        own = make.instruction(make.minus(came, 1))
        dims[d] = make.apply("select", nobody, make.number(x.shape.dimensions[d]), own)
    return array(value, dims)


@_rule("all-gather")
def all_gather(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Along a dynamic dimension the sizes are gathered too, and each block moves to where those before it end."""
    along = old.op_as(AllGather).all_gather_dimension
    if not any(along in x.dims for x in operands):
        return _same_sizes(operands, make)
    x = _only(old, operands)
    value = make.again([x.value])
    bounds, block = value.shape.dimensions, x.shape.dimensions[along]
    count = bounds[along] // block if block else 0
    if not count:
        return array(value, x.dims)
    gathered = dataclasses.replace(old.op_as(AllGather), all_gather_dimension=0)
    sizes = make.add(gathered, make.reshaped(x.dims[along], (1,)), shape=Shape(PrimitiveType.S32, (count,)))
    room = [PaddingDimension()] * len(bounds)
    room[along] = PaddingDimension(0, bounds[along] - block)
    end: Size = 0
    result: Instruction | None = None
    for number in range(count):
        parts = [SliceDimension(0, n) for n in bounds]
        parts[along] = SliceDimension(number * block, (number + 1) * block)
        part = make.add(Slice(slice=tuple(parts)), value)
        if result is None:
            result = make.add(Pad(padding=tuple(room)), part, make.zero(value.shape.element_type))
        else:
            starts = [make.instruction(end if d == along else 0) for d in range(len(bounds))]
            result = make.add(DynamicUpdateSlice(), result, part, *starts)
        size = make.add(Slice(slice=(SliceDimension(number, number + 1),)), sizes)
        end = make.plus(end, make.reshaped(size, ()))
    return array(result or value, dict(sorted({**x.dims, along: make.instruction(end)}.items())))
