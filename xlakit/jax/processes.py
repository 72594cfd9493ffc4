"""The processes of ``jax.distributed``, and what they tell each other through its key-value store.

Each process says how many devices it has, and where it takes messages; devices are numbered by process. With one
process, or none that jax.distributed knows of, there is nothing to exchange.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import socket
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from xlakit.dataclass import dataclass
from xlakit.errors import RankError

if TYPE_CHECKING:
    from xlakit.distributed.peers.network import Network

# How long a process waits for the others to say who they are, in milliseconds: as long as JAX does.
_PATIENCE: Final = 300_000
_ADDRESS: Final = "XLAKIT_ADDRESS"


@dataclass(frozen=True)
class Processes:
    """The processes that have JAX's devices.

    index: which of them this one is. counts: how many devices each has. network: the connections, if there are others.
    """

    index: int
    counts: tuple[int, ...]
    network: Network | None = None

    @property
    def device_count(self) -> int:
        """How many devices there are in all processes."""
        return sum(self.counts)

    @property
    def local(self) -> range:
        """The numbers of the devices in this process."""
        first = sum(self.counts[: self.index])
        return range(first, first + self.counts[self.index])

    def process_of(self, device: int) -> int:
        """The process that has a device."""
        ends = accumulate(self.counts)
        return next(index for index, end in enumerate(ends) if device < end)


# What this process has exchanged; a client that JAX makes later, for as many devices, has the same processes.
_joined: dict[tuple[str, int], Processes] = {}


def join(platform: str, count: int) -> Processes:
    """The processes, given how many devices this one has. Waits for the others.

    Raises RankError where one of them does not come, and UnsupportedError where pyzmq is missing.
    """
    from jax._src import distributed

    state: Any = distributed.global_state
    if state.client is None or state.num_processes == 1:
        return Processes(0, (count,))
    found = _joined.get((platform, count))
    if found is None:
        found = _joined[platform, count] = _exchange(state, f"xlakit/{platform}/{len(_joined)}", count)
    return found


def _exchange(state: Any, key: str, count: int) -> Processes:
    from xlakit.distributed.peers.network import Network

    network = Network(_address(state.coordinator_address))
    processors = _processors()
    own = {
        "devices": count,
        "endpoint": network.endpoint,
        "token": secrets.token_hex(16),
        "processors": processors,
    }
    state.client.key_value_set(f"{key}/{state.process_id}", json.dumps(own))
    all = [_said(state.client, f"{key}/{rank}", rank) for rank in range(state.num_processes)]
    counts = tuple(said["devices"] for said in all)
    ends = list(accumulate(counts))
    names = [_name(rank, end - size, end) for rank, (size, end) in enumerate(zip(counts, ends, strict=True))]
    network.join(state.process_id, [said["endpoint"] for said in all], names, bytes.fromhex(all[0]["token"]))
    atexit.register(network.leave)
    _share_processors([said["processors"] for said in all], processors)
    return Processes(state.process_id, counts, network)


def _said(client: Any, key: str, rank: int) -> dict[str, Any]:
    try:
        return json.loads(client.blocking_key_value_get(key, _PATIENCE))
    except Exception as error:
        # jaxlib's error has no type of its own.
        raise RankError(
            f"process {rank} has not said how many devices it has: {error}",
            hint="all processes must use the same platform, and reach the coordinator of jax.distributed",
        ) from None


def _name(rank: int, first: int, end: int) -> str:
    many = end - first > 1
    return f"process {rank} (device{'s' * many} {first}{f' to {end - 1}' * many})"


def _address(coordinator: str) -> str:
    """The address of this machine towards the coordinator of jax.distributed, where the others reach it."""
    given = os.environ.get(_ADDRESS)
    if given:
        return given
    host = coordinator.rpartition(":")[0].strip("[]")
    family, kind, _, _, place = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    # Nothing is sent: the system only says which way it would go.
    with socket.socket(family, kind) as probe:
        probe.connect(place)
        return probe.getsockname()[0]


def _processors() -> list[Any]:
    """The machine, and the processors that this process may run on."""
    numbers = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return [socket.gethostname(), numbers]


def _share_processors(all: Sequence[list[Any]], own: list[Any]) -> None:
    """Let the processes of one machine share its processors, unless the number of threads is set."""
    host, mine = own
    if "XLAKIT_THREADS" not in os.environ and mine:
        sharing = sum(1 for other, numbers in all if other == host and set(numbers) & set(mine))
        os.environ["XLAKIT_THREADS"] = str(max(1, len(mine) // sharing))
