"""``python -m benchmarks.collective_matmul``: products of gathered arrays and scattered sums of products, in steps.

Starts processes of one device, each in a network namespace whose link has a limited bandwidth (``--rate``; needs root,
ip and tc), on xlakit and on jaxlib's CPU (Gloo), which take turns. A row is a program; printed are milliseconds of a
call with the collective and the product one after the other, in steps beside which data move, and as the cost model
chooses; then those of jaxlib, and the medians of the rounds' ratios. ``--devices 8`` measures in one process instead,
whose devices share the processors: there the cost model never chooses steps.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from functools import cache
from typing import Any, Final

import numpy as np

from benchmarks.programs.jax_jobs import Job
from benchmarks.programs.limited_links import LimitedLinks

KINDS: Final = ("gathered rows", "gathered weights", "scattered sums")
# The values of the knob collective_matmul.when.
_WAYS: Final = {"one after the other": 0, "in steps": 2, "as chosen": 1}
_ANSWER: Final = "benchmarks.collective_matmul:answer"


@cache
def _call(kind: str, size: int) -> Callable[[], Any]:
    """A program on square matrices: x[size, size] in rows, or sums of parts, and a weight."""
    import jax
    from jax import lax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("x",))
    rows, whole = PartitionSpec("x"), PartitionSpec()
    body, specs = {
        "gathered rows": (lambda x, w: lax.all_gather(x, "x", tiled=True) @ w, (rows, whole)),
        "gathered weights": (lambda x, w: x @ lax.all_gather(w, "x", tiled=True), (rows, rows)),
        "scattered sums": (lambda x, w: lax.psum_scatter(x @ w, "x", tiled=True), (whole, whole)),
    }[kind]
    result = whole if kind == "gathered rows" else rows
    values = np.random.default_rng(1).standard_normal((2, size, size)).astype(np.float32)

    def put(value: Any, spec: Any) -> Any:
        return jax.make_array_from_callback(value.shape, NamedSharding(mesh, spec), lambda index: value[index])

    x, w = map(put, values, specs)
    program = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=result, check_vma=False))
    return lambda: program(x, w)


def answer(kind: str, size: int, calls: int) -> tuple[float, int]:
    """Milliseconds of a call, and a number that tells the bits of the result."""
    import zlib

    call = _call(kind, size)
    found = call().block_until_ready()
    start = time.perf_counter()
    for _ in range(calls):
        found = call().block_until_ready()
    seconds = (time.perf_counter() - start) / calls
    bits = [np.asarray(shard.data).tobytes() for shard in found.addressable_shards]
    return seconds * 1e3, zlib.crc32(b"".join(bits))


def _rows(jobs: dict[str, Job], sizes: Sequence[int], rounds: int, calls: int) -> None:
    print("| program | size | one after the other | in steps | as chosen | jaxlib | steps / other | chosen / other |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for kind in KINDS:
        for size in sizes:
            times: dict[str, list[float]] = {way: [] for way in jobs}
            bits: dict[str, Any] = {}
            for _ in range(rounds):
                for way, job in jobs.items():
                    answers = job.ask(kind, size, calls)
                    times[way].append(max(milliseconds for milliseconds, _ in answers))
                    bits[way] = [own for _, own in answers]
            base = times["one after the other"]
            ratios = [statistics.median(a / b for a, b in zip(times[w], base, strict=True)) for w in list(_WAYS)[1:]]
            same = bits["in steps"] == bits["one after the other"] == bits["as chosen"]
            numbers = " | ".join(f"{statistics.median(own):.1f}" for own in times.values())
            marks = " | ".join(f"{ratio:.2f}" for ratio in ratios)
            print(f"| {kind} | {size} | {numbers} | {marks} |" + " other bits" * (not same), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m benchmarks.collective_matmul", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--devices", type=int, default=1, help="of a process; above 1 there is one process")
    parser.add_argument("--rate", default="400mbit", help="of each link, as tc's tbf takes it")
    parser.add_argument("--sizes", type=lambda text: list(map(int, text.split(","))), default=[512, 1024])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=3)
    options = parser.parse_args(arguments)
    processes = 1 if options.devices > 1 else options.processes
    links = LimitedLinks(processes, options.rate) if processes > 1 else nullcontext()
    with links:
        where: dict[str, Any] = (
            {} if isinstance(links, nullcontext) else {"host": links.host, "prefixes": links.prefixes}
        )
        with ExitStack() as stack:

            def begun(platform: str, settings: dict[str, str]) -> Job:
                return stack.enter_context(Job(_ANSWER, platform, processes, options.devices, settings, **where))

            jobs = {way: begun("xlakit", {"XLAKIT_KNOBS": f"collective_matmul.when={n}"}) for way, n in _WAYS.items()}
            jobs["jaxlib"] = begun("jaxlib", {})
            print(f"{processes} processes, devices of each: {options.devices}; milliseconds of a call, medians")
            _rows(jobs, options.sizes, options.rounds, options.calls)
    return 0


if __name__ == "__main__":
    sys.exit(main())
