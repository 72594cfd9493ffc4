"""The groups of collectives, and the sites of a program: the slots of groups, and a table of each device's part."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Hashable, Sequence

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.llvm import Module
from xlakit.cpu.runtime.devices.rendezvous import SITE, run_bytes, slot_bytes
from xlakit.dataclass import dataclass
from xlakit.execution.groups import Grid, check_pairs
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import Permuting
from xlakit.ops.communication.collectives import CollectiveBroadcast


@dataclass(frozen=True, slots=True)
class Group:
    """The devices of one group, in order, and for each the index of the member whose data it receives, -1 for none.

    Only operations in which each member receives from one other member use ``sources``.
    """

    members: tuple[int, ...]
    sources: tuple[int, ...]


def groups_of(op: Collective | Permuting, grid: Grid) -> tuple[Group, ...]:
    """The groups of a collective; each device is in exactly one.

    Raises ExecutionError if the attributes name devices that do not exist, DeclinedError if a device is in no group
    although it must be.
    """
    if isinstance(op, Permuting):
        return _permuting(op, grid)
    groups = [Group(members, (0,) * len(members)) for members in _partition(op, grid)]
    covered = {device for group in groups for device in group.members}
    for device in range(grid.num_devices):
        if device not in covered:
            if not isinstance(op, CollectiveBroadcast):
                raise DeclinedError("a device is in no replica group")
            groups.append(Group((device,), (-1,)))
    return tuple(groups)


def _partition(op: Collective, grid: Grid) -> list[tuple[int, ...]]:
    seen: set[int] = set()
    groups: list[tuple[int, ...]] = []
    for device in range(grid.num_devices):
        if device in seen:
            continue
        members = grid.members(device, op.groups)
        if members:
            groups.append(tuple(members))
            seen.update(members)
    return groups


def _permuting(op: Permuting, grid: Grid) -> tuple[Group, ...]:
    """The connected components of the send relation: a device waits only for devices that it exchanges data with."""
    groups: list[Group] = []
    for device in range(grid.num_devices):
        peers, own = grid.peers(device, by_partition=op.channel_id is not None)
        if own:
            continue
        check_pairs(op.source_target_pairs, len(peers))
        source_of = {target: source for source, target in op.source_target_pairs}
        for ids in _connected(range(len(peers)), op.source_target_pairs):
            indices = {number: index for index, number in enumerate(ids)}
            sources = tuple(indices[source_of[i]] if i in source_of else -1 for i in ids)
            groups.append(Group(tuple(peers[i] for i in ids), sources))
    return tuple(groups)


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
    components: dict[int, list[int]] = {}
    for number in numbers:
        components.setdefault(root(number), []).append(number)
    return list(components.values())


class Sites:
    """The sites of one program for ``devices`` devices. ``slots`` has the number of members of each slot, in order."""

    def __init__(self, module: Module, devices: int) -> None:
        self._module = module
        self._devices = devices
        self._end = run_bytes(devices)
        self._known: dict[Hashable, str] = {}
        self.slots: list[int] = []

    def at(self, key: Hashable, groups: Sequence[Group]) -> str:
        """The name of a site's table. Collectives with one ``key``, and so in the same groups, have one rendezvous:
        devices meet at any of them.
        """
        site = self._known.get(key)
        if site is None:
            site = self._known[key] = self._table(groups)
        return site

    def _table(self, groups: Sequence[Group]) -> str:
        records: list[list[int]] = [[] for _ in range(self._devices)]
        lists: list[int] = []
        for group in groups:
            slot = self._slot(len(group.members))
            begin = self._devices * SITE.size + 8 * len(lists)
            for index, device in enumerate(group.members):
                # The offset of the list of members, relative to the device's record.
                record_offset = device * SITE.size
                records[device] = [slot, index, len(group.members), begin - record_offset, group.sources[index]]
            lists.extend(group.members)
        words = [word for record in records for word in record] + lists
        data = bytes((ctypes.c_int64 * len(words))(*words))
        return self._module.shared_data(f"site_{hashlib.sha256(data).hexdigest()[:16]}", data)

    def _slot(self, count: int) -> int:
        """The offset of a new slot in a run; 0 for a group of one device, which needs none."""
        if count < 2:
            return 0
        begin = self._end
        self.slots.append(count)
        self._end += slot_bytes(count)
        return begin
