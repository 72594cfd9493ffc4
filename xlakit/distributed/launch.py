"""How a process joins the others, and how it leaves them.

A process that ends as it should waits for the others, so that none of them finds it gone. One that ends with an error
notifies them, which ends their waits, leaves them a moment to report it, and then ends them all. A process that is
killed sends no notice: then MPI's launcher ends the others, or their waits for it time out.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from types import TracebackType
from typing import Any

from xlakit.arguments import converting, name_type
from xlakit.deprecation import warn_renamed
from xlakit.distributed import mpi
from xlakit.distributed.cluster import MpiCluster
from xlakit.distributed.spread import Spread
from xlakit.errors import ArgumentError
from xlakit.execution.context import ExecutionContext
from xlakit.settings import default_timeout

# How long a process that ends with an error waits for the others to report theirs, in seconds.
_GRACE = 2.0


class Cluster:
    """The processes of a program, and the devices of this process; made by :func:`initialize`."""

    def __init__(self, spread: Spread, network: MpiCluster | None) -> None:
        self._spread = spread
        self._network = network

    @property
    def process_index(self) -> int:
        """The number of this process, from 0: its rank."""
        return self._spread.rank

    @property
    def process_count(self) -> int:
        """How many processes there are."""
        return self._spread.ranks

    @property
    def device_count(self) -> int:
        """How many devices there are in all processes."""
        return self._spread.ranks * self._spread.per_rank

    @property
    def local_devices(self) -> range:
        """The numbers of the devices in this process."""
        return self._spread.local

    def process_of(self, device: int) -> int:
        """The number of the process that has a device."""
        return self._spread.rank_of(device)

    def new_execution_context(self, *, timeout: float | None = None) -> ExecutionContext:
        """A context for :func:`xlakit.compile` whose programs run on the devices of all processes."""
        if timeout is None and self._network is not None:
            timeout = self._network.timeout
        execution_context = ExecutionContext(timeout=timeout)
        execution_context.network = self._network
        return execution_context

    def make_world(self, *, timeout: float | None = None) -> ExecutionContext:
        """The old name of :meth:`new_execution_context`."""
        warn_renamed("Cluster.make_world", "new_execution_context")
        return self.new_execution_context(timeout=timeout)

    def __repr__(self) -> str:
        return f"<Cluster: process {self.process_index} of {self.process_count}, {self.device_count} devices>"


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
        _joined = Cluster(Spread(0, 1, devices or 1), None)
        return _joined
    started = mpi.Mpi()
    ranks = started.world.size
    if devices is not None and devices % ranks:
        raise ArgumentError(
            f"{devices} devices do not divide between {ranks} processes",
            hint=f"give {ranks * (devices // ranks + 1)}, or another number of processes",
        )
    spread = Spread(started.world.rank, ranks, (devices or ranks) // ranks)
    seconds = default_timeout() if timeout is None else timeout
    network = MpiCluster(started, spread, timeout=seconds, any_order=reduction == "any")
    _share_processors(started)
    _Leaving(network)
    _joined = Cluster(spread, network)
    return _joined


def _share_processors(started: mpi.Mpi) -> None:
    """Let the processes of one machine share its processors, unless the number of threads is set."""
    node = started.call(lambda: started.world.Split_type(started.api.COMM_TYPE_SHARED))
    if "XLAKIT_THREADS" not in os.environ and hasattr(os, "sched_getaffinity"):
        # A launcher that binds processes to processors has divided them already.
        mine = sorted(os.sched_getaffinity(0))
        gathered = started.call(lambda: node.allgather(tuple(mine)))
        sharing = sum(1 for other in gathered if set(other) & set(mine))
        os.environ["XLAKIT_THREADS"] = str(max(1, len(mine) // sharing))
    started.call(node.Free)


class _Leaving:
    """The end of a process."""

    def __init__(self, network: MpiCluster) -> None:
        self._network = network
        self._error = ""
        self._before = sys.excepthook
        sys.excepthook = self._note_error
        atexit.register(self._leave)

    def _note_error(self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        self._before(kind, error, traceback)
        self._error = f"{kind.__name__}: {error}"
        self._network.fail(self._error)

    def _leave(self) -> None:
        network = self._network
        if self._error:
            self._leave_with_error()
        network.leave()
        if not self._await_others():
            network.mpi.abort()
        network.watch.stop()
        network.mpi.stop()

    def _leave_with_error(self) -> None:
        """Wait for the other processes, which have been notified, to end, and then abort them."""
        watch, since = self._network.watch, time.monotonic()
        others = self._network.spread.ranks - 1
        while time.monotonic() - since < _GRACE and not (watch.has_sent_all() and len(watch.failed) == others):
            time.sleep(0.01)
        self._network.mpi.abort()

    def _await_others(self) -> bool:
        """Wait until all processes end; False if one of them ended with an error or does not answer."""
        network = self._network
        request: Any = network.mpi.call(network.watch.communicator.Ibarrier)
        neighbor = (network.spread.rank + 1) % network.spread.ranks
        asked = heard = time.monotonic()
        while not network.mpi.call(request.Test):
            time.sleep(0.001)
            now = time.monotonic()
            if network.watch.failed:
                return False
            # Each process watches its neighbor, so that every process is watched.
            state = network.watch.states.get(neighbor)
            heard = max(heard, state.when if state is not None else 0.0)
            if now - heard > network.timeout:
                print(f"xlakit: {network.name_of(neighbor)} does not answer", file=sys.stderr)
                return False
            if now - asked > 0.5:
                asked = now
                network.watch.ask(neighbor)
        return True
