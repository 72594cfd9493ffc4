"""LLVM IR of each element-wise operation on one element, or on the lanes of a vector.

A scalar of a real type is one Value, of a complex type a pair of Values. PRED is an I1, an integer has its own width
(at least a byte), and floats of at most 16 bits are computed as F32 and rounded after every operation.
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
