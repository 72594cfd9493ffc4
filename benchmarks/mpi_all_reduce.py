"""``mpiexec -n P python -m benchmarks.mpi_all_reduce``: times messages and all-reduces between processes.

Measures, over sizes: a message between two ranks; MPI's own Allreduce; and xlakit's all-reduce program. Fits latency
(alpha, seconds) and inverse bandwidth (beta, seconds a byte) to the messages, and prints what three algorithms, and
xlakit's, would take on more ranks of the same kind.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import xlakit as xla
from xlakit import distributed

# Up to so many bytes of all devices together are gathered by each.
_SMALL = 1 << 15
# Parts of up to so many bytes go in rounds.
_SMALL_PART = 1 << 16
_SIZES = [4, 64, 1024, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24]


@dataclass(frozen=True, slots=True)
class Network:
    """Seconds for a message (alpha), for a byte of it (beta), and for combining a byte with another (gamma)."""

    alpha: float
    beta: float
    gamma: float


def fit(sizes: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """Alpha and beta that make alpha + beta n nearest to the times, relatively, both at least 0."""
    n, t = np.asarray(sizes, float), np.asarray(seconds, float)
    (alpha, beta), *_ = np.linalg.lstsq(np.stack([1 / t, n / t], 1), np.ones_like(t), rcond=None)
    if alpha < 0 or beta < 0:
        alpha, beta = max(alpha, min(seconds)) if alpha > 0 else min(seconds), max(beta, 0.0)
    return float(alpha), float(beta)


def models(network: Network, ranks: int, size: int) -> dict[str, float]:
    """Seconds of an all-reduce of ``size`` bytes on ``ranks`` processes, by algorithm."""
    a, b, g = network.alpha, network.beta, network.gamma
    rounds, share = math.ceil(math.log2(ranks)), (ranks - 1) / ranks
    # All get everything in rounds; or each deals out its parts, in rounds or directly, and all get the sums in rounds.
    gather = rounds * a + (ranks - 1) * size * (b + g)
    deal = rounds * (a + size / 2 * b) if size <= _SMALL_PART * ranks else (ranks - 1) * a + share * size * b
    parts = deal + rounds * a + share * size * (b + g)
    return {
        "ring": 2 * (ranks - 1) * a + 2 * share * size * b + share * size * g,
        "recursive doubling": rounds * (a + size * b + size * g),
        "Rabenseifner": 2 * rounds * a + 2 * share * size * b + share * size * g,
        "xlakit": gather if size * ranks <= _SMALL else parts,
    }


def _best(work: Callable[[], object], begin: Callable[[], object], seconds: float) -> float:
    """The shortest of some times, which all processes begin together."""
    work()
    times: list[float] = []
    # The same number of turns in all processes: the first one says it.
    turns = 5
    for _ in range(2):
        for _ in range(turns):
            begin()
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        turns = max(3, min(200, int(seconds / max(min(times), 1e-6))))
        turns = _agree(turns)
    return min(times)


def _agree(number: int) -> int:
    from mpi4py import MPI

    return int(MPI.COMM_WORLD.bcast(number))


def _program(cluster: distributed.Cluster, size: int) -> Callable[[], object]:
    builder = xla.XlaBuilder("all_reduce")
    xla.all_reduce(xla.parameter(builder, 0, xla.make_shape(xla.F32, (size // 4,))), xla.add)
    context = cluster.new_execution_context()
    executable = xla.compile(builder.build(), num_replicas=cluster.device_count, execution_context=context)
    values = [[np.ones(size // 4, np.float32)]] * len(cluster.local_devices)
    return lambda: executable.execute_replicated(values)


def measure(options: argparse.Namespace) -> tuple[list[tuple[int, list[float]]], Network]:
    """For each size: half a round trip, MPI's Allreduce, xlakit's; and what is fitted."""
    from mpi4py import MPI

    cluster = distributed.initialize(reduction=options.reduction)
    comm = MPI.COMM_WORLD
    rows: list[tuple[int, list[float]]] = []
    for size in [s for s in _SIZES if s <= options.largest]:
        sent, received = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)

        def there_and_back(sent: Any = sent, received: Any = received) -> None:
            if comm.rank == 0:
                comm.Send(sent, 1)
                comm.Recv(received, 1)
            elif comm.rank == 1:
                comm.Recv(received, 0)
                comm.Send(sent, 0)

        work = [
            there_and_back,
            lambda sent=sent, received=received: comm.Allreduce(sent, received),
            _program(cluster, size),
        ]
        times = [_best(w, comm.Barrier, options.seconds) for w in work]
        rows.append((size, [times[0] / 2, *times[1:]]))
    x = np.ones(1 << 20, np.float32)
    gamma = min(_seconds(lambda: np.add(x, x, out=x)) for _ in range(20)) / x.nbytes
    alpha, beta = fit([size for size, _ in rows], [t[0] for _, t in rows])
    return rows, Network(alpha, beta, gamma)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def report(
    rows: Sequence[tuple[int, Sequence[float]]], network: Network, ranks: int, options: argparse.Namespace
) -> str:
    """The tables."""
    lines = [
        f"{ranks} ranks, reduction={options.reduction}; least times in microseconds",
        "",
        "| bytes | message | MPI Allreduce | xlakit all-reduce |",
        "|---:|---:|---:|---:|",
    ]
    lines += [f"| {size:,} | " + " | ".join(f"{t * 1e6:,.1f}" for t in times) + " |" for size, times in rows]
    lines += [
        "",
        f"alpha {network.alpha * 1e6:.2f} us, 1/beta {1e-9 / max(network.beta, 1e-15):.2f} GB/s, "
        f"1/gamma {1e-9 / network.gamma:.2f} GB/s",
        "",
        f"Models on {options.model:,} ranks, in microseconds",
        "",
        "| bytes | " + " | ".join(models(network, options.model, 4)) + " |",
        "|---:|" + "---:|" * len(models(network, options.model, 4)),
    ]
    for size, _ in rows:
        times = models(network, options.model, size).values()
        lines.append(f"| {size:,} | " + " | ".join(f"{t * 1e6:,.1f}" for t in times) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="mpiexec -n P python -m benchmarks.mpi_all_reduce", description=__doc__
    )
    parser.add_argument("--reduction", default="ordered", choices=("ordered", "any"), help="of xlakit's program")
    parser.add_argument("--largest", type=int, default=_SIZES[-1], help="bytes of the largest message")
    parser.add_argument("--seconds", type=float, default=0.3, help="about so long for each number")
    parser.add_argument("--model", type=int, default=1000, help="of how many ranks the models are")
    options = parser.parse_args(arguments)
    from xlakit.distributed.mpi import is_launched

    if not is_launched():
        print("start it with a launcher: mpiexec -n 4 python -m benchmarks.mpi_all_reduce", file=sys.stderr)
        return 2
    rows, network = measure(options)
    cluster = distributed.initialize()
    if cluster.process_index == 0:
        print(report(rows, network, cluster.process_count, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
