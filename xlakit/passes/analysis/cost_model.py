"""What work takes on a machine, in nanoseconds on one core: for choosing between ways and for cutting work into tasks.

Fusion asks what computing an element again takes, loop nests what one of their iterations takes, kernels what their
tasks take. A :class:`CostModel` answers for one machine. What is computed counts in cycles, or in the time of fused
products and sums where it is a lane of a vector; what is moved in bytes, at the bandwidth of the cache that the arrays
fit into, but no faster than a core issues loads. The numbers of cycles are properties of the operations and of the
kernels, all of which stand here or in the kernel's own formula; rates are the machine's (:mod:`xlakit.machine`).
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
    """An operation on one element of 32 bits.

    alone: by itself in a loop. in_vector: as one lane of a vector.
    """

    alone: float
    in_vector: float


# In cycles, and in fused products and sums of F32.
_OPERATIONS: Final = {
    "power": OperationCost(16.0, 128.0),
    "divide": OperationCost(2.4, 16.0),
    "remainder": OperationCost(8.0, 64.0),
    "sqrt": OperationCost(2.8, 19.2),
    "rsqrt": OperationCost(3.6, 25.6),
    "cbrt": OperationCost(12.0, 128.0),
    "atan2": OperationCost(12.0, 128.0),
}
# Other expensive operations, and those that are not.
_ELEMENTARY: Final = OperationCost(4.0, 44.8)
_PLAIN: Final = OperationCost(0.48, 3.2)
# Cycles in which a core has issued the load of a byte, or its load and store: of elements, not of whole vectors.
_LOADED_BYTE: Final = 0.2
_COPIED_BYTE: Final = 0.24
_MOVED_BYTE: Final = 0.4
# What an array costs that does not stay in the cache: it is read where it is written, written back, and read again.
_TRANSFERS: Final = 3.0
# Fused products and sums that a multiplication of a product takes as long as, with packing and the ends of loops.
_MULTIPLICATION: Final = 3.2
# A function written in C: a guess, as it is not known.
C_CALL: Final = 20_000.0

_CACHE_BYTES = knob("fusion_cost.cache_bytes", lambda: machine.current().l2, 0)
# A kernel of its own, in nanoseconds.
_KERNEL = knob("fusion_cost.kernel", 200.0, 0.0, 1e9)


def widths_of(kind: PrimitiveType) -> float:
    """How many times 32 bits an element has, at least one."""
    return max(1.0, kind.byte_width / 4)


@dataclass(frozen=True, slots=True)
class CostModel:
    """The costs of operations on a machine, in nanoseconds.

    cycle: of one cycle. fused: of a product and sum of F32 as one lane of a vector.
    """

    machine: Machine
    cycle: float
    fused: float

    @staticmethod
    def of(described: Machine) -> CostModel:
        """The costs on a machine."""
        return CostModel(described, described.cycle, 1 / described.rate("fused_per_nanosecond_f32"))

    # -- what is computed --------------------------------------------------------------------------

    def operation(self, op: Op) -> OperationCost:
        """An element-wise operation on an element of 32 bits."""
        found = _OPERATIONS.get(op.opcode, _ELEMENTARY) if isinstance(op, Expensive) else _PLAIN
        return OperationCost(self.cycle * found.alone, self.fused * found.in_vector)

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
        """So many cycles."""
        return self.cycle * count

    # -- what is moved -----------------------------------------------------------------------------

    def loaded_byte(self, array_bytes: float = 0.0) -> float:
        """A byte that is read by a loop over arrays of so many bytes."""
        return max(self.cycle * _LOADED_BYTE, 1 / self.machine.bandwidth(array_bytes))

    def moved_byte(self) -> float:
        """A byte that is moved from one array to another, both in the first-level cache."""
        return max(self.cycle * _MOVED_BYTE, 2 / self.machine.bandwidth(0.0))

    def materialization(self, shape: Shape) -> float:
        """An array that is written by a kernel and read by another one."""
        size = shape.byte_size
        byte = self.cycle * _COPIED_BYTE
        if size > _CACHE_BYTES.value:
            byte = max(byte, _TRANSFERS / self.machine.rate("read_bytes_per_nanosecond_memory"))
        return _KERNEL.value + size * byte


# The model that was asked for last.
_last: list[CostModel] = []


def cost_model() -> CostModel:
    """The costs on the machine that code is made for."""
    described = machine.current()
    if not _last or _last[0].machine is not described:
        _last[:] = [CostModel.of(described)]
    return _last[0]
