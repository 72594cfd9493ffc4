"""The processes that have the devices of a client or of JAX together.

A cluster knows which process has which devices, and the network that carries messages between them, if there are
several. :func:`xlakit.distributed.initialize` makes it of the processes of MPI, :mod:`xlakit.jax.processes` of those of
``jax.distributed``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Protocol

from xlakit.arguments import name_type
from xlakit.deprecation import warn_renamed
from xlakit.errors import ArgumentError

if TYPE_CHECKING:
    # Imported for type checking only: a JAX program of one process does not need it, and it is slow to import.
    from xlakit.execution.context import ExecutionContext, Network
    from xlakit.execution.run import Run
    from xlakit.execution.session import Session


class Connected(Protocol):
    """The connections between the processes; implemented by :class:`xlakit.distributed.network.Network`."""

    @property
    def timeout(self) -> float:
        """How many seconds to wait for another process."""
        ...

    def on(self, ranks: Sequence[int]) -> Network:
        """The network of a program, given the process of each of its devices."""
        ...


class Cluster:
    """Processes with numbered devices: first those of process 0, then those of process 1, and so on.

    process_index: the number of this process. counts: how many devices each process has. network: the connections
    between them; None where there is one process.
    """

    def __init__(self, process_index: int, counts: Sequence[int], network: Connected | None = None) -> None:
        self.process_index: Final = process_index
        self.network: Final = network
        self._ends = tuple(accumulate(counts))

    @property
    def process_count(self) -> int:
        """How many processes there are."""
        return len(self._ends)

    @property
    def device_count(self) -> int:
        """How many devices there are in all processes."""
        return self._ends[-1]

    @property
    def local_devices(self) -> range:
        """The numbers of the devices in this process."""
        return range(self._ends[self.process_index - 1] if self.process_index else 0, self._ends[self.process_index])

    def process_of(self, device: int) -> int:
        """The number of the process that has a device."""
        return bisect_right(self._ends, device)

    def new_execution_context(self, *, timeout: float | None = None) -> ExecutionContext:
        """A context for :func:`xlakit.compile` whose programs run on the devices of all processes."""
        from xlakit.execution.context import ExecutionContext

        if timeout is None and self.network is not None:
            timeout = self.network.timeout
        execution_context = ExecutionContext(timeout=timeout)
        if self.network is not None:
            execution_context.network = _AllDevices(self, self.network)
        return execution_context

    def make_world(self, *, timeout: float | None = None) -> ExecutionContext:
        """The old name of :meth:`new_execution_context`."""
        warn_renamed("Cluster.make_world", "new_execution_context")
        return self.new_execution_context(timeout=timeout)

    def __repr__(self) -> str:
        return f"<Cluster: process {self.process_index} of {self.process_count}, {self.device_count} devices>"


class _AllDevices:
    """The devices of all processes, which a program runs on; see :class:`xlakit.execution.context.Network`."""

    def __init__(self, cluster: Cluster, network: Connected) -> None:
        self._cluster = cluster
        self._network = network.on([cluster.process_of(device) for device in range(cluster.device_count)])
        self.link = self._network.link

    def local_devices(self, num_devices: int) -> Sequence[int]:
        """The devices of a program that run in this process; a program for one device runs in each on its own."""
        cluster = self._cluster
        if num_devices == 1:
            return range(1)
        if num_devices != cluster.device_count:
            raise ArgumentError(
                f"the program is for {num_devices} devices, {cluster.process_count} processes of "
                f"{len(cluster.local_devices)} have {cluster.device_count}",
                hint=f"run it on {cluster.device_count} devices, or give "
                f"xlakit.distributed.initialize(devices={num_devices})",
            )
        return cluster.local_devices

    def session(self, run: Run, execution_context: ExecutionContext) -> Session | None:
        """Take part in a run; None for a program of one device."""
        return None if run.program.grid.num_devices == 1 else self._network.session(run, execution_context)


name_type(Cluster, "a cluster", "clusters", "make it with xlakit.distributed.initialize()")
