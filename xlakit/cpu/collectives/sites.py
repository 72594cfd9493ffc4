"""Sites: the collectives of a program as points of rendezvous, their slots, and the table that devices read."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Hashable, Sequence

from xlakit.cpu.collectives.groups import Group
from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.llvm import Module
from xlakit.cpu.runtime.devices.rendezvous import SITE, run_bytes, slot_bytes


class Sites:
    """The sites of one program for so many devices. ``slots`` has the number of members of each slot, in order."""

    def __init__(self, module: Module, devices: int) -> None:
        self._module = module
        self._devices = devices
        self._end = run_bytes(devices)
        self._known: dict[Hashable, tuple[tuple[Group, ...], str]] = {}
        self.slots: list[int] = []

    def at(self, key: Hashable, groups: Sequence[Group]) -> str:
        """The name of the table of a site. Collectives of one ``key`` share one rendezvous: devices
        that arrive at different ones of them meet.

        Raises DeclinedError where two of them do not have the same groups.
        """
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = tuple(groups), self._table(groups)
        elif [g.members for g in found[0]] != [g.members for g in groups]:
            raise DeclinedError("collectives on one channel have different groups")
        elif found[0] != tuple(groups):
            raise DeclinedError("collectives on one channel send to different devices")
        return found[1]

    def _table(self, groups: Sequence[Group]) -> str:
        records: list[list[int]] = [[] for _ in range(self._devices)]
        lists: list[int] = []
        for group in groups:
            slot = self._slot(len(group.members))
            begin = self._devices * SITE.size + 8 * len(lists)
            for index, device in enumerate(group.members):
                # Where the list of members is, from the device's record on.
                own = device * SITE.size
                records[device] = [slot, index, len(group.members), begin - own, group.sources[index]]
            lists.extend(group.members)
        words = [word for record in records for word in record] + lists
        data = bytes((ctypes.c_int64 * len(words))(*words))
        return self._module.shared_data(f"site_{hashlib.sha256(data).hexdigest()[:16]}", data)

    def _slot(self, count: int) -> int:
        """Where a new slot begins in a run; 0 where the group is one device."""
        if count < 2:
            return 0
        begin = self._end
        self.slots.append(count)
        self._end += slot_bytes(count)
        return begin
