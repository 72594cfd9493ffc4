"""Keys of floats: integers in the same order, whose maximum or minimum takes one instruction.

x86 has no instruction for a maximum that is NaN if an operand is NaN, and +0 rather than -0: that takes six
instructions, most of which wait for the one before. So a maximum of many floats is computed of their keys, and the
result is turned back into a float.

The bits of a negative float, except for the sign, are inverted: then floats have the order of their bits as signed
integers, with -0 before +0, and NaNs of either sign at the two ends. All keys are offset, with wraparound, so that -inf
(for a minimum, +inf) is at its end of the integers, and the NaNs beyond it are at the other end: any NaN wins.
"""

from __future__ import annotations

import math

import numpy as np

from xlakit.cpu.llvm import Function, Value
from xlakit.cpu.loops.ir.bits import bits_of
from xlakit.cpu.loops.ir.index import Node
from xlakit.cpu.loops.ir.nodes import Apply, Constant, Load
from xlakit.cpu.loops.ir.tracer import as_kind
from xlakit.cpu.scalars import Scalar
from xlakit.cpu.scalars.convert import from_bits
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.ir.operation import OPERATIONS, Array
from xlakit.ops.elementwise.binary import Maximum, Minimum
from xlakit.ops.shared.numerics import to_double
from xlakit.target import processor

# The integer type of keys, and the x86 feature that has an instruction for their maximum.
_INTEGERS = {
    PrimitiveType.BF16: (PrimitiveType.S16, "sse2"),
    PrimitiveType.F16: (PrimitiveType.S16, "sse2"),
    PrimitiveType.F32: (PrimitiveType.S32, "sse4.1"),
    PrimitiveType.F64: (PrimitiveType.S64, "avx512f"),
}


@dataclass(frozen=True, slots=True)
class Keys:
    """The conversion of floats of a type to keys.

    offset: the number that is added to all keys.
    """

    floats: PrimitiveType
    integers: PrimitiveType
    offset: int

    @property
    def _magnitude(self) -> int:
        return (1 << (self.integers.bit_width - 1)) - 1

    def of(self, node: Node) -> Node:
        """The key of a float."""
        if isinstance(node, Constant):
            number = np.full(1, to_double(node.value)).astype(self.floats.dtype)
            return Constant(self.integers, (_turned(number.view(self.integers.dtype)) + self._number(self.offset))[0])
        bits = bits_of(as_kind(node, self.floats), self.integers)
        signs = self._apply("shift-right-arithmetic", bits, self.integers.bit_width - 1)
        turned = Apply(self.integers, OPERATIONS["xor"](), [bits, self._apply("and", signs, self._magnitude)])
        return self._apply("add", turned, self.offset)

    def to_float(self, fn: Function, key: Value) -> Scalar:
        """The float of a key, in the type in which it is computed."""
        bits = key - self.offset
        signs = bits.integer("ashr", self.integers.bit_width - 1)
        return from_bits(fn, self.floats, bits ^ (signs & self._magnitude))

    def _apply(self, opcode: str, node: Node, value: int) -> Node:
        number = Constant(self.integers, self._number(value)[0])
        return Apply(self.integers, OPERATIONS[opcode](), [node, number])

    def _number(self, value: int) -> Array:
        return np.full(1, value, self.integers.dtype)


def keys_for(op: object, node: Node) -> Keys | None:
    """The keys for a maximum or minimum of a node; None if keys would be no faster."""
    kind = node.kind
    if kind in (PrimitiveType.BF16, PrimitiveType.F16) and not isinstance(node, Load):
        # A computed value is in F32, and would have to be rounded to have its bits.
        kind = PrimitiveType.F32
    integers, feature = _INTEGERS.get(kind, (None, ""))
    if integers is None or not isinstance(op, (Maximum, Minimum)) or not processor().has(feature):
        return None
    half = 1 << (integers.bit_width - 1)
    worst, end = (-math.inf, -half) if isinstance(op, Maximum) else (math.inf, half - 1)
    return Keys(kind, integers, end - int(_turned(np.full(1, worst, kind.dtype).view(integers.dtype))[0]))


def _turned(bits: Array) -> Array:
    """The bits of floats, turned into integers in the order of the floats."""
    return bits ^ ((bits >> (8 * bits.itemsize - 1)) & np.iinfo(bits.dtype).max)
