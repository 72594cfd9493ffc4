"""What computing something again costs, and what keeping it in memory does: in nanoseconds, for choosing."""

from __future__ import annotations

from xlakit.data.shape import Shape
from xlakit.ir.instruction import Instruction
from xlakit.ir.traits import Expensive
from xlakit.ops.dot import Dot
from xlakit.ops.reduction import Reduce
from xlakit.ops.windows import ReduceWindow
from xlakit.options import knob
from xlakit.passes.fusion.cluster import ELEMENTWISE

# For each element of 32 bits, where several are computed at once.
_PLAIN = 0.05
_ELEMENTARY = 0.7
_OTHER = {"power": 2.0, "divide": 0.25, "remainder": 1.0, "sqrt": 0.3, "rsqrt": 0.4, "atan2": 2.0, "cbrt": 2.0}
# Writing and reading a byte where the array stays in the cache, and where it does not.
_NEAR, _FAR = 0.06, 0.3
_CACHE_BYTES = knob("fusion_cost.cache_bytes", 1 << 19, 0)
# A kernel of its own.
_KERNEL = knob("fusion_cost.kernel", 200.0, 0.0, 1e9)


def work_of(instruction: Instruction) -> float:
    """One element of an instruction; nothing where it only says where elements lie."""
    op = instruction.op
    if not isinstance(op, ELEMENTWISE):
        # A window or a small product; what moves elements costs nothing.
        return 4 * _PLAIN if isinstance(op, (Reduce, ReduceWindow, Dot)) else 0.0
    unit = _OTHER.get(op.opcode, _ELEMENTARY) if isinstance(op, Expensive) else _PLAIN
    return unit * max(1, instruction.shape.element_type.bit_width // 32)


def price_of_keeping(shape: Shape) -> float:
    """An array that is written by a kernel and read by another one."""
    return _KERNEL.value + shape.byte_size * (_NEAR if shape.byte_size <= _CACHE_BYTES.value else _FAR)
