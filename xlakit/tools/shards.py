"""Whole arrays and their shards: how ``xlakit run`` splits the arguments of a program and joins its results.

The arguments of a program with shardings are whole arrays, which are split by the shardings, and its results are joined
to whole arrays. A program that XLA has already partitioned is handled the same way if it still has shardings; its
parameters have the shapes of shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xlakit.data.literal import Array
from xlakit.data.nesting import nested
from xlakit.data.shape import ProgramShape, Shape
from xlakit.errors import ArgumentError, ExecutionError
from xlakit.execution.executable import Executable
from xlakit.ir.attributes import Sharding
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ir.operation import TOKEN
from xlakit.ops.custom_call import CustomCall
from xlakit.passes.core.framework import change_computations
from xlakit.passes.spmd import is_split, is_to_be_split, split_over
from xlakit.passes.spmd.shardings.annotations import CONSTRAINTS, HINTS, Annotations, annotated_partitions
from xlakit.passes.spmd.shardings.tilings import Split, local_sizes, parts
from xlakit.passes.spmd.shardings.values import leaf_shapes

# For one array: the split of each dimension, and the numbers of partial sums, if these have to be added.
_Parts = tuple[tuple[Split | None, ...] | None, Split | None]


@dataclass(frozen=True)
class Devices:
    """The program of one device, and how whole arguments and results are split over the devices.

    module: the program of one partition. program: the shapes of whole arguments, and of the whole result where that is
    known. whole: the program of all partitions on one device, where it can run there.
    """

    module: HloModule
    program: ProgramShape
    whole: HloModule | None
    parameters: tuple[tuple[_Parts, ...], ...]
    result: tuple[_Parts, ...] | None
    # Whether the program says how its result is split; otherwise the partitioner has chosen that.
    has_declared_result: bool = False
    # What each device is given, where that is known beforehand.
    given: tuple[tuple[Any, ...], ...] | None = None

    @property
    def count(self) -> int:
        """The number of devices."""
        return self.module.replica_count * self.module.num_partitions

    # -- arguments ---------------------------------------------------------------------------------

    def arguments(self, values: Sequence[Any]) -> list[list[Any]]:
        """The arguments of each device, cut from whole arguments. Raises ArgumentError for a wrong shape."""
        if self.given is not None:
            return [list(arguments) for arguments in self.given]
        partitions = self.module.num_partitions
        by_partition: list[list[Any]] = [[] for _ in range(partitions)]
        shapes = zip(self.program.parameters, self.module.entry.parameters, self.parameters, values, strict=True)
        for whole, own, splits, value in shapes:
            leaves = [
                self._cut(array, leaf, local, parts_of, own.name)
                for array, leaf, local, parts_of in zip(
                    _leaves(value, whole), leaf_shapes(whole), leaf_shapes(own.shape), splits, strict=True
                )
            ]
            for partition, arguments in enumerate(by_partition):
                arguments.append(nested(whole, iter([leaf[partition] for leaf in leaves])))
        return [list(arguments) for _ in range(self.module.replica_count) for arguments in by_partition]

    def with_arguments(self, device_arguments: Sequence[Sequence[Any]]) -> Devices:
        """The same devices, each of which gets its own arguments, whatever whole ones would be."""
        return replace(self, whole=None, given=tuple(map(tuple, device_arguments)))

    def telling(self, other: Devices) -> Devices:
        """The other devices, with what these know of how arguments and results are split, where the other program does
        not say it, and gives each device the same shapes: XLA's optimized programs keep only some shardings.
        """
        if self.count != other.count or self.count == 1:
            return other
        mine, others = self.module.entry.program_shape, other.module.entry.program_shape
        shape, parameters, result = other.program, other.parameters, other.result
        if _same(mine.parameters, others.parameters) and not any(any(p) for leaves in parameters for p in leaves):
            parameters, shape = self.parameters, replace(shape, parameters=self.program.parameters)
        if _same([mine.result], [others.result]) and result is None and self.has_declared_result:
            result, shape = self.result, replace(shape, result=self.program.result)
        return replace(other, program=shape, parameters=parameters, result=result)

    def _cut(self, array: Any, whole: Shape, local: Shape, parts_of: _Parts, name: str) -> list[Any]:
        partitions = self.module.num_partitions
        splits, unreduced = parts_of
        if array is TOKEN or not whole.is_array or (splits is None and unreduced is None):
            return [array] * partitions
        array, splits = np.asarray(array), splits or (None,) * whole.rank
        # The program of one partition does not say whether the last shard is padded, so the whole may be smaller.
        if array.ndim != whole.rank or local_sizes(splits, array.shape) != local.dimensions:
            if self.whole is None and array.shape == local.dimensions:
                return [array] * partitions
            raise ArgumentError(
                f"parameter '{name}' takes {whole.to_string(with_layout=False)}, got an array {list(array.shape)}",
                hint="give the whole array: it is cut as the program's sharding says",
            )
        parts = [_part(array, splits, local.dimensions, p) for p in range(partitions)]
        return [f if unreduced is None or not unreduced[p] else np.zeros_like(f) for p, f in enumerate(parts)]

    # -- results -----------------------------------------------------------------------------------

    def run(self, executable: Executable, values: Sequence[Any]) -> Any:
        """The joined result of the program of these devices for whole arguments."""
        return self.joined(run_each(executable, self.arguments(values)))

    @property
    def results_count(self) -> int:
        """For how many devices :meth:`joined` gives a result."""
        return self.count if self.result is None else self.module.replica_count

    def joined(self, results: Sequence[Any]) -> Any:
        """The joined result of all partitions; with several replicas, a tuple of one for each."""
        partitions = self.module.num_partitions
        if self.result is None or partitions == 1:
            return results[0] if len(results) == 1 else tuple(results)
        partition_shape, whole = self.module.entry.root.shape, self.program.result
        wholes: list[Any] = []
        for start in range(0, len(results), partitions):
            flat = [list(_leaves(r, partition_shape)) for r in results[start : start + partitions]]
            joined = [
                _join([row[n] for row in flat], parts_of, leaf)
                for n, (parts_of, leaf) in enumerate(zip(self.result, leaf_shapes(whole), strict=True))
            ]
            wholes.append(nested(whole, iter(joined)))
        return wholes[0] if len(wholes) == 1 else tuple(wholes)


def run_each(executable: Executable, arguments: Sequence[Sequence[Any]]) -> list[Any]:
    """The results of all devices, each given its arguments."""
    return [executable(*arguments[0])] if len(arguments) == 1 else executable.execute_replicated(arguments)


def on_devices(module: HloModule) -> Devices:
    """The program of one device, with the shardings of its arguments and results. Raises ShapeError."""
    count = module.num_partitions
    if is_to_be_split(module, count):
        split = split_over(module, count)
        shardings, result = split.spmd_parameters_shardings, split.spmd_output_sharding
        parameters = [_leaf_parts(s, p.shape, split) for s, p in zip(shardings, split.entry.parameters, strict=True)]
        result_parts = None if result is None else _leaf_parts(result, split.entry.root.shape, split)
        # Without manual computations the values do not depend on shardings: one device can run the whole program.
        whole = on_one_device(module) if not _has_manual(module) else None
        is_declared = module.entry.root.annotations.sharding is not None
        return Devices(split, module.entry.program_shape, whole, tuple(parameters), result_parts, is_declared)
    program_shape = module.entry.program_shape
    if count == 1 or not is_split(module):
        nothing = tuple(((None, None),) * len(leaf_shapes(s)) for s in program_shape.parameters)
        return Devices(module, program_shape, None, nothing, None)
    shardings = module.spmd_parameters_shardings or tuple(p.annotations.sharding for p in module.entry.parameters)
    parameters = [_leaf_parts(s, p.shape, module) for s, p in zip(shardings, module.entry.parameters, strict=True)]
    output = module.spmd_output_sharding or module.entry.root.annotations.sharding
    result = None if output is None else _leaf_parts(output, program_shape.result, module)
    if result is not None and any(splits is None for splits, _ in result):
        result = None
    program = ProgramShape(
        tuple(_whole_shape(s, p) for s, p in zip(program_shape.parameters, parameters, strict=True)),
        program_shape.result if result is None else _whole_shape(program_shape.result, result),
        program_shape.parameter_names,
    )
    return Devices(module, program, None, tuple(parameters), result, output is not None)


def check_parameters(name: str, program: ProgramShape, other_name: str, other: ProgramShape) -> None:
    """Raise ArgumentError unless the programs take the same arguments."""
    mine, others = ([p.without_layout() for p in shape.parameters] for shape in (program, other))
    if mine != others:
        raise ArgumentError(
            f"{other_name} takes ({', '.join(map(str, others))}), {name} takes ({', '.join(map(str, mine))})",
            hint="compare programs of the same parameters",
        )


def _same(shapes: Sequence[Shape], others: Sequence[Shape]) -> bool:
    return [s.without_layout() for s in shapes] == [s.without_layout() for s in others]


def with_partitions(module: HloModule) -> HloModule:
    """The module with as many partitions as its shardings have, if its format has no field for their number."""
    count = annotated_partitions(module) if module.num_partitions == 1 and module.replica_count == 1 else 1
    return module if count == 1 else module.replace(num_partitions=count)


def on_one_device(module: HloModule) -> HloModule:
    """The program without its shardings, for one device."""
    return without_shardings(module).replace(num_partitions=1)


def without_shardings(module: HloModule) -> HloModule:
    """The program without shardings, so that the program of one partition is not split again."""

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        op, count = old.op, len(operands)
        if isinstance(op, CustomCall) and op.custom_call_target in CONSTRAINTS | HINTS and count == 1:
            return operands[0]
        annotations = replace(old.annotations, sharding=None, frontend_attributes=())
        return old.replace(operands=operands, annotations=annotations)

    # The frontend attributes of such modules are Shardy's.
    return change_computations(module, lambda computation: computation.rebuild(change)).replace(
        frontend_attributes=(), header=(), spmd_parameters_shardings=(), spmd_output_sharding=None
    )


def _has_manual(module: HloModule) -> bool:
    """Whether the module has manual computations, which say what each partition does."""
    calls = [i.op for c in module.computations for i in c.instructions if isinstance(i.op, CustomCall)]
    return any(o.custom_call_target.startswith(("SPMD", "xla.sdy.")) and not _is_hint(o) for o in calls)


def _is_hint(op: CustomCall) -> bool:
    return op.custom_call_target in CONSTRAINTS | HINTS


# -- shapes and shardings ----------------------------------------------------------------------------


def _leaf_parts(sharding: Sharding | None, shape: Shape, module: HloModule) -> tuple[_Parts, ...]:
    annotations, leaves = Annotations(module, module.num_partitions), leaf_shapes(shape)
    leaf_shardings = (
        sharding.elements if sharding is not None and sharding.kind == "TUPLE" else (sharding,) * len(leaves)
    )
    return tuple(
        (annotations.splits(one, leaf.rank) if leaf.is_array else None, annotations.unreduced(one))
        for one, leaf in zip(leaf_shardings, leaves, strict=bool(leaves))
    )


def _whole_shape(shape: Shape, leaves: Sequence[_Parts]) -> Shape:
    remaining = iter(leaves)

    def whole_shape_of(part: Shape) -> Shape:
        splits, _ = next(remaining)
        if splits is None or not part.is_array:
            return part
        sizes = tuple(size * parts(split) for size, split in zip(part.dimensions, splits, strict=True))
        return replace(part.without_layout(), dimensions=sizes)

    return shape.with_leaves(whole_shape_of)


# -- values ------------------------------------------------------------------------------------------


def _leaves(value: Any, shape: Shape) -> Iterator[Any]:
    if shape.is_tuple:
        for element, inner in zip(value, shape.tuple_shapes, strict=True):
            yield from _leaves(element, inner)
    else:
        yield value


def _box(splits: Sequence[Split | None], local: Sequence[int], partition: int) -> tuple[slice, ...]:
    starts = [0 if split is None else split[partition] * size for split, size in zip(splits, local, strict=True)]
    return tuple(slice(start, start + size) for start, size in zip(starts, local, strict=True))


def _part(array: Array, splits: Sequence[Split | None], local: Sequence[int], partition: int) -> Array:
    """The shard of a partition, padded with zeros beyond the array."""
    inside = array[_box(splits, local, partition)]
    if inside.shape == tuple(local):
        return np.asarray(inside, order="C")
    shard = np.zeros(local, array.dtype)
    shard[tuple(map(slice, inside.shape))] = inside
    return shard


def _join(device_parts: Sequence[Any], parts_of: _Parts, whole: Shape) -> Any:
    splits, unreduced = parts_of
    if splits is None or not whole.is_array:
        return device_parts[0]
    arrays = [np.asarray(f) for f in device_parts]
    if unreduced is not None:
        arrays = [_total(arrays, splits, unreduced, p) for p in range(len(arrays))]
    local = arrays[0].shape
    whole_array = np.zeros([size * parts(split) for size, split in zip(local, splits, strict=True)], arrays[0].dtype)
    written: dict[tuple[tuple[int, int], ...], int] = {}
    for partition, array in enumerate(arrays):
        box = _box(splits, local, partition)
        first = written.setdefault(tuple((b.start, b.stop) for b in box), partition)
        if first == partition:
            whole_array[box] = array
        elif array.tobytes() != arrays[first].tobytes():
            raise ExecutionError(
                f"partitions {first} and {partition} have the same part of a result, with different values",
                shapes=[whole.without_layout()],
                hint="let the output sharding say that parts differ, or have them computed alike",
            )
    return whole_array[tuple(map(slice, whole.dimensions))]


def _total(arrays: Sequence[Array], splits: Sequence[Split | None], numbers: Split, partition: int) -> Array:
    """The sum of the values of one part, one for each number."""

    def part_numbers(p: int) -> list[int | None]:
        return [None if split is None else split[p] for split in splits]

    chosen = {numbers[p]: p for p in range(len(arrays)) if part_numbers(p) == part_numbers(partition)}
    total: Callable[[Sequence[Array]], Any] = sum  # pyright: ignore[reportAssignmentType]
    return np.asarray(total([arrays[chosen[n]] for n in sorted(chosen)])).astype(arrays[0].dtype)
