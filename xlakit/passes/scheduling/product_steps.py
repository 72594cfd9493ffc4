"""The steps of collective matmul: products of parts, the collectives between them, and the placing of results."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.ir.attributes import SliceDimension
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ops.communication.collective_moves import CollectivePermute
from xlakit.ops.communication.collectives import AllGather, PartitionId, ReduceScatter, ReplicaId
from xlakit.ops.dot import Dot
from xlakit.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from xlakit.ops.movement import Concatenate
from xlakit.ops.shared.contraction import free_dimensions
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.hlo_builder import HloBuilder


@dataclass(frozen=True, slots=True)
class Ring:
    """Groups of devices, in order, by partition or else by replica; each device is in one of them."""

    groups: tuple[tuple[int, ...], ...]
    by_partition: bool

    @property
    def size(self) -> int:
        """The number of members of a group."""
        return len(self.groups[0])

    def pairs(self, step: int) -> tuple[tuple[int, int], ...]:
        """The pairs by which each member sends to the one ``step`` positions behind it."""
        return tuple((g[j], g[(j + step) % self.size]) for g in self.groups for j in range(self.size))

    def positions(self, step: int) -> list[int]:
        """For each device the position ``step`` behind its own."""
        found = {device: (j + step) % self.size for g in self.groups for j, device in enumerate(g)}
        return [found[device] for device in sorted(found)]


class Numbers:
    """The numbers of new channels."""

    def __init__(self, last: int) -> None:
        self._last = last

    @staticmethod
    def of(module: HloModule) -> Numbers:
        """The numbers after the last channel of a module."""
        used = (getattr(i.op, "channel_id", None) or 0 for i in module.instructions)
        return Numbers(max(used, default=0))

    def new(self) -> int:
        """A new channel."""
        self._last += 1
        return self._last


def result_dimension(product: Instruction, side: int, dimension: int) -> int:
    """The dimension of a product's result that is a batch or free dimension of an operand."""
    op = product.op_as(Dot)
    batch = (op.lhs_batch_dims, op.rhs_batch_dims)[side]
    if dimension in batch:
        return batch.index(dimension)
    lhs, rhs = (o.shape.rank for o in product.operands)
    left = free_dimensions(lhs, op.lhs_batch_dims, op.lhs_contracting_dims)
    if side == 0:
        return len(batch) + left.index(dimension)
    return len(batch) + len(left) + free_dimensions(rhs, op.rhs_batch_dims, op.rhs_contracting_dims).index(dimension)


def operand_dimensions(product: Instruction, dimension: int) -> list[tuple[int, int]]:
    """The operands, with their dimensions, that a dimension of a product's result comes from: two of a batch."""
    op = product.op_as(Dot)
    if dimension < len(op.lhs_batch_dims):
        return [(0, op.lhs_batch_dims[dimension]), (1, op.rhs_batch_dims[dimension])]
    taken = ((op.lhs_batch_dims, op.lhs_contracting_dims), (op.rhs_batch_dims, op.rhs_contracting_dims))
    free = [(n, d) for n in (0, 1) for d in free_dimensions(product.operands[n].shape.rank, *taken[n])]
    return [free[dimension - len(op.lhs_batch_dims)]]


