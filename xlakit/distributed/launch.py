"""How a process joins the others, and how it leaves them.

A process that ends as it should waits for the others, so that none of them finds it gone. One that ends with an error
notifies them, which ends their waits, leaves them a moment to report it, and then ends them all. A process that is
killed sends no notice: then MPI's launcher ends the others, or their waits for it time out.
"""

from __future__ import annotations

import atexit
from functools import partial

from xlakit.arguments import converting, name_type
from xlakit.deprecation import warn_renamed
from xlakit.distributed import mpi
from xlakit.distributed.connections import process_name
from xlakit.distributed.messages import TOKEN_BYTES
from xlakit.distributed.mpi_transport import MpiTransport
from xlakit.distributed.network import Network
from xlakit.distributed.processors import own_processors, share_processors
from xlakit.distributed.session import NetworkSession
from xlakit.errors import ArgumentError
from xlakit.execution.context import ExecutionContext
from xlakit.execution.run import Run
from xlakit.settings import default_timeout

# How long a process that ends with an error waits for the others to report theirs, in seconds.
_GRACE = 2.0


class Cluster:
    """The processes of a program, and the devices of this process; made by :func:`initialize`."""

    def __init__(self, rank: int, ranks: int, per_rank: int, network: Network | None) -> None:
        self._rank = rank
        self._ranks = ranks
        self._per_rank = per_rank
        self._network = network

    @property
    def process_index(self) -> int:
        """The number of this process, from 0: its rank."""
        return self._rank

    @property
    def process_count(self) -> int:
        """How many processes there are."""
        return self._ranks

    @property
    def device_count(self) -> int:
        """How many devices there are in all processes."""
        return self._ranks * self._per_rank

    @property
    def local_devices(self) -> range:
        """The numbers of the devices in this process."""
        return range(self._rank * self._per_rank, (self._rank + 1) * self._per_rank)

    def process_of(self, device: int) -> int:
        """The number of the process that has a device."""
        return device // self._per_rank

    def new_execution_context(self, *, timeout: float | None = None) -> ExecutionContext:
        """A context for :func:`xlakit.compile` whose programs run on the devices of all processes."""
        if timeout is None and self._network is not None:
            timeout = self._network.timeout
        execution_context = ExecutionContext(timeout=timeout)
        if self._network is not None:
            execution_context.network = _AllDevices(self, self._network)
        return execution_context

    def make_world(self, *, timeout: float | None = None) -> ExecutionContext:
        """The old name of :meth:`new_execution_context`."""
        warn_renamed("Cluster.make_world", "new_execution_context")
        return self.new_execution_context(timeout=timeout)

    def __repr__(self) -> str:
        return f"<Cluster: process {self.process_index} of {self.process_count}, {self.device_count} devices>"


class _AllDevices:
    """The devices of all processes, which a program runs on; see :class:`xlakit.execution.context.Network`."""

    def __init__(self, cluster: Cluster, network: Network) -> None:
        self._cluster = cluster
        self._network = network

    def local_devices(self, num_devices: int) -> range:
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

    def session(self, run: Run, execution_context: ExecutionContext) -> NetworkSession | None:
        """Take part in a run; None for a program of one device."""
        count = run.program.grid.num_devices
        if count == 1:
            return None
        return self._network.begin(tuple(map(self._cluster.process_of, range(count))), run, execution_context)


name_type(Cluster, "a cluster", "clusters", "make it with xlakit.distributed.initialize()")

_joined: Cluster | None = None


@converting
def initialize(
    devices: int | None = None,
    *,
    timeout: float | None = None,
    reduction: str = "ordered",
    launched: bool | None = None,
) -> Cluster:
    """Join the other processes that an MPI launcher (mpiexec, srun) has started. All of them call it, once.

    devices: how many devices there are in all; each process has an equal share. By default one for each process.
    timeout: how many seconds a device waits for a process that does not come, or does not answer, before it raises
        RankError; by default what ``XLAKIT_TIMEOUT`` says, or 30. A process that computes is waited for.
    reduction: ``"ordered"`` combines floating point numbers in the order of the group, to the bit as one process does;
        ``"any"`` leaves sums and products to MPI, which may combine them in another order, though in the same one each
        time with the same processes on the same machines.
    launched: whether there are other processes; by default whether an environment variable of a launcher says so.
        Without, this process has all devices, and MPI is not needed.

    Raises ArgumentError where the devices do not divide between the processes, UnsupportedError without mpi4py.
    """
    global _joined  # noqa: PLW0603
    if reduction not in ("ordered", "any"):
        raise ArgumentError(f"reduction is '{reduction}'", hint="known: ordered, any")
    if devices is not None and devices < 1:
        raise ArgumentError(f"devices is {devices}", hint="give at least 1")
    if _joined is not None:
        if devices not in (None, _joined.device_count):
            raise ArgumentError(
                f"this process has been initialized with {_joined.device_count} devices, now {devices} are asked for",
                hint="call xlakit.distributed.initialize() once",
            )
        return _joined
    if not (mpi.is_launched() if launched is None else launched):
        _joined = Cluster(0, 1, devices or 1, None)
        return _joined
    started = mpi.Mpi()
    rank, ranks = started.world.rank, started.world.size
    if devices is not None and devices % ranks:
        raise ArgumentError(
            f"{devices} devices do not divide between {ranks} processes",
            hint=f"give {ranks * (devices // ranks + 1)}, or another number of processes",
        )
    seconds = default_timeout() if timeout is None else timeout
    network = Network(partial(MpiTransport, started), timeout=seconds, any_order=reduction == "any")
    processors = own_processors()
    all = started.call(lambda: started.world.allgather((network.endpoint, processors)))
    share_processors([other for _, other in all], processors)
    per_rank = (devices or ranks) // ranks
    names = [process_name("rank", r, range(r * per_rank, (r + 1) * per_rank)) for r in range(ranks)]
    # MPI's messages cannot come from another job, so that the token can be the same for all.
    network.join(rank, [endpoint for endpoint, _ in all], names, bytes(range(TOKEN_BYTES)))
    atexit.register(_leave, network, started)
    _joined = Cluster(rank, ranks, per_rank, network)
    return _joined


def _leave(network: Network, started: mpi.Mpi) -> None:
    if network.has_failed:
        # The others have been notified: they may say so.
        network.await_ends(_GRACE)
        started.abort()
    network.leave()
