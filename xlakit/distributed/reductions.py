"""The reductions that processes may combine in an order of their own.

By default these are the reductions whose result does not depend on the order, to the bit. Sums of floating point
numbers do; see docs/distributed.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Computation
from xlakit.ir.operation import Array
from xlakit.ops.elementwise.binary import Add, Multiply
from xlakit.ops.reduction import reducer_op

_INTEGER: dict[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
# The functions for booleans, as bytes of 0 and 1.
_BOOLEAN: dict[str, np.ufunc] = {
    **_INTEGER,
    "add": np.bitwise_or,
    "multiply": np.bitwise_and,
}
# The types whose sums and products depend on the order; minimum and maximum do, too, if there are NaNs.
_INEXACT_TYPES = (PrimitiveType.F32, PrimitiveType.F64, PrimitiveType.C64, PrimitiveType.C128)


def reordered(computation: Computation, array: Array, *, any_order: bool) -> tuple[np.ufunc, np.dtype] | None:
    """The function that may combine arrays in any order, and the dtype to view them as; None if there is none.

    any_order: whether the order may change the last digits of sums and products of floating point numbers.
    """
    op = reducer_op(computation)
    kind = PrimitiveType.from_dtype(array.dtype)
    if op is None or computation.root.shape.element_type is not kind:
        return None
    if kind is PrimitiveType.PRED:
        return _BOOLEAN[op.opcode], np.dtype(np.uint8)
    if kind.is_integral and kind.bit_width >= 8:
        return _INTEGER[op.opcode], array.dtype
    if any_order and kind in _INEXACT_TYPES and isinstance(op, (Add, Multiply)):
        return _INTEGER[op.opcode], array.dtype
    return None


def combine(function: np.ufunc, arrays: Sequence[Array]) -> Array:
    """Combine arrays, one after the other, in new memory."""
    with np.errstate(all="ignore"):
        total = np.array(arrays[0], order="C")
        for array in arrays[1:]:
            function(total, array, out=total)
    return total