class Steps:
    """Emits the steps of products into a computation."""

    def __init__(self, cloner: ComputationCloner, numbers: Numbers) -> None:
        self._cloner = cloner
        self._numbers = numbers
        # Scalars that depend on the device, by their values.
        self._scalars: dict[tuple[bool, tuple[int, ...]], Instruction] = {}

    # -- gathered operands -------------------------------------------------------------------------

    def ring(self, old: Instruction, own: Instruction, ring: Ring) -> list[Instruction]:
        """The parts of an all-gather: a device's own part, then those of the members after it, one after the other."""
        parts = [own]
        while len(parts) < ring.size:
            parts.append(self._permute(old, parts[-1], ring, ring.size - 1))
        return parts

    def of_ring(
        self,
        old: Instruction,
        side: int,
        gathered: int,
        parts: Sequence[Instruction],
        other: Instruction,
        ring: Ring,
    ) -> Instruction:
        """A product of the parts of a ring, each result at its place."""
        make, size = self._cloner.at(old), parts[0].shape.dimensions[gathered]
        place = result_dimension(old, side, gathered)
        batch = [d for n, d in operand_dimensions(old, place) if n != side]
        shape = old.shape.without_layout()
        result = make.full(np.zeros((), shape.element_type.dtype), shape)
        for step, part in enumerate(parts):
            start = self._scalar([p * size for p in ring.positions(step)], ring.by_partition)
            against = self._slice(make, other, dict.fromkeys(batch, (start, size)))
            made = self._product(old, side, part, against, {place: size})
            result = make.add(DynamicUpdateSlice(), result, made, *self._starts(make, shape.rank, {place: start}))
        return result

    def slices(self, old: Instruction, own: Instruction, cut: int, count: int) -> list[Instruction]:
        """An all-gather in slices along another dimension than the gathered one."""
        make, op, size = self._cloner.at(old), old.op_as(AllGather), own.shape.dimensions[cut]
        found: list[Instruction] = []
        for n in range(count):
            begin, end = n * size // count, (n + 1) * size // count
            ranges = [SliceDimension(begin, end) if d == cut else SliceDimension(0, s) for d, s in _sizes(own.shape)]
            channel = op.channel_id if op.channel_id is None else self._numbers.new()
            sizes = [end - begin if d == cut else s for d, s in _sizes(old.shape)]
            shape = old.shape.without_layout().with_dimensions(sizes)
            found.append(make.add(dataclasses.replace(op, channel_id=channel), make.slice(own, ranges), shape=shape))
        return found

    def of_slices(
        self, old: Instruction, side: int, along: int, parts: Sequence[Instruction], other: Instruction
    ) -> Instruction:
        """A product of slices, its results side by side along a dimension."""
        cut = next(d for n, d in operand_dimensions(old, along) if n == side)
        made = [self._product(old, side, part, other, {along: part.shape.dimensions[cut]}) for part in parts]
        return self._cloner.at(old).add(Concatenate(dimension=along), *made)

    # -- scattered sums ----------------------------------------------------------------------------

    def scattered(
        self, old: Instruction, product: Instruction, given: Sequence[Instruction], ring: Ring
    ) -> Instruction:
        """A reduce-scatter of a product: a device's last step computes the block that stays."""
        make, along = self._cloner.at(old), old.op_as(ReduceScatter).scatter_dimension
        block = old.shape.without_layout()
        size, from_operands = block.dimensions[along], operand_dimensions(product, along)
        blocks = make.full(
            np.zeros((), block.element_type.dtype), block.with_dimensions((ring.size, *block.dimensions))
        )
        for step in (*range(1, ring.size), 0):
            start = self._scalar([p * size for p in ring.positions(step)], ring.by_partition)
            ranges = [{d: (start, size) for n, d in from_operands if n == side} for side in (0, 1)]
            lhs, rhs = (self._slice(make, value, own) for value, own in zip(given, ranges, strict=True))
            made = self._product(product, 0, lhs, rhs, {along: size})
            arrived = self._permute(old, made, ring, step) if step else made
            place = self._scalar(ring.positions(-step), ring.by_partition)
            arrived = make.reshape(arrived, (1, *block.dimensions))
            starts = self._starts(make, block.rank + 1, {0: place})
            blocks = make.add(DynamicUpdateSlice(), blocks, arrived, *starts)
        return _sum_of_blocks(make, blocks)

    # -- parts -------------------------------------------------------------------------------------

    def _product(
        self, old: Instruction, side: int, part: Instruction, other: Instruction, sizes: dict[int, int]
    ) -> Instruction:
        """The product of parts of the operands; ``part`` is that on the given side, ``sizes`` those of its result."""
        operands = (part, other) if side == 0 else (other, part)
        shape = old.shape.without_layout()
        shape = shape.with_dimensions([sizes.get(d, size) for d, size in _sizes(shape)])
        return self._cloner.at(old).add(old.op, *operands, shape=shape)

    def _permute(self, old: Instruction, value: Instruction, ring: Ring, step: int) -> Instruction:
        channel = self._numbers.new() if ring.by_partition else None
        op = CollectivePermute(channel_id=channel, source_target_pairs=ring.pairs(step))
        return self._cloner.at(old).add(op, value)

    def _scalar(self, values: Sequence[int], by_partition: bool) -> Instruction:
        """An S32 scalar with a value for each partition, or replica."""
        key = by_partition, tuple(values)
        found = self._scalars.get(key)
        if found is None:
            make = self._cloner
            number = make.add(PartitionId() if by_partition else ReplicaId())
            table = make.constant(np.asarray(values, np.int32))
            found = make.reshape(make.add(DynamicSlice(dynamic_slice_sizes=(1,)), table, number), ())
            self._scalars[key] = found
        return found

    def _slice(self, make: HloBuilder, value: Instruction, ranges: dict[int, tuple[Instruction, int]]) -> Instruction:
        """The ranges of some dimensions, given as starts and sizes."""
        if not ranges:
            return value
        sizes = tuple(ranges[d][1] if d in ranges else size for d, size in _sizes(value.shape))
        starts = self._starts(make, value.shape.rank, {d: start for d, (start, _) in ranges.items()})
        return make.add(DynamicSlice(dynamic_slice_sizes=sizes), value, *starts)

    def _starts(self, make: HloBuilder, rank: int, starts: dict[int, Instruction]) -> list[Instruction]:
        zero = make.scalar(0, PrimitiveType.S32)
        return [starts.get(d, zero) for d in range(rank)]


def _sizes(shape: Shape) -> Iterable[tuple[int, int]]:
    return enumerate(shape.dimensions)


def _sum_of_blocks(make: HloBuilder, blocks: Instruction) -> Instruction:
    """The sum over the first dimension in its order, as a reduce-scatter has it: narrow floats are rounded once."""
    count, *sizes = blocks.shape.dimensions
    kind = blocks.shape.element_type
    working = PrimitiveType.F32 if kind.is_floating and kind.bit_width < 32 else kind

    def block(n: int) -> Instruction:
        ranges = [SliceDimension(n, n + 1), *(SliceDimension(0, size) for size in sizes)]
        return make.convert(make.reshape(make.slice(blocks, ranges), sizes), working)

    total = block(0)
    for n in range(1, count):
        total = make.apply("add", total, block(n))
    return make.convert(total, kind)
