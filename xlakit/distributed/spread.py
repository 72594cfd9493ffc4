"""The assignment of devices to processes, and the parts of a group in each process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """An equal number of devices on each process, in the order of ranks."""

    rank: int
    ranks: int
    per_rank: int

    @property
    def local(self) -> range:
        """The devices of this process."""
        return range(self.rank * self.per_rank, (self.rank + 1) * self.per_rank)

    def rank_of(self, device: int) -> int:
        """The process that runs a device."""
        return device // self.per_rank

    def devices_of(self, rank: int) -> range:
        """The devices of a process."""
        return range(rank * self.per_rank, (rank + 1) * self.per_rank)


@dataclass(slots=True)
class Link:
    """A group of devices in several processes, and the communicator of just those processes."""

    members: tuple[int, ...]
    # In the order of the communicator.
    ranks: tuple[int, ...]
    # The members in each of them, in the order of the group.
    parts: tuple[tuple[int, ...], ...]
    # The index of this process among the ranks.
    own: int
    communicator: Any
    indices: dict[int, int] = field(default_factory=dict)
    # How many rendezvous this process has begun there; the openings of those that it has not seen all come to; and
    # whether something else has begun there that may never end.
    begun: int = 0
    open: list[Any] = field(default_factory=list[Any])
    is_spoilt: bool = False

    @staticmethod
    def make(members: Sequence[int], spread: Spread, communicator: Any) -> Link:
        """The link of a group that this process is part of."""
        ranks = ranks_of(members, spread)
        parts = tuple(tuple(m for m in members if spread.rank_of(m) == rank) for rank in ranks)
        indices = {member: index for index, member in enumerate(members)}
        return Link(tuple(members), ranks, parts, ranks.index(spread.rank), communicator, indices)

    @property
    def here(self) -> tuple[int, ...]:
        """The members in this process."""
        return self.parts[self.own]


def ranks_of(members: Sequence[int], spread: Spread) -> tuple[int, ...]:
    """The processes of some devices."""
    return tuple(sorted({spread.rank_of(member) for member in members}))
