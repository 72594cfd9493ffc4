"""The cost model: the time of operations and memory traffic on one core, in nanoseconds.

Fusion compares the time of computing an element again with that of storing it; loop nests and kernels divide their work
into tasks by the time of an iteration. A :class:`CostModel` belongs to one machine. A scalar operation costs cycles, an
operation in a lane of a vector the time of so many fused multiply-adds; memory traffic costs bytes at the bandwidth of
the cache that the arrays fit into, but no less than the time in which a core issues the loads. Numbers of cycles are
properties of operations and kernels, listed here or in the kernel's formula; rates are measured on the machine
(:mod:`xlakit.machine`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from xlakit import machine
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.ir.operation import Op
from xlakit.ir.traits import Expensive
from xlakit.machine import Machine
from xlakit.options import knob


class OperationCost(NamedTuple):
    """The cost of an operation on one element of 32 bits.

    alone: as scalar code in a loop. in_vector: as one lane of a vector.
    """

    alone: float
    in_vector: float


# ``alone`` in cycles, ``in_vector`` in fused multiply-adds of F32.
_OPERATIONS: Final = {
    "power": OperationCost(16.0, 128.0),
    "divide": OperationCost(2.4, 16.0),
    "remainder": OperationCost(8.0, 64.0),
    "sqrt": OperationCost(2.8, 19.2),
    "rsqrt": OperationCost(3.6, 25.6),
    "cbrt": OperationCost(12.0, 128.0),
    "atan2": OperationCost(12.0, 128.0),
}
# Expensive operations that the table leaves out, and all others.
_ELEMENTARY: Final = OperationCost(4.0, 44.8)
_PLAIN: Final = OperationCost(0.48, 3.2)
# Cycles per byte in which a core issues loads, or loads and stores, of single elements (vectors are faster).
_LOADED_BYTE: Final = 0.2
_COPIED_BYTE: Final = 0.24
_MOVED_BYTE: Final = 0.4
# The transfers of an array that does not stay in the cache: read for ownership when it is written, written back, and
# read again.
_TRANSFERS: Final = 3.0
# The time of one multiply-add of a matrix product, with packing and remainders of loops, in fused multiply-adds.
_MULTIPLICATION: Final = 3.2
# The time of a call of an external C function in nanoseconds: an assumption, as its real time is unknown.
C_CALL: Final = 20_000.0

_CACHE_BYTES = knob("fusion_cost.cache_bytes", lambda: machine.current().l2, 0)
# The overhead of a separate kernel, in nanoseconds.
_KERNEL = knob("fusion_cost.kernel", 200.0, 0.0, 1e9)


def widths_of(kind: PrimitiveType) -> float:
    """The width of an element in units of 32 bits, at least one."""
    return max(1.0, kind.byte_width / 4)


@dataclass(frozen=True, slots=True)
class CostModel:
    """The costs of operations on a machine, in nanoseconds.

    cycle: the time of a clock cycle. fused: the time of a fused multiply-add of F32 in one lane of a vector.
    """

    machine: Machine
    cycle: float
    fused: float

    @staticmethod
    def of(described: Machine) -> CostModel:
        """The cost model of a machine."""
        return CostModel(described, described.cycle, 1 / described.rate("fused_per_nanosecond_f32"))

    # -- what is computed --------------------------------------------------------------------------

    def operation(self, op: Op) -> OperationCost:
        """An element-wise operation on an element of 32 bits."""
        cycles = _OPERATIONS.get(op.opcode, _ELEMENTARY) if isinstance(op, Expensive) else _PLAIN
        return OperationCost(self.cycle * cycles.alone, self.fused * cycles.in_vector)

    @property
    def plain(self) -> float:
        """A cheap operation as one lane of a vector."""
        return self.fused * _PLAIN.in_vector

    @property
    def elementary(self) -> float:
        """An elementary function as one lane of a vector."""
        return self.fused * _ELEMENTARY.in_vector

    @property
    def multiplication(self) -> float:
        """A multiplication of a product of matrices, with its addition."""
        return self.fused * _MULTIPLICATION

    def cycles(self, count: float) -> float:
        """The time of so many cycles."""
        return self.cycle * count

    # -- what is moved -----------------------------------------------------------------------------

    def loaded_byte(self, array_bytes: float = 0.0) -> float:
        """The time of reading a byte in a loop over arrays of ``array_bytes`` bytes together."""
        return max(self.cycle * _LOADED_BYTE, 1 / self.machine.bandwidth(array_bytes))

    def moved_byte(self) -> float:
        """The time of copying a byte between arrays that are both in the first-level cache."""
        return max(self.cycle * _MOVED_BYTE, 2 / self.machine.bandwidth(0.0))

    def materialization(self, shape: Shape) -> float:
        """The materialization cost of an array: the time for one kernel to write it and another to read it."""
        size = shape.byte_size
        byte = self.cycle * _COPIED_BYTE
        if size > _CACHE_BYTES.value:
            byte = max(byte, _TRANSFERS / self.machine.rate("read_bytes_per_nanosecond_memory"))
        return _KERNEL.value + size * byte


# A cache of one element: the model of the last machine.
_last: list[CostModel] = []


def cost_model() -> CostModel:
    """The cost model of the machine for which code is generated."""
    described = machine.current()
    if not _last or _last[0].machine is not described:
        _last[:] = [CostModel.of(described)]
    return _last[0]
