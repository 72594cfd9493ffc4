"""How a process joins the others, and how it leaves them.

A process that ends normally waits for the others, so that none of them loses its connection. A process that ends with
an error notifies the others, which ends their waits, leaves them a moment to report the error, and then ends them all.
A process that is killed sends no notice: then MPI's launcher ends the others, or their waits for it time out.
"""

from __future__ import annotations

import atexit
import sys
import time
from contextlib import suppress
from functools import partial

import numpy as np

from xlakit.arguments import converting
from xlakit.distributed import mpi
from xlakit.distributed.connections import process_name
from xlakit.distributed.messages import TOKEN_BYTES
from xlakit.distributed.mpi_transport import MpiTransport
from xlakit.distributed.network import Network
from xlakit.distributed.processors import own_processors, share_processors
from xlakit.errors import ArgumentError, RankError
from xlakit.link import DEFAULT_LINK, Link
from xlakit.runtime.cluster import Cluster
from xlakit.settings import default_timeout

# The time for which a process that ends with an error waits for the others to report the error, in seconds.
_GRACE = 2.0
# The time that mpiexec gets to pass on what processes wrote: what it has not read when one of them aborts may be lost.
_PASSED_ON = 0.2

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
        _joined = Cluster(0, [devices or 1])
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
    # MPI's messages cannot come from another job, so a constant token is enough.
    network.join(rank, [endpoint for endpoint, _ in all], names, bytes(range(TOKEN_BYTES)))
    atexit.register(_leave, network, started)
    network.link = _link(network, started, per_rank)
    _joined = Cluster(rank, [per_rank] * ranks, network)
    return _joined


def _link(network: Network, started: mpi.Mpi, devices: int) -> Link:
    """The link between the first and the last process, as measured by the first one.

    The last process is the most likely to be on another machine. All processes must compile for the same link, so the
    others wait for the result; the last one answers the measuring messages meanwhile.
    """
    rank, ranks = started.world.rank, started.world.size
    link = DEFAULT_LINK
    if rank == 0 and ranks > 1:
        # If the last process does not answer, the first program that needs it raises the error.
        with suppress(RankError):
            link = network.measured(ranks - 1, devices)
    numbers = np.array([link.alpha, link.beta, link.products])
    api = started.api
    request = started.call(lambda: started.world.Ibcast([numbers, api.DOUBLE], 0))
    started.finish(request, lambda: None)
    return Link(*map(float, numbers))


def _leave(network: Network, started: mpi.Mpi) -> None:
    if network.has_failed:
        # The others have been notified; they get a moment to report the error.
        network.await_ends(_GRACE)
        # A process may have closed its output, or have none.
        with suppress(AttributeError, OSError, ValueError):
            sys.stdout.flush()
        time.sleep(_PASSED_ON)
        started.abort()
    network.leave()
