"""``python -m benchmarks.jax_processes``: times collectives between processes in JAX.

Starts the same processes twice, on xlakit and on jaxlib's CPU (with Gloo), and lets the two jobs take turns; the one
that does not run waits for its input. A row is a program of one collective over all devices, called and waited for,
in microseconds: the least of all rounds, and the median over the rounds of xlakit's time by jaxlib's.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from benchmarks.programs.jax_jobs import Job

KINDS: Final = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute", "nothing")
SIZES: Final = (4, 4096, 65536, 1 << 20, 1 << 24)
_CALLS: Final = 400
_ANSWER: Final = "benchmarks.jax_processes:measure"


def _body(kind: str, count: int) -> Callable[[Any], Any]:
    from jax import lax

    return {
        "all-reduce": lambda x: lax.psum(x, "x"),
        "all-gather": lambda x: lax.all_gather(x, "x", tiled=True),
        "reduce-scatter": lambda x: lax.psum_scatter(x, "x", tiled=True),
        "all-to-all": lambda x: lax.all_to_all(x, "x", 0, 0, tiled=True),
        "permute": lambda x: lax.ppermute(x, "x", [(i, (i + 1) % count) for i in range(count)]),
        "nothing": lambda x: x + 1,
    }[kind]


@cache
def _call(kind: str, size: int) -> Callable[[], Any]:
    """A program of one collective, whose operand has ``size`` bytes on each device."""
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices = jax.devices()
    mesh = Mesh(np.array(devices), ("x",))
    spec = PartitionSpec("x")
    length = max(size // 4, len(devices))
    sharding = NamedSharding(mesh, spec)
    shape = (length * len(devices),)
    x = jax.make_array_from_callback(shape, sharding, lambda index: np.ones(length, np.float32))
    program = jax.jit(
        jax.shard_map(_body(kind, len(devices)), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    )
    return lambda: program(x).block_until_ready()


def measure(kind: str, size: int, seconds: float) -> float:
    """Seconds of a call, on the average of as many as all processes make."""
    call = _call(kind, size)
    call()
    # The number of calls must be the same in all processes.
    calls = max(2, min(_CALLS, int(seconds * 1e9 / (2e5 + 2 * size))))
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m benchmarks.jax_processes", description=(__doc__ or "").split("\n\n", 1)[0]
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--devices", type=int, default=1, help="of each process")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1, help="about so long for each number")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS), help=", ".join(KINDS))
    parser.add_argument("--sizes", type=lambda text: list(map(int, text.split(","))), default=list(SIZES))
    options = parser.parse_args(arguments)
    print(f"{options.processes} processes, devices of each: {options.devices}; microseconds of a call")
    print("| collective | bytes | xlakit | jaxlib | xlakit / jaxlib |\n|---|---:|---:|---:|---:|")
    with (
        Job(_ANSWER, "xlakit", options.processes, options.devices) as ours,
        Job(_ANSWER, "jaxlib", options.processes, options.devices) as theirs,
    ):
        for kind in options.kinds:
            for size in options.sizes:
                rounds = [
                    [max(job.ask(kind, size, options.seconds)) for job in (ours, theirs)] for _ in range(options.rounds)
                ]
                least = [min(times) * 1e6 for times in zip(*rounds, strict=True)]
                ratio = statistics.median(a / b for a, b in rounds)
                print(f"| {kind} | {size:,} | {least[0]:,.0f} | {least[1]:,.0f} | {ratio:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
