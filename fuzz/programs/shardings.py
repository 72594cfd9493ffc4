"""Shardings made by chance, and arrays cut and joined as they say, without the partitioner's own arithmetic."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from xlakit.ir.attributes import IotaTileAssignment, Sharding
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.custom_call import CustomCall
from xlakit.passes.core.framework import change_programs, with_computations

Array = np.ndarray[Any, Any]


def sharding(rng: np.random.Generator, dims: Sequence[int], partitions: int, *, uneven: bool) -> Sharding:
    """A sharding of an array; only where it may be ``uneven`` parts need not be equal."""
    kind = rng.random()
    if kind < 0.15:
        return Sharding("REPLICATED")
    if kind < 0.2:
        return Sharding("MAXIMAL", devices=(int(rng.integers(partitions)),))
    tiles, left = [1] * len(dims), partitions
    for d in rng.permutation(len(dims)):
        fitting = [k for k in range(1, left + 1) if left % k == 0 and (uneven or dims[d] % k == 0)]
        tiles[d] = int(rng.choice(fitting))
        left //= tiles[d]
    sizes = (*tiles, left) if left > 1 else tuple(tiles)
    if rng.random() < 0.5:
        axes = _factors(partitions)
        order = tuple(int(i) for i in rng.permutation(len(axes)))
        iota = IotaTileAssignment(sizes, axes, order)
        return Sharding("OTHER", sizes, iota=iota, replicate_on_last_tile_dim=left > 1)
    devices = tuple(int(i) for i in rng.permutation(partitions))
    return Sharding("OTHER", sizes, devices, replicate_on_last_tile_dim=left > 1)


def _factors(number: int) -> tuple[int, ...]:
    """The prime factors of a number."""
    least = next((k for k in range(2, number + 1) if number % k == 0), None)
    return () if least is None else (least, *_factors(number // least))


def annotated(module: HloModule, rng: np.random.Generator, partitions: int, *, often: float = 0.25) -> HloModule:
    """The module with shardings of its parameters, of its result in some cases, and of some of its instructions.

    Those of loops and branches, too. Half of those of instructions are constraints behind them, as in JAX's programs.
    ``often``: which part of the instructions has a sharding.
    """
    uneven = bool(rng.random() < 0.3)
    says_result = bool(rng.random() < 0.6)

    def made(old: Instruction, computation: Computation) -> Sharding | None:
        if old is computation.root:
            if computation.name != module.entry.name or not says_result:
                return None
            shapes = old.shape.tuple_shapes or (old.shape,)
            elements = tuple(sharding(rng, s.dimensions, partitions, uneven=uneven) for s in shapes)
            return Sharding("TUPLE", elements=elements) if old.shape.is_tuple else elements[0]
        if old.opcode == "parameter":
            if computation.name != module.entry.name:
                return None
            return sharding(rng, old.shape.dimensions, partitions, uneven=uneven)
        if old.shape.is_array and rng.random() < often:
            return sharding(rng, old.shape.dimensions, partitions, uneven=bool(rng.random() < 0.5))
        return None

    def with_shardings(computation: Computation) -> Computation:
        own: dict[Instruction, Instruction] = {}
        given: dict[Instruction, Instruction] = {}
        for old in computation.instructions:
            said = dataclasses.replace(old.annotations, sharding=made(old, computation))
            is_apart = said.sharding is not None and old.opcode != "parameter" and old is not computation.root
            is_apart = is_apart and bool(rng.random() < 0.5)
            own[old] = given[old] = old.replace(
                operands=[given[o] for o in old.operands],
                control_predecessors=[own[p] for p in old.control_predecessors],
                annotations=old.annotations if is_apart else said,
            )
            if is_apart:
                call = CustomCall(custom_call_target="Sharding")
                given[old] = Instruction(call, [own[old]], old.shape, f"{old.name}.constrained", annotations=said)
        instructions = dict.fromkeys(i for old in computation.instructions for i in (own[old], given[old]))
        return Computation(computation.name, tuple(instructions), own[computation.root], computation.execution_thread)

    new = change_programs(module, with_shardings)
    return with_computations(module, list(new.values())).replace(num_partitions=partitions)


def boxes(said: Sharding, dims: Sequence[int], partitions: int) -> list[tuple[slice, ...]]:
    """For each partition the part of an array that it has; parts at the end may reach beyond it."""
    if said.kind != "OTHER":
        return [tuple(slice(0, size) for size in dims)] * partitions
    devices = said.devices if said.iota is None else [int(i) for i in said.iota.devices()]
    found: list[tuple[slice, ...]] = [()] * partitions
    local = [-(-size // count) for size, count in zip(dims, said.tile_dimensions, strict=False)]
    for place, device in enumerate(devices):
        tile = np.unravel_index(place, said.tile_dimensions)
        found[device] = tuple(slice(int(t) * n, (int(t) + 1) * n) for t, n in zip(tile, local, strict=False))
    return found


def cut(array: Array, said: Sharding, partitions: int) -> list[Array]:
    """The parts of an array, padded where it has no more."""
    found: list[Array] = []
    for box in boxes(said, array.shape, partitions):
        part = np.ones([b.stop - b.start for b in box], array.dtype)
        inside = array[box]
        part[tuple(slice(0, size) for size in inside.shape)] = inside
        found.append(part)
    return found


def join(parts: Sequence[Array], said: Sharding, dims: Sequence[int]) -> Array:
    """The array of these parts. Raises ValueError where copies differ or parts have other sizes."""
    where = boxes(said, dims, len(parts))
    whole = np.zeros([max(box[d].stop for box in where) for d in range(len(dims))], parts[0].dtype)
    seen = np.zeros(whole.shape, np.bool_)
    for part, box in zip(parts, where, strict=True):
        if part.shape != tuple(s.stop - s.start for s in box):
            raise ValueError(f"a part {list(part.shape)} where {box} is said")
        if seen[box].all() and part.tobytes() != np.ascontiguousarray(whole[box]).tobytes():
            raise ValueError(f"copies of {box} differ")
        whole[box], seen[box] = part, True
    if not seen.all():
        raise ValueError("a part is missing")
    return whole[tuple(slice(0, size) for size in dims)]
