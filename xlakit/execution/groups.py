"""Groups of collectives: their devices, replica * num_partitions + partition, by CollectiveOpGroupMode."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.dataclass import dataclass
from xlakit.errors import ExecutionError
from xlakit.ir.attributes import CollectiveGroups, ReplicaGroups

_COUNTS_HINT = (
    "give the num_replicas and num_partitions that the program was written for: in the first line of its text, "
    "HloModule m, replica_count=R, num_partitions=P, or to xlakit run as --replicas R --partitions P"
)


@dataclass(frozen=True, slots=True)
class Grid:
    """The devices that run a program."""

    num_replicas: int
    num_partitions: int

    @property
    def num_devices(self) -> int:
        """The number of devices."""
        return self.num_replicas * self.num_partitions

    def members(self, device: int, groups: CollectiveGroups) -> list[int]:
        """The devices of a device's group in its order; none where it is in no group.

        Raises ExecutionError if the groups name ids that do not exist.
        """
        replica, partition = divmod(device, self.num_partitions)
        replicas, partitions = self.num_replicas, self.num_partitions
        has_channel, listed = groups.channel_id is not None, groups.replica_groups
        if has_channel and groups.use_global_device_ids is None:
            return [replica * partitions + i for i in _group(listed, partition, partitions)]
        if has_channel and groups.use_global_device_ids:
            return _group(listed, device, self.num_devices)
        ids = _group(listed, replica, replicas)
        if not has_channel:
            return [i * partitions + partition for i in ids]
        return [i * partitions + other for i in ids for other in range(partitions)]

    def peers(self, device: int, *, by_partition: bool) -> tuple[list[int], int]:
        """The devices that ids stand for, and the own id: the partitions of this replica, or the other way round."""
        replica, partition = divmod(device, self.num_partitions)
        replicas, partitions = self.num_replicas, self.num_partitions
        if by_partition:
            return [replica * partitions + i for i in range(partitions)], partition
        return [i * partitions + partition for i in range(replicas)], replica


def check_pairs(pairs: Sequence[tuple[int, int]], count: int) -> None:
    """Raise ExecutionError if source-target pairs name ids that do not exist."""
    for pair in pairs:
        if max(pair) >= count:
            raise ExecutionError(
                f"source_target_pairs name {max(pair)}, the program runs with ids 0 .. {count - 1}",
                hint=f"with a channel_id the ids are partitions, without one they are replicas; {_COUNTS_HINT}",
            )


def _group(groups: ReplicaGroups, device: int, count: int) -> list[int]:
    if not groups.groups:
        return list(range(count))
    for group in groups.groups:
        for member in group:
            if member >= count:
                raise ExecutionError(
                    f"replica groups name {member}, the program runs with ids 0 .. {count - 1}", hint=_COUNTS_HINT
                )
    return next((list(group) for group in groups.groups if device in group), [])
