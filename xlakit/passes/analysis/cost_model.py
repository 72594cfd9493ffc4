"""What work takes, in nanoseconds: for choosing between ways and for cutting work into tasks, not for promises.

Fusion asks what computing an element again takes, loop nests what one of their iterations takes, kernels what their
tasks take. All numbers stand here. They are those of the processors that the project is measured on, of which only
ratios matter: a machine on which everything takes twice as long makes the same choices. What depends on the machine
beyond that (rates of products) is measured, see :mod:`xlakit.cpu.machine`; caches are :mod:`xlakit.hardware`'s.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from xlakit import hardware
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.ir.operation import Op
from xlakit.ir.traits import Expensive
from xlakit.options import knob


class OperationCost(NamedTuple):
    """An operation on one element of 32 bits: by itself in a loop, and as one lane of a vector."""

    alone: float
    in_vector: float


_OPERATIONS: Final = {
    "power": OperationCost(4.0, 2.0),
    "divide": OperationCost(0.6, 0.25),
    "remainder": OperationCost(2.0, 1.0),
    "sqrt": OperationCost(0.7, 0.3),
    "rsqrt": OperationCost(0.9, 0.4),
    "cbrt": OperationCost(3.0, 2.0),
    "atan2": OperationCost(3.0, 2.0),
}
# Other expensive operations, and those that are not.
_ELEMENTARY: Final = OperationCost(1.0, 0.7)
PLAIN: Final = OperationCost(0.12, 0.05)


def operation_cost(op: Op) -> OperationCost:
    """What an element-wise operation takes for an element of 32 bits."""
    return _OPERATIONS.get(op.opcode, _ELEMENTARY) if isinstance(op, Expensive) else PLAIN


def widths_of(kind: PrimitiveType) -> float:
    """How many times 32 bits an element has, at least one."""
    return max(1.0, kind.byte_width / 4)


# -- loops -----------------------------------------------------------------------------------------

LOADED_BYTE: Final = 0.05
# A quotient of indices.
QUOTIENT: Final = 1.0
# An iteration beside what it computes: of a loop, and of a fold inside of one.
ITERATION: Final = 0.05
FOLD_ITERATION: Final = 0.3

# -- arrays ----------------------------------------------------------------------------------------

# A byte that is moved from one array to another.
MOVED_BYTE: Final = 0.1
# Writing and reading a byte where the array stays in the cache, and where it does not.
_NEAR_BYTE: Final = 0.06
_FAR_BYTE: Final = 0.3
_CACHE_BYTES = knob("fusion_cost.cache_bytes", lambda: hardware.current().l2, 0)
# A kernel of its own.
_KERNEL = knob("fusion_cost.kernel", 200.0, 0.0, 1e9)


def materialization_cost(shape: Shape) -> float:
    """An array that is written by a kernel and read by another one."""
    return _KERNEL.value + shape.byte_size * (_NEAR_BYTE if shape.byte_size <= _CACHE_BYTES.value else _FAR_BYTE)


# -- kernels ---------------------------------------------------------------------------------------

# A multiplication, with its addition, in a product of matrices.
MULTIPLICATION: Final = 0.05
# An update that is scattered, beside its elements; each of these; and each that is combined from parts.
SCATTERED_UPDATE: Final = 1.5
SCATTERED_ELEMENT: Final = 0.15
COMBINED_ELEMENT: Final = 0.1
# A place of a window of select-and-scatter.
SELECTED_PLACE: Final = 1.0
# An element of a prefix sum.
PREFIX_ELEMENT: Final = 0.5
# A function written in C: a guess, as it is not known.
C_CALL: Final = 20_000.0
