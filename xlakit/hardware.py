"""What is known of the machine before anything is measured: how many threads it runs, and how large its caches are.

Sizes of blocks, strips and tasks derive from it: ``knob("gemm.sliver_bytes", lambda: current().l1 // 2, ...)``. The
system tells them; where it does not, a table by instruction set serves, of what most processors of the last ten years
have at least. A description of another machine (``XLAKIT_MACHINE=FILE``) has its own: a wrong one costs time and never
changes a result, but for the order in which sums are added. All of it is in the keys of the compile cache.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from xlakit.errors import ArgumentError, FormatError

VARIABLE = "XLAKIT_MACHINE"
_HINT = "xlakit machine --describe FILE writes one"
_CPUS = Path("/sys/devices/system/cpu")
_KIB = 1 << 10
# Sizes of the first cache for data, the second and the last one, by the instruction set that `platform.machine` names.
_TABLE = {"x86": (32 * _KIB, 512 * _KIB, 16384 * _KIB), "arm": (64 * _KIB, 512 * _KIB, 8192 * _KIB)}
# Waking a thread that waits in the kernel: two switches, and a cache that another core has written to.
_WAKE_NANOSECONDS = 10_000.0


@dataclass(frozen=True, slots=True)
class Hardware:
    """A machine, as far as code depends on it.

    threads: processors that this process may run on. l1, l2: bytes of a core's caches for data. l3: bytes of the last
    cache, which cores share; where there is no third one, the second's. wake_nanoseconds: from when a thread that
    sleeps is woken until it runs.
    """

    threads: int
    l1: int
    l2: int
    l3: int
    wake_nanoseconds: float = _WAKE_NANOSECONDS

    @property
    def text(self) -> str:
        """All of it, as keys of the compile cache have it."""
        return " ".join(map(str, asdict(self).values()))


def current() -> Hardware:
    """The machine that code is made for. Raises ArgumentError or FormatError for a bad file."""
    path = os.environ.get(VARIABLE)
    return _of_file(path) if path else own()


def description() -> str:
    """All that a file says of the machine, as keys of the compile cache have it; empty where none is named."""
    path = os.environ.get(VARIABLE)
    return json.dumps(read(path)) if path else ""


@lru_cache(maxsize=8)
def _of_file(path: str) -> Hardware:
    return from_fields(read(path), path)


@lru_cache(maxsize=8)
def read(path: str) -> Mapping[str, Any]:
    """The fields of a description in a file. Raises ArgumentError or FormatError where there are none."""
    try:
        return parse(Path(path).read_text(), path)
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{VARIABLE} names {path!r}, which cannot be read: {error}", hint=_HINT) from None


def parse(text: str, source: str) -> Mapping[str, Any]:
    """The fields of a description. Raises FormatError where the text is none."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise FormatError(f"{source} is no description of a machine: {error}", hint=_HINT) from None
    if not isinstance(found, dict):
        raise FormatError(f"{source} is no description of a machine: it is no object", hint=_HINT)
    return found


def from_fields(fields: Mapping[str, Any], source: str) -> Hardware:
    """The machine of a description; what that does not say is as here. Raises FormatError where it says nonsense."""
    mine = own()
    try:
        caches = fields.get("caches", {})
        l1, l2, l3 = (int(caches.get(name, getattr(mine, name))) for name in ("l1", "l2", "l3"))
        threads = int(fields.get("threads", mine.threads))
        wake = float(fields.get("wake_nanoseconds") or _WAKE_NANOSECONDS)
        if min(l1, l2, l3, threads) < 1 or not 0 < wake < 1e9:
            raise ValueError("sizes, threads and times are positive")
    except (ValueError, TypeError, AttributeError) as error:
        raise FormatError(f"{source} is no description of a machine: {error!r}", hint=_HINT) from None
    return Hardware(threads, l1, l2, l3, wake)


@cache
def own() -> Hardware:
    """This machine."""
    found = _of_linux() or _of_macos()
    kind = "arm" if platform.machine().lower() in ("aarch64", "arm64") else "x86"
    l1, l2, l3 = (known or usual for known, usual in zip(found or (0, 0, 0), _TABLE[kind], strict=True))
    return Hardware(_threads(), l1, l2, max(l2, l3))


def _threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _of_linux() -> tuple[int, int, int] | None:
    """The caches of a processor that this process may run on; 0 where the system does not tell."""
    number = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    sizes = [0, 0, 0]
    for index in (_CPUS / f"cpu{number}" / "cache").glob("index*"):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
            if kind != "Instruction" and 1 <= int(level) <= 3:
                sizes[int(level) - 1] = int(size.removesuffix("K")) * _KIB
        except (OSError, ValueError):
            # This one is not told of.
            continue
    return (sizes[0], sizes[1], sizes[2]) if any(sizes) else None


def _of_macos() -> tuple[int, int, int] | None:
    """What `sysctl` tells: of processors of two kinds, the faster one's. Read against its manual, not run."""
    if platform.system() != "Darwin":
        return None
    import ctypes

    ask: Callable[..., int] = ctypes.CDLL(None).sysctlbyname

    def size_of(name: str) -> int:
        value, length = ctypes.c_int64(0), ctypes.c_size_t(8)
        failed = ask(f"hw.{name}".encode(), ctypes.byref(value), ctypes.byref(length), None, 0)
        return 0 if failed else value.value

    l1, l2 = (size_of(f"perflevel0.{n}") or size_of(n) for n in ("l1dcachesize", "l2cachesize"))
    return l1, l2, size_of("l3cachesize")
