"""Collectives that only move data: all-to-all in its three forms, and collective-permute.

Source: XLA's document "Operation semantics", sections AllToAll and CollectivePermute; RaggedAllToAll is an operation of
today's HLO.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.dataclass import dataclass
from xlakit.errors import ExecutionError, ShapeError
from xlakit.ir.operation import Array, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ops import movement
from xlakit.ops.communication.collective import (
    Collective,
    GroupsLike,
    OperandsLike,
    as_groups,
    bundle,
    bundle_shapes,
    concatenated,
    repack,
    unpack,
)
from xlakit.ops.handle import XlaOp, building, common_builder, emit
from xlakit.ops.shared.calling import agree, zero_value
from xlakit.ops.shared.checks import check_channel, check_dimension
from xlakit.ops.shared.hints import multiple

Pairs = tuple[tuple[int, int], ...]


# -- all-to-all ------------------------------------------------------------------------------------


@operation("all-to-all", documents=("AllToAll", "AllToAllTuple"))
class AllToAll(Collective):
    """Device i of a group gets block i of every device's operand, in the order of the group.

    With ``split_dimension`` the one operand is cut along it and the blocks are concatenated along it. Without, the
    operands are the blocks, one for each device, and the result is a tuple of them.
    """

    split_dimension: int | None = attribute(Kind.SINGLE_DIMENSION, default=None, text="dimensions", proto="dimensions")

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        self.check_groups(operands)
        if self.split_dimension is None:
            return self._tuple_shape(operands)
        if len(operands) != 1:
            raise ShapeError(
                f"with a split dimension it takes one operand, got {len(operands)}",
                hint="leave split_dimension out to send one operand to each device",
            )
        (operand,) = operands
        check_dimension("split dimension", self.split_dimension, operand)
        size = operand.dimensions[self.split_dimension]
        if self.group_size is not None and size % self.group_size:
            raise ShapeError(
                f"dimension {self.split_dimension} of {operand} does not divide by {self.group_size}",
                hint=multiple(size, self.group_size),
            )
        return operand.without_layout()

    def _tuple_shape(self, operands: Sequence[Shape]) -> Shape:
        if self.group_size not in (None, len(operands)):
            raise ShapeError(
                f"groups have {self.group_size} devices, each needs one operand, got {len(operands)}",
                hint=f"give {self.group_size} operands, one block for each device",
            )
        for operand in operands:
            if not agree(operand, operands[0]):
                raise ShapeError(
                    f"all operands must have the same shape, got {operands[0]} and {operand}",
                    hint="pad or slice the blocks to one shape",
                )
        return make_tuple_shape([o.without_layout() for o in operands])

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        if self.split_dimension is None:
            return tuple(self.all_to_all(context, operands))
        _, count = self.index_in_group(context)
        if operands[0].shape[self.split_dimension] % count:
            raise ExecutionError(
                f"dimension {self.split_dimension} of {list(operands[0].shape)} does not divide by the group's "
                f"{count} devices",
                hint=multiple(operands[0].shape[self.split_dimension], count),
            )
        # As np.split, which takes as long as sending small blocks.
        before, size = (slice(None),) * self.split_dimension, operands[0].shape[self.split_dimension] // count
        blocks = [operands[0][(*before, slice(i * size, (i + 1) * size))] for i in range(count)]
        return concatenated(context, self.all_to_all(context, blocks), self.split_dimension)


@building
def all_to_all(
    operand: XlaOp,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    replica_groups: GroupsLike = (),
    *,
    channel_id: int | None = None,
) -> XlaOp:
    """Send block i along ``split_dimension`` to device i; concatenate what comes along ``concat_dimension``.

    operand: an array whose ``split_dimension`` divides by ``split_count``, the size of each group.
    replica_groups: lists of ids; empty for one group of 0 .. split_count - 1.

    Gives an array whose split dimension is ``split_count`` times smaller and whose concat dimension is as many times
    larger: f32[4,16] with split 1, concat 0 and 4 devices gives f32[16,4]. Raises ShapeError.
    Source: Operation semantics, AllToAll.
    """
    shape = operand.shape
    split, concat = split_dimension, concat_dimension
    for dimension in (split, concat):
        check_dimension("dimension", dimension, shape)
    if split_count < 1 or shape.dimensions[split] % split_count:
        raise ShapeError(
            f"dimension {split} of {shape} does not divide by split_count {split_count}",
            hint=multiple(shape.dimensions[split], split_count),
        )
    groups = as_groups(replica_groups) if replica_groups else as_groups([range(split_count)])
    for group in groups.groups:
        if len(group) != split_count:
            raise ShapeError(
                f"split_count {split_count} is not the size of the replica group {list(group)}",
                hint="each device of a group sends one block to each of them",
            )
    moved = emit(AllToAll(split_dimension=split, replica_groups=groups, channel_id=channel_id), operand)
    if split == concat:
        return moved
    # The blocks lie side by side along the split dimension: make them a dimension, and move it before the other.
    sizes = list(shape.dimensions)
    sizes[split : split + 1] = [split_count, sizes[split] // split_count]
    order = [d for d in range(len(sizes)) if d != split]
    order.insert(concat, split)
    result = list(shape.dimensions)
    result[split] //= split_count
    result[concat] *= split_count
    return movement.reshape(movement.transpose(movement.reshape(moved, sizes), order), result)


@building
def all_to_all_tuple(
    operands: Sequence[XlaOp], replica_groups: GroupsLike = (), channel_id: int | None = None
) -> XlaOp:
    """Send operand i to device i of the group; gives a tuple of what came from each.

    operands: as many arrays of one shape as a group has devices. Raises ShapeError. Source: XlaBuilder::AllToAllTuple.
    """
    return emit(AllToAll(replica_groups=as_groups(replica_groups), channel_id=channel_id), *operands)


@operation("ragged-all-to-all", arity=6, documents=("RaggedAllToAll",))
class RaggedAllToAll(Collective):
    """Send a varying number of rows to each device of a group, which are written at offsets that the sender gives.

    Operands: input, output, input_offsets, send_sizes, output_offsets, recv_sizes. The last four have one number for
    each device, or a row of numbers if each device gets several pieces.
    """

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        self.check_groups(operands)
        source, target, *tables = operands
        if source.rank < 1 or source.rank != target.rank or source.element_type is not target.element_type:
            raise ShapeError(
                f"input {source} and output {target} must have one element type and rank, at least 1",
                hint=f"convert and reshape the input to {target.element_type.hlo_name} of rank {max(target.rank, 1)}",
            )
        if source.dimensions[1:] != target.dimensions[1:]:
            raise ShapeError(
                f"rows of input {source} and output {target} have different sizes",
                hint=f"make both {list(target.dimensions[1:])} after dimension 0",
            )
        for table in tables:
            if not table.element_type.is_integral or table.rank not in (1, 2):
                raise ShapeError(
                    f"offsets and sizes are integers of rank 1 or 2, got {table}",
                    hint="give one number for each device, or a row of them",
                )
            if not agree(table, tables[0]):
                raise ShapeError(
                    f"offsets and sizes must have the same shape, got {tables[0]} and {table}",
                    hint=f"give all four the shape {tables[0].without_layout()}",
                )
        if tables[0].dimensions and self.group_size and tables[0].dimensions[0] % self.group_size:
            raise ShapeError(
                f"offsets {tables[0]} do not divide between groups of {self.group_size} devices",
                hint=multiple(tables[0].dimensions[0], self.group_size),
            )
        return target.without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        _, count = self.index_in_group(context)
        source = operands[0]
        if len(operands[2]) % count:
            raise ExecutionError(
                f"offsets and sizes of {list(operands[2].shape)} do not divide between the group's {count} devices",
                hint=multiple(len(operands[2]), count),
            )
        starts, sizes, targets, received = (table.reshape(count, -1) for table in operands[2:])
        sent: list[Value] = []
        for member in range(count):
            ranges = zip(starts[member].tolist(), sizes[member].tolist(), strict=True)
            # An invalid range is sent as no rows; the receiver raises the error.
            rows = tuple(source[start : start + size] if start >= 0 <= size else source[:0] for start, size in ranges)
            sent.append((np.asarray(len(source)), starts[member], sizes[member], targets[member], rows))
        result = operands[1].copy()
        for sender, (length, *pieces, rows) in enumerate(self.all_to_all(context, sent)):
            for number, (start, size, target) in enumerate(zip(*(p.tolist() for p in pieces), strict=True)):
                if not (0 <= start <= start + size <= length and 0 <= target <= target + size <= len(result)):
                    raise ExecutionError(
                        f"device {sender} of the group sends rows {start}..{start + size} of {length} to rows "
                        f"{target}..{target + size} of {len(result)}",
                        hint="give sizes and offsets that stay in the sender's input and in the receiver's output",
                    )
                if size != received[sender][number]:
                    raise ExecutionError(
                        f"device {sender} of the group sends {size} rows, {received[sender][number]} are expected",
                        hint="recv_sizes of a device must be what the others give as send_sizes for it",
                    )
                result[target : target + size] = rows[number]
        return result


@building
def ragged_all_to_all(
    input: XlaOp,
    input_offsets: XlaOp,
    send_sizes: XlaOp,
    output: XlaOp,
    output_offsets: XlaOp,
    recv_sizes: XlaOp,
    *,
    replica_groups: GroupsLike = (),
    channel_id: int | None = None,
) -> XlaOp:
    """Send ``input[input_offsets[i] :][: send_sizes[i]]`` to device i, into its output at ``output_offsets[i]``.

    input, output: arrays whose dimension 0 is ragged. recv_sizes[i]: how many rows come from device i.
    The offsets and sizes have one number for each device, or rows of them.

    Gives ``output`` with the rows that arrived. Raises ShapeError. Source: Operation semantics, RaggedAllToAll.
    """
    op = RaggedAllToAll(replica_groups=as_groups(replica_groups), channel_id=channel_id)
    return emit(op, input, output, input_offsets, send_sizes, output_offsets, recv_sizes)


# -- collective-permute ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Permuting(Op):
    """The base of collective-permute and of its start."""

    channel_id: int | None = attribute(Kind.INT64, default=None)
    source_target_pairs: Pairs = attribute(Kind.SOURCE_TARGET_PAIRS, always=True)
    slice_sizes: tuple[tuple[int, ...], ...] = attribute(Kind.INT64_LIST_LIST, default=(), proto="dynamic_slice_sizes")

    @property
    def has_side_effect(self) -> bool:
        return True

    def check_operands(self, operands: Sequence[Shape], *, only_arrays: bool = True) -> None:
        """Raise ShapeError unless pairs and operands fit together."""
        check_channel(self.channel_id)
        times = 1
        if self.slice_sizes:
            times = self._check_in_place(operands)
        elif not operands:
            raise ShapeError("takes at least one operand", hint="give the arrays to send")
        elif only_arrays:
            for operand in operands:
                if not operand.is_array:
                    raise ShapeError(
                        f"takes arrays, got {operand}", hint="take the arrays out of a tuple with get_tuple_element"
                    )
        for end, name in enumerate(("source", "target")):
            for number, count in Counter(pair[end] for pair in self.source_target_pairs).items():
                if number < 0:
                    raise ShapeError(
                        f"{name} {number} in source_target_pairs is negative",
                        hint="number replicas, or partitions where there is a channel_id, from 0",
                    )
                if count > times:
                    raise ShapeError(
                        f"{name} {number} is in {count} of the source_target_pairs",
                        hint="give each source and each target once",
                    )

    def _check_in_place(self, operands: Sequence[Shape]) -> int:
        """How many slices each device sends; raises ShapeError where operands and sizes do not fit together."""
        if len(operands) != 4:
            raise ShapeError(
                f"with slice_sizes it takes input, output and the offsets of each, got {len(operands)}",
                hint="give 4 operands, or leave slice_sizes out to send whole arrays",
            )
        source, target, *offsets = operands
        sources = source.tuple_shapes_or_self
        targets = target.tuple_shapes_or_self
        if len(sources) != len(targets) or not all(s.is_array for s in (*sources, *targets)):
            raise ShapeError(
                f"input {source} and output {target} are not as many arrays",
                hint="give both as one array, or both as tuples of as many",
            )
        times = len(self.slice_sizes) // len(sources)
        if len(self.slice_sizes) != times * len(sources):
            raise ShapeError(
                f"{len(self.slice_sizes)} slice_sizes for {len(sources)} arrays",
                hint=f"give the same number of slice sizes for each of the {len(sources)} arrays",
            )
        for arrays, table in zip((sources, targets), offsets, strict=True):
            for number, array in enumerate(arrays):
                rows = _offset_shapes(table, number, is_tuple=source.is_tuple)
                if len(rows) != times or any(len(row.tuple_shapes) != array.rank for row in rows):
                    raise ShapeError(
                        f"offsets {table} do not give {times} indices of rank {array.rank}",
                        hint=f"give each index as a tuple of {array.rank} integer scalars",
                    )
        return times

    def result_of(self, operands: Sequence[Shape]) -> Shape:
        """The shape of the received value."""
        return operands[1].without_layout() if self.slice_sizes else bundle_shapes(operands)

    def move(self, context: Evaluation, operands: Sequence[Value], shape: Shape) -> Value:
        """Send along the pairs and give what arrived, or zeros; in place, the output with the slices written."""
        if self.slice_sizes:
            return self._move_in_place(context, operands)
        pairs = self.source_target_pairs
        arrived = context.permute(pairs, [tuple(operands)] * len(pairs), channel_id=self.channel_id)
        return bundle(next(iter(arrived.values()))) if arrived else zero_value(shape)

    def _move_in_place(self, context: Evaluation, operands: Sequence[Value]) -> Value:
        """Send boxes of one array, and receive boxes in a copy of another; their offsets are operands."""
        source, target, source_offsets, target_offsets = operands
        is_tuple = isinstance(source, tuple)
        sources: Sequence[Array] = source if is_tuple else (source,)
        results: list[Array] = [t.copy() for t in (target if is_tuple else (target,))]
        times = len(self.slice_sizes) // len(sources)

        def boxes(arrays: Sequence[Array], offsets: Value, slot: int) -> list[tuple[slice, ...]]:
            # Offsets clamp, as those of dynamic-slice do.
            found: list[tuple[slice, ...]] = []
            for number, array in enumerate(arrays):
                sizes = self.slice_sizes[number * times + slot]
                if len(sizes) != array.ndim:
                    raise ExecutionError(
                        f"slice_sizes {list(sizes)} are given for an array of rank {array.ndim}",
                        hint="give a size for each dimension",
                    )
                starts = _offset_values(offsets, number, is_tuple=is_tuple)[slot]
                clamped = [min(max(int(s), 0), n - w) for s, n, w in zip(starts, array.shape, sizes, strict=True)]
                found.append(tuple(slice(s, s + w) for s, w in zip(clamped, sizes, strict=True)))
            return found

        # The n-th pair in which a device is the source, or the target, uses the n-th of its offsets.
        sent, received = Counter[int](), Counter[int]()
        payloads: list[Value] = []
        slots: list[int] = []
        for start, end in self.source_target_pairs:
            where = boxes(sources, source_offsets, sent[start])
            payloads.append(tuple(array[box] for array, box in zip(sources, where, strict=True)))
            slots.append(received[end])
            sent[start] += 1
            received[end] += 1
        arrived = context.permute(self.source_target_pairs, payloads, channel_id=self.channel_id)
        for number, pieces in sorted(arrived.items()):
            for result, box, piece in zip(results, boxes(results, target_offsets, slots[number]), pieces, strict=True):
                result[box] = piece
        return tuple(results) if is_tuple else results[0]


def _offset_shapes(table: Shape, number: int, *, is_tuple: bool) -> tuple[Shape, ...]:
    """The shapes of the indices for array ``number``: there may be one index, or a tuple of them."""
    own = table.at((number,)) if is_tuple else table
    return own.tuple_shapes if own.tuple_shapes and own.tuple_shapes[0].is_tuple else (own,)


def _offset_values(table: Value, number: int, *, is_tuple: bool) -> Sequence[Sequence[Value]]:
    own = table[number] if is_tuple else table
    return own if own and isinstance(own[0], tuple) else (own,)


@operation("collective-permute", documents=("CollectivePermute", "MultiCollectivePermute"))
class CollectivePermute(Permuting):
    """Send the operands along source-target pairs; zeros where nothing is sent.

    With ``slice_sizes`` the operands are input, output, and the offsets of both, and slices of the input are written
    into the output. The ids are partitions where there is a ``channel_id``, else replicas.
    """

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        self.check_operands(operands)
        return self.result_of(operands)

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return self.move(context, operands, context.shape)


@building
def collective_permute(
    operand: OperandsLike, source_target_pairs: Sequence[tuple[int, int]], channel_id: int | None = None
) -> XlaOp:
    """Send an array, or several, from each source to its target.

    source_target_pairs: (source, target) ids; no id is twice a source or twice a target.

    Gives what arrived, or zeros on a device that is no target. Raises ShapeError.
    Source: Operation semantics, CollectivePermute.
    """
    builder, operands, is_tuple = unpack(operand)
    pairs = tuple((int(source), int(target)) for source, target in source_target_pairs)
    op = CollectivePermute(source_target_pairs=pairs, channel_id=channel_id)
    return repack(builder, builder.append(op, operands), is_tuple, len(operands))


@building
def collective_permute_in_place(
    input: XlaOp,
    output: XlaOp,
    input_start_indices: XlaOp,
    output_start_indices: XlaOp,
    source_target_pairs: Sequence[tuple[int, int]],
    *,
    slice_sizes: Sequence[Sequence[int]],
    channel_id: int | None = None,
) -> XlaOp:
    """Send slices of ``input`` along the pairs and write them into ``output``.

    input_start_indices, output_start_indices: tuples of integer scalars, one for each dimension; or tuples of those,
    where a device sends more than once. slice_sizes: the sizes of each slice.

    Gives ``output`` with the slices that arrived. Raises ShapeError.
    """
    op = CollectivePermute(
        source_target_pairs=tuple((int(source), int(target)) for source, target in source_target_pairs),
        slice_sizes=tuple(tuple(sizes) for sizes in slice_sizes),
        channel_id=channel_id,
    )
    operands = (input, output, input_start_indices, output_start_indices)
    return common_builder(operands).append(op, operands)
