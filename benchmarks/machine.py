"""The machine: its threads, its memory bandwidth, its rate of matrix products."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("xlakit", "jax", "jaxlib", "torch", "numpy", "scipy", "llvmlite")
# Larger than any cache, and a matrix that keeps every core busy.
_COPIED = 1 << 28
_MATRIX = 2048


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that a report was made on.

    bandwidth: bytes read and written a second. flops: operations a second of a float32 product.
    load: how many threads of others wanted to run just before.
    """

    processor: str
    system: str
    threads: int
    bandwidth: float
    flops: float
    load: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)


def threads() -> int:
    """How many threads each peer gets: the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def limit_threads(count: int | None) -> int:
    """Let this process, and all that it loads from now on, use so many processors; gives how many those are.

    To be called before NumPy is imported: the libraries count processors when they are loaded.
    """
    if count is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])
    number = str(threads())
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC"):
        os.environ[variable] = number
    return int(number)


def describe(*, measure: bool = True) -> Machine:
    """This machine; without ``measure``, rates are 0."""
    return Machine(
        processor=_processor(),
        system=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        threads=threads(),
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
        bandwidth=copy_bandwidth(threads()) if measure else 0.0,
        flops=sgemm_rate() if measure else 0.0,
        versions=_versions(),
    )


def copy_bandwidth(workers: int) -> float:
    """Bytes read and written a second by a copy that each thread does a part of."""
    import numpy as np

    source = np.ones(_COPIED // 8)
    target = np.zeros_like(source)
    parts = list(zip(np.array_split(target, workers), np.array_split(source, workers), strict=True))
    with ThreadPoolExecutor(workers) as pool:
        # NumPy lets other threads run while it copies.
        seconds = _best(lambda: list(pool.map(lambda part: np.copyto(*part), parts)))
    return 2 * _COPIED / seconds


def sgemm_rate() -> float:
    """Operations a second of NumPy's float32 matrix product."""
    import numpy as np

    x = np.ones((_MATRIX, _MATRIX), np.float32)
    result = np.empty_like(x)
    return 2 * _MATRIX**3 / _best(lambda: np.matmul(x, x, out=result))


def _best(work: Callable[[], object], repeat: int = 7) -> float:
    times: list[float] = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
