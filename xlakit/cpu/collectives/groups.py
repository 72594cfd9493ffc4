"""The groups of a collective, from its attributes and the devices that run the program."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.cpu.declined import DeclinedError
from xlakit.dataclass import dataclass
from xlakit.execution.groups import Grid, check_pairs
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import Permuting
from xlakit.ops.communication.collectives import CollectiveBroadcast


@dataclass(frozen=True, slots=True)
class Group:
    """Devices of one group, in order, and for each the index of the member that its data come from, -1 for none.

    Only operations that have each member take from one other ask for ``sources``.
    """

    members: tuple[int, ...]
    sources: tuple[int, ...]


def groups_of(op: Collective | Permuting, grid: Grid) -> tuple[Group, ...]:
    """The groups, each device being in one of them.

    Raises ExecutionError where the attributes name devices that do not exist, DeclinedError where a device is in no
    group although it must be.
    """
    if isinstance(op, Permuting):
        return _permuting(op, grid)
    found = [Group(members, (0,) * len(members)) for members in _partition(op, grid)]
    taken = {device for group in found for device in group.members}
    for device in range(grid.num_devices):
        if device not in taken:
            if not isinstance(op, CollectiveBroadcast):
                raise DeclinedError("a device is in no replica group")
            found.append(Group((device,), (-1,)))
    return tuple(found)


def _partition(op: Collective, grid: Grid) -> list[tuple[int, ...]]:
    seen: set[int] = set()
    found: list[tuple[int, ...]] = []
    for device in range(grid.num_devices):
        if device in seen:
            continue
        members = grid.members(
            device, op.replica_groups, has_channel=op.channel_id is not None, use_global_device_ids=op.global_ids
        )
        if members:
            found.append(tuple(members))
            seen.update(members)
    return found


def _permuting(op: Permuting, grid: Grid) -> tuple[Group, ...]:
    """Devices that send to each other, directly or over others: a device waits only for those it is connected with."""
    found: list[Group] = []
    for device in range(grid.num_devices):
        peers, own = grid.peers(device, by_partition=op.channel_id is not None)
        if own:
            continue
        check_pairs(op.source_target_pairs, len(peers))
        source_of = {target: source for source, target in op.source_target_pairs}
        for ids in _connected(range(len(peers)), op.source_target_pairs):
            indices = {number: index for index, number in enumerate(ids)}
            sources = tuple(indices[source_of[i]] if i in source_of else -1 for i in ids)
            found.append(Group(tuple(peers[i] for i in ids), sources))
    return tuple(found)


def _connected(numbers: Sequence[int], pairs: Sequence[tuple[int, int]]) -> list[list[int]]:
    parent = list(numbers)

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    for a, b in pairs:
        low, high = sorted((root(a), root(b)))
        parent[high] = low
    found: dict[int, list[int]] = {}
    for number in numbers:
        found.setdefault(root(number), []).append(number)
    return list(found.values())
