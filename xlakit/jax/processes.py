"""Connects the processes of ``jax.distributed``, which exchange the necessary data through its key-value store.

Each process publishes its number of devices and whether MPI has started it; then its address for messages, which use
MPI if it has started all of them, and else ZeroMQ. Then the first process measures the link between them. Devices are
numbered by process. With one process, or without jax.distributed, nothing is exchanged.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from xlakit.errors import ArgumentError, RankError, UnsupportedError
from xlakit.link import DEFAULT_LINK, Link
from xlakit.runtime.cluster import Cluster
from xlakit.settings import default_timeout

if TYPE_CHECKING:
    from xlakit.distributed.mpi import Mpi
    from xlakit.distributed.network import Network
    from xlakit.distributed.transport import Open

# The timeout, in seconds, for the others to publish their devices, if XLAKIT_TIMEOUT is not set; the same as JAX's.
_JOIN_SECONDS: Final = 300.0
_ADDRESS: Final = "XLAKIT_ADDRESS"
_TRANSPORT: Final = "XLAKIT_TRANSPORT"
_TRANSPORTS: Final = ("mpi", "zeromq")


class _Job:
    """What this process has joined of one job of jax.distributed, which has a ``client`` of its own.

    clusters: by platform and number of devices: a client that JAX makes later, for as many devices, uses the same one.
    opened: the networks of attempts to join that have failed, by their keys: the others may have read the endpoint, so
    the next attempt, which JAX makes when it is asked for devices again, uses the same one. networks: those of the
    clusters.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.clusters: dict[tuple[str, int], Cluster] = {}
        self.opened: dict[str, Network] = {}
        self.networks: list[Network] = []


# The job that this process was in last; empty before the first. A process may leave a job (jax.distributed.shutdown)
# and be another one's, with another number.
_jobs: list[_Job] = []


def join(platform: str, count: int) -> Cluster:
    """The cluster, given the number of devices of this process. Waits for the other processes.

    Raises RankError if one of them does not join in time, and UnsupportedError if pyzmq is missing.
    """
    state = _state()
    if _jobs and (state is None or _jobs[0].client is not state.client):
        _leave(_jobs.pop())
    if state is None:
        return Cluster(0, (count,))
    if not _jobs:
        _jobs.append(_Job(state.client))
    (job,) = _jobs
    cluster = job.clusters.get((platform, count))
    if cluster is None:
        key = f"xlakit/{platform}/{len(job.clusters)}"
        cluster = job.clusters[platform, count] = _exchange(state, job, key, count)
    return cluster


def _leave(job: _Job) -> None:
    """Close the networks of a job that this process has left; those of MPI stay open until all processes end."""
    for network in (*job.networks, *job.opened.values()):
        if not network.ends_together:
            atexit.unregister(network.leave)
            network.leave()


def is_current(cluster: Cluster) -> bool:
    """Whether a cluster is of the job that this process is in now, or of one process where it is in none."""
    state = _state()
    if state is None:
        return cluster.network is None
    return any(job.client is state.client and cluster in job.clusters.values() for job in _jobs)


def _state() -> Any:
    """The state of jax.distributed; None where this process is alone."""
    from jax._src import distributed

    state: Any = distributed.global_state
    return None if state.client is None or state.num_processes == 1 else state


def _exchange(state: Any, job: _Job, key: str, count: int) -> Cluster:
    from xlakit.distributed.connections import process_name
    from xlakit.distributed.network import Network
    from xlakit.distributed.processors import own_processors, share_processors
    from xlakit.distributed.shared.transport import is_supported

    processors = own_processors()
    mpi, reason = _start_mpi(state.num_processes)
    description = {
        "devices": count,
        "processors": processors,
        "mpi": mpi is not None,
        "reason": reason,
        "shares": os.environ.get(_TRANSPORT) != "zeromq" and is_supported(),
    }
    all = _all_gather(state, f"{key}/devices", description)
    counts = tuple(other["devices"] for other in all)
    network = job.opened.get(key)
    if network is None:
        network = job.opened[key] = Network(_transport(state, mpi, all))
    addresses = _all_gather(state, f"{key}/address", {"endpoint": network.endpoint, "token": secrets.token_hex(16)})
    ends = list(accumulate(counts))
    names = [
        process_name("process", rank, range(end - size, end))
        for rank, (size, end) in enumerate(zip(counts, ends, strict=True))
    ]
    token = bytes.fromhex(addresses[0]["token"])
    if not network.has_joined:
        network.join(state.process_id, [address["endpoint"] for address in addresses], names, token)
        atexit.register(network.leave)
    share_processors([other["processors"] for other in all], processors)
    network.link = _link(state, key, network, count)
    job.networks.append(job.opened.pop(key))
    return Cluster(state.process_id, counts, network)


