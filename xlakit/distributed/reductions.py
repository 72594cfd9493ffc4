"""The reductions that MPI does itself, and its operations for them.

By default these are the reductions whose result does not depend on the order, to the bit. Sums of floating point
numbers do; see docs/distributed.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Computation
from xlakit.ir.operation import Array
from xlakit.ops.elementwise.binary import Add, Multiply
from xlakit.ops.reduction import reducer_op

# For integers, by opcode: MPI's operation, and whether it depends on the sign.
_INTEGER: dict[str, tuple[str, bool]] = {
    "add": ("SUM", False),
    "multiply": ("PROD", False),
    "maximum": ("MAX", True),
    "minimum": ("MIN", True),
    "and": ("BAND", False),
    "or": ("BOR", False),
    "xor": ("BXOR", False),
}
# Of booleans, which are bytes of 0 and 1.
_BOOLEAN = {
    "add": "BOR",
    "maximum": "BOR",
    "or": "BOR",
    "multiply": "BAND",
    "minimum": "BAND",
    "and": "BAND",
    "xor": "BXOR",
}
# For floating point numbers, in an order of MPI's choice. Not minimum and maximum: MPI does not define them for NaN.
_INEXACT_TYPES = (PrimitiveType.F32, PrimitiveType.F64, PrimitiveType.C64, PrimitiveType.C128)
_UFUNCS: dict[str, np.ufunc] = {
    "SUM": np.add,
    "PROD": np.multiply,
    "MAX": np.maximum,
    "MIN": np.minimum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}


def mpi_operation(computation: Computation, array: Array, *, any_order: bool) -> tuple[str, str] | None:
    """The name of MPI's operation, and of the dtype in which it sees an array; None where it has none.

    any_order: whether floating point numbers may be combined in another order than that of the group.
    """
    op = reducer_op(computation)
    kind = PrimitiveType.from_dtype(array.dtype)
    if op is None or computation.root.shape.element_type is not kind:
        return None
    if kind is PrimitiveType.PRED:
        return _BOOLEAN[op.opcode], "u1"
    if kind.is_integral and kind.bit_width >= 8:
        name, is_signed = _INTEGER[op.opcode]
        # Unsigned sums wrap around in C; signed ones are undefined, and the same bits.
        return name, f"{'i' if is_signed and kind.is_signed else 'u'}{kind.byte_width}"
    if any_order and kind in _INEXACT_TYPES and isinstance(op, (Add, Multiply)):
        return _INTEGER[op.opcode][0], array.dtype.str[1:]
    return None


def combine(name: str, arrays: Sequence[Array]) -> Array:
    """Combine arrays in this process, one after the other."""
    with np.errstate(all="ignore"):
        total = np.array(arrays[0], order="C")
        for array in arrays[1:]:
            _UFUNCS[name](total, array, out=total)
    return total


def datatype(api: Any, dtype: str) -> Any:
    """MPI's name of a dtype."""
    names = {
        "u1": api.UINT8_T, "u2": api.UINT16_T, "u4": api.UINT32_T, "u8": api.UINT64_T,
        "i1": api.INT8_T, "i2": api.INT16_T, "i4": api.INT32_T, "i8": api.INT64_T,
        "f4": api.FLOAT, "f8": api.DOUBLE, "c8": api.C_FLOAT_COMPLEX, "c16": api.C_DOUBLE_COMPLEX,
    }  # fmt: skip
    return names[dtype]
