"""The description of the machine: threads, caches, rates and costs, from which the compiler's choices derive.

A description consists of what the operating system reports (threads, sizes of caches) and of measurements, which
``xlakit machine --measure`` makes (:mod:`xlakit.cpu.measuring`). They are kept in the compile cache, by processor. What
was not measured comes from a table by family of processors. ``XLAKIT_MACHINE=FILE`` names another description, as
``xlakit machine --describe FILE`` writes it; fields that it lacks are those of this machine. A wrong description
costs time and never changes a result, except for the order in which sums are added.

Sizes of blocks, strips and tasks derive from it: ``knob("gemm.sliver_bytes", lambda: current().l1, ...)``, and the
cost model (:mod:`xlakit.passes.analysis.cost_model`) takes its rates.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from xlakit import compile_cache, options
from xlakit.dataclass import dataclass
from xlakit.errors import ArgumentError, FormatError

VARIABLE = "XLAKIT_MACHINE"
_HINT = "xlakit machine --describe FILE writes one"
# Increase this number when machines should be measured again.
_FORMAT = "4"
_CPUS = Path("/sys/devices/system/cpu")
_CPUINFO = Path("/proc/cpuinfo")
# The fields of Linux's list that identify a processor, on x86 and on Arm.
_TELLING = frozenset(
    [
        "vendor_id",
        "cpu family",
        "model",
        "model name",
        "stepping",
        "flags",
        "Features",
        "CPU implementer",
        "CPU architecture",
        "CPU variant",
        "CPU part",
        "CPU revision",
    ]
)
_KIB: Final = 1 << 10
# The bytes of the first-level data cache, the second-level and the last-level cache, by family: most processors of the
# last ten years have at least these.
_CACHES = {"x86": (32 * _KIB, 512 * _KIB, 16384 * _KIB), "arm": (64 * _KIB, 512 * _KIB, 8192 * _KIB)}
# Rates that are used if they were not measured, by family and by the names in ``measured``: the nanoseconds of a cycle;
# fused multiply-adds, products of BF16 by the instruction for pairs of them, bytes read from each cache and from
# memory, and bytes copied, per nanosecond; the nanoseconds of a page fault. They are those of desktop and server
# processors with vectors of 32 bytes on x86, of 16 on Arm. Products by pairs of BF16 take Intel's processors twice as
# long as those of F32 (measured); AMD's take one instruction for pairs in the time of one for F32 (not measured here).
_RATES: dict[str, Mapping[str, float]] = {
    "x86": {
        "cycle_nanoseconds": 0.25,
        "fused_per_nanosecond_f32": 64.0,
        "fused_per_nanosecond_f64": 32.0,
        "bf16_products_per_nanosecond": 32.0,
        "read_bytes_per_nanosecond_l1": 100.0,
        "read_bytes_per_nanosecond_l2": 50.0,
        "read_bytes_per_nanosecond_l3": 20.0,
        "read_bytes_per_nanosecond_memory": 10.0,
        "copy_bytes_per_nanosecond_one_thread": 5.0,
        "copy_bytes_per_nanosecond_all_threads": 10.0,
        "page_fault_nanoseconds": 500.0,
    },
}
_RATES["amd"] = {**_RATES["x86"], "bf16_products_per_nanosecond": 128.0}
_RATES["arm"] = {**_RATES["x86"], "fused_per_nanosecond_f32": 32.0, "fused_per_nanosecond_f64": 16.0}
# To wake a thread that waits in the kernel: two switches, and cache lines that another core has written.
_WAKE_NANOSECONDS = 10_000.0


@dataclass(frozen=True, slots=True)
class Machine:
    """The properties of a machine that generated code depends on.

    threads: the processors that this process may run on. l1, l2: the bytes of a core's data caches. l3: the bytes of
    the last-level cache, which cores share; those of the second level if there is no third. wake_nanoseconds: the time
    from waking a thread that sleeps until it runs. processor: its name. vector_bytes: the width of its vectors; 0 if it
    is not known. unit_bytes: the part of a vector that an arithmetic unit takes at once, where vectors are executed as
    several operations; 0 where a vector is one. extensions: of its instruction set, by LLVM's names. measured: measured
    rates, by names that say their units; :meth:`rate` gives them.
    """

    threads: int
    l1: int
    l2: int
    l3: int
    wake_nanoseconds: float = _WAKE_NANOSECONDS
    processor: str = ""
    vector_bytes: int = 0
    unit_bytes: int = 0
    extensions: tuple[str, ...] = ()
    measured: Mapping[str, float] = field(default_factory=dict[str, float])

    def rate(self, name: str) -> float:
        """A number of ``measured``, or of the table if it was not measured."""
        is_amd = _identity().get("vendor_id") == "AuthenticAMD"
        return self.measured.get(name) or _RATES["amd" if is_amd else _family()][name]

    @property
    def cycle(self) -> float:
        """The nanoseconds of a cycle."""
        return self.rate("cycle_nanoseconds")

    def bandwidth(self, bytes: float) -> float:
        """The bytes per nanosecond that a core reads of so many bytes repeatedly: of the cache that they fit into."""
        for name in ("l1", "l2", "l3"):
            if bytes <= getattr(self, name):
                return self.rate(f"read_bytes_per_nanosecond_{name}")
        return self.rate("read_bytes_per_nanosecond_memory")

    @property
    def text(self) -> str:
        """The fields that code depends on, as part of the keys of the compile cache."""
        sizes = (self.threads, self.l1, self.l2, self.l3, self.wake_nanoseconds, self.unit_bytes)
        return f"{sizes} {sorted(self.measured.items())}"

    def as_text(self) -> str:
        """The description as JSON."""
        fields: dict[str, Any] = {
            "processor": self.processor,
            "vector_bytes": self.vector_bytes,
            "unit_bytes": self.unit_bytes,
            "extensions": list(self.extensions),
            "threads": self.threads,
            "caches": {"l1": self.l1, "l2": self.l2, "l3": self.l3},
            "wake_nanoseconds": self.wake_nanoseconds,
            "measured": dict(self.measured),
        }
        return json.dumps(fields, indent=2)

    @staticmethod
    def from_text(text: str, source: str) -> Machine:
        """A description from JSON; missing fields are those of this machine. Raises FormatError for other texts."""
        try:
            given = json.loads(text)
            if not isinstance(given, dict):
                raise ValueError("it is no object")
            return _from_fields(given)  # pyright: ignore[reportUnknownArgumentType]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"{source} is no description of a machine: {error}", hint=_HINT) from None


def _from_fields(given: Mapping[str, Any]) -> Machine:
    mine = own()
    caches = given.get("caches", {})
    made = Machine(
        int(given.get("threads", mine.threads)),
        *(int(caches.get(name, getattr(mine, name))) for name in ("l1", "l2", "l3")),
        wake_nanoseconds=float(given.get("wake_nanoseconds") or _WAKE_NANOSECONDS),
        processor=str(given.get("processor", mine.processor)),
        vector_bytes=int(given.get("vector_bytes", 0)),
        unit_bytes=int(given.get("unit_bytes", mine.unit_bytes)),
        extensions=tuple(map(str, given.get("extensions", ()))),
        measured={str(name): float(number) for name, number in given.get("measured", {}).items()},
    )
    if min(made.l1, made.l2, made.l3, made.threads, made.unit_bytes + 1) < 1 or not 0 < made.wake_nanoseconds < 1e9:
        raise ValueError("sizes, threads and times are positive")
    if not all(0 < rate < 1e12 for rate in made.measured.values()):
        raise ValueError("what was measured is positive")
    return made


# -- the current description -------------------------------------------------------------------------

# The descriptions that this process has measured or read, by the environment's compile cache and the level of code.
_known: dict[tuple[str, str, str], Machine] = {}


def current() -> Machine:
    """The machine that code is compiled for. Raises ArgumentError or FormatError for an invalid file."""
    path = os.environ.get(VARIABLE)
    return _of_file(path) if path else _kept()


def is_given() -> bool:
    """Whether the environment names a description; then nothing is measured."""
    return bool(os.environ.get(VARIABLE))


@lru_cache(maxsize=8)
def _of_file(path: str) -> Machine:
    try:
        return Machine.from_text(Path(path).read_text(), path)
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{VARIABLE} names {path!r}, which cannot be read: {error}", hint=_HINT) from None


def _kept() -> Machine:
    settings = _cache_settings()
    found = _known.get(settings)
    if found is None:
        entry = compile_cache.load(_key(settings[2]))
        found = own() if entry is None else Machine.from_text(str(entry.fields.get("machine")), "the compile cache")
        _known[settings] = found
    return found


def store(found: Machine) -> Machine:
    """Use a description from now on, in this process and, through the compile cache, in others."""
    settings = _cache_settings()
    _known[settings] = found
    if compile_cache.is_enabled():
        compile_cache.save(_key(settings[2]), compile_cache.Entry({"machine": found.as_text()}, {}))
    return found


def _cache_settings() -> tuple[str, str, str]:
    # Every knob that depends on the machine calls this function: to make a path would take longer than all else.
    environment = os.environ
    return environment.get("XLAKIT_CACHE", ""), environment.get("XLAKIT_CACHE_DIR", ""), options.current().cpu


@cache
def _key(level: str) -> str:
    """The compile cache's key of the description of this machine, for code of an instruction set level."""
    parts = (str(dict(_identity())), level, own().text, _FORMAT)
    return "machine-" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]