def _link(state: Any, key: str, network: Network, devices: int) -> Link:
    """The link between the first process and the last one, as measured by the first one.

    The last process is the most likely to be on another machine. All processes must compile for the same link, so the
    others wait for the result.
    """
    last = state.num_processes - 1
    if state.process_id == last:
        _publish(state.client, f"{key}/joined", last)
    if state.process_id == 0:
        _published_value(state.client, f"{key}/joined", last)
        try:
            found = network.measured(last, devices)
        except RankError:
            # If the process does not answer, the first program that needs it raises the error.
            found = DEFAULT_LINK
        _publish(state.client, f"{key}/link", asdict(found))
    return Link(**_published_value(state.client, f"{key}/link", 0))


def _all_gather(state: Any, key: str, value: dict[str, Any]) -> list[dict[str, Any]]:
    """The values that all processes publish under a key; ``value`` is this process's."""
    _publish(state.client, f"{key}/{state.process_id}", value)
    return [_published_value(state.client, f"{key}/{rank}", rank) for rank in range(state.num_processes)]


def _start_mpi(count: int) -> tuple[Mpi | None, str]:
    """MPI, if it has started this process and ``count`` processes in all; else None, with the reason."""
    from xlakit.distributed import mpi

    transport = os.environ.get(_TRANSPORT, "")
    if transport not in ("", *_TRANSPORTS):
        raise ArgumentError(f"{_TRANSPORT} is {transport!r}", hint=f"set it to {' or '.join(_TRANSPORTS)}, or unset it")
    if transport == "zeromq":
        return None, f"{_TRANSPORT} says so"
    if not mpi.is_launched():
        return None, "MPI has not started it"
    try:
        found = mpi.Mpi()
    except (ArgumentError, UnsupportedError) as error:
        return None, str(error)
    if found.world.size == count:
        return found, ""
    found.stop()
    return None, f"MPI has started {found.world.size} processes, jax.distributed has {count}"


def _transport(state: Any, mpi: Mpi | None, all: Sequence[dict[str, Any]]) -> Open:
    """The transport of messages; all processes make the same choice."""
    without = [f"process {rank}: {other['reason']}" for rank, other in enumerate(all) if not other["mpi"]]
    if mpi is not None and not without:
        from xlakit.distributed.mpi_transport import MpiTransport

        return partial(MpiTransport, mpi)
    if os.environ.get(_TRANSPORT) == "mpi":
        raise UnsupportedError(
            f"{_TRANSPORT} is mpi, which cannot carry the messages:\n  " + "\n  ".join(without),
            hint="start all processes with one mpiexec or srun, with mpi4py installed, or unset it",
        )
    from xlakit.distributed.shared.transport import SharedMemoryTransport
    from xlakit.distributed.zeromq import ZeroMqTransport

    shares = {other["shares"] for other in all} == {True}
    transport = SharedMemoryTransport if shares else ZeroMqTransport
    return partial(transport, _address(state.coordinator_address))


def _publish(client: Any, key: str, value: Any) -> None:
    """Publish a value, unless an earlier attempt to join has published one: the others may have read that."""
    try:
        client.key_value_set(key, json.dumps(value))
    except Exception as error:
        # jaxlib's error has no type of its own.
        if "ALREADY_EXISTS" not in str(error):
            raise


def _published_value(client: Any, key: str, rank: int) -> Any:
    seconds = default_timeout() if "XLAKIT_TIMEOUT" in os.environ else _JOIN_SECONDS
    begun = time.monotonic()
    try:
        return json.loads(client.blocking_key_value_get(key, int(seconds * 1000)))
    except Exception as error:
        # jaxlib's error has no type of its own.
        raise RankError(
            f"process {rank} has not said {key!r}, after {time.monotonic() - begun:.1f} seconds of waiting: {error}",
            hint="all processes must use the same platform, and reach the coordinator of jax.distributed",
        ) from None


def _address(coordinator: str) -> str:
    """The address of this machine towards the coordinator of jax.distributed, where the others reach it."""
    address = os.environ.get(_ADDRESS)
    if address:
        return address
    host = coordinator.rpartition(":")[0].strip("[]")
    family, kind, _, _, target = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    # Connecting a datagram socket sends nothing: the system only chooses the local address of the route.
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        return probe.getsockname()[0]
