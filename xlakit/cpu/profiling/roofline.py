"""The roofline model: the least time of some work, from the machine's peak rate and its bandwidths."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.machine import Machine
from xlakit.passes.analysis.cost import Cost

# The number of fused multiply-adds that an elementary function takes for one lane, as in the cost model.
_TRANSCENDENTAL = 44.8


class Bound(NamedTuple):
    """The least time of some work in nanoseconds, and the limiting resource: ``compute``, ``memory``, or none."""

    nanoseconds: float
    by: str


@dataclass(frozen=True, slots=True)
class Roofline:
    """The rates of a machine's description, on all threads that a program may use.

    Arrays that fit into a cache are read at the bandwidth of that cache; larger ones at that of memory, which is the
    larger of one thread's reads and all threads' copies.
    """

    machine: Machine
    threads: int

    def least(self, cost: Cost, kind: PrimitiveType) -> Bound:
        """The least time of work on elements of a type. Types of up to 32 bits count as F32, others as F64."""
        fused = self.machine.rate(f"fused_per_nanosecond_{'f64' if kind.byte_width > 4 else 'f32'}") * self.threads
        compute = (cost.flops / 2 + cost.transcendentals * _TRANSCENDENTAL) / fused
        memory = cost.bytes_accessed / self.bandwidth(cost.bytes_accessed)
        if not compute and not memory:
            return Bound(0.0, "")
        return Bound(compute, "compute") if compute >= memory else Bound(memory, "memory")

    def as_dict(self) -> dict[str, Any]:
        """The roofs for JSON: operations per nanosecond by type, bytes per nanosecond by cache, and operations of an
        elementary function. A fused multiply-add is two operations.
        """
        machine = self.machine
        rates = {name: 2 * machine.rate(f"fused_per_nanosecond_{name}") * self.threads for name in ("f32", "f64")}
        caches = {name: self.threads * machine.rate(f"read_bytes_per_nanosecond_{name}") for name in ("l1", "l2", "l3")}
        return {
            "flops_per_nanosecond": rates,
            "bytes_per_nanosecond": {**caches, "memory": self.bandwidth(math.inf)},
            "flops_per_transcendental": 2 * _TRANSCENDENTAL,
        }

    def bandwidth(self, bytes: float) -> float:
        """Bytes per nanosecond for moving an amount of data of ``bytes`` bytes."""
        if bytes <= self.machine.l3:
            return self.machine.bandwidth(bytes / self.threads) * self.threads
        copied = self.machine.rate("copy_bytes_per_nanosecond_all_threads")
        return max(2 * copied, self.machine.rate("read_bytes_per_nanosecond_memory"))