# -- what the operating system reports ---------------------------------------------------------------


@cache
def own() -> Machine:
    """This machine, without measurements."""
    found = _of_linux() or _of_macos()
    l1, l2, l3 = (known or usual for known, usual in zip(found or (0, 0, 0), _CACHES[_family()], strict=True))
    name = _identity().get("model name") or platform.machine()
    return Machine(_threads(), l1, l2, max(l2, l3), processor=name, unit_bytes=_unit_bytes())


@cache
def _family() -> str:
    return "arm" if platform.machine().lower() in ("aarch64", "arm64") else "x86"


def _unit_bytes() -> int:
    """``Machine.unit_bytes``: first and second generation Zen processors have units of 16 bytes and vectors of 32."""
    vendor, family, model = (_identity().get(name, "") for name in ("vendor_id", "cpu family", "model"))
    is_split = vendor == "HygonGenuine" or (vendor == "AuthenticAMD" and family == "23" and int(model or 255) < 0x30)
    return 16 if is_split else 0


def _threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _identity() -> Mapping[str, str]:
    """The fields that the system reports and that identify this processor."""
    found = {"machine": platform.machine()}
    try:
        with _CPUINFO.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if not line.strip() and len(found) > 1:
                    # The next processor is like this one.
                    break
                if name.strip() in _TELLING:
                    found[name.strip()] = value.strip()
    except OSError:
        # Not Linux.
        found["processor"] = platform.processor()
    return MappingProxyType(found)


def _of_linux() -> tuple[int, int, int] | None:
    """The caches of a processor that this process may run on; 0 for a size that the system does not report."""
    number = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    sizes = [0, 0, 0]
    for index in (_CPUS / f"cpu{number}" / "cache").glob("index*"):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
            if kind != "Instruction" and 1 <= int(level) <= 3:
                sizes[int(level) - 1] = int(size.removesuffix("K")) * _KIB
        except (OSError, ValueError):
            # The system does not report this cache.
            continue
    return (sizes[0], sizes[1], sizes[2]) if any(sizes) else None


def _of_macos() -> tuple[int, int, int] | None:
    """The caches that `sysctl` reports, of the faster kind if there are two. Checked with its manual, but not run."""
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
