"""Processes: those that MPI has started, as one of them sees them."""

from __future__ import annotations

from typing import Any

from xlakit.distributed.mpi import Mpi
from xlakit.distributed.spread import Spread
from xlakit.distributed.watch import Watch


class Processes:
    """What the runs of this process share to reach the others.

    spread: which devices are in which process. watch: what the processes report of themselves. timeout: how many
    seconds to wait for a process that does not come. any_order: whether MPI may combine the values of a reduction in
    an order of its own.
    """

    def __init__(self, mpi: Mpi, spread: Spread, watch: Watch, *, timeout: float, any_order: bool) -> None:
        self.mpi = mpi
        self.spread = spread
        self.watch = watch
        self.timeout = timeout
        self.any_order = any_order
        self._abandoned: list[Any] = []

    def name_of(self, rank: int) -> str:
        """The name of a process in errors."""
        devices = self.spread.devices_of(rank)
        many = len(devices) > 1
        return f"rank {rank} (device{'s' * many} {devices[0]}{f' to {devices[-1]}' * many})"

    def abandon(self, *things: object) -> None:
        """Keep alive what an MPI operation that may never end goes on to use."""
        self._abandoned.append(things)
