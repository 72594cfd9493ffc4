"""``python -m benchmarks.collectives``: collectives between devices of one process, xlakit and XLA in turns.

Each row is one collective of one size on as many devices, with arguments in place: a call to the end of its results.
XLA runs the same on as many devices of its CPU backend (``--xla_force_host_platform_device_count``), by
``jax.jit(jax.shard_map(...))``. Both are checked against NumPy first. Times are medians of samples that are taken by
turns; the last line is the geometric mean of their ratios.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import limit_threads

SIZES = (4, 64, 1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20)
_SAMPLE_SECONDS = 5e-3
_WARM_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Case:
    """A collective on arrays of so many bytes: each device's operand, or for all-gather each device's result."""

    name: str
    bytes: int
    devices: int

    @property
    def kind(self) -> Any:
        """The element type: floats, or bytes where a float does not divide between devices."""
        whole = self.bytes >= (4 if self.name == "all-reduce" else 4 * self.devices)
        return np.dtype(np.float32 if whole else np.uint8)

    @property
    def elements(self) -> int:
        """How many elements each device brings."""
        count = self.bytes // self.kind.itemsize
        return count // self.devices if self.name == "all-gather" else count

    def arguments(self) -> list[Any]:
        """An array for each device."""
        rng = np.random.default_rng(self.bytes)
        return [rng.integers(0, 50, self.elements).astype(self.kind) for _ in range(self.devices)]

    def expected(self, arguments: Sequence[Any]) -> list[Any]:
        """What each device gets."""
        if self.name == "all-reduce":
            return [sum(arguments[1:], arguments[0])] * self.devices
        if self.name == "all-gather":
            return [np.concatenate(arguments)] * self.devices
        blocks = [np.split(a, self.devices) for a in arguments]
        return [np.concatenate([b[i] for b in blocks]) for i in range(self.devices)]


# What runs a case once, to the end, and the arrays that it has made.
Prepared = tuple[Callable[[], Any], Callable[[Any], list[Any]]]


def prepare_xlakit(case: Case, arguments: Sequence[Any]) -> Prepared:
    """The case on xlakit's devices."""
    import xlakit as xla

    builder = xla.XlaBuilder(case.name.replace("-", "_"))
    x = xla.parameter(builder, 0, xla.make_shape(case.kind, [case.elements]), "x")
    if case.name == "all-reduce":
        root = xla.all_reduce(x, xla.add)
    elif case.name == "all-gather":
        root = xla.all_gather(x, 0, case.devices)
    else:
        root = xla.all_to_all(x, 0, 0, case.devices)
    executable = xla.compile(builder.build(root), num_replicas=case.devices)
    given = [[a] for a in arguments]
    return lambda: executable.execute_replicated(given), list


def prepare_xla(case: Case, arguments: Sequence[Any]) -> Prepared:
    """The case on the devices of XLA's CPU backend."""
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()[: case.devices]), ("i",))
    spec = PartitionSpec("i")

    def program(x: Any) -> Any:
        if case.name == "all-reduce":
            return jax.lax.psum(x, "i")
        if case.name == "all-gather":
            return jax.lax.all_gather(x, "i", tiled=True)
        return jax.lax.all_to_all(x, "i", 0, 0, tiled=True)

    mapped = jax.jit(jax.shard_map(program, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
    given = jax.device_put(np.concatenate(arguments), NamedSharding(mesh, spec))
    call = mapped.lower(given).compile()
    return lambda: call(given).block_until_ready(), lambda result: np.split(np.asarray(result), case.devices)


def _once(run: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count


def measure(case: Case, rounds: int, seconds: float) -> dict[str, float]:
    """The median time of each peer; raises ValueError where a result is wrong."""
    arguments = case.arguments()
    expected = case.expected(arguments)
    peers = {"xlakit": prepare_xlakit(case, arguments), "xla": prepare_xla(case, arguments)}
    runs: dict[str, Callable[[], Any]] = {}
    counts: dict[str, int] = {}
    for name, (run, fetch) in peers.items():
        made = fetch(run())
        if not all(np.array_equal(a, e) for a, e in zip(made, expected, strict=True)):
            raise ValueError(f"{name} gives a wrong {case.name} of {case.bytes} bytes")
        del made
        runs[name] = run
        estimate = min(_once(run, 1) for _ in range(3))
        counts[name] = max(1, math.ceil(_SAMPLE_SECONDS / estimate))
        _once(run, max(1, min(200, int(_WARM_SECONDS / estimate))))
    samples: dict[str, list[float]] = {name: [] for name in runs}
    start = time.perf_counter()
    for number in range(rounds):
        if number >= 3 and time.perf_counter() - start > seconds:
            break
        for name in sorted(runs, reverse=bool(number % 2)):
            samples[name].append(_once(runs[name], counts[name]))
    return {name: statistics.median(found) for name, found in samples.items()}


def _size(count: int) -> str:
    for unit, name in ((1 << 20, "MB"), (1 << 10, "KB")):
        if count >= unit:
            return f"{count // unit} {name}"
    return f"{count} B"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 where a result was wrong."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m benchmarks.collectives", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--devices", type=int, default=4, help="how many (4)")
    parser.add_argument("--rounds", type=int, default=30, help="samples of each peer (30)")
    parser.add_argument("--budget", type=float, default=10, help="seconds for a row (10)")
    parser.add_argument("--only", default="", help="one of all-reduce, all-gather, all-to-all")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="the largest size in bytes (64 MB)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the numbers go as JSON")
    options = parser.parse_args(arguments)
    # Before JAX is loaded.
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={options.devices}".strip()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    limit_threads(None)
    rows: list[dict[str, Any]] = []
    print(f"| collective | size | xlakit | XLA | ratio |\n|{'---|' * 5}")
    for name in ("all-reduce", "all-gather", "all-to-all"):
        for size in (s for s in SIZES if s <= options.most and options.only in ("", name)):
            times = measure(Case(name, size, options.devices), options.rounds, options.budget)
            ratio = times["xlakit"] / times["xla"]
            rows.append({"collective": name, "bytes": size, **times, "ratio": ratio})
            cells = (name, _size(size), *(f"{times[peer] * 1e6:,.1f} us" for peer in ("xlakit", "xla")), f"{ratio:.2f}")
            print(f"| {' | '.join(cells)} |", flush=True)
    mean = math.exp(statistics.fmean(math.log(row["ratio"]) for row in rows))
    print(f"\n{options.devices} devices; geometric mean of the ratios: {mean:.3f}")
    if options.output is not None:
        options.output.write_text(json.dumps({"devices": options.devices, "mean": mean, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    faulthandler.enable()
    sys.exit(main())
