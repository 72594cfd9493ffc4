"""The devices of a program for the viewer: their mesh, the tiles that each has, and the groups of collectives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from xlakit.errors import XlakitError
from xlakit.execution.groups import Grid
from xlakit.ir.attributes import Mesh
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import Permuting
from xlakit.passes.spmd.shardings.annotations import Annotations
from xlakit.passes.spmd.shardings.values import leaf_shapes


def mesh_of(modules: Sequence[HloModule]) -> dict[str, Any] | None:
    """The data of the picture of a program's devices, for JSON; None for a program of one device.

    axes: names and sizes, of replicas and partitions where no mesh is known. devices: their numbers in the order of the
    axes. shardings: the distinct ones; for each dimension the number of the part that each device has, null where it
    has all of it. values: by the name of an instruction the shape and the sharding of each array that has one.
    collectives: by name the groups of devices, and pairs of sources and targets.
    """
    grid = max((Grid(m.replica_count, m.num_partitions) for m in modules), key=lambda own: own.num_devices)
    if grid.num_devices == 1:
        return None
    meshes: list[Mesh] = []
    shardings: dict[tuple[Any, ...], int] = {}
    values: dict[str, list[tuple[str, int]]] = {}
    collectives: dict[str, dict[str, Any]] = {}
    for module in modules:
        annotations = Annotations(module, grid.num_partitions)
        meshes += annotations.meshes
        for computation in module.computations:
            for instruction in computation.instructions:
                if isinstance(instruction.op, (Collective, Permuting)):
                    collectives.setdefault(instruction.name, _sent(instruction.op, grid))
                if instruction.name not in values:
                    found = [
                        (shape, shardings.setdefault(splits, len(shardings)))
                        for shape, splits in _tiles(instruction, annotations, grid, meshes)
                    ]
                    values.update({instruction.name: found} if found else {})
    axes, devices = _layout(meshes, grid)
    return {
        "axes": axes,
        "devices": devices,
        "shardings": list(shardings),
        "values": values,
        "collectives": collectives,
    }


def _layout(meshes: Iterable[Mesh], grid: Grid) -> tuple[list[tuple[str, int]], list[int]]:
    """The axes of the mesh of all partitions that has the most, and the devices in their order."""
    whole = [m for m in meshes if math.prod(size for _, size in m.axes) == grid.num_partitions]
    mesh = max(whole, key=lambda devices: len(devices.axes), default=Mesh((("partition", grid.num_partitions),)))
    devices = mesh.devices().tolist()
    axes = [axis for axis in (("replica", grid.num_replicas), *mesh.axes) if axis[1] > 1]
    return axes, [replica * grid.num_partitions + device for replica in range(grid.num_replicas) for device in devices]


def _tiles(
    instruction: Instruction, annotations: Annotations, grid: Grid, meshes: list[Mesh]
) -> Iterable[tuple[str, tuple[Any, ...]]]:
    """The shape of each array of a value that has a sharding, and its splits over all devices."""
    try:
        shardings = annotations.shardings(instruction)
        for shape, sharding in zip(leaf_shapes(instruction.shape), shardings, strict=True):
            splits = annotations.splits(sharding, shape.rank) if shape.is_array else None
            if splits is None:
                continue
            if sharding is not None and sharding.named is not None:
                meshes.append(sharding.named.mesh)
            yield str(shape.without_layout()), tuple(s and s * grid.num_replicas for s in splits)
    except XlakitError:
        # A sharding for other devices than the program has: the program is refused when it is split, with the reason.
        return


def _sent(op: Collective | Permuting, grid: Grid) -> dict[str, Any]:
    """The groups of a collective's devices; of one that permutes, the sources and targets."""
    try:
        if isinstance(op, Permuting):
            peers = [grid.peers(d, by_partition=op.channel_id is not None)[0] for d in range(grid.num_devices)]
            teams = dict.fromkeys(map(tuple, peers))
            return {"groups": [], "pairs": [(t[a], t[b]) for t in teams for a, b in op.source_target_pairs]}
        groups = (grid.members(d, op.groups) for d in range(grid.num_devices))
        return {"groups": list(dict.fromkeys(tuple(group) for group in groups if group)), "pairs": []}
    except (XlakitError, IndexError):
        # The groups have devices that do not exist: a run raises that error.
        return {"groups": [], "pairs": []}
