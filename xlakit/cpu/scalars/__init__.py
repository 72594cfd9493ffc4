"""What each element-wise operation does to one element, in LLVM IR.

A scalar of a real type is one Value, of a complex type a pair of them. PRED is an I1, an integer has its own width (at
least a byte), floats of 16 bits and fewer are computed as F32 and rounded after every operation.
"""

from xlakit.cpu.scalars.apply import apply, is_scalar_operation
from xlakit.cpu.scalars.memory import Scalar, constant, load, memory_type, register_type, select, store

__all__ = [
    "Scalar",
    "apply",
    "constant",
    "is_scalar_operation",
    "load",
    "memory_type",
    "register_type",
    "select",
    "store",
]
