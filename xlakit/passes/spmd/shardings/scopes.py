"""Scopes: the teams of partitions that share the values of a part of a program.

Outside of manual computations there is one team of all partitions. In a computation that is manual over some axes of a
mesh, the partitions with the same index along these axes are a team, and each team computes its own values.
"""

from __future__ import annotations

from xlakit.dataclass import dataclass
from xlakit.passes.spmd.shardings.tilings import Split, split_of


@dataclass(frozen=True)
class Scope:
    """Teams of partitions; members with the same index in their teams do the same to the values of their teams."""

    teams: tuple[tuple[int, ...], ...]

    @staticmethod
    def of_all(count: int) -> Scope:
        """One team of all partitions."""
        return Scope((tuple(range(count)),))

    @property
    def size(self) -> int:
        """The number of members of a team."""
        return len(self.teams[0])

    @property
    def count(self) -> int:
        """The number of partitions in all teams."""
        return len(self.teams) * self.size

    def groups(self, members: list[list[int]]) -> tuple[tuple[int, ...], ...]:
        """Groups of members, translated to groups of partitions in every team."""
        return tuple(tuple(team[m] for m in group) for team in self.teams for group in members)

    def of_partitions(self, of_member: list[int]) -> list[int]:
        """A value for each member of a team, as a table for all partitions."""
        table = [0] * self.count
        for team in self.teams:
            for member, value in zip(team, of_member, strict=True):
                table[member] = value
        return table

    def agreed(self, of_partition: Split | None) -> Split | None:
        """A split over partitions as one over the members of a team; None if it differs between teams."""
        if of_partition is None:
            return None
        rows = {tuple(of_partition[p] for p in team) for team in self.teams}
        return split_of(rows.pop()) if len(rows) == 1 else None

    def inside(self, of_partition: tuple[int, ...]) -> Scope:
        """The teams divided further: members of a team with the same number form one."""
        return Scope(
            tuple(
                tuple(p for p in team if of_partition[p] == number)
                for team in self.teams
                for number in sorted({of_partition[p] for p in team})
            )
        )
